// SPDX-License-Identifier: Apache-2.0
//! Options of `quietwire switch add|del|set|show` for the router: VRFs, interfaces, routes, neighbours.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use quietwire_base::text_error;
use quietwire_packet::{MacAddress, VlanId};
use quietwire_switch::config::kernel_filter::KernelFilterSetting;
use quietwire_switch::config::layer3::{
    InterfaceSetting, NeighbourSetting, PrefixTranslationSetting, RouteKind, RouteSetting, Urpf,
    ViaSetting,
};
use quietwire_switch::control::{Request, ask};
use serde::de::IgnoredAny;

use super::bridging::parse_vlan;
use super::packet::MatchArgs;
use crate::exit::Usage;

/// Routes per request, far below the limit of the switch.
const ROUTES_A_REQUEST: usize = 200;
/// Maximum length of a line in a file of routes, octets.
const LINE_MAX: u64 = 64 << 10;

/// A router interface.
#[derive(Debug, Args)]
pub(super) struct InterfaceArgs {
    /// Name.
    name: String,
    /// Port of the interface.
    #[arg(long, value_name = "NAME", required_unless_present = "bridge")]
    port: Option<String>,
    /// Bridge of the interface.
    #[arg(long, value_name = "NAME", conflicts_with = "port")]
    bridge: Option<String>,
    /// VLAN of the interface. [default: untagged frames]
    #[arg(long, value_name = "VLAN", value_parser = parse_vlan)]
    vlan: Option<VlanId>,
    /// Address with the prefix length of its link, like 192.0.2.1/24; repeatable.
    #[arg(long = "address", value_name = "ADDRESS/LENGTH")]
    addresses: Vec<IpNet>,
    /// VRF of the interface. [default: main]
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
    /// MAC address. [default: derived from the machine and the name]
    #[arg(long, value_name = "MAC")]
    mac: Option<MacAddress>,
    /// MTU: largest IP packet, octets. [default: 1500]
    #[arg(long, value_name = "N")]
    mtu: Option<u16>,
    /// Reverse-path check of source addresses (uRPF, RFC 3704). [default: off]
    #[arg(long, value_enum)]
    urpf: Option<UrpfArg>,
    /// Inside and outside IPv6 prefix to translate (NPTv6, RFC 6296).
    #[arg(long, value_name = "INSIDE,OUTSIDE")]
    prefix_translation: Option<PrefixTranslationSetting>,
    /// Name of a tap that gives the kernel the interface's addresses and packets to the router.
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UrpfArg {
    /// No check.
    Off,
    /// Require a route to the source through any interface.
    Loose,
    /// Require a route to the source through the receiving interface.
    Strict,
}

impl InterfaceArgs {
    pub(super) fn setting(self) -> InterfaceSetting {
        InterfaceSetting {
            name: self.name,
            port: self.port,
            bridge: self.bridge,
            vlan: self.vlan,
            addresses: self.addresses,
            vrf: self.vrf,
            mac: self.mac,
            mtu: self.mtu,
            urpf: self.urpf.map(|urpf| match urpf {
                UrpfArg::Off => Urpf::Off,
                UrpfArg::Loose => Urpf::Loose,
                UrpfArg::Strict => Urpf::Strict,
            }),
            prefix_translation: self.prefix_translation,
            kernel: self.kernel,
        }
    }
}

/// A kernel filter rule.
#[derive(Debug, Args)]
pub(super) struct KernelFilterArgs {
    /// Name.
    name: String,
    /// Receiving interface. [default: all interfaces with a kernel tap]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// VRF of the receiving interface. [default: any]
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
    #[command(flatten)]
    packet: MatchArgs,
}

impl KernelFilterArgs {
    pub(super) fn setting(self) -> KernelFilterSetting {
        KernelFilterSetting {
            name: self.name,
            interface: self.interface,
            vrf: self.vrf,
            packet: self.packet.into(),
        }
    }
}

/// A static route.
#[derive(Debug, Args)]
pub(super) struct RouteArgs {
    /// Destination prefix, like 198.51.100.0/24.
    prefix: IpNet,
    /// Next hop: ADDRESS, INTERFACE or ADDRESS,INTERFACE; repeatable for multipath. Append ,weight=N (1 to 255) for its share of
    /// the flows, and ,onlink if the address is in no prefix of the interface.
    #[arg(long = "via", value_name = "ADDRESS[,INTERFACE]", value_parser = parse_via)]
    via: Vec<ViaSetting>,
    /// Kind of the route.
    #[arg(long, value_enum, default_value_t = KindArg::Unicast)]
    kind: KindArg,
    /// VRF. [default: main]
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindArg {
    /// Forward packets.
    Unicast,
    /// Drop packets silently.
    Blackhole,
    /// Drop packets and send ICMP destination unreachable.
    Unreachable,
    /// Drop packets and send ICMP administratively prohibited.
    Prohibit,
}

impl RouteArgs {
    pub(super) fn request(self) -> Request {
        let kind = match self.kind {
            KindArg::Unicast => None,
            KindArg::Blackhole => Some(RouteKind::Blackhole),
            KindArg::Unreachable => Some(RouteKind::Unreachable),
            KindArg::Prohibit => Some(RouteKind::Prohibit),
        };
        Request::AddRoutes(vec![RouteSetting {
            prefix: self.prefix,
            vrf: self.vrf,
            kind,
            via: self.via,
        }])
    }
}

fn parse_via(text: &str) -> Result<ViaSetting, String> {
    let mut via = ViaSetting {
        address: None,
        interface: None,
        weight: None,
        onlink: false,
    };
    for part in text.split(',') {
        if let Some(weight) = part.strip_prefix("weight=") {
            let weight = weight.parse::<u8>().ok().filter(|weight| *weight > 0);
            via.weight = Some(weight.ok_or("a weight must be 1 to 255")?);
        } else if part == "onlink" {
            via.onlink = true;
        } else if let Ok(address) = part.parse::<IpAddr>() {
            via.address = Some(address);
        } else if part.is_empty() {
            return Err("expected ADDRESS, INTERFACE, or ADDRESS,INTERFACE".to_owned());
        } else {
            via.interface = Some(part.to_owned());
        }
    }
    Ok(via)
}

/// Static routes from a file.
#[derive(Debug, Args)]
pub(super) struct RoutesArgs {
    /// File of routes, or - for standard input. A line is PREFIX VIA, with VIA like that of `add route`, or blackhole,
    /// unreachable or prohibit. Empty lines and comments after # are ignored.
    file: PathBuf,
    /// VRF. [default: main]
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
}

/// Adds the routes of a file in several requests, each of which succeeds or fails as a whole. Returns the number of routes. A file without
/// routes is one request, so that a switch that does not run is reported.
pub(super) fn add_routes(args: &RoutesArgs, socket: &Path) -> Result<u64> {
    let name = args.file.display().to_string();
    let mut waiting = Vec::with_capacity(ROUTES_A_REQUEST);
    let mut added = 0_u64;
    let mut reader = BufReader::new(open_routes(&args.file)?);
    let mut number = 0_u64;
    loop {
        number = number.saturating_add(1);
        let line = next_line(&mut reader)
            .map_err(|error| Usage(format!("{name}:{number}: {}", text_error(error))))?;
        let Some(line) = line else {
            break;
        };
        let route = parse_route(&line, args.vrf.as_deref())
            .map_err(|what| Usage(format!("{name}:{number}: {what}")))?;
        waiting.extend(route);
        if waiting.len() == ROUTES_A_REQUEST {
            added = added.saturating_add(send(socket, &mut waiting)?);
        }
    }
    if added == 0 || !waiting.is_empty() {
        added = added.saturating_add(send(socket, &mut waiting)?);
    }
    Ok(added)
}

/// Reads the next line of a file of routes. Returns `None` at its end.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    reader.take(LINE_MAX).read_line(&mut line)?;
    if line.len() as u64 >= LINE_MAX && !line.ends_with('\n') {
        let what = format!("the line is longer than {LINE_MAX} octets");
        return Err(io::Error::other(what));
    }
    Ok(Some(line).filter(|line| !line.is_empty()))
}

/// Opens a file of routes, or standard input.
fn open_routes(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(std::io::stdin()));
    }
    let wrong = |what: &dyn Display| Usage(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| wrong(&error))?;
    let metadata = file.metadata().map_err(|error| wrong(&error))?;
    if metadata.is_dir() {
        return Err(
            wrong(&"is a directory (give a file of routes, or - for standard input)").into(),
        );
    }
    Ok(Box::new(file))
}

