// SPDX-License-Identifier: Apache-2.0
//! kubelet's configuration file (KubeletConfiguration, kubelet.config.k8s.io/v1beta1): the settings that assign CPUs and memory.

use std::collections::BTreeMap;
use std::path::Path;

use quietwire_host::CpuList;
use serde::Deserialize;

use super::file::{self, KubeletFileError};

/// Policy of the CPU manager that gives exclusive CPUs to containers.
pub const STATIC: &str = "static";
/// Option of the policy `static` that also keeps shared containers off the reserved CPUs.
pub const STRICT: &str = "strict-cpu-reservation";
const KIND: &str = "KubeletConfiguration";

/// Settings of kubelet. Other keys are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Policy of the CPU manager: `none` or `static`.
    pub cpu_manager_policy: String,
    /// Options of this policy.
    pub cpu_manager_options: BTreeMap<String, String>,
    /// CPUs that kubelet gives to no container exclusively (`reservedSystemCPUs`). Empty: none are named.
    pub reserved: CpuList,
    /// Policy of the topology manager.
    pub topology_manager_policy: String,
    /// Scope of the topology manager: `container` or `pod`.
    pub topology_manager_scope: String,
    /// Policy of the memory manager.
    pub memory_manager_policy: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    kind: String,
    #[serde(default)]
    cpu_manager_policy: Option<String>,
    #[serde(default)]
    cpu_manager_policy_options: Option<BTreeMap<String, String>>,
    #[serde(default, rename = "reservedSystemCPUs")]
    reserved_system_cpus: Option<String>,
    #[serde(default)]
    topology_manager_policy: Option<String>,
    #[serde(default)]
    topology_manager_scope: Option<String>,
    #[serde(default)]
    memory_manager_policy: Option<String>,
}

impl Configuration {
    /// Reads the configuration file.
    ///
    /// # Errors
    /// [`KubeletFileError`].
    pub fn read(path: &Path) -> Result<Self, KubeletFileError> {
        Self::parse(&file::read(path)?)
            .map_err(|problem| KubeletFileError::malformed(path, problem))
    }

    /// Parses the text of a configuration file (YAML or JSON).
    ///
    /// # Errors
    /// The problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if file.kind != KIND {
            return Err(format!("kind is '{}', not {KIND}", file.kind));
        }
        let reserved = file.reserved_system_cpus.unwrap_or_default();
        let reserved = reserved
            .parse::<CpuList>()
            .map_err(|error| format!("reservedSystemCPUs: {error}"))?;
        let policy = |policy: Option<String>| match policy {
            Some(policy) if !policy.is_empty() => policy,
            _ => "none".to_owned(),
        };
        let memory = file.memory_manager_policy.unwrap_or_default();
        Ok(Self {
            cpu_manager_policy: policy(file.cpu_manager_policy),
            cpu_manager_options: file.cpu_manager_policy_options.unwrap_or_default(),
            reserved,
            topology_manager_policy: policy(file.topology_manager_policy),
            topology_manager_scope: file
                .topology_manager_scope
                .filter(|scope| !scope.is_empty())
                .unwrap_or_else(|| "container".to_owned()),
            // The policy is None unless another is named.
            memory_manager_policy: match memory.is_empty() {
                true => "None".to_owned(),
                false => memory,
            },
        })
    }

    /// Returns whether containers may get exclusive CPUs.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.cpu_manager_policy == STATIC
    }

    /// Returns whether kubelet excludes shared containers from the reserved CPUs.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        let option = self.cpu_manager_options.get(STRICT);
        option.is_some_and(|value| value == "true")
    }
}
