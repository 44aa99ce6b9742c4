// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch add|del|set|flush|rebalance`: changes of a running switch.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{ArgGroup, Args, Subcommand};
use ipnet::IpNet;
use quietwire_host::{CpuList, CpuSequence};
use quietwire_packet::{MacAddress, VlanId};
use quietwire_switch::config::bridging::{AddBridge, SetBridge, StaticSetting};
use quietwire_switch::config::layer3::VrfSetting;
use quietwire_switch::config::rules::{Element, SetName};
use quietwire_switch::config::{AddPort, CONTROL_SOCKET_DEFAULT, Change, Settings};
use quietwire_switch::control::{Request, ask};
use quietwire_switch::report::MoveReport;
use serde_json::Value;

use super::bridging::{BridgingArgs, parse_vlan};
use super::confirm::{ConfirmArgs, note_time};
use super::load_balancer::{BackendArgs, LoadBalancerArgs};
use super::nat::{NatArgs, PublishArgs, PublishedArgs};
use super::router::{
    InterfaceArgs, KernelFilterArgs, NeighbourArgs, RouteArgs, RoutesArgs, add_routes,
};
use super::rules::{AddRuleArgs, RuleArgs, SetDefinitionArgs, SetRulesArgs};
use super::tables;
use crate::text::print;
use crate::units::parse_path;

/// Choice of the switch, and output format.
#[derive(Debug, Args)]
pub(super) struct ControlArgs {
    // The order places the global options behind those of the subcommand. clap gives `--help` the order 999.
    /// Print the answer as JSON.
    #[arg(long, global = true, display_order = 997)]
    pub(super) json: bool,
    /// Control socket of the switch.
    #[arg(
        long,
        global = true,
        display_order = 998,
        value_name = "PATH",
        default_value = CONTROL_SOCKET_DEFAULT,
        value_parser = parse_path
    )]
    pub(super) control_socket: PathBuf,
}

impl ControlArgs {
    /// Returns the control socket of the switch.
    pub(super) fn socket(&self) -> &Path {
        &self.control_socket
    }
}

/// Add an object to a running switch. A failure changes nothing.
#[derive(Debug, Args)]
pub(super) struct AddArgs {
    #[command(subcommand)]
    what: Add,
    #[command(flatten)]
    control: ControlArgs,
}

