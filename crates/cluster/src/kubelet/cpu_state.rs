// SPDX-License-Identifier: Apache-2.0
//! State file of kubelet's CPU manager (`cpu_manager_state`, JSON).

use std::collections::BTreeMap;
use std::path::Path;

use quietwire_host::CpuList;
use serde::Deserialize;

use super::file::{self, KubeletFileError};

/// CPUs that kubelet has assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuManagerState {
    /// Policy with which kubelet wrote the file.
    pub policy: String,
    /// CPUs of containers without exclusive CPUs. Empty with the policy `none`.
    pub shared: CpuList,
    /// Exclusive CPUs by UID of the pod and name of the container.
    pub exclusive: BTreeMap<(String, String), CpuList>,
}

/// Parses a list of CPUs. Blank text is the empty list.
fn list(text: &str) -> Result<CpuList, String> {
    text.parse::<CpuList>().map_err(|error| error.to_string())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    policy_name: String,
    #[serde(default)]
    default_cpu_set: String,
    #[serde(default)]
    entries: Option<BTreeMap<String, BTreeMap<String, String>>>,
}

impl CpuManagerState {
    /// Reads the state file. `None` if it does not exist.
    ///
    /// # Errors
    /// [`KubeletFileError`].
    pub fn read(path: &Path) -> Result<Option<Self>, KubeletFileError> {
        file::parsed(path, Self::parse)
    }

    /// Parses the text of a state file.
    ///
    /// # Errors
    /// The problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut exclusive = BTreeMap::new();
        for (pod, containers) in file.entries.unwrap_or_default() {
            for (container, cpus) in containers {
                exclusive.insert((pod.clone(), container), list(&cpus)?);
            }
        }
        Ok(Self {
            policy: file.policy_name,
            shared: list(&file.default_cpu_set)?,
            exclusive,
        })
    }
}
