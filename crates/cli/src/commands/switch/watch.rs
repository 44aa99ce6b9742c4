// SPDX-License-Identifier: Apache-2.0
//! Common parts of `switch capture` and `switch trace`: the filter, the duration, and requests to the running switch.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use ipnet::IpNet;
use quietwire_packet::{MacAddress, VlanId};
use quietwire_switch::config::CONTROL_SOCKET_DEFAULT;
use quietwire_switch::control::{Request, ask};
use quietwire_switch::observe::{Filter, WatchRequest};
use serde::de::DeserializeOwned;

use super::bridging::parse_vlan;
use crate::units::{parse_duration, parse_path};

/// Polling interval while the switch has no news.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// What a capture or a trace leaves that is ended by force.
pub(super) const WATCH_LEFT: &str =
    "the switch ends the capture or trace, which is not read any more";

/// Filter of frames. A frame matches if it matches all given options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which frames")]
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
    /// EtherType after tags: a number like 0x0806, or ipv4, ipv6, arp.
    #[arg(long, value_name = "TYPE", value_parser = parse_ethertype)]
    ethertype: Option<u16>,
    /// Prefix of the source or destination IP address.
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    address: Option<IpNet>,
    /// Prefix of the source IP address.
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    source: Option<IpNet>,
    /// Prefix of the destination IP address.
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    destination: Option<IpNet>,
    /// IP protocol: a number, or tcp, udp, icmp, icmpv6, ospf.
    #[arg(long, value_name = "PROTOCOL", value_parser = parse_protocol)]
    protocol: Option<u8>,
    /// Source or destination port of UDP or TCP.
    #[arg(long, value_name = "N")]
    l4_port: Option<u16>,
}

impl FilterArgs {
    pub(super) fn filter(&self) -> Filter {
        Filter {
            port: self.port.clone(),
            mac: self.mac,
            vlan: self.vlan,
            ethertype: self.ethertype,
            address: self.address,
            source: self.source,
            destination: self.destination,
            protocol: self.protocol,
            l4_port: self.l4_port,
        }
    }
}

/// Duration, and choice of the switch.
#[derive(Debug, Args)]
pub(super) struct UntilArgs {
    /// Stop after this time, like 10s. Default: run until a signal.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    interval: Option<Duration>,
    /// Control socket of the switch.
    #[arg(long, value_name = "PATH", default_value = CONTROL_SOCKET_DEFAULT, value_parser = parse_path)]
    pub(super) control_socket: PathBuf,
}

impl UntilArgs {
    /// Returns the time to stop, counted from now.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(Instant::now() + self.interval?)
    }
}

/// Sends a request and parses the answer.
pub(super) fn request<T: DeserializeOwned>(socket: &Path, request: WatchRequest) -> Result<T> {
    Ok(ask(socket, &Request::Watch(request))?)
}

fn parse_ethertype(text: &str) -> Result<u16, String> {
    let number = match text {
        "ipv4" => return Ok(0x0800),
        "ipv6" => return Ok(0x86dd),
        "arp" => return Ok(0x0806),
        _ => text.strip_prefix("0x").unwrap_or(text),
    };
    u16::from_str_radix(number, 16).map_err(|_| {
        "an EtherType is a hexadecimal number of 16 bits, like 0x0806, or ipv4, ipv6, arp"
            .to_owned()
    })
}

fn parse_protocol(text: &str) -> Result<u8, String> {
    Ok(match text {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "icmpv6" => 58,
        "ospf" => 89,
        _ => {
            return text.parse().map_err(|_| {
                "a protocol is a number up to 255, or tcp, udp, icmp, icmpv6, ospf".to_owned()
            });
        }
    })
}

/// Parses a prefix. An address alone is a prefix of its full length.
fn parse_prefix(text: &str) -> Result<IpNet, String> {
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from))
        .map_err(|_| "a prefix is an address, or one with a length, like 10.0.0.0/8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_protocols_and_prefixes_are_read() {
        assert_eq!(parse_ethertype("arp"), Ok(0x0806));
        assert_eq!(parse_ethertype("0x88CC"), Ok(0x88cc));
        assert!(parse_ethertype("0x12345").is_err() && parse_ethertype("").is_err());
        assert_eq!(parse_protocol("ospf"), Ok(89));
        assert_eq!(parse_protocol("47"), Ok(47));
        assert!(parse_protocol("256").is_err());
        assert_eq!(parse_prefix("10.0.0.1"), parse_prefix("10.0.0.1/32"));
        assert!(parse_prefix("fd00::/8").is_ok() && parse_prefix("10.0.0.0/33").is_err());
    }
}
