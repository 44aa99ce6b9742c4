// SPDX-License-Identifier: Apache-2.0
//! Common parts of `switch capture` and `switch trace`: the filter, the duration, and requests to the running switch.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use ipnet::IpNet;
use quietwire_base::Deadline;
use quietwire_packet::{MacAddress, VlanId};
use quietwire_switch::config::CONTROL_SOCKET_DEFAULT;
use quietwire_switch::control::{Request, ask};
use quietwire_switch::observe::{Filter, WatchRequest};
use serde::de::DeserializeOwned;

use super::bridging::parse_vlan;
use super::packet::{MatchArgs, parse_prefix};
use crate::units::{parse_duration, parse_path};

/// Polling interval while the switch has no news.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Message about the remains of a capture or a trace that is ended by force.
pub(super) const WATCH_LEFT: &str =
    "the switch ends the capture or trace, which is not read any more";

/// Filter of frames. A frame matches if it matches all given options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Selected frames")]
pub(super) struct FilterArgs {
    /// Port of the switch.
    #[arg(long, value_name = "NAME")]
    port: Option<String>,
    /// Source or destination MAC address.
    #[arg(long, value_name = "MAC")]
    mac: Option<MacAddress>,
    /// VLAN of the outermost tag.
    #[arg(long, value_name = "ID", value_parser = parse_vlan)]
    vlan: Option<VlanId>,
    /// Prefix of the source or destination IP address.
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    address: Option<IpNet>,
    /// Source or destination port of UDP or TCP.
    #[arg(long, value_name = "N")]
    l4_port: Option<u16>,
    #[command(flatten)]
    packet: MatchArgs,
}

impl From<&FilterArgs> for Filter {
    fn from(args: &FilterArgs) -> Self {
        let FilterArgs {
            port,
            mac,
            vlan,
            address,
            l4_port,
            packet,
        } = args;
        Self {
            port: port.clone(),
            mac: *mac,
            vlan: *vlan,
            address: *address,
            l4_port: *l4_port,
            packet: (*packet).into(),
        }
    }
}

/// Duration, and choice of the switch.
#[derive(Debug, Args)]
pub(super) struct UntilArgs {
    /// Stop after this time, like 10s. Default: run until a signal.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    interval: Option<Duration>,
    /// Control socket of the switch.
    #[arg(long, value_name = "PATH", default_value = CONTROL_SOCKET_DEFAULT, value_parser = parse_path)]
    pub(super) control_socket: PathBuf,
}

impl UntilArgs {
    /// Returns the time to stop, counted from now.
    pub(super) fn deadline(&self) -> Option<Deadline> {
        self.interval.map(Deadline::after)
    }
}

/// Sends a request and parses the answer.
pub(super) fn request<T: DeserializeOwned>(socket: &Path, request: WatchRequest) -> Result<T> {
    Ok(ask(socket, &Request::Watch(request))?)
}
