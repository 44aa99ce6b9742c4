// SPDX-License-Identifier: Apache-2.0
//! Helpers shared by all configuration edits.

use super::location::{Located, Location};
use crate::error::SwitchError;

/// Returns the error of an edit that is not possible.
pub(super) fn wrong(location: &str, what: String) -> SwitchError {
    SwitchError::Config {
        location: location.to_owned(),
        what,
    }
}

/// Returns the error of a name that does not exist.
pub(super) fn absent(what: &str, name: &str) -> SwitchError {
    wrong(what, format!("no such {what}: '{name}'"))
}

/// Wraps a setting of a control request.
pub(super) fn from_request<T>(value: T) -> Located<T> {
    Located {
        value,
        location: Location::Request,
    }
}

/// Removes the element with a name.
pub(super) fn remove<T>(
    list: &mut Vec<Located<T>>,
    what: &str,
    name: &str,
    name_of: impl Fn(&T) -> &String,
) -> Result<(), SwitchError> {
    let before = list.len();
    list.retain(|one| name_of(&one.value) != name);
    if list.len() == before {
        return Err(absent(what, name));
    }
    Ok(())
}

/// Replaces the element with the same name.
pub(super) fn replace<T>(
    list: &mut [Located<T>],
    what: &str,
    value: T,
    name_of: impl Fn(&T) -> &String,
) -> Result<(), SwitchError> {
    let same = list
        .iter_mut()
        .find(|one| name_of(&one.value) == name_of(&value))
        .ok_or_else(|| absent(what, name_of(&value)))?;
    *same = from_request(value);
    Ok(())
}
