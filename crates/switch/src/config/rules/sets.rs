// SPDX-License-Identifier: Apache-2.0
//! Sets of addresses and ports that rules refer to as `@name`.

use std::collections::HashSet;

use quietwire_tables::filter::{Element, SET_ELEMENTS_MAX, SetName, SetType};
use serde::{Deserialize, Serialize};

use crate::config::location::Located;
use crate::error::SwitchError;

/// Maximum number of sets.
const SETS_MAX: usize = 1024;

/// A set: elements of one type. Rules refer to it as `@name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetSetting {
    /// Its name.
    pub name: SetName,
    /// Type of its elements.
    #[serde(rename = "type")]
    pub kind: SetType,
    /// Seconds after which an element is removed. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
    /// Its elements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elements: Vec<Element>,
}

impl SetSetting {
    /// Checks that the elements have the type of the set.
    fn check(&self) -> Result<(), String> {
        if self.timeout_s == Some(0) {
            return Err(
                "timeout-s is 0, which removes every element at once (use 1 or more)".to_owned(),
            );
        }
        let other = self.elements.iter().find(|one| one.kind() != self.kind);
        match other {
            Some(element) => Err(format!(
                "element '{element}' has type {}, and the set has type {} (use another set)",
                element.kind(),
                self.kind
            )),
            None => Ok(()),
        }
    }
}

/// Plans sets: removes duplicate elements.
///
/// # Errors
/// [`SwitchError::Config`] for a duplicate name, an element of another type, or too many elements.
pub(super) fn plan(sets: &[Located<SetSetting>]) -> Result<Vec<SetSetting>, SwitchError> {
    let mut planned: Vec<SetSetting> = Vec::new();
    let mut names: HashSet<&SetName> = HashSet::new();
    let mut compiled = 0usize;
    for Located { value, location } in sets {
        let name = &value.name;
        if !names.insert(name) {
            return Err(location.wrong(format!("duplicate set '{name}' (use unique names)")));
        }
        if planned.len() == SETS_MAX {
            return Err(location.wrong(format!("too many sets (maximum: {SETS_MAX})")));
        }
        value
            .check()
            .map_err(|what| location.wrong(format!("set '{name}': {what}")))?;
        let mut observed = HashSet::new();
        let mut set = value.clone();
        set.elements.retain(|element| observed.insert(*element));
        let count: usize = set.elements.iter().map(Element::compiled_count).sum();
        compiled = compiled.saturating_add(count);
        if compiled > SET_ELEMENTS_MAX {
            return Err(location.wrong(format!(
                "set '{name}': too many elements in all sets (maximum: {SET_ELEMENTS_MAX}; a range of addresses counts as its prefixes)"
            )));
        }
        planned.push(set);
    }
    Ok(planned)
}
