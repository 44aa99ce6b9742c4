// SPDX-License-Identifier: Apache-2.0
//! Interfaces of any network namespace: the other end of a veth pair, and the interface from which another one gets its frames.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_indextoname;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use quietwire_base::netns::{self, Failure, NotFound};
use quietwire_base::rtnetlink::{self, attribute, contents, parse_link, push};

use super::peer_namespaces::find;
use crate::port::xdp_program::kernel::{InterfaceId, network};

/// An interface of any network namespace.
#[derive(Debug)]
pub(super) struct LocatedInterface {
    pub(super) id: InterfaceId,
    /// Its namespace, if that is another one than the caller's.
    pub(super) namespace: Option<File>,
}

impl LocatedInterface {
    /// Finds the namespace of an interface.
    pub(super) fn of(id: InterfaceId) -> Result<Self, NotFound> {
        if network() == Some(id.network) {
            let namespace = None;
            return Ok(Self { id, namespace });
        }
        let namespace = Some(find(|_, number| number == id.network)?);
        Ok(Self { id, namespace })
    }

    /// Runs a task with a socket in the namespace and the name of the interface.
    pub(super) fn within<T: Send>(
        &self,
        task: impl FnOnce(BorrowedFd<'_>, &str) -> Result<T, Errno> + Send,
    ) -> Result<T, Failure> {
        let run = || {
            let name = if_indextoname(self.id.index).map_err(|error| ("if_indextoname", error))?;
            let name = name.to_str().map_err(|_| ("its name", Errno::EILSEQ))?;
            let flags = SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, None)
                .map_err(|error| ("socket", error))?;
            task(socket.as_fd(), name).map_err(|error| ("SIOCETHTOOL", error))
        };
        netns::within(self.namespace.as_ref(), run)
    }
}

// linux/if_link.h.
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;

/// Kinds of interfaces (linux/if_link.h, `IFLA_INFO_KIND`): pairs, and those that get their frames from the interface below them.
const PAIR: [&[u8]; 1] = [b"veth"];
const ON_OTHERS: [&[u8]; 5] = [b"ipvlan", b"ipvtap", b"macvlan", b"macvtap", b"vlan"];

/// Returns the other end of the pair of an interface of this namespace. `None` if it is no end of a pair, or the other one is gone.
///
/// # Errors
/// The kernel's error, or the namespace of the other end is not found.
pub(super) fn other_end(own: InterfaceId) -> io::Result<Option<LocatedInterface>> {
    let socket = rtnetlink::open()?;
    let Some((index, number)) = linked_index(&link_of(&socket, own)?, &PAIR) else {
        return Ok(None);
    };
    let Some(number) = number else {
        let network = own.network;
        let id = InterfaceId { network, index };
        let namespace = None;
        return Ok(Some(LocatedInterface { id, namespace }));
    };
    let found = find(|namespace, _| number_of(&socket, namespace) == Some(number));
    let namespace = found.map_err(|_| {
        io::Error::other(
            "the network namespace of the other end of the pair has no name and no process that this one may access",
        )
    })?;
    let network = namespace.metadata()?.ino();
    Ok(Some(LocatedInterface {
        id: InterfaceId { network, index },
        namespace: Some(namespace),
    }))
}

/// Returns the interface below one of this namespace, such as below a macvlan. `None` if it gets its frames from no other interface.
///
/// # Errors
/// The kernel's error, or the interface below is in another namespace.
pub(super) fn lower_interface(own: InterfaceId) -> io::Result<Option<InterfaceId>> {
    let socket = rtnetlink::open()?;
    match linked_index(&link_of(&socket, own)?, &ON_OTHERS) {
        None => Ok(None),
        Some((index, None)) => Ok(Some(InterfaceId {
            network: own.network,
            index,
        })),
        Some((_, Some(_))) => Err(io::Error::other(
            "the interface below it is in another network namespace",
        )),
    }
}

fn link_of(socket: &OwnedFd, interface: InterfaceId) -> io::Result<Vec<u8>> {
    let request = rtnetlink::link(interface.index, 0, 0, &[]);
    rtnetlink::ask(socket, libc::RTM_GETLINK, 0, &request)
}