#[derive(Debug, Subcommand)]
enum Add {
    /// A port.
    Port {
        /// Name.
        name: String,
        /// URI, such as memif:/path?role=server.
        uri: String,
        /// Receive queues. [default: 1]
        #[arg(long, value_name = "N")]
        rx_queues: Option<u16>,
        /// Transmit queues. [default: one for each forwarding CPU, at most `queues` of the URI; 1 for pcap]
        #[arg(long, value_name = "N")]
        tx_queues: Option<u16>,
        /// CPUs for its receive queues, assigned round-robin in this order.
        #[arg(long, value_name = "LIST")]
        rx_cpus: Option<CpuSequence>,
        /// Bridge of the port.
        #[arg(long, value_name = "NAME")]
        bridge: Option<String>,
        #[command(flatten)]
        bridging: Box<BridgingArgs>,
    },
    /// A static FDB entry: an address that is on one port only.
    Fdb {
        /// Name of the bridge.
        bridge: String,
        /// MAC address.
        mac: MacAddress,
        /// Name of the port.
        port: String,
        /// VLAN, in a VLAN-aware bridge.
        #[arg(long, value_name = "VLAN", value_parser = parse_vlan)]
        vlan: Option<VlanId>,
    },
    /// VLANs of a trunk port. A port without VLANs becomes a trunk.
    Vlan {
        /// Name of the port.
        port: String,
        /// VLANs, like 1,5,10-12 or all.
        vlans: String,
        /// Frames of these VLANs leave untagged.
        #[arg(long)]
        untagged: bool,
        /// Untagged frames are in this VLAN (one VLAN only).
        #[arg(long)]
        native: bool,
    },
    /// A learning bridge.
    Bridge {
        /// Name.
        name: String,
        /// Names of the ports.
        ports: Vec<String>,
        /// Maximum number of addresses.
        #[arg(long, value_name = "N")]
        max_entries: Option<u32>,
        /// Ageing time of learned addresses, seconds.
        #[arg(long, value_name = "N")]
        ageing_s: Option<u32>,
        /// Let the kernel forward between veth ports.
        #[arg(long, value_name = "BOOL")]
        kernel_forwarding: Option<bool>,
    },
    /// A VRF.
    Vrf {
        /// Name.
        name: String,
        /// Kernel routing table whose routes the VRF follows. [default: none]
        #[arg(long, value_name = "N")]
        kernel_table: Option<u32>,
    },
    /// A router interface on a port, on a VLAN of a port, or on a bridge.
    Interface(InterfaceArgs),
    /// A static route. It replaces a route to the same prefix.
    Route(RouteArgs),
    /// Static routes from a file.
    Routes(RoutesArgs),
    /// A static neighbour.
    #[command(alias = "neighbor")]
    Neighbour(NeighbourArgs),
    /// A kernel filter rule: packets that the kernel gets in addition to those for the router, through the tap of the receiving
    /// interface.
    KernelFilter(KernelFilterArgs),
    /// NAT: external source addresses for packets that leave by an interface.
    Nat(NatArgs),
    /// An external address of a NAT; existing mappings stay.
    NatAddress {
        /// Name of the NAT.
        nat: String,
        /// The address.
        address: IpAddr,
    },
    /// A published port: an inside endpoint that the outside reaches at an external port of a NAT.
    Publish(PublishArgs),
    /// A load balancer: a virtual endpoint whose connections go to backends.
    LoadBalancer(LoadBalancerArgs),
    /// A backend of a load balancer.
    Backend(BackendArgs),
    /// A filter rule.
    Rule(Box<AddRuleArgs>),
    /// A set of addresses, ports or names of ports that filter rules refer to.
    Set(SetDefinitionArgs),
    /// Elements of a set.
    Element {
        /// Name of the set.
        set: SetName,
        /// Elements, such as 10.0.0.0/8 or 5000-5010.
        #[arg(required = true)]
        elements: Vec<Element>,
        /// Remove these elements after this time, seconds. [default: the timeout of the set]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        timeout_s: Option<u32>,
        #[command(flatten)]
        confirm: ConfirmArgs,
    },
    /// A cross-connect of two ports.
    CrossConnect {
        /// Name of one port.
        a: String,
        /// Name of the other port.
        b: String,
    },
}

/// Remove an object from a running switch.
#[derive(Debug, Args)]
pub(super) struct DelArgs {
    #[command(subcommand)]
    what: Del,
    #[command(flatten)]
    control: ControlArgs,
}

#[derive(Debug, Subcommand)]
enum Del {
    /// A port, and its cross-connect.
    Port {
        /// Name.
        name: String,
    },
    /// A static FDB entry of a bridge.
    Fdb {
        /// Name of the bridge.
        bridge: String,
        /// MAC address.
        mac: MacAddress,
        /// VLAN of the entry.
        #[arg(long, value_name = "VLAN", value_parser = parse_vlan)]
        vlan: Option<VlanId>,
    },
    /// VLANs of a trunk port.
    Vlan {
        /// Name of the port.
        port: String,
        /// VLANs, like 1,5,10-12 or all.
        vlans: String,
    },
    /// A bridge. Its ports stay, but drop frames.
    Bridge {
        /// Name.
        name: String,
    },
    /// A VRF without interfaces, and its routes.
    Vrf {
        /// Name.
        name: String,
    },
    /// A router interface.
    Interface {
        /// Name.
        name: String,
    },
    /// Static routes.
    Route {
        /// Prefixes of the routes.
        #[arg(required = true)]
        prefixes: Vec<IpNet>,
        /// VRF. [default: main]
        #[arg(long, value_name = "NAME")]
        vrf: Option<String>,
    },
    /// A neighbour, static or resolved.
    #[command(alias = "neighbor")]
    Neighbour {
        /// Name of the interface.
        interface: String,
        /// IP address.
        address: IpAddr,
    },
    /// A kernel filter rule.
    KernelFilter {
        /// Name.
        name: String,
    },
    /// NAT of an interface, and its mappings.
    Nat {
        /// Name.
        name: String,
    },
    /// A published port.
    Publish(PublishedArgs),
    /// A load balancer, and its connections.
    LoadBalancer {
        /// Name.
        name: String,
    },
    /// A backend of a load balancer.
    Backend {
        /// Name of the load balancer.
        load_balancer: String,
        /// Endpoint.
        to: SocketAddr,
    },
    /// A filter rule.
    Rule {
        /// Name.
        name: String,
        #[command(flatten)]
        confirm: ConfirmArgs,
    },
    /// A set that no filter rule refers to.
    Set {
        /// Name.
        name: SetName,
        #[command(flatten)]
        confirm: ConfirmArgs,
    },
    /// Elements of a set.
    Element {
        /// Name of the set.
        set: SetName,
        /// Elements, as `show config` prints them.
        #[arg(required = true)]
        elements: Vec<Element>,
        #[command(flatten)]
        confirm: ConfirmArgs,
    },
    /// A cross-connect.
    CrossConnect {
        /// Name of either port.
        port: String,
    },
}

