//! Checks of fields: every error names its field.

use std::fmt::Display;
use std::ops::RangeInclusive;

use redline_settings::Hint;

use crate::error::ApiError;
use crate::json::limits::{MAX_SALT, MAX_SECONDS, MAX_STOP, MAX_STOPS};

/// The error of a field.
pub(crate) fn refused(param: &str, fact: impl Into<String>, hint: impl Into<Hint>) -> ApiError {
    ApiError::Field { param: param.to_owned(), fact: fact.into(), hint: Some(hint.into()) }
}

/// A value that must lie in a range.
pub(crate) fn within<T: PartialOrd + Display>(
    param: &str,
    value: Option<T>,
    range: RangeInclusive<T>,
) -> Result<Option<T>, ApiError> {
    match value {
        Some(value) if !range.contains(&value) => {
            let hint = format!("give a number from {} to {}", range.start(), range.end());
            Err(refused(param, format!("`{param}` is {value}"), hint))
        }
        value => Ok(value),
    }
}

/// A probability above 0.
pub(crate) fn above_zero(param: &str, value: Option<f32>) -> Result<Option<f32>, ApiError> {
    match value {
        Some(value) if !(value > 0.0 && value <= 1.0) => {
            Err(refused(param, format!("`{param}` is {value}"), "give a number above 0, up to 1"))
        }
        value => Ok(value),
    }
}

/// A time limit.
pub(crate) fn timeout(value: Option<f64>) -> Result<Option<f64>, ApiError> {
    match value {
        Some(value) if !(value > 0.0 && value <= MAX_SECONDS) => {
            let hint = format!("give seconds above 0, up to {MAX_SECONDS}");
            Err(refused("timeout_s", format!("`timeout_s` is {value}"), hint))
        }
        value => Ok(value),
    }
}

/// A salt of the prefix cache.
pub(crate) fn salt(value: Option<String>) -> Result<String, ApiError> {
    let value = value.unwrap_or_default();
    let length = value.chars().count();
    if length > MAX_SALT {
        let fact = format!("`cache_salt` has {length} characters");
        return Err(refused("cache_salt", fact, format!("give at most {MAX_SALT}")));
    }
    Ok(value)
}

/// Stop strings.
pub(crate) fn stops(value: &[String]) -> Result<(), ApiError> {
    if value.len() > MAX_STOPS {
        let fact = format!("{} stop strings were given", value.len());
        return Err(refused("stop", fact, format!("give at most {MAX_STOPS}")));
    }
    let mut lengths = value.iter().map(|stop| stop.chars().count()).enumerate();
    if let Some((at, length)) = lengths.find(|(_, length)| !(1..=MAX_STOP).contains(length)) {
        let param = format!("stop[{at}]");
        let fact = format!("`{param}` has {length} characters");
        return Err(refused(&param, fact, format!("give 1 to {MAX_STOP}")));
    }
    Ok(())
}

/// A number of things. `fact` is the fact of the error.
pub(crate) fn within_count(
    param: &str,
    fact: &str,
    count: usize,
    range: RangeInclusive<usize>,
) -> Result<(), ApiError> {
    if range.contains(&count) {
        return Ok(());
    }
    Err(refused(param, fact, format!("give {} to {}", range.start(), range.end())))
}

/// The number of elements of a list.
pub(crate) fn count(param: &str, count: usize, range: RangeInclusive<usize>) -> Result<(), ApiError> {
    within_count(param, &format!("`{param}` has {count} elements"), count, range)
}
