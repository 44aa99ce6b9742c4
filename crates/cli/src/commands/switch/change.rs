// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch add|del|set|rebalance`: changes of a running switch.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use ipnet::IpNet;
use quietwire_host::{CpuList, CpuSequence};
use quietwire_packet::{MacAddress, VlanId};
use quietwire_switch::config::bridging::{AddBridge, SetBridge, StaticSetting};
use quietwire_switch::config::layer3::VrfSetting;
use quietwire_switch::config::{AddPort, CONTROL_SOCKET_DEFAULT, Change};
use quietwire_switch::control::{Request, ask};
use quietwire_switch::report::MoveReport;
use serde_json::from_value;

use super::bridging::{BridgingArgs, parse_vlan};
use super::router::{
    InterfaceArgs, KernelFilterArgs, NeighbourArgs, RouteArgs, RoutesArgs, add_routes,
};
use super::rules::{AddRuleArgs, RuleArgs, SetRulesArgs};
use super::tables;
use crate::text::print;
use crate::units::parse_path;

/// Which switch, and how to print.
#[derive(Debug, Args)]
pub(super) struct Asking {
    /// Print the answer as JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Which switch: its control socket.
    #[arg(long, global = true, value_name = "PATH", default_value = CONTROL_SOCKET_DEFAULT, value_parser = parse_path)]
    control_socket: PathBuf,
}

/// Add to a running switch. What cannot be added leaves everything as it was.
#[derive(Debug, Args)]
pub(super) struct AddArgs {
    #[command(subcommand)]
    what: Add,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Debug, Subcommand)]
enum Add {
    /// A port.
    Port {
        /// Its name.
        name: String,
        /// Where it is, such as memif:/path?role=server.
        uri: String,
        /// Receive queues. [default: 1]
        #[arg(long, value_name = "N")]
        rx_queues: Option<u16>,
        /// Transmit queues. [default: one for each forwarding CPU, at most `queues` of the URI; 1 for pcap]
        #[arg(long, value_name = "N")]
        tx_queues: Option<u16>,
        /// CPUs that its receive queues are mapped to, in this order and in turn.
        #[arg(long, value_name = "LIST")]
        rx_cpus: Option<CpuSequence>,
        /// Bridge to put it in.
        #[arg(long, value_name = "NAME")]
        bridge: Option<String>,
        #[command(flatten)]
        bridging: Box<BridgingArgs>,
    },
    /// A static entry of a bridge: an address that is at one port and nowhere else.
    Fdb {
        /// Name of the bridge.
        bridge: String,
        /// The address.
        mac: MacAddress,
        /// Name of its port.
        port: String,
        /// Its VLAN, in a bridge that knows VLANs.
        #[arg(long, value_name = "VLAN", value_parser = parse_vlan)]
        vlan: Option<VlanId>,
    },
    /// VLANs of a trunk; a port that knows no VLANs becomes one.
    Vlan {
        /// Name of the port.
        port: String,
        /// The VLANs, like 1,5,10-12 or all.
        vlans: String,
        /// Their frames leave without a tag.
        #[arg(long)]
        untagged: bool,
        /// Frames without a tag are of this one VLAN.
        #[arg(long)]
        native: bool,
    },
    /// A learning bridge.
    Bridge {
        /// Its name.
        name: String,
        /// Its ports.
        ports: Vec<String>,
        /// Addresses that it can learn.
        #[arg(long, value_name = "N")]
        max_entries: Option<u32>,
        /// Seconds after which it forgets an address that it has not seen.
        #[arg(long, value_name = "N")]
        ageing_s: Option<u32>,
    },
    /// A VRF: routes of its own.
    Vrf {
        /// Its name.
        name: String,
        /// The kernel's routing table whose routes it follows. [default: none]
        #[arg(long, value_name = "N")]
        kernel_table: Option<u32>,
    },
    /// An interface of the router, on a port, a VLAN of it, or a bridge.
    Interface(InterfaceArgs),
    /// A static route; one to the same prefix is replaced.
    Route(RouteArgs),
    /// Static routes from a file.
    Routes(RoutesArgs),
    /// A neighbour that is not asked for its address.
    #[command(alias = "neighbor")]
    Neighbour(NeighbourArgs),
    /// Packets that the kernel gets beside what is for the router itself, by the tap of the interface they come in by.
    KernelFilter(KernelFilterArgs),
    /// A rule about which frames ports let in.
    Rule(Box<AddRuleArgs>),
    /// Two ports joined.
    CrossConnect {
        /// One of them.
        a: String,
        /// The other.
        b: String,
    },
}

/// Remove from a running switch.
#[derive(Debug, Args)]
pub(super) struct DelArgs {
    #[command(subcommand)]
    what: Del,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Debug, Subcommand)]
