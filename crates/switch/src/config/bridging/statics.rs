// SPDX-License-Identifier: Apache-2.0
//! Assignment of static entries to bridges.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::StaticSetting;
use crate::config::location::Located;
use crate::config::shared_list::SharedList;
use crate::error::SwitchError;

/// A bridge as its static entries require it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct StaticBridge<'plan> {
    /// Its name.
    pub(in crate::config) name: &'plan str,
    /// Names of its ports.
    pub(in crate::config) ports: Vec<&'plan str>,
    /// Maximum number of addresses.
    pub(in crate::config) max_entries: u32,
}

impl StaticBridge<'_> {
    fn check(&self, entry: &StaticSetting) -> Result<(), String> {
        if !self.ports.contains(&entry.port.as_str()) {
            return Err(format!(
                "port '{}' is not in bridge '{}'",
                entry.port, entry.bridge
            ));
        }
        if entry.mac.is_multicast() {
            return Err(format!(
                "{} is a group address (a static entry requires a unicast address)",
                entry.mac
            ));
        }
        Ok(())
    }

    /// Returns whether all static entries fit into the table.
    fn has_space(&self, entries: &[Arc<StaticSetting>]) -> bool {
        let max_entries = self.max_entries as usize;
        let keys = entries.iter().map(|one| (one.mac.to_u64(), one.vlan));
        entries.len() <= max_entries || keys.collect::<BTreeSet<_>>().len() <= max_entries
    }
}

/// Returns the static entries of each bridge.
///
/// # Errors
/// [`SwitchError::Config`] for the first entry that no bridge can have.
pub(in crate::config) fn plan_statics(
    entries: &[Located<Arc<StaticSetting>>],
    bridges: &[StaticBridge<'_>],
) -> Result<Vec<SharedList<Arc<StaticSetting>>>, SwitchError> {
    let mut lists: Vec<Vec<Arc<StaticSetting>>> = vec![Vec::new(); bridges.len()];
    // Most entries are of the same bridge as the one before.
    let mut place = 0;
    for Located { value, location } in entries {
        if bridges
            .get(place)
            .is_none_or(|one| one.name != value.bridge)
        {
            let found = bridges.iter().position(|one| one.name == value.bridge);
            place = found
                .ok_or_else(|| location.wrong(format!("no such bridge: '{}'", value.bridge)))?;
        }
        if let (Some(bridge), Some(list)) = (bridges.get(place), lists.get_mut(place)) {
            bridge.check(value).map_err(|what| location.wrong(what))?;
            list.push(Arc::clone(value));
            if !bridge.has_space(list) {
                return Err(location.wrong(format!(
                    "no space for {}: bridge '{}' has {} addresses at most, and all are static entries (raise max-entries)",
                    value.mac, bridge.name, bridge.max_entries
                )));
            }
        }
    }
    Ok(lists.into_iter().map(SharedList::from).collect())
}
