//! Zstandard for `parquet` and `arrow-ipc`, in Rust: what these two call of the crate `zstd`, whose code is C, in terms of `ruzstd`.
//!
//! Buffers are of the size that the caller reserved: data that would be larger are an error, as with the original.

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;

/// The levels that may be named. All of them compress in the same way.
pub fn compression_level_range() -> RangeInclusive<i32> {
    1..=22
}

/// Compression and decompression of whole buffers.
pub mod bulk {
    use std::io::{self, Cursor, ErrorKind, Read as _};
    use std::marker::PhantomData;

    use ruzstd::decoding::StreamingDecoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    /// Compresses buffers.
    #[derive(Debug, Default)]
    pub struct Compressor<'a>(PhantomData<&'a ()>);

    impl Compressor<'_> {
        /// A compressor of any level.
        pub fn new(_level: i32) -> io::Result<Self> {
            Ok(Self::default())
        }

        /// Writes the compressed `source` at the position of `to`. Returns the number of bytes.
        pub fn compress_to_buffer(
            &mut self,
            source: &[u8],
            to: &mut Cursor<&mut Vec<u8>>,
        ) -> io::Result<usize> {
            put(&compress_to_vec(source, CompressionLevel::Fastest), to)
        }
    }

    /// Decompresses buffers.
    #[derive(Debug, Default)]
    pub struct Decompressor<'a>(PhantomData<&'a ()>);

    impl Decompressor<'_> {
        /// A decompressor.
        pub fn new() -> io::Result<Self> {
            Ok(Self::default())
        }

        /// Writes what `source` holds at the position of `to`, within its capacity. Returns the number of bytes.
        pub fn decompress_to_buffer(
            &mut self,
            source: &[u8],
            to: &mut Cursor<&mut Vec<u8>>,
        ) -> io::Result<usize> {
            let begin = usize::try_from(to.position()).map_err(io::Error::other)?;
            let room = to.get_ref().capacity().saturating_sub(begin);
            put(&self.decompress(source, room)?, to)
        }

        /// What `source` holds, of at most `capacity` bytes.
        pub fn decompress(&mut self, mut source: &[u8], capacity: usize) -> io::Result<Vec<u8>> {
            let mut all = Vec::new();
            // A buffer may hold several frames.
            while !source.is_empty() {
                let mut frame = StreamingDecoder::new(&mut source).map_err(io::Error::other)?;
                let room = (capacity - all.len()) as u64;
                frame.by_ref().take(room + 1).read_to_end(&mut all)?;
                if let (Some(told), Some(found)) =
                    (frame.decoder.get_checksum_from_data(), frame.decoder.get_calculated_checksum())
                    && told != found
                {
                    let message =
                        format!("the data have the checksum {found:08x}, and should have {told:08x}");
                    return Err(io::Error::new(ErrorKind::InvalidData, message));
                }
                if all.len() > capacity {
                    let message = format!("the data are more than the {capacity} bytes that they should be");
                    return Err(io::Error::new(ErrorKind::InvalidData, message));
                }
            }
            Ok(all)
        }
    }

    /// Puts bytes at the position of `to`, and moves it.
    fn put(bytes: &[u8], to: &mut Cursor<&mut Vec<u8>>) -> io::Result<usize> {
        let begin = usize::try_from(to.position()).map_err(io::Error::other)?;
        let buffer = to.get_mut();
        buffer.truncate(begin);
        buffer.extend_from_slice(bytes);
        to.set_position((begin + bytes.len()) as u64);
        Ok(bytes.len())
    }
}

/// Facts about frames.
pub mod zstd_safe {
    use ruzstd::decoding::FrameDecoder;

    /// An error about a frame.
    #[derive(Debug)]
    pub struct ContentSizeError;

    /// The number of bytes that a frame says it holds, if it says so.
    ///
    /// # Errors
    /// The frame's header is damaged.
    pub fn get_frame_content_size(source: &[u8]) -> Result<Option<u64>, ContentSizeError> {
        let mut decoder = FrameDecoder::new();
        decoder.init(source).map_err(|_| ContentSizeError)?;
        Ok(Some(decoder.content_size()).filter(|size| *size > 0))
    }

    /// The most bytes that a compressed buffer takes: blocks that do not become smaller are stored, each with a header.
    pub fn compress_bound(bytes: usize) -> usize {
        bytes + (bytes >> 8) + 128
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::bulk::{Compressor, Decompressor};
    use super::zstd_safe::{compress_bound, get_frame_content_size};

    /// `abcdefghij` a hundred times, compressed by the reference implementation, version 1.5.7, at level 19.
    const REFERENCE: &[u8] = b"\x28\xb5\x2f\xfd\x60\xe8\x02\x8d\0\0\x50abcdefghij\x01\0\xdb\x5b\x15\x24";

    #[test]
    fn buffers_of_the_reference_implementation_are_read() {
        let mut decompressor = Decompressor::new().unwrap();
        let expected = b"abcdefghij".repeat(100);
        assert_eq!(decompressor.decompress(REFERENCE, 1000).unwrap(), expected);
        assert_eq!(get_frame_content_size(REFERENCE).unwrap(), Some(1000));
        // Two frames in one buffer.
        let two = [REFERENCE, REFERENCE].concat();
        assert_eq!(decompressor.decompress(&two, 2000).unwrap(), expected.repeat(2));
        for short in [0, 999] {
            assert!(decompressor.decompress(REFERENCE, short).is_err(), "{short}");
        }
        for damaged in [&REFERENCE[..10], b"no frame", &[]] {
            let found = decompressor.decompress(damaged, 1000);
            assert!(found.is_err() || found.is_ok_and(|found| found.is_empty()), "{damaged:?}");
        }
    }

    #[test]
    fn what_is_compressed_is_read_back_behind_what_was_there() {
        for source in [Vec::new(), vec![7; 100_000], (0..100_000_u32).flat_map(u32::to_le_bytes).collect()] {
            let (mut packed, mut unpacked) = (b"before".to_vec(), Vec::with_capacity(source.len() + 3));
            packed.reserve(compress_bound(source.len()));
            let mut to = Cursor::new(&mut packed);
            to.set_position(6);
            let length = Compressor::new(3).unwrap().compress_to_buffer(&source, &mut to).unwrap();
            assert!(length <= compress_bound(source.len()), "{length}");
            assert_eq!((packed.len(), &packed[..6]), (6 + length, &b"before"[..]));
            unpacked.extend(b"and");
            let mut to = Cursor::new(&mut unpacked);
            to.set_position(3);
            let read = Decompressor::new().unwrap().decompress_to_buffer(&packed[6..], &mut to).unwrap();
            assert_eq!((read, &unpacked[3..]), (source.len(), &source[..]));
        }
    }
}