enum Del {
    /// A port; a cross-connect that it is in goes with it.
    Port {
        /// Its name.
        name: String,
    },
    /// A static entry of a bridge.
    Fdb {
        /// Name of the bridge.
        bridge: String,
        /// The address.
        mac: MacAddress,
        /// Its VLAN.
        #[arg(long, value_name = "VLAN", value_parser = parse_vlan)]
        vlan: Option<VlanId>,
    },
    /// VLANs of a trunk.
    Vlan {
        /// Name of the port.
        port: String,
        /// The VLANs, like 1,5,10-12 or all.
        vlans: String,
    },
    /// A bridge; its ports stay and do nothing.
    Bridge {
        /// Its name.
        name: String,
    },
    /// A VRF that no interface is in, and its routes.
    Vrf {
        /// Its name.
        name: String,
    },
    /// An interface of the router.
    Interface {
        /// Its name.
        name: String,
    },
    /// Static routes.
    Route {
        /// Their prefixes.
        #[arg(required = true)]
        prefixes: Vec<IpNet>,
        /// The VRF. [default: main]
        #[arg(long, value_name = "NAME")]
        vrf: Option<String>,
    },
    /// A neighbour, set or found.
    #[command(alias = "neighbor")]
    Neighbour {
        /// Name of the interface.
        interface: String,
        /// Its IP address.
        address: IpAddr,
    },
    /// A rule about what the kernel gets.
    KernelFilter {
        /// Its name.
        name: String,
    },
    /// A rule about which frames ports let in.
    Rule {
        /// Its name.
        name: String,
    },
    /// What joins a port to another.
    CrossConnect {
        /// The name of either port.
        port: String,
    },
}

/// Change a running switch.
#[derive(Debug, Args)]
pub(super) struct SetArgs {
    #[command(subcommand)]
    what: Set,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Debug, Subcommand)]
enum Set {
    /// How a port behaves in its bridge: what is said is changed, and nothing else.
    Port {
        /// Its name.
        name: String,
        /// Forget all that was said before.
        #[arg(long)]
        anew: bool,
        #[command(flatten)]
        bridging: Box<BridgingArgs>,
    },
    /// Ports of a bridge, and its table.
    Bridge {
        /// Its name.
        name: String,
        /// Port to put in; repeat it.
        #[arg(long = "add-port", value_name = "NAME")]
        add_ports: Vec<String>,
        /// Port to take out; repeat it.
        #[arg(long = "del-port", value_name = "NAME")]
        del_ports: Vec<String>,
        /// Addresses that it can learn; with another number they are learned anew.
        #[arg(long, value_name = "N")]
        max_entries: Option<u32>,
        /// Seconds after which it forgets an address; with another number they are learned anew.
        #[arg(long, value_name = "N")]
        ageing_s: Option<u32>,
    },
    /// A VRF, such as main: everything about it is as said here from then on.
    Vrf {
        /// Its name.
        name: String,
        /// The kernel's routing table whose routes it follows, such as 254, the main one. [default: none]
        #[arg(long, value_name = "N")]
        kernel_table: Option<u32>,
    },
    /// An interface of the router: everything about it is as said here from then on.
    Interface(InterfaceArgs),
    /// A rule about which frames ports let in, where it stands: everything about it is as said here from then on.
    Rule(Box<RuleArgs>),
    /// All rules about which frames ports let in, at once.
    Rules(SetRulesArgs),
    /// Forwarding CPUs: threads are made and ended, and receive queues go over without loss.
    Threads {
        /// The CPUs that forward from now on.
        #[arg(long, value_name = "LIST")]
        forwarding_cpus: CpuList,
    },
    /// The thread that serves a receive queue.
    Queue {
        /// Name of the port.
        port: String,
        /// Number of its receive queue.
        queue: u16,
        /// CPU of the thread.
        #[arg(long, value_name = "N")]
        cpu: u32,
    },
}

/// Forget addresses that a bridge has learned.
#[derive(Debug, Args)]
pub(super) struct FlushArgs {
    /// Name of the bridge.
    bridge: String,
    /// Those on this port only.
    #[arg(long, value_name = "NAME")]
    port: Option<String>,
    /// Those of this VLAN only.
    #[arg(long, value_name = "VLAN", value_parser = parse_vlan)]
    vlan: Option<VlanId>,
    #[command(flatten)]
    asking: Asking,
}

/// Move receive queues between forwarding threads by what they cost.
#[derive(Debug, Args)]
pub(super) struct RebalanceArgs {
    /// Only say what would be moved, and why.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    asking: Asking,
}