/// Change an object of a running switch.
#[derive(Debug, Args)]
pub(super) struct SetArgs {
    #[command(subcommand)]
    what: Set,
    #[command(flatten)]
    control: ControlArgs,
}

#[derive(Debug, Subcommand)]
enum Set {
    /// Bridging options of a port. Options that are not given stay unchanged.
    Port {
        /// Name.
        name: String,
        /// Reset options that are not given to their defaults.
        #[arg(long)]
        reset: bool,
        #[command(flatten)]
        bridging: Box<BridgingArgs>,
    },
    /// Ports and table of a bridge.
    Bridge {
        /// Name.
        name: String,
        /// Port to add; repeatable.
        #[arg(long = "add-port", value_name = "NAME")]
        add_ports: Vec<String>,
        /// Port to remove; repeatable.
        #[arg(long = "del-port", value_name = "NAME")]
        del_ports: Vec<String>,
        /// Maximum number of addresses. A change flushes the learned addresses.
        #[arg(long, value_name = "N")]
        max_entries: Option<u32>,
        /// Ageing time of learned addresses, seconds. A change flushes the learned addresses.
        #[arg(long, value_name = "N")]
        ageing_s: Option<u32>,
        /// Let the kernel forward between veth ports.
        #[arg(long, value_name = "BOOL")]
        kernel_forwarding: Option<bool>,
    },
    /// A VRF, such as main. Options that are not given are reset to their defaults.
    Vrf {
        /// Name.
        name: String,
        /// Kernel routing table whose routes the VRF follows, such as 254 (main). [default: none]
        #[arg(long, value_name = "N")]
        kernel_table: Option<u32>,
    },
    /// A router interface. Options that are not given are reset to their defaults.
    Interface(InterfaceArgs),
    /// Weight and state of a backend. Options that are not given stay unchanged.
    Backend(BackendArgs),
    /// A filter rule. It keeps its position. Options that are not given are reset to their defaults.
    Rule(Box<RuleArgs>),
    /// All filter rules at once.
    Rules(SetRulesArgs),
    /// Connection tracking, as in the section `connections` of a file. Without the section, it ends.
    Connections {
        /// Configuration file (TOML). Its other sections have no effect.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Forwarding CPUs. The switch starts and stops threads, and moves receive queues without loss.
    Threads {
        /// New forwarding CPUs.
        #[arg(long, value_name = "LIST")]
        forwarding_cpus: CpuList,
    },
    /// The thread that serves a receive queue, or the flows that a card puts into it.
    #[command(group = ArgGroup::new("move").required(true).args(["cpu", "to_queue"]))]
    Queue {
        /// Name of the port.
        port: String,
        /// Number of the receive queue.
        queue: u16,
        /// CPU of the thread.
        #[arg(long, value_name = "N")]
        cpu: Option<u32>,
        /// Receive queue of the same card that gets a part of the flows.
        #[arg(long, value_name = "N", requires = "entries")]
        to_queue: Option<u16>,
        /// That part: entries of the card's redirection table.
        #[arg(long, value_name = "N", requires = "to_queue")]
        entries: Option<u16>,
    },
}

/// Flush learned addresses of a bridge.
#[derive(Debug, Args)]
pub(super) struct FlushArgs {
    /// Name of the bridge.
    bridge: String,
    /// Flush only addresses on this port.
    #[arg(long, value_name = "NAME")]
    port: Option<String>,
    /// Flush only addresses of this VLAN.
    #[arg(long, value_name = "VLAN", value_parser = parse_vlan)]
    vlan: Option<VlanId>,
    #[command(flatten)]
    control: ControlArgs,
}

/// Rebalance receive queues between forwarding threads by load.
#[derive(Debug, Args)]
pub(super) struct RebalanceArgs {
    /// Only show the moves and their reasons.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    control: ControlArgs,
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
            kernel_forwarding,
        } => Change::AddBridge(AddBridge {
            name,
            ports,
            max_entries,
            ageing_s,
            kernel_forwarding,
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
        Add::Route(route) => return request(&route.request(), &args.control),
        Add::Neighbour(neighbour) => return request(&neighbour.request(), &args.control),
        Add::Routes(routes) => {
            let added = add_routes(&routes, &args.control.control_socket)?;
            if args.control.json {
                print(serde_json::json!({ "added": added }).to_string())?;
            }
            return Ok(());
        }
        Add::KernelFilter(filter) => Change::AddKernelFilter(filter.setting()),
        Add::Nat(nat) => nat.change(),
        Add::NatAddress { nat, address } => Change::AddNatAddress { nat, address },
        Add::Publish(publish) => publish.change(),
        Add::LoadBalancer(setting) => setting.change(),
        Add::Backend(backend) => backend.add(),
        Add::Rule(rule) => {
            let confirm_s = rule.confirm().seconds()?;
            return change_rules(rule.change(), confirm_s, &args.control);
        }
        Add::Set(set) => {
            let confirm_s = set.confirm().seconds()?;
            return change_rules(set.change(), confirm_s, &args.control);
        }
        Add::Element {
            set,
            elements,
            timeout_s,
            confirm,
        } => {
            let change = Change::AddElements {
                set,
                elements,
                timeout_s,
            };
            return change_rules(change, confirm.seconds()?, &args.control);
        }
        Add::CrossConnect { a, b } => Change::AddCrossConnect { ports: vec![a, b] },
    };
    carry_out(change, &args.control)
}

pub(super) fn del(args: DelArgs) -> Result<()> {
    let change = match args.what {
        Del::Port { name } => Change::DelPort { name },
        Del::Fdb { bridge, mac, vlan } => Change::DelStatic { bridge, mac, vlan },
        Del::Vlan { port, vlans } => Change::DelVlan { port, vlans },
        Del::Vrf { name } => Change::DelVrf { name },
        Del::Interface { name } => Change::DelInterface { name },
        Del::Route { prefixes, vrf } => {
            return request(&Request::DelRoutes { vrf, prefixes }, &args.control);
        }
        Del::Neighbour { interface, address } => {
            return request(&Request::DelNeighbour { interface, address }, &args.control);
        }
        Del::Bridge { name } => Change::DelBridge { name },
        Del::KernelFilter { name } => Change::DelKernelFilter { name },
        Del::Nat { name } => Change::DelNat { name },
        Del::Publish(published) => published.change(),
        Del::LoadBalancer { name } => Change::DelLoadBalancer { name },
        Del::Backend { load_balancer, to } => Change::DelBackend { load_balancer, to },
        Del::Rule { name, confirm } => {
            return change_rules(Change::DelRule { name }, confirm.seconds()?, &args.control);
        }
        Del::Set { name, confirm } => {
            return change_rules(Change::DelSet { name }, confirm.seconds()?, &args.control);
        }
        Del::Element {
            set,
            elements,
            confirm,
        } => {
            let change = Change::DelElements { set, elements };
            return change_rules(change, confirm.seconds()?, &args.control);
        }
        Del::CrossConnect { port } => Change::DelCrossConnect { port },
    };
    carry_out(change, &args.control)
}

pub(super) fn set(args: SetArgs) -> Result<()> {
    let change = match args.what {
        Set::Port {
            name,
            reset,
            bridging,
        } => Change::SetPort {
            name,
            reset,
            bridging: bridging.setting(),
        },
        Set::Bridge {
            name,
            add_ports,
            del_ports,
            max_entries,
            ageing_s,
            kernel_forwarding,
        } => Change::SetBridge(SetBridge {
            name,
            add_ports,
            del_ports,
            max_entries,
            ageing_s,
            kernel_forwarding,
        }),
        Set::Vrf { name, kernel_table } => Change::SetVrf(VrfSetting { name, kernel_table }),
        Set::Interface(interface) => Change::SetInterface(interface.setting()),
        Set::Backend(backend) => backend.set(),
        Set::Rule(rule) => {
            let confirm_s = rule.confirm().seconds()?;
            return change_rules(Change::SetRule(rule.setting()), confirm_s, &args.control);
        }
        Set::Rules(rules) => {
            let confirm_s = rules.confirm().seconds()?;
            let change = rules.change(&args.control.control_socket)?;
            return change_rules(change, confirm_s, &args.control);
        }
        Set::Connections { config } => match Settings::read(&config)?.connections {
            Some(setting) => Change::SetConnections(setting),
            None => Change::DelConnections,
        },
        Set::Threads { forwarding_cpus } => Change::SetThreads { forwarding_cpus },
        Set::Queue {
            port,
            queue,
            cpu,
            to_queue,
            entries,
        } => {
            let part = to_queue.zip(entries);
            return request(&queue_request(port, queue, cpu, part)?, &args.control);
        }
    };
    carry_out(change, &args.control)
}

pub(super) fn flush(args: FlushArgs) -> Result<()> {
    let FlushArgs {
        bridge,
        port,
        vlan,
        control,
    } = args;
    request(&Request::FlushFdb { bridge, port, vlan }, &control)
}

pub(super) fn rebalance(args: &RebalanceArgs) -> Result<()> {
    let request = Request::Rebalance {
        dry_run: args.dry_run,
        rules: None,
    };
    let moves: Vec<MoveReport> = ask(&args.control.control_socket, &request)?;
    if args.control.json {
        print(serde_json::to_string_pretty(&moves)?)?;
    } else if moves.is_empty() {
        print("no move improves the balance")?;
    } else {
        print(tables::moves(&moves))?;
    }
    Ok(())
}

/// Returns the request to move a queue to a CPU, or a number of entries of its card's redirection table to another queue.
fn queue_request(
    port: String,
    queue: u16,
    cpu: Option<u32>,
    part: Option<(u16, u16)>,
) -> Result<Request> {
    match (cpu, part) {
        (Some(cpu), None) => Ok(Request::MoveQueue { port, queue, cpu }),
        (None, Some((to_queue, entries))) => Ok(Request::MoveEntries {
            port,
            queue,
            to_queue,
            entries,
        }),
        _ => bail!("give either --cpu, or --to-queue and --entries"),
    }
}

/// Requests a change of rules or sets, with a time for its confirmation if there is one.
fn change_rules(change: Change, confirm_s: Option<u32>, control: &ControlArgs) -> Result<()> {
    let Some(confirm_s) = confirm_s else {
        return carry_out(change, control);
    };
    let change = Box::new(change);
    request(&Request::ChangeRules { change, confirm_s }, control)?;
    note_time(confirm_s);
    Ok(())
}

/// Requests a change. Without `--json`, a successful change prints nothing.
pub(super) fn carry_out(change: Change, control: &ControlArgs) -> Result<()> {
    request(&Request::Change(Box::new(change)), control)
}

/// Sends a request. Without `--json`, it prints nothing.
pub(super) fn request(request: &Request, control: &ControlArgs) -> Result<()> {
    let answer: Value = ask(&control.control_socket, request)?;
    if control.json {
        print(serde_json::to_string_pretty(&answer)?)?;
    }
    Ok(())
}
