// SPDX-License-Identifier: Apache-2.0
//! Limits of values, and their checks.

use super::locate::{At, LocatedFault};

/// Maximum measurement time of a trial, seconds. A value over an hour is probably a typing error.
pub(crate) const DURATION_S_MAX: f64 = 3600.0;

/// Maximum number of rounds and repeats.
pub(crate) const REPEATS_MAX: u32 = 10_000;

/// Maximum number of trials at one number of tenants.
pub(crate) const TRIALS_AT_NUMBER_MAX: u32 = 100;

pub(crate) type Checked = Result<(), LocatedFault>;

pub(crate) fn fault(path: &[At], message: impl Into<String>) -> Checked {
    Err(LocatedFault {
        path: path.to_vec(),
        message: message.into(),
    })
}

pub(crate) fn name(text: &str, path: &[At]) -> Checked {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() > 64 || text.starts_with('.') || !text.chars().all(is_plain) {
        return fault(
            path,
            format!(
                "'{text}' is not a valid name (write 1 to 64 letters, digits, '-', '_' and '.', not starting with '.')"
            ),
        );
    }
    Ok(())
}

pub(crate) fn between(number: u32, low: u32, high: u32, path: &[At]) -> Checked {
    if (low..=high).contains(&number) {
        Ok(())
    } else {
        fault(path, format!("{number} must be {low} to {high}"))
    }
}

pub(crate) fn duration(seconds: f64, path: &[At]) -> Checked {
    if seconds > 0.0 && seconds <= DURATION_S_MAX {
        Ok(())
    } else {
        fault(
            path,
            format!("{seconds} must be above 0 and at most {DURATION_S_MAX} seconds"),
        )
    }
}

pub(crate) fn pause(seconds: f64, path: &[At]) -> Checked {
    if (0.0..=DURATION_S_MAX).contains(&seconds) {
        Ok(())
    } else {
        fault(
            path,
            format!("{seconds} must be 0 to {DURATION_S_MAX} seconds"),
        )
    }
}
