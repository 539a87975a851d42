//! Random four-bit floats in blocks with scales, as checkpoints of gpt-oss hold them.

use crate::random::mix;

/// Values of a block.
const VALUES: usize = 32;
/// The smaller of the two scales that blocks have: their values have about the spread of other random weights.
const SCALE: u8 = 119;
/// Magnitudes of four-bit floats, without the sign, which is the upper bit.
const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// A random matrix: what its bytes are derived from.
#[derive(Clone, Copy)]
pub(super) struct RandomBlocks {
    pub(super) state: u64,
}

impl RandomBlocks {
    /// Byte `index` of the blocks: two values.
    pub(super) fn pair(self, index: usize) -> u8 {
        (mix(self.state.wrapping_add(2 * index as u64)) >> 56) as u8
    }

    /// Scale `index`.
    pub(super) fn scale(self, index: usize) -> u8 {
        SCALE + (mix(self.state.wrapping_add(2 * index as u64 + 1)) >> 63) as u8
    }

    /// The value at this place.
    pub(super) fn value(self, index: usize) -> f32 {
        let code = self.pair(index / 2) >> (index % 2 * 4) & 15;
        let magnitude =
            MAGNITUDES[usize::from(code & 7)] * f32::from_bits(u32::from(self.scale(index / VALUES)) << 23);
        if code & 8 == 0 { magnitude } else { -magnitude }
    }
}