/// Sends the waiting routes. Returns their number.
fn send(socket: &Path, waiting: &mut Vec<RouteSetting>) -> Result<u64> {
    let routes = std::mem::take(waiting);
    let count = routes.len() as u64;
    ask::<IgnoredAny>(socket, &Request::AddRoutes(routes))?;
    Ok(count)
}

fn parse_route(line: &str, vrf: Option<&str>) -> Result<Option<RouteSetting>, String> {
    let line = line.split('#').next().unwrap_or_default();
    let mut words = line.split_whitespace();
    let Some(prefix) = words.next() else {
        return Ok(None);
    };
    let prefix = prefix
        .parse()
        .map_err(|_| format!("'{prefix}' is not a prefix like 198.51.100.0/24"))?;
    let mut setting = RouteSetting {
        prefix,
        vrf: vrf.map(str::to_owned),
        kind: None,
        via: Vec::new(),
    };
    for word in words {
        match word {
            "blackhole" => setting.kind = Some(RouteKind::Blackhole),
            "unreachable" => setting.kind = Some(RouteKind::Unreachable),
            "prohibit" => setting.kind = Some(RouteKind::Prohibit),
            "via" => {}
            via => setting.via.push(parse_via(via)?),
        }
    }
    Ok(Some(setting))
}

