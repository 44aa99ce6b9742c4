// SPDX-License-Identifier: Apache-2.0
//! Helpers shared by all configuration edits.

use super::place::{Place, Placed};
use crate::error::SwitchError;

/// Returns the error of an edit that is not possible.
pub(super) fn wrong(place: &str, what: String) -> SwitchError {
    SwitchError::Config {
        place: place.to_owned(),
        what,
    }
}

/// Returns the error of a name that does not exist.
pub(super) fn absent(what: &str, name: &str) -> SwitchError {
    wrong(what, format!("no such {what}: '{name}'"))
}

/// Wraps a setting of a control request.
pub(super) fn asked<T>(value: T) -> Placed<T> {
    Placed {
        value,
        place: Place::Request,
    }
}

/// Removes the element with a name.
pub(super) fn remove<T>(
    list: &mut Vec<Placed<T>>,
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
    list: &mut [Placed<T>],
    what: &str,
    value: T,
    name_of: impl Fn(&T) -> &String,
) -> Result<(), SwitchError> {
    let same = list
        .iter_mut()
        .find(|one| name_of(&one.value) == name_of(&value))
        .ok_or_else(|| absent(what, name_of(&value)))?;
    *same = asked(value);
    Ok(())
}
