// SPDX-License-Identifier: Apache-2.0
//! What edits of the configuration have in common.

use super::place::{Place, Placed};
use crate::error::SwitchError;

/// What cannot be done.
pub(super) fn wrong(place: &str, what: String) -> SwitchError {
    SwitchError::Config {
        place: place.to_owned(),
        what,
    }
}

/// Nothing has this name.
pub(super) fn absent(what: &str, name: &str) -> SwitchError {
    wrong(what, format!("there is no {what} '{name}'"))
}

/// A setting of a request.
pub(super) fn asked<T>(value: T) -> Placed<T> {
    Placed {
        value,
        place: Place::Request,
    }
}

/// Takes out what has this name.
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

/// Puts a setting in the place of the one of the same name.
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
