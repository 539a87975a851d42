//! Checks the lengths that Arrow files and streams name before their reader reserves memory for them: a damaged one could ask for more than
//! there is, which would end the process.

use std::io::{self, Read, Seek, SeekFrom};

use arrow_ipc::{RecordBatch, root_as_footer, root_as_message};

/// How a file begins and ends; a stream has no such bytes.
pub(super) const MAGIC: &[u8; 6] = b"ARROW1";
/// What begins a message, before its length. Messages of old versions begin with the length.
const CONTINUATION: u32 = u32::MAX;
/// A byte that is compressed with LZ4 becomes at most so many, and one that is compressed with Zstandard could become more, but its reader
/// reserves nothing.
const RATIO: i64 = 256;
/// Bytes of the length before a compressed buffer.
const PREFIX: i64 = 8;

/// Reads the headers of all messages. The error says what is wrong.
pub(super) fn check(from: &mut (impl Read + Seek), is_file: bool) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    let size = from.seek(SeekFrom::End(0)).map_err(told)?;
    if is_file {
        check_footer(from, size)?;
    }
    // A file is a stream between its magic bytes and its footer.
    let mut place = if is_file { PREFIX as u64 } else { 0 };
    while let Some((length, begin)) = header(from, place, size).map_err(told)? {
        let metadata = part(from, begin, length).map_err(told)?;
        let message = root_as_message(&metadata).map_err(|error| error.to_string())?;
        let (body, bytes) = (begin + length, u64::try_from(message.bodyLength()).unwrap_or(u64::MAX));
        let end = body.checked_add(bytes).filter(|end| *end <= size);
        let end = end.ok_or_else(|| format!("a message of {bytes} bytes exceeds the file of {size}"))?;
        let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
        for batch in message.header_as_record_batch().into_iter().chain(dictionary) {
            check_batch(from, &batch, body, end)?;
        }
        place = end;
    }
    from.rewind().map_err(told)
}

/// The length and the place of the metadata of the message at `place`; `None` at the end.
fn header(from: &mut (impl Read + Seek), place: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    if place + 4 > size {
        return Ok(None);
    }
    let mut word = [0; 4];
    from.seek(SeekFrom::Start(place))?;
    from.read_exact(&mut word)?;
    let mut begin = place + 4;
    if u32::from_le_bytes(word) == CONTINUATION {
        from.read_exact(&mut word)?;
        begin += 4;
    }
    let length = u64::from(u32::from_le_bytes(word));
    // What is left of a file is its footer.
    Ok((length > 0 && begin + length <= size).then_some((length, begin)))
}

fn part(from: &mut (impl Read + Seek), place: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.seek(SeekFrom::Start(place))?;
    from.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The compressed buffers of a batch, whose body has these ends.
fn check_batch(
    from: &mut (impl Read + Seek),
    batch: &RecordBatch<'_>,
    body: u64,
    end: u64,
) -> Result<(), String> {
    let is_compressed = batch.compression().is_some();
    for buffer in batch.buffers().into_iter().flatten() {
        let (offset, length) = (buffer.offset(), buffer.length());
        let place = u64::try_from(offset).ok().and_then(|offset| body.checked_add(offset));
        let fits =
            place.zip(u64::try_from(length).ok()).and_then(|(place, length)| place.checked_add(length));
        let (Some(place), true) = (place, fits.is_some_and(|after| after <= end)) else {
            return Err(format!("a buffer of {length} bytes at {offset} exceeds its message"));
        };
        if !is_compressed || length < PREFIX {
            continue;
        }
        let prefix = part(from, place, PREFIX as u64).map_err(|error| error.to_string())?;
        let told = prefix.try_into().map_or(0, i64::from_le_bytes);
        if told < -1 || told > length.saturating_mul(RATIO).saturating_add(1 << 20) {
            return Err(format!("a compressed buffer of {length} bytes says it holds {told}"));
        }
    }
    Ok(())
}

/// The blocks that the footer of a file names.
fn check_footer(from: &mut (impl Read + Seek), size: u64) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    let tail = 4 + MAGIC.len() as u64;
    let begin = size.checked_sub(tail).ok_or("the file has no footer")?;
    let end = part(from, begin, tail).map_err(told)?;
    let length = end.first_chunk().map_or(0, |word| u64::from(u32::from_le_bytes(*word)));
    let place = begin.checked_sub(length).ok_or("the footer exceeds the file")?;
    let bytes = part(from, place, length).map_err(told)?;
    let footer = root_as_footer(&bytes).map_err(|error| error.to_string())?;
    for block in
        footer.recordBatches().into_iter().flatten().chain(footer.dictionaries().into_iter().flatten())
    {
        let parts = [block.offset(), i64::from(block.metaDataLength()), block.bodyLength()];
        let end = parts.iter().try_fold(0_u64, |all, part| all.checked_add(u64::try_from(*part).ok()?));
        if end.is_none_or(|end| end > size) {
            return Err(format!("a batch of {} bytes at {} exceeds the file of {size}", parts[2], parts[0]));
        }
    }
    Ok(())
}
