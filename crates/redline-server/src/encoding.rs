//! Decodes compressed bodies of requests.

use std::io::{self, Read};

use axum::http::{HeaderMap, StatusCode, header};
use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

use crate::fault::Fault;

/// The largest window of zstd that every decoder of HTTP must have (RFC 9659).
const WINDOW: usize = 8 << 20;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Gzip,
    Zstd,
}

/// Why a body cannot be decoded.
#[derive(Debug)]
pub(crate) enum DecodeError {
    /// The decoded body has more bytes than it may have.
    TooLarge,
    /// The body is damaged.
    Damaged(io::Error),
}

impl Encoding {
    /// The encoding that the headers name. `None`: the body is not compressed.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, Fault> {
        let mut named = headers.get_all(header::CONTENT_ENCODING).iter();
        let Some(value) = named.next() else { return Ok(None) };
        let encoding = match value.to_str().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "" | "identity" => None,
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            _ => return Err(unsupported()),
        };
        if named.next().is_some() { Err(unsupported()) } else { Ok(encoding) }
    }

    /// The name in HTTP.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Decodes a body of at most `most` bytes. It takes no more memory than these, and a window of 8 MiB.
    pub(crate) fn decode(self, encoded: &[u8], most: usize) -> Result<Vec<u8>, DecodeError> {
        let mut decoded = Vec::new();
        match self {
            Self::Gzip => read(MultiGzDecoder::new(encoded), &mut decoded, most)?,
            Self::Zstd => {
                let mut rest = encoded;
                while !rest.is_empty() {
                    decode_frame(&mut rest, &mut decoded, most)?;
                }
            }
        }
        Ok(decoded)
    }
}

/// Decodes a frame of zstd.
fn decode_frame(rest: &mut &[u8], decoded: &mut Vec<u8>, most: usize) -> Result<(), DecodeError> {
    let damaged = |fact: String| DecodeError::Damaged(io::Error::new(io::ErrorKind::InvalidData, fact));
    // A frame that is written at once has a window of its own size.
    let window = WINDOW.max(most) as u64;
    let mut frame = StreamingDecoder::new_with_max_window_size(rest, window)
        .map_err(|error| damaged(error.to_string()))?;
    read(&mut frame, decoded, most)?;
    let decoder = frame.into_frame_decoder();
    match (decoder.get_checksum_from_data(), decoder.get_calculated_checksum()) {
        (Some(stored), Some(computed)) if stored != computed => {
            Err(damaged(format!("the checksum is {computed:08x}, and {stored:08x} in the frame")))
        }
        _ => Ok(()),
    }
}

/// Reads the rest of a body, of which `decoded` is the beginning.
fn read(from: impl Read, decoded: &mut Vec<u8>, most: usize) -> Result<(), DecodeError> {
    let left = most - decoded.len();
    let read = from.take(left as u64 + 1).read_to_end(decoded).map_err(DecodeError::Damaged)?;
    if read > left { Err(DecodeError::TooLarge) } else { Ok(()) }
}

fn unsupported() -> Fault {
    let message = "the body has a `Content-Encoding` that is not supported; send gzip, zstd, or none";
    Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    const TEXT: &[u8] = br#"{"query":"a","items":["b"],"labels":[" a"]}"#;
    /// [`TEXT`], as `zstd --check` 1.5.4 writes it.
    const FRAME: [u8; 56] = [
        0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x2b, 0x59, 0x01, 0x00, 0x7b, 0x22, 0x71, 0x75, 0x65, 0x72, 0x79, 0x22,
        0x3a, 0x22, 0x61, 0x22, 0x2c, 0x22, 0x69, 0x74, 0x65, 0x6d, 0x73, 0x22, 0x3a, 0x5b, 0x22, 0x62, 0x22,
        0x5d, 0x2c, 0x22, 0x6c, 0x61, 0x62, 0x65, 0x6c, 0x73, 0x22, 0x3a, 0x5b, 0x22, 0x20, 0x61, 0x22, 0x5d,
        0x7d, 0xa2, 0xc5, 0xf9, 0x50,
    ];

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    #[test]
    fn what_was_compressed_is_decoded() {
        assert_eq!(Encoding::Zstd.decode(&FRAME, TEXT.len()).unwrap(), TEXT);
        let long = TEXT.repeat(5000);
        for (encoding, encoded) in [(Encoding::Gzip, gzip(&long)), (Encoding::Zstd, zstd(&long))] {
            assert!(encoded.len() < long.len() / 10);
            assert_eq!(encoding.decode(&encoded, long.len()).unwrap(), long);
            let twice = [&encoded[..], &encoded].concat();
            assert_eq!(encoding.decode(&twice, 2 * long.len()).unwrap(), long.repeat(2));
        }
    }

    #[test]
    fn a_body_has_no_more_bytes_than_it_may_have() {
        let long = vec![b' '; 1 << 20];
        for (encoding, encoded) in [(Encoding::Gzip, gzip(&long)), (Encoding::Zstd, zstd(&long))] {
            for most in [0, 1, long.len() - 1] {
                let error = encoding.decode(&encoded, most).unwrap_err();
                assert!(matches!(error, DecodeError::TooLarge), "{encoding:?} {most}: {error:?}");
            }
            let twice = [&encoded[..], &encoded].concat();
            let error = encoding.decode(&twice, 2 * long.len() - 1).unwrap_err();
            assert!(matches!(error, DecodeError::TooLarge), "{error:?}");
        }
    }

    #[test]
    fn a_damaged_body_is_an_error() {
        for (encoding, encoded) in [(Encoding::Gzip, gzip(TEXT)), (Encoding::Zstd, FRAME.to_vec())] {
            for length in 1..encoded.len() {
                let cut = encoding.decode(&encoded[..length], TEXT.len());
                assert!(matches!(cut, Err(DecodeError::Damaged(_))), "{encoding:?} {length}: {cut:?}");
            }
            for index in 0..encoded.len() {
                let mut flipped = encoded.clone();
                flipped[index] ^= 0x10;
                // What the header of gzip says beside the data is under no checksum.
                assert!(
                    !matches!(encoding.decode(&flipped, TEXT.len()), Ok(text) if text != TEXT),
                    "{encoding:?} {index}"
                );
            }
            assert!(encoding.decode(&[&encoded[..], b"more"].concat(), 100).is_err());
        }
    }

    #[test]
    fn a_window_beyond_the_limit_is_refused() {
        // A frame without a size, whose window has 2^31 bytes: nothing of it is reserved.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00];
        assert!(matches!(Encoding::Zstd.decode(&frame, 1000), Err(DecodeError::Damaged(_))));
        let within = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3, 0x01, 0x00, 0x00];
        assert_eq!(Encoding::Zstd.decode(&within, 1000).unwrap(), b"");
    }

    #[test]
    fn encodings_are_named_in_the_header() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_ENCODING, value.parse().unwrap());
            }
            Encoding::of(&headers).map_err(|fault| fault.status.as_u16())
        };
        assert_eq!((of(&[]), of(&["identity"])), (Ok(None), Ok(None)));
        assert_eq!((of(&["GZIP"]), of(&["x-gzip"])), (Ok(Some(Encoding::Gzip)), Ok(Some(Encoding::Gzip))));
        assert_eq!(of(&[" zstd"]), Ok(Some(Encoding::Zstd)));
        for other in [&["br"][..], &["deflate"], &["gzip, zstd"], &["gzip", "gzip"]] {
            assert_eq!(of(other), Err(415), "{other:?}");
        }
    }
}
