//! Ids of calls: the same for the same prompt, so that a conversation of an agent can be repeated.

use twox_hash::XxHash3_128;

/// Digits of ids.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The id of a call: of a prompt, of an answer to it and of a call in the answer, both counted from 0. `length` is its number of digits.
pub fn call_id(prompt: &str, answer: usize, call: usize, length: usize) -> String {
    let hash = |part: usize| XxHash3_128::oneshot(format!("{part} {answer} {call} {prompt}").as_bytes());
    // A hash has digits enough for twenty of an id.
    let digits = (0..length.div_ceil(20)).flat_map(|part| {
        std::iter::successors(Some(hash(part)), |rest| Some(rest / 62))
            .take(20)
            .map(|rest| (rest % 62) as usize)
    });
    digits.take(length).map(|digit| char::from(DIGITS[digit])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_repeat_and_differ() {
        let id = call_id("a", 0, 0, 24);
        assert_eq!(id, call_id("a", 0, 0, 24));
        assert_eq!((id.len(), call_id("a", 0, 0, 9).len()), (24, 9));
        for other in [call_id("b", 0, 0, 24), call_id("a", 1, 0, 24), call_id("a", 0, 1, 24)] {
            assert_ne!(id, other);
        }
        assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
}
