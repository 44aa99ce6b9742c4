// SPDX-License-Identifier: Apache-2.0
//! Sets of addresses, ports and names that rules refer to as `@name`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use quietwire_tables::filter::{Element, SET_ELEMENTS_MAX, SetName, SetType};
use serde::{Deserialize, Serialize};

use crate::config::location::Located;
use crate::config::shared_list::CommonEnds;
use crate::counters::PORTS_MAX;
use crate::error::SwitchError;

/// Maximum number of sets.
const SETS_MAX: usize = 1024;
/// Number of new elements of a set up to which each is compared with all others. A hash table of all takes longer.
const FEW: usize = 16;

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
    /// Elements with a timeout of their own, in seconds, instead of that of the set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub element_timeouts_s: BTreeMap<Element, u32>,
}

/// Returns the number of ports of each set of ports, by its name, as far as a rule of the set is compiled for them: at least one, and at most
/// those of a switch.
pub(crate) fn port_counts<'sets>(
    sets: impl Iterator<Item = &'sets SetSetting>,
) -> HashMap<&'sets str, usize> {
    let of_ports = sets.filter(|set| set.kind == SetType::Ifname);
    let count = |set: &'sets SetSetting| {
        let elements = set.elements.len().clamp(1, PORTS_MAX);
        (set.name.0.as_str(), elements)
    };
    of_ports.map(count).collect()
}

/// Returns true if the elements of a set have the name of a port.
pub(crate) fn contains_port(elements: &[Element], port: &str) -> bool {
    let mut elements = elements.iter();
    elements.any(|element| matches!(element, Element::Name(name) if name.is(port)))
}

impl SetSetting {
    /// Returns the seconds after which an element is removed; `None` for never.
    pub(crate) fn timeout_of(&self, element: &Element) -> Option<u32> {
        let own = self.element_timeouts_s.get(element);
        own.copied().or(self.timeout_s)
    }

    /// Returns true if some elements have a timeout.
    pub(crate) fn has_timeouts(&self) -> bool {
        self.timeout_s.is_some() || !self.element_timeouts_s.is_empty()
    }

    /// Checks the timeouts of single elements.
    fn check_timeouts(&self) -> Result<(), String> {
        let timeouts = &self.element_timeouts_s;
        if timeouts.is_empty() {
            return Ok(());
        }
        if let Some((element, _)) = timeouts.iter().find(|(_, seconds)| **seconds == 0) {
            return Err(format!(
                "element-timeouts-s of '{element}' is 0, which removes the element at once (use 1 or more)"
            ));
        }
        let known = self.elements.iter();
        let known = known.filter(|element| timeouts.contains_key(*element));
        let known: HashSet<&Element> = known.collect();
        match timeouts.keys().find(|element| !known.contains(element)) {
            Some(element) => Err(format!(
                "element-timeouts-s: the set has no element '{element}' (add it to elements)"
            )),
            None => Ok(()),
        }
    }

    /// Checks that the elements have the type of the set.
    fn check(&self) -> Result<(), String> {
        if self.timeout_s == Some(0) {
            return Err(
                "timeout-s is 0, which removes every element at once (use 1 or more)".to_owned(),
            );
        }
        self.check_timeouts()?;
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

/// A set of the settings, and the same as planned: without duplicate elements.
type PlannedSet<'sets> = (&'sets Arc<SetSetting>, &'sets Arc<SetSetting>);

/// Returns true if a set has no duplicate elements, because all but a few are those of a former set without duplicates.
fn has_few_new(set: &SetSetting, (former, planned): PlannedSet<'_>) -> bool {
    if !Arc::ptr_eq(former, planned) {
        return false;
    }
    let all = &set.elements[..];
    let new = CommonEnds::of(&former.elements, all, |one, other| one == other).middle(all);
    let is_single = |element: &Element| all.iter().filter(|one| *one == element).count() == 1;
    new.len() <= FEW && new.iter().all(is_single)
}

/// Returns a set without duplicate elements: the same one if there are none.
fn distinct(set: &Arc<SetSetting>, former: Option<PlannedSet<'_>>) -> Arc<SetSetting> {
    if former.is_some_and(|former| has_few_new(set, former)) {
        return Arc::clone(set);
    }
    let mut observed = HashSet::with_capacity(set.elements.len());
    if set.elements.iter().all(|element| observed.insert(*element)) {
        return Arc::clone(set);
    }
    observed.clear();
    let mut distinct = (**set).clone();
    distinct
        .elements
        .retain(|element| observed.insert(*element));
    Arc::new(distinct)
}

/// Plans sets: removes duplicate elements. `former` are the sets before a change and their plan, of the same order: sets that both have are
/// not checked again.
///
/// # Errors
/// [`SwitchError::Config`] for a duplicate name, an element of another type, or too many elements.
pub(super) fn plan(
    sets: &[Located<Arc<SetSetting>>],
    former: (&[Located<Arc<SetSetting>>], &[Arc<SetSetting>]),
) -> Result<Vec<Arc<SetSetting>>, SwitchError> {
    let former = former.0.iter().map(|one| &one.value).zip(former.1);
    let former: HashMap<&SetName, PlannedSet<'_>> = former.map(|one| (&one.0.name, one)).collect();
    let mut planned: Vec<Arc<SetSetting>> = Vec::new();
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
        let former = former.get(name).copied();
        let set = match former.filter(|one| Arc::ptr_eq(one.0, value)) {
            Some((_, planned)) => Arc::clone(planned),
            None => {
                value
                    .check()
                    .map_err(|what| location.wrong(format!("set '{name}': {what}")))?;
                distinct(value, former)
            }
        };
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