/// Reads index and namespace of another interface from the reply about one of these kinds: the other end of a pair, or the interface below.
/// The namespace is a number that belongs to that of the first interface; `None` for the same namespace.
fn linked_index(reply: &[u8], kinds: &[&[u8]]) -> Option<(u32, Option<i32>)> {
    let (own, attributes) = parse_link(reply)?;
    let kind = attribute(attribute(attributes, IFLA_LINKINFO)?, IFLA_INFO_KIND)?;
    if !kinds.contains(&kind.strip_suffix(b"\0").unwrap_or(kind)) {
        return None;
    }
    let word = |kind| Some(*attribute(attributes, kind)?.first_chunk::<4>()?);
    let index = word(IFLA_LINK).map_or(own, u32::from_ne_bytes);
    let namespace = word(IFLA_LINK_NETNSID).map(i32::from_ne_bytes);
    Some((index, namespace)).filter(|(index, _)| *index != 0)
}

/// Returns the number that the namespace of a socket has for another namespace (linux/net_namespace.h). `None` if it has none yet:
/// all such namespaces have the same negative number (`NETNSA_NSID_NOT_ASSIGNED`).
fn number_of(socket: &OwnedFd, namespace: &File) -> Option<i32> {
    const RTM_NEWNSID: u16 = 88;
    const RTM_GETNSID: u16 = 90;
    const NETNSA_NSID: u16 = 1;
    const NETNSA_FD: u16 = 3;
    /// Octets of struct rtgenmsg, with padding.
    const HEADER: usize = 4;
    let mut message = vec![0; HEADER];
    let file = namespace.as_raw_fd().to_ne_bytes();
    push(&mut message, NETNSA_FD, &file).ok()?;
    let reply = rtnetlink::ask(socket, RTM_GETNSID, 0, &message).ok()?;
    let attributes = contents(&reply, RTM_NEWNSID)?.get(HEADER..)?;
    let number = attribute(attributes, NETNSA_NSID)?.first_chunk()?;
    Some(i32::from_ne_bytes(*number)).filter(|number| *number >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_and_the_interface_below_are_read_from_the_reply() {
        let reply = |attributes: &[(u16, &[u8])]| {
            let mut all = Vec::new();
            for (kind, value) in attributes {
                push(&mut all, *kind, value).unwrap();
            }
            let header = [&[0; 4][..], &libc::RTM_NEWLINK.to_ne_bytes(), &[0; 10]].concat();
            [header, rtnetlink::link(9, 0, 0, &all)].concat()
        };
        let mut information = Vec::new();
        push(&mut information, IFLA_INFO_KIND, b"veth\0").unwrap();
        let pair = (IFLA_LINKINFO, &information[..]);
        assert_eq!(linked_index(&reply(&[]), &PAIR), None);
        assert_eq!(linked_index(&reply(&[pair]), &PAIR), Some((9, None)));
        let index = 3u32.to_ne_bytes();
        let number = 5i32.to_ne_bytes();
        let whole = [
            pair,
            (IFLA_LINK, &index[..]),
            (IFLA_LINK_NETNSID, &number[..]),
        ];
        assert_eq!(linked_index(&reply(&whole), &PAIR), Some((3, Some(5))));
        assert_eq!(linked_index(&reply(&whole), &ON_OTHERS), None);
        let none = 0u32.to_ne_bytes();
        let absent = [pair, (IFLA_LINK, &none[..])];
        assert_eq!(linked_index(&reply(&absent), &PAIR), None);
        let mut information = Vec::new();
        push(&mut information, IFLA_INFO_KIND, b"vethx\0").unwrap();
        let other = [(IFLA_LINKINFO, &information[..]), (IFLA_LINK, &index[..])];
        assert_eq!(linked_index(&reply(&other), &PAIR), None);
        let mut information = Vec::new();
        push(&mut information, IFLA_INFO_KIND, b"macvlan").unwrap();
        let upper = [(IFLA_LINKINFO, &information[..]), (IFLA_LINK, &index[..])];
        assert_eq!(linked_index(&reply(&upper), &PAIR), None);
        assert_eq!(linked_index(&reply(&upper), &ON_OTHERS), Some((3, None)));
    }
}
