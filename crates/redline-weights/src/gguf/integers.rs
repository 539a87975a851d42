//! The integers, scales and minima of blocks, as they are stored, and the values that they stand for.

use crate::half::f16_to_f32;

/// The integers and scales of some whole blocks, to be filled by [`super::GgufType::split`]. What a type lacks is empty.
#[derive(Debug)]
pub struct GgufParts<'a> {
    /// The integers that scales multiply, or indices into the type's table; one per value.
    pub codes: &'a mut [i8],
    /// One per block: the bits of an f16, for `MXFP4` an exponent.
    pub scales: &'a mut [u16],
    /// One per block: the bits of the f16 that is added to values, or the factor of integer offsets that are subtracted.
    pub minima: &'a mut [u16],
    /// One per sub-group.
    pub sub_scales: &'a mut [i8],
    /// One per sub-group.
    pub sub_minima: &'a mut [u8],
}

/// The numbers of one block, as in [`GgufParts`].
pub(super) struct Numbers<'a> {
    pub(super) codes: &'a mut [i8],
    pub(super) scale: &'a mut u16,
    pub(super) minimum: Option<&'a mut u16>,
    pub(super) sub_scales: &'a mut [i8],
    pub(super) sub_minima: &'a mut [u8],
}

/// How a type stores integers.
#[derive(Clone, Copy)]
pub(super) struct Integers {
    /// Reads one block.
    pub(super) split: fn(&[u8], Numbers<'_>),
    /// Sub-groups of a block; 0 without scales of their own.
    pub(super) sub_groups: usize,
    /// Whether values have minima.
    pub(super) minima: bool,
    /// The integers that codes are indices of.
    pub(super) table: Option<&'static [i8; 16]>,
    /// The value of a scale.
    pub(super) scale: fn(u16) -> f32,
}

impl Integers {
    /// Integers in blocks with one f16 scale.
    pub(super) const fn new(split: fn(&[u8], Numbers<'_>)) -> Self {
        Self { split, sub_groups: 0, minima: false, table: None, scale: f16_to_f32 }
    }

    /// Number of offsets of sub-groups.
    fn sub_minima(&self) -> usize {
        if self.minima { self.sub_groups } else { 0 }
    }

    /// Whether the parts are those of `blocks` blocks of `values` values.
    pub(super) fn fits(&self, parts: &GgufParts<'_>, blocks: usize, values: usize) -> bool {
        parts.codes.len() == blocks * values
            && parts.scales.len() == blocks
            && parts.minima.len() == if self.minima { blocks } else { 0 }
            && parts.sub_scales.len() == blocks * self.sub_groups
            && parts.sub_minima.len() == blocks * self.sub_minima()
    }

    /// Reads whole blocks of `bytes` bytes and `values` values.
    pub(super) fn split(&self, raw: &[u8], (bytes, values): (usize, usize), parts: GgufParts<'_>) {
        let GgufParts { codes, scales, minima, sub_scales, sub_minima } = parts;
        let (scales_of_block, minima_of_block) = (self.sub_groups, self.sub_minima());
        let blocks = raw.chunks_exact(bytes).zip(codes.chunks_exact_mut(values)).zip(scales);
        for (i, ((raw, codes), scale)) in blocks.enumerate() {
            (self.split)(
                raw,
                Numbers {
                    codes,
                    scale,
                    minimum: minima.get_mut(i),
                    sub_scales: &mut sub_scales[i * scales_of_block..][..scales_of_block],
                    sub_minima: &mut sub_minima[i * minima_of_block..][..minima_of_block],
                },
            );
        }
    }

    /// The values of whole blocks.
    pub(super) fn decode(&self, raw: &[u8], bytes: usize, out: &mut [f32], values: usize) {
        let mut codes = [0; 256];
        let (mut scale, mut minimum, mut sub_scales, mut sub_minima) = (0, 0, [0; 16], [0; 16]);
        for (raw, out) in raw.chunks_exact(bytes).zip(out.chunks_exact_mut(values)) {
            let codes = &mut codes[..values];
            (self.split)(
                raw,
                Numbers {
                    codes: &mut *codes,
                    scale: &mut scale,
                    minimum: Some(&mut minimum),
                    sub_scales: &mut sub_scales,
                    sub_minima: &mut sub_minima,
                },
            );
            if let Some(table) = self.table {
                for code in &mut *codes {
                    *code = table[usize::from(code.cast_unsigned() & 15)];
                }
            }
            let (d, m) = ((self.scale)(scale), f16_to_f32(minimum));
            let sub = values / self.sub_groups.max(1);
            for (group, (out, codes)) in out.chunks_exact_mut(sub).zip(codes.chunks_exact(sub)).enumerate() {
                let (scale, offset) = if self.sub_groups > 0 {
                    (d * f32::from(sub_scales[group]), m * f32::from(sub_minima[group]))
                } else {
                    (d, -m)
                };
                for (value, &code) in out.iter_mut().zip(codes) {
                    let product = scale * f32::from(code);
                    *value = if self.minima { product - offset } else { product };
                }
            }
        }
    }
}

/// The bits of the 16-bit float at byte `at` of a block.
pub(super) fn half(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}
