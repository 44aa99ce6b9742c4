// SPDX-License-Identifier: Apache-2.0
//! Options of `quietwire switch add|set|del|show` for load balancers.

use std::net::SocketAddr;

use clap::Args;
use quietwire_switch::config::Change;
use quietwire_switch::config::balance::{BackendSetting, BackendStateSetting, LoadBalancerSetting};
use quietwire_switch::config::nat::PublishProtocol;
use quietwire_switch::report::LoadBalancerReport;

use super::table::table;

/// A load balancer.
#[derive(Debug, Args)]
pub(super) struct LoadBalancerArgs {
    /// Name.
    name: String,
    /// Virtual endpoint, like `198.51.100.1:80` or `[2001:db8::80]:80`.
    endpoint: SocketAddr,
    /// Protocol: tcp or udp. [default: tcp]
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<PublishProtocol>,
    /// Maximum number of connections. [default: 65536]
    #[arg(long, value_name = "N")]
    max_connections: Option<u32>,
    /// Backends answer clients directly, with the virtual address.
    #[arg(long)]
    direct_return: bool,
    /// Endpoint of a backend, like `10.0.0.5:8080` or `[2001:db8:1::5]:8080`; repeatable.
    #[arg(long = "backend", value_name = "ADDRESS:PORT")]
    backends: Vec<SocketAddr>,
}

impl LoadBalancerArgs {
    pub(super) fn change(self) -> Change {
        let backend = |to| BackendSetting {
            to,
            weight: None,
            state: None,
        };
        Change::AddLoadBalancer(LoadBalancerSetting {
            name: self.name,
            protocol: self.protocol.unwrap_or(PublishProtocol::Tcp),
            address: self.endpoint.ip(),
            port: self.endpoint.port(),
            max_connections: self.max_connections,
            direct_return: self.direct_return,
            backends: self.backends.into_iter().map(backend).collect(),
        })
    }
}

/// A backend.
#[derive(Debug, Args)]
pub(super) struct BackendArgs {
    /// Name of the load balancer.
    load_balancer: String,
    /// Endpoint, like `10.0.0.5:8080` or `[2001:db8:1::5]:8080`.
    to: SocketAddr,
    /// Share of new connections, relative to the others, 1 to 1000. [default: 1, or unchanged]
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    /// State: up, draining or down. [default: up, or unchanged]
    #[arg(long, value_name = "STATE")]
    state: Option<BackendStateSetting>,
}

impl BackendArgs {
    fn parts(self) -> (String, BackendSetting) {
        let backend = BackendSetting {
            to: self.to,
            weight: self.weight,
            state: self.state,
        };
        (self.load_balancer, backend)
    }

    pub(super) fn add(self) -> Change {
        let (load_balancer, backend) = self.parts();
        Change::AddBackend {
            load_balancer,
            backend,
        }
    }

    pub(super) fn set(self) -> Change {
        let (load_balancer, backend) = self.parts();
        Change::SetBackend {
            load_balancer,
            backend,
        }
    }
}

/// Formats load balancers, a line for each backend.
pub(super) fn render(balancers: &[LoadBalancerReport]) -> String {
    let header = [
        "load balancer",
        "endpoint",
        "backend",
        "state",
        "weight",
        "connections",
        "packets",
    ];
    let mut table = table(header, 4);
    for one in balancers {
        let endpoint = format!("{} {}", one.protocol, one.endpoint);
        if one.backends.is_empty() {
            let connections = one.connections.to_string();
            let empty = String::new;
            table.add_row([
                one.name.clone(),
                endpoint.clone(),
                empty(),
                empty(),
                empty(),
                connections,
                empty(),
            ]);
        }
        for backend in &one.backends {
            table.add_row([
                one.name.clone(),
                endpoint.clone(),
                backend.endpoint.to_string(),
                backend.state.clone(),
                backend.weight.to_string(),
                backend.connections.to_string(),
                format!("{}/{}", backend.packets_in, backend.packets_out),
            ]);
        }
    }
    table.to_string()
}