pub(super) fn add(args: AddArgs) -> Result<()> {
    let change = match args.what {
        Add::Port {
            name,
            uri,
            rx_queues,
            tx_queues,
            rx_cpus,
            bridge,
            bridging,
        } => Change::AddPort(AddPort {
            name,
            uri,
            rx_queues,
            tx_queues,
            rx_cpus,
            bridge,
            bridging: bridging.setting(),
        }),
        Add::Bridge {
            name,
            ports,
            max_entries,
            ageing_s,
        } => Change::AddBridge(AddBridge {
            name,
            ports,
            max_entries,
            ageing_s,
        }),
        Add::Fdb {
            bridge,
            mac,
            port,
            vlan,
        } => Change::AddStatic(StaticSetting {
            bridge,
            mac,
            vlan,
            port,
        }),
        Add::Vlan {
            port,
            vlans,
            untagged,
            native,
        } => Change::AddVlan {
            port,
            vlans,
            untagged,
            native,
        },
        Add::Vrf { name, kernel_table } => Change::AddVrf(VrfSetting { name, kernel_table }),
        Add::Interface(interface) => Change::AddInterface(interface.setting()),
        Add::Route(route) => return request(&route.request(), &args.asking),
        Add::Neighbour(neighbour) => return request(&neighbour.request(), &args.asking),
        Add::Routes(routes) => {
            let added = add_routes(&routes, &args.asking.control_socket)?;
            if args.asking.json {
                print(serde_json::json!({ "added": added }).to_string())?;
            }
            return Ok(());
        }
        Add::KernelFilter(filter) => Change::AddKernelFilter(filter.setting()),
        Add::Rule(rule) => rule.change(),
        Add::CrossConnect { a, b } => Change::AddCrossConnect { ports: vec![a, b] },
    };
    carry_out(change, &args.asking)
}

pub(super) fn del(args: DelArgs) -> Result<()> {
    let change = match args.what {
        Del::Port { name } => Change::DelPort { name },
        Del::Fdb { bridge, mac, vlan } => Change::DelStatic { bridge, mac, vlan },
        Del::Vlan { port, vlans } => Change::DelVlan { port, vlans },
        Del::Vrf { name } => Change::DelVrf { name },
        Del::Interface { name } => Change::DelInterface { name },
        Del::Route { prefixes, vrf } => {
            return request(&Request::DelRoutes { vrf, prefixes }, &args.asking);
        }
        Del::Neighbour { interface, address } => {
            return request(&Request::DelNeighbour { interface, address }, &args.asking);
        }
        Del::Bridge { name } => Change::DelBridge { name },
        Del::KernelFilter { name } => Change::DelKernelFilter { name },
        Del::Rule { name } => Change::DelRule { name },
        Del::CrossConnect { port } => Change::DelCrossConnect { port },
    };
    carry_out(change, &args.asking)
}

pub(super) fn set(args: SetArgs) -> Result<()> {
    let change = match args.what {
        Set::Port {
            name,
            anew,
            bridging,
        } => Change::SetPort {
            name,
            anew,
            bridging: bridging.setting(),
        },
        Set::Bridge {
            name,
            add_ports,
            del_ports,
            max_entries,
            ageing_s,
        } => Change::SetBridge(SetBridge {
            name,
            add_ports,
            del_ports,
            max_entries,
            ageing_s,
        }),
        Set::Vrf { name, kernel_table } => Change::SetVrf(VrfSetting { name, kernel_table }),
        Set::Interface(interface) => Change::SetInterface(interface.setting()),
        Set::Rule(rule) => Change::SetRule(rule.setting()),
        Set::Rules(rules) => rules.change()?,
        Set::Threads { forwarding_cpus } => Change::SetThreads { forwarding_cpus },
        Set::Queue { port, queue, cpu } => {
            return move_queue(port, queue, cpu, &args.asking);
        }
    };
    carry_out(change, &args.asking)
}

pub(super) fn flush(args: FlushArgs) -> Result<()> {
    let FlushArgs {
        bridge,
        port,
        vlan,
        asking,
    } = args;
    request(&Request::FlushFdb { bridge, port, vlan }, &asking)
}

pub(super) fn rebalance(args: &RebalanceArgs) -> Result<()> {
    let request = Request::Rebalance {
        dry_run: args.dry_run,
        rules: None,
    };
    let answer = ask(&args.asking.control_socket, &request)?;
    if args.asking.json {
        print(serde_json::to_string_pretty(&answer)?)?;
        return Ok(());
    }
    let moves: Vec<MoveReport> = from_value(answer).context(super::answers::OTHER_VERSION)?;
    if moves.is_empty() {
        print("nothing is worth moving")?;
    } else {
        print(tables::moves(&moves))?;
    }
    Ok(())
}

fn move_queue(port: String, queue: u16, cpu: u32, asking: &Asking) -> Result<()> {
    request(&Request::MoveQueue { port, queue, cpu }, asking)
}

/// Without `--json` a change that was made says nothing.
fn carry_out(change: Change, asking: &Asking) -> Result<()> {
    request(&Request::Change(change), asking)
}

fn request(request: &Request, asking: &Asking) -> Result<()> {
    let answer = ask(&asking.control_socket, request)?;
    if asking.json {
        print(serde_json::to_string_pretty(&answer)?)?;
    }
    Ok(())
}
