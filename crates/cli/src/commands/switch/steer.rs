// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch steer`: rules about which frames of an interface go to the switch, and which to the kernel.

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use quietwire_packet::{MacAddress, VlanId};
use quietwire_switch::config::Change;
use quietwire_switch::config::steer::{SteerSetting, SteerTo};
use quietwire_switch::control::{Request, Subject, ask};

use super::answers::OTHER_VERSION;
use super::bridging::parse_vlan;
use super::change::{ControlArgs, carry_out};
use super::packet::MatchArgs;
use super::tables;
use crate::text::print;

/// Choose which frames of an interface go to the switch, and which to the kernel.
#[derive(Debug, Args)]
pub(super) struct SteerArgs {
    #[command(subcommand)]
    what: Steer,
    #[command(flatten)]
    control: ControlArgs,
}

#[derive(Debug, Subcommand)]
enum Steer {
    Add(Box<AddArgs>),
    /// Show the rules in order, what enforces them, and their counters.
    Show,
    /// Remove a rule. Without rules, an af-xdp port receives all frames of its interface.
    #[command(visible_alias = "remove")]
    Del {
        /// Name.
        name: String,
    },
}

/// Add a rule. The first rule that matches decides; without a match, the kernel gets the frame.
#[derive(Debug, Args)]
struct AddArgs {
    /// Name.
    name: String,
    /// Port on the interface.
    #[arg(long, value_name = "NAME")]
    port: String,
    /// Destination of matching frames.
    #[arg(long, value_enum)]
    to: ToArg,
    /// Port on a tap through which the kernel gets its frames; required unless --port is of kind af-xdp.
    #[arg(long, value_name = "NAME")]
    kernel_port: Option<String>,
    /// Name of the rule to insert before. [default: at the end]
    #[arg(long, value_name = "NAME")]
    before: Option<String>,
    /// Receive queue of the interface that the card selects. [default: the card spreads the flows]
    #[arg(long, value_name = "N")]
    queue: Option<u16>,
    /// Number of the virtual function; required with --to virtual-function.
    #[arg(long, value_name = "N")]
    virtual_function: Option<u16>,
    /// Source MAC address. [default: any]
    #[arg(long, value_name = "MAC")]
    source_mac: Option<MacAddress>,
    /// Destination MAC address. [default: any]
    #[arg(long, value_name = "MAC")]
    destination_mac: Option<MacAddress>,
    /// VLAN of the outermost tag. [default: any]
    #[arg(long, value_name = "VLAN", value_parser = parse_vlan)]
    vlan: Option<VlanId>,
    #[command(flatten)]
    packet: MatchArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ToArg {
    /// The port of the switch.
    Switch,
    /// The network stack of the kernel.
    Kernel,
    /// A virtual function of the card.
    VirtualFunction,
}

impl AddArgs {
    fn change(self) -> Change {
        Change::AddSteer {
            rule: SteerSetting {
                name: self.name,
                port: self.port,
                to: match self.to {
                    ToArg::Switch => SteerTo::Switch,
                    ToArg::Kernel => SteerTo::Kernel,
                    ToArg::VirtualFunction => SteerTo::VirtualFunction,
                },
                kernel_port: self.kernel_port,
                queue: self.queue,
                virtual_function: self.virtual_function,
                source_mac: self.source_mac,
                destination_mac: self.destination_mac,
                vlan: self.vlan,
                packet: self.packet.into(),
            },
            before: self.before,
        }
    }
}

pub(super) fn run(args: SteerArgs) -> Result<()> {
    match args.what {
        Steer::Add(rule) => carry_out(rule.change(), &args.control),
        Steer::Del { name } => carry_out(Change::DelSteer { name }, &args.control),
        Steer::Show => {
            let answer = ask(args.control.socket(), &Request::Show(Subject::Steer))?;
            print(if args.control.json {
                serde_json::to_string_pretty(&answer)?
            } else {
                tables::render(Subject::Steer, answer).context(OTHER_VERSION)?
            })
        }
    }
}