/// A static neighbour.
#[derive(Debug, Args)]
pub(super) struct NeighbourArgs {
    /// Name of the interface.
    interface: String,
    /// IP address.
    address: IpAddr,
    /// MAC address.
    mac: MacAddress,
}

impl NeighbourArgs {
    pub(super) fn request(self) -> Request {
        Request::AddNeighbour(NeighbourSetting {
            interface: self.interface,
            address: self.address,
            mac: self.mac,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_maximum_length() {
        let mut reader = BufReader::new(&b"one\n\ntwo"[..]);
        for line in [Some("one\n"), Some("\n"), Some("two"), None] {
            assert_eq!(next_line(&mut reader).unwrap().as_deref(), line);
        }
        let error = next_line(&mut BufReader::new(io::repeat(b'1'))).unwrap_err();
        assert!(error.to_string().contains("longer than 65536 octets"));
    }

    #[test]
    fn routes_of_a_file() {
        let route = |line| parse_route(line, None);
        assert_eq!(route("  # nothing"), Ok(None));
        let one = route("10.0.0.0/8 via 192.0.2.1,lan0 192.0.2.2,weight=3 # two ways")
            .unwrap()
            .unwrap();
        assert_eq!(one.via.len(), 2);
        assert_eq!(one.via[0].interface.as_deref(), Some("lan0"));
        assert_eq!(one.via[1].weight, Some(3));
        let hole = route("2001:db8::/32 blackhole").unwrap().unwrap();
        assert_eq!(hole.kind, Some(RouteKind::Blackhole));
        for (line, part) in [
            ("10.0.0.0 via 192.0.2.1", "is not a prefix"),
            ("10.0.0.0/8 192.0.2.1,weight=0", "1 to 255"),
            ("10.0.0.0/8 192.0.2.1,", "expected ADDRESS"),
        ] {
            assert!(route(line).unwrap_err().contains(part), "{line}");
        }
    }
}
