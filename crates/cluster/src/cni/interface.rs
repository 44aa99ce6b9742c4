// SPDX-License-Identifier: Apache-2.0
//! The interface in the container: addresses, routes and state (rtnetlink(7), getifaddrs(3)).

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use ipnet::IpNet;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use quietwire_base::netns::{self, Failure};
use quietwire_base::rtnetlink::{self, link, push};
use quietwire_packet::MacAddress;

use super::reply::{CniError, ErrorCode, Ip, Route};

// linux/if_addr.h.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_F_NODAD: u32 = 2;
// linux/rtnetlink.h.
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_TABLE: u16 = 15;
const RT_TABLE_UNSPEC: u8 = 0;
const RT_TABLE_MAIN: u32 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;

/// An interface as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) mac: Option<MacAddress>,
    pub(super) is_up: bool,
    pub(super) addresses: Vec<IpAddr>,
}

/// Gives an interface its addresses and routes, and sets it up. Returns its state.
///
/// # Errors
/// [`ErrorCode::UnknownContainer`] if the namespace does not exist, [`ErrorCode::Io`] with the step that the kernel refused.
pub(super) fn configure(
    namespace: &str,
    interface: &str,
    ips: &[Ip],
    routes: &[Route],
) -> Result<State, CniError> {
    within(namespace, interface, || {
        let index = if_nametoindex(interface).map_err(|error| ("finding the interface", error))?;
        let socket = rtnetlink::open().map_err(|error| ("socket", error))?;
        for ip in ips {
            let message = address(index, ip.address);
            send(&socket, libc::RTM_NEWADDR, message, "adding an address")?;
        }
        let up = libc::IFF_UP.cast_unsigned();
        let message = Ok(link(index, up, up, &[]));
        send(
            &socket,
            libc::RTM_NEWLINK,
            message,
            "setting the interface up",
        )?;
        for route in routes {
            let message = self::route(index, route, gateway(route, ips));
            send(&socket, libc::RTM_NEWROUTE, message, "adding a route")?;
        }
        read(interface)
    })
}

/// Returns the state of an interface.
///
/// # Errors
/// As [`configure`].
pub(super) fn state(namespace: &str, interface: &str) -> Result<State, CniError> {
    within(namespace, interface, || read(interface))
}

