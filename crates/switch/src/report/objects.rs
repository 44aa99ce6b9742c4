// SPDX-License-Identifier: Apache-2.0
//! Names of configured objects.

use quietwire_host::CpuList;
use serde::{Deserialize, Serialize};

/// Names of the configured objects, connection tracking, and the forwarding CPUs. Unlike the configuration, it has no rules, sets, routes or
/// neighbours, of which there may be a million.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectsReport {
    /// Ports, also those whose device was removed.
    pub ports: Vec<String>,
    /// Bridges.
    pub bridges: Vec<String>,
    /// VRFs without the main one.
    pub vrfs: Vec<String>,
    /// Interfaces of the router.
    pub interfaces: Vec<String>,
    /// Instances of NAT.
    pub nats: Vec<String>,
    /// Load balancers.
    pub load_balancers: Vec<String>,
    /// Steering rules.
    pub steering: Vec<String>,
    /// Settings of connection tracking, as in the configuration. They may have keys that a reader of another version does not know.
    pub connections: Option<serde_json::Value>,
    /// Forwarding CPUs.
    pub forwarding_cpus: CpuList,
}
