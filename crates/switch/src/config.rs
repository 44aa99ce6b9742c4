// SPDX-License-Identifier: Apache-2.0
//! Switch configuration: [`Settings`] as written in a file or on the command line, and the [`Plan`] that is built from valid settings.

pub mod balance;
pub mod bridging;
mod change;
pub mod connections;
mod edit;
mod file;
pub mod kernel_filter;
mod later_ports;
pub mod layer3;
mod location;
pub mod nat;
mod plan;
mod ports;
pub mod rebalance;
mod role_cpus;
pub mod rules;
mod settings;
mod shared_list;
pub mod steer;
#[cfg(test)]
mod tests;
mod write;

pub use change::{Change, Staged};
pub use later_ports::LaterPorts;
pub use location::{Located, Location};
pub use plan::{BridgePlan, Group, Plan, PortPlan};
pub use ports::{AddPort, PORT_NAME_MAX, is_port_name};
pub use quietwire_base::{Idle, Seccomp};
pub use quietwire_tables::filter::{
    DescribedPacket, Dscp, EtherType, FlagList, OrSet, PacketMatch, Ports, Protocol, RuleMatch,
    TcpFlags, parse_prefix,
};
pub use settings::{
    BridgeSetting, CONTROL_SOCKET_DEFAULT, CrossConnectSetting, HugePages, Pinning, PortSetting,
    Settings,
};
pub(crate) use shared_list::CommonEnds;
pub use shared_list::SharedList;