fn within<T: Send>(
    namespace: &str,
    interface: &str,
    task: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, CniError> {
    let file = netns::open(namespace).map_err(|what| {
        CniError::new(
            ErrorCode::UnknownContainer,
            "the network namespace cannot be opened",
        )
        .with_details(what)
    })?;
    netns::within(Some(&file), task).map_err(|(step, error)| {
        let what = format!("interface {interface} in {namespace}: {step}: {error}");
        CniError::new(ErrorCode::Io, what)
    })
}

fn send(
    socket: impl AsFd,
    kind: u16,
    message: io::Result<Vec<u8>>,
    step: &'static str,
) -> Result<(), Failure> {
    let flags = match kind {
        libc::RTM_NEWLINK => libc::NLM_F_ACK,
        _ => libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL,
    };
    let sent = message.and_then(|message| rtnetlink::ask(socket, kind, flags, &message));
    sent.map(drop).map_err(|error| {
        let code = error.raw_os_error();
        (step, code.map_or(Errno::EIO, Errno::from_raw))
    })
}

fn family(address: IpAddr) -> u8 {
    // Both fit (sys/socket.h).
    let family = match address {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    u8::try_from(family).unwrap_or_default()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Returns the request for an address: struct ifaddrmsg and attributes. The address is unique in the network, so that no duplicate is
/// looked for (RFC 4862, section 5.4), which would take a second.
fn address(index: u32, address: IpNet) -> io::Result<Vec<u8>> {
    let mut message = vec![family(address.addr()), address.prefix_len(), 0, 0];
    message.extend(index.to_ne_bytes());
    let own = octets(address.addr());
    push(&mut message, IFA_LOCAL, &own)?;
    push(&mut message, IFA_ADDRESS, &own)?;
    if address.addr().is_ipv6() {
        push(&mut message, IFA_FLAGS, &IFA_F_NODAD.to_ne_bytes())?;
    }
    Ok(message)
}

/// Returns the next hop of a route: its own, or the gateway of an address of the same family.
fn gateway(route: &Route, ips: &[Ip]) -> Option<IpAddr> {
    let is_v4 = route.dst.addr().is_ipv4();
    let mut gateways = ips.iter().filter_map(|ip| ip.gateway);
    let of_family = || gateways.find(|gateway| gateway.is_ipv4() == is_v4);
    route.gw.or_else(of_family)
}

/// Returns the request for a route: struct rtmsg and attributes.
fn route(index: u32, route: &Route, gateway: Option<IpAddr>) -> io::Result<Vec<u8>> {
    let destination = route.dst.network();
    let scope = match gateway {
        Some(_) => RT_SCOPE_UNIVERSE,
        None => RT_SCOPE_LINK,
    };
    let mut message = vec![
        family(destination),
        route.dst.prefix_len(),
        0,
        0,
        RT_TABLE_UNSPEC,
        RTPROT_STATIC,
        scope,
        RTN_UNICAST,
    ];
    message.extend([0; 4]);
    if route.dst.prefix_len() > 0 {
        push(&mut message, RTA_DST, &octets(destination))?;
    }
    push(&mut message, RTA_OIF, &index.to_ne_bytes())?;
    let table = route.table.unwrap_or(RT_TABLE_MAIN);
    push(&mut message, RTA_TABLE, &table.to_ne_bytes())?;
    if let Some(gateway) = gateway {
        push(&mut message, RTA_GATEWAY, &octets(gateway))?;
    }
    if let Some(priority) = route.priority {
        push(&mut message, RTA_PRIORITY, &priority.to_ne_bytes())?;
    }
    Ok(message)
}

/// Reads the state of an interface of the thread's namespace.
fn read(interface: &str) -> Result<State, Failure> {
    let all = getifaddrs().map_err(|error| ("getifaddrs", error))?;
    let mut state = State::default();
    let mut is_there = false;
    for entry in all.filter(|entry| entry.interface_name == interface) {
        is_there = true;
        state.is_up |= entry.flags.contains(InterfaceFlags::IFF_UP);
        let Some(address) = entry.address else {
            continue;
        };
        if let Some(address) = address.as_sockaddr_in() {
            state.addresses.push(address.ip().into());
        } else if let Some(address) = address.as_sockaddr_in6() {
            state.addresses.push(address.ip().into());
        } else if let Some(link) = address.as_link_addr() {
            state.mac = link.addr().map(MacAddress);
        }
    }
    match is_there {
        true => Ok(state),
        false => Err(("finding the interface", Errno::ENODEV)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_goes_to_its_own_gateway_or_to_that_of_its_family() {
        let ip = |address: &str, gateway: &str| Ip {
            address: address.parse().unwrap(),
            gateway: Some(gateway.parse().unwrap()),
            interface: None,
        };
        let ips = [
            ip("10.0.0.2/24", "10.0.0.1"),
            ip("2001:db8::2/64", "2001:db8::1"),
        ];
        let route = |dst: &str, gw: Option<&str>| Route {
            dst: dst.parse().unwrap(),
            gw: gw.map(|gw| gw.parse().unwrap()),
            priority: None,
            table: None,
        };
        let observed = |dst, gw| gateway(&route(dst, gw), &ips).unwrap().to_string();
        assert_eq!(observed("0.0.0.0/0", None), "10.0.0.1");
        assert_eq!(observed("::/0", None), "2001:db8::1");
        assert_eq!(observed("0.0.0.0/0", Some("10.0.0.9")), "10.0.0.9");
        assert_eq!(gateway(&route("::/0", None), &ips[..1]), None);
    }

    #[test]
    fn requests_are_those_of_the_kernel() {
        let message = address(7, "10.0.0.2/24".parse().unwrap()).unwrap();
        assert_eq!(message[..8], [2, 24, 0, 0, 7, 0, 0, 0]);
        assert_eq!(message[8..16], [8, 0, 2, 0, 10, 0, 0, 2]);
        let message = address(7, "2001:db8::2/64".parse().unwrap()).unwrap();
        assert_eq!(message.len(), 8 + 20 + 20 + 8);
        let default = Route {
            dst: "0.0.0.0/0".parse().unwrap(),
            gw: None,
            priority: Some(5),
            table: None,
        };
        let gateway = "10.0.0.1".parse().unwrap();
        let message = route(7, &default, Some(gateway)).unwrap();
        assert_eq!(message[..12], [2, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0, 0]);
        // Interface, table, gateway, metric.
        assert_eq!(message.len(), 12 + 4 * 8);
        assert_eq!(route(7, &default, None).unwrap()[6], RT_SCOPE_LINK);
    }
}
