// SPDX-License-Identifier: Apache-2.0
//! Configuration of load balancers: `[[load-balancer]]`.

mod change;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use quietwire_tables::balance::{BALANCED_MAX, Backend, BackendState, BalanceSettings};
use quietwire_tables::nat::NatProtocol;
use quietwire_tables::nat66;
use quietwire_tables::share::Share;
use serde::{Deserialize, Serialize};

use super::location::Located;
use super::nat::PublishProtocol;
use crate::error::SwitchError;

/// Default maximum number of connections.
const MAX_CONNECTIONS: u32 = 65_536;
/// Maximum number of load balancers, and of backends of each.
const BALANCERS_MAX: usize = 64;
pub(crate) const BACKENDS_MAX: usize = 256;
/// Maximum weight of a backend.
const WEIGHT_MAX: u32 = 1000;

/// A virtual endpoint and its backends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LoadBalancerSetting {
    /// Its name.
    pub name: String,
    /// Protocol. Default: TCP.
    #[serde(default = "protocol")]
    pub protocol: PublishProtocol,
    /// Virtual address, of IPv4 or IPv6.
    pub address: IpAddr,
    /// Virtual port.
    pub port: u16,
    /// Maximum number of connections. Default: 65536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// Backends answer clients directly, with the virtual address, which they have too. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct_return: bool,
    /// Backends.
    #[serde(default, rename = "backend", skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendSetting>,
}

const fn protocol() -> PublishProtocol {
    PublishProtocol::Tcp
}

/// A backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BackendSetting {
    /// Its endpoint, of the IP version of the virtual address.
    pub to: SocketAddr,
    /// Its share of new connections, relative to the others, 1 to 1000. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Its state. Default: up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<BackendStateSetting>,
}

/// State of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendStateSetting {
    /// Receives new connections.
    #[default]
    Up,
    /// Keeps its connections, and receives no new ones.
    Draining,
    /// Receives nothing.
    Down,
}

impl BackendStateSetting {
    const ALL: [Self; 3] = [Self::Up, Self::Draining, Self::Down];

    const fn state(self) -> BackendState {
        match self {
            Self::Up => BackendState::Up,
            Self::Draining => BackendState::Draining,
            Self::Down => BackendState::Down,
        }
    }
}

impl fmt::Display for BackendStateSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.state().name())
    }
}

impl FromStr for BackendStateSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.state().name() == text)
            .ok_or_else(|| format!("'{text}' is not a state (use up, draining or down)"))
    }
}

impl LoadBalancerSetting {
    /// Returns the settings of the table.
    pub(crate) fn table(&self) -> BalanceSettings<SocketAddr> {
        BalanceSettings {
            protocol: match self.protocol {
                PublishProtocol::Tcp => NatProtocol::Tcp,
                PublishProtocol::Udp => NatProtocol::Udp,
            },
            endpoint: SocketAddr::new(self.address, self.port),
            connections_max: self.max_connections.unwrap_or(MAX_CONNECTIONS),
            is_direct: self.direct_return,
        }
    }

    /// Returns the backends.
    pub(crate) fn backends(&self) -> Vec<Backend<SocketAddr>> {
        let backend = |one: &BackendSetting| Backend {
            endpoint: one.to,
            weight: one.weight.unwrap_or(1),
            state: one.state.unwrap_or_default().state(),
        };
        self.backends.iter().map(backend).collect()
    }

    /// Returns the settings of a forwarding thread, whose table has its share of connections.
    pub(crate) fn with_share(&self, share: Share) -> Self {
        let connections = share.part(self.table().connections_max);
        Self {
            max_connections: Some(connections),
            ..self.clone()
        }
    }

    fn check(&self) -> Result<(), String> {
        let is_unicast = match self.address {
            IpAddr::V4(address) => !matches!(address.octets(), [0 | 127 | 224.., ..]),
            IpAddr::V6(address) => nat66::is_host(address),
        };
        if !is_unicast || self.port == 0 {
            return Err(format!(
                "{} is not a unicast address and a port from 1 to 65535",
                self.table().endpoint
            ));
        }
        let connections = self.table().connections_max;
        if !(1..=BALANCED_MAX).contains(&connections) {
            return Err(format!(
                "max-connections {connections} is out of range (allowed: 1 to {BALANCED_MAX})"
            ));
        }
        if self.backends.len() > BACKENDS_MAX {
            return Err(format!("too many backends (maximum: {BACKENDS_MAX})"));
        }
        let mut known = BTreeSet::new();
        for one in &self.backends {
            let weight = one.weight.unwrap_or(1);
            if !(1..=WEIGHT_MAX).contains(&weight) {
                return Err(format!(
                    "backend {}: weight {weight} is out of range (allowed: 1 to {WEIGHT_MAX})",
                    one.to
                ));
            }
            if one.to.is_ipv4() != self.address.is_ipv4() {
                return Err(format!(
                    "backend {}: packets keep their IP version (use the version of {})",
                    one.to, self.address
                ));
            }
            if one.to.port() == 0 || one.to == self.table().endpoint || !is_reachable(one.to) {
                return Err(format!(
                    "backend {}: not the endpoint of a server (use its address and port)",
                    one.to
                ));
            }
            if self.direct_return && one.to.port() != self.port {
                return Err(format!(
                    "backend {}: with direct-return, packets keep their port (use port {})",
                    one.to, self.port
                ));
            }
            if !known.insert(one.to) {
                return Err(format!("backend {}: listed twice (use it once)", one.to));
            }
        }
        Ok(())
    }
}

/// Returns false for an IPv6 endpoint that no route leads to.
fn is_reachable(endpoint: SocketAddr) -> bool {
    match endpoint {
        SocketAddr::V4(_) => true,
        SocketAddr::V6(one) => {
            nat66::is_host(*one.ip()) && one.scope_id() == 0 && one.flowinfo() == 0
        }
    }
}

/// Checks the load balancers. Returns them. `is_tracked` if there is connection tracking, which has to see both directions.
///
/// # Errors
/// [`SwitchError::Config`].
pub(super) fn check(
    settings: &[Located<LoadBalancerSetting>],
    is_tracked: bool,
) -> Result<Vec<LoadBalancerSetting>, SwitchError> {
    let mut names = BTreeSet::new();
    let mut endpoints: BTreeMap<(IpAddr, u16, bool), &str> = BTreeMap::new();
    for (count, Located { value, location }) in settings.iter().enumerate() {
        let name = &value.name;
        let wrong = |what: String| location.wrong(format!("load-balancer '{name}': {what}"));
        if name.is_empty() {
            return Err(location.wrong("the load balancer has no name"));
        }
        if count == BALANCERS_MAX {
            return Err(wrong(format!(
                "too many load balancers (maximum: {BALANCERS_MAX})"
            )));
        }
        if !names.insert(name) {
            return Err(wrong(
                "another load balancer has this name (use unique names)".to_owned(),
            ));
        }
        value.check().map_err(wrong)?;
        if is_tracked && value.direct_return {
            return Err(wrong(
                "connection tracking does not see the answers of direct-return (remove one of them)"
                    .to_owned(),
            ));
        }
        let is_tcp = value.protocol == PublishProtocol::Tcp;
        if let Some(other) = endpoints.insert((value.address, value.port, is_tcp), name) {
            return Err(wrong(format!(
                "load balancer '{other}' has this virtual endpoint too (use another port)"
            )));
        }
    }
    Ok(settings.iter().map(|one| one.value.clone()).collect())
}
