// SPDX-License-Identifier: Apache-2.0
//! Messages of rtnetlink(7) about the interfaces of a pair (linux/if_link.h, linux/veth.h).

use std::io;
use std::os::fd::RawFd;

use nix::libc;

use quietwire_base::rtnetlink::{attribute, link, parse_link, push};

// linux/if_link.h.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_GROUP: u16 = 27;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
// linux/veth.h.
const VETH_INFO_PEER: u16 = 1;

/// Kind of both interfaces.
const KIND: &[u8] = b"veth";
/// Group (ip-link(8)) of a near end from its creation until it has its alias. The kernel sets a group when it creates an interface, and an
/// alias only later.
const UNFINISHED: u32 = u32::from_be_bytes(*b"qwv1");
/// Group of all other interfaces, unless an administrator changes it.
const DEFAULT_GROUP: u32 = 0;

/// One end of a pair that a port requires.
#[derive(Clone, Copy, Debug)]
pub(super) struct End<'uri> {
    pub(super) name: &'uri str,
    /// MTU, octets.
    pub(super) mtu: u16,
    /// MAC address; the kernel chooses one if there is none.
    pub(super) address: Option<[u8; 6]>,
}

impl End<'_> {
    fn push_name(&self, to: &mut Vec<u8>) -> io::Result<()> {
        push_name(to, self.name)
    }

    fn push_settings(&self, to: &mut Vec<u8>) -> io::Result<()> {
        push(to, IFLA_MTU, &u32::from(self.mtu).to_ne_bytes())?;
        if let Some(address) = &self.address {
            push(to, IFLA_ADDRESS, address)?;
        }
        Ok(())
    }
}

fn push_name(to: &mut Vec<u8>, name: &str) -> io::Result<()> {
    push(to, IFLA_IFNAME, &[name.as_bytes(), &[0]].concat())
}

/// Returns the request for the interface with a name.
pub(super) fn named(name: &str) -> io::Result<Vec<u8>> {
    let mut attributes = Vec::new();
    push_name(&mut attributes, name)?;
    Ok(link(0, 0, 0, &attributes))
}

/// Returns the request for the interface with an index, or for its deletion.
pub(super) fn indexed(index: u32) -> Vec<u8> {
    link(index, 0, 0, &[])
}

/// Returns the request for a pair, whose far end is in the network namespace of a file. The near end is marked as unfinished.
pub(super) fn create(
    near: &End<'_>,
    far: &End<'_>,
    namespace: Option<RawFd>,
) -> io::Result<Vec<u8>> {
    let mut peer = Vec::new();
    far.push_name(&mut peer)?;
    far.push_settings(&mut peer)?;
    if let Some(file) = namespace {
        push(&mut peer, IFLA_NET_NS_FD, &file.to_ne_bytes())?;
    }
    let mut data = Vec::new();
    push(&mut data, VETH_INFO_PEER, &link(0, 0, 0, &peer))?;
    let mut information = Vec::new();
    push(&mut information, IFLA_INFO_KIND, KIND)?;
    push(&mut information, IFLA_INFO_DATA, &data)?;
    let mut own = Vec::new();
    near.push_name(&mut own)?;
    near.push_settings(&mut own)?;
    push(&mut own, IFLA_GROUP, &UNFINISHED.to_ne_bytes())?;
    push(&mut own, IFLA_LINKINFO, &information)?;
    Ok(link(0, 0, 0, &own))
}

/// Returns the change that gives an interface MTU and address of an end.
pub(super) fn configure(index: u32, end: &End<'_>) -> io::Result<Vec<u8>> {
    let mut attributes = Vec::new();
    end.push_settings(&mut attributes)?;
    Ok(link(index, 0, 0, &attributes))
}

/// Returns the change that sets an interface's alias.
pub(super) fn set_alias(index: u32, alias: &str) -> io::Result<Vec<u8>> {
    with(index, IFLA_IFALIAS, alias.as_bytes())
}

/// Returns the change that removes the mark of an unfinished pair.
pub(super) fn finish(index: u32) -> io::Result<Vec<u8>> {
    with(index, IFLA_GROUP, &DEFAULT_GROUP.to_ne_bytes())
}

/// Returns the change after which the kernel chooses no IPv6 address for an interface.
pub(super) fn without_addresses(index: u32) -> io::Result<Vec<u8>> {
    let (mut mode, mut family) = (Vec::new(), Vec::new());
    push(
        &mut mode,
        IFLA_INET6_ADDR_GEN_MODE,
        &[IN6_ADDR_GEN_MODE_NONE],
    )?;
    let inet6 = u16::try_from(libc::AF_INET6).map_err(io::Error::other)?;
    push(&mut family, inet6, &mode)?;
    with(index, IFLA_AF_SPEC, &family)
}

/// Returns the change of those flags of an interface (IFF_*) that are in `changed`.
pub(super) fn set_flags(index: u32, flags: libc::c_int, changed: libc::c_int) -> Vec<u8> {
    link(index, flags.cast_unsigned(), changed.cast_unsigned(), &[])
}

fn with(index: u32, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
    let mut attributes = Vec::new();
    push(&mut attributes, kind, value)?;
    Ok(link(index, 0, 0, &attributes))
}

/// An interface as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    /// True for an end of a pair.
    pub(super) is_veth: bool,
    /// Index of the other end in its network namespace.
    pub(super) peer: u32,
    /// Empty if there is none.
    pub(super) alias: String,
    /// True if the interface is marked as the near end of an unfinished pair.
    pub(super) is_unfinished: bool,
    /// Number of users that hold the interface in promiscuous mode.
    pub(super) promiscuity: u32,
}

impl Link {
    /// Reads a reply.
    pub(super) fn parse(reply: &[u8]) -> Option<Self> {
        let (index, attributes) = parse_link(reply)?;
        let word = |kind| {
            let octets = attribute(attributes, kind)?.first_chunk()?;
            Some(u32::from_ne_bytes(*octets))
        };
        let information = attribute(attributes, IFLA_LINKINFO);
        let kind = information.and_then(|information| attribute(information, IFLA_INFO_KIND));
        let alias = attribute(attributes, IFLA_IFALIAS).unwrap_or_default();
        Some(Self {
            index,
            is_veth: kind.map(text) == Some(KIND),
            // Older kernels leave the index out if it is the same in both namespaces.
            peer: word(IFLA_LINK).unwrap_or(index),
            alias: String::from_utf8_lossy(text(alias)).into_owned(),
            is_unfinished: word(IFLA_GROUP) == Some(UNFINISHED),
            promiscuity: word(IFLA_PROMISCUITY).unwrap_or(0),
        })
    }
}

/// Returns the octets before the terminating NUL.
fn text(octets: &[u8]) -> &[u8] {
    octets.split(|octet| *octet == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: End<'_> = End {
        name: "left0",
        mtu: 1500,
        address: None,
    };
    const FAR: End<'_> = End {
        name: "eth0",
        mtu: 1500,
        address: Some([2, 0, 0, 0, 0, 0x0b]),
    };

    /// As `ip link add left0 mtu 1500 group N type veth peer name eth0 mtu 1500 address 02:00:00:00:00:0b netns N`, which writes the
    /// attributes in another order.
    #[test]
    fn a_pair_is_requested_as_by_ip_link() {
        #[rustfmt::skip]
        let expected: &[&[u8]] = &[
            // struct ifinfomsg.
            &[0; 16],
            &[10, 0, 3, 0], b"left0\0", &[0, 0],
            &[8, 0, 4, 0], &[0xdc, 5, 0, 0],
            &[8, 0, 27, 0], b"1vwq",
            // IFLA_LINKINFO.
            &[76, 0, 18, 0],
                &[8, 0, 1, 0], b"veth",
                // IFLA_INFO_DATA with VETH_INFO_PEER, a struct ifinfomsg and attributes.
                &[64, 0, 2, 0],
                    &[60, 0, 1, 0],
                        &[0; 16],
                        &[9, 0, 3, 0], b"eth0\0", &[0, 0, 0],
                        &[8, 0, 4, 0], &[0xdc, 5, 0, 0],
                        &[10, 0, 1, 0], &[2, 0, 0, 0, 0, 0x0b], &[0, 0],
                        &[8, 0, 28, 0], &[7, 0, 0, 0],
        ];
        assert_eq!(create(&NEAR, &FAR, Some(7)).unwrap(), expected.concat());
        // In the same namespace, there is no file.
        let whole = create(&NEAR, &FAR, None).unwrap();
        assert_eq!(whole.len(), expected.concat().len() - 8);
        assert!(whole.ends_with(&[2, 0, 0, 0, 0, 0x0b, 0, 0]));
    }

    #[test]
    fn changes_are_those_of_ip_link() {
        let header =
            |flags: u8, changed: u8| [0, 0, 0, 0, 9, 0, 0, 0, flags, 0, 0, 0, changed, 0, 0, 0];
        let none = header(0, 0);
        let changed = |attributes: &[&[u8]]| [&none[..], &attributes.concat()[..]].concat();
        assert_eq!(indexed(9), none);
        let up = set_flags(9, libc::IFF_UP, libc::IFF_UP | libc::IFF_NOARP);
        assert_eq!(up, header(1, 0x81));
        let alias: &[&[u8]] = &[&[7, 0, 20, 0], b"abc", &[0]];
        assert_eq!(set_alias(9, "abc").unwrap(), changed(alias));
        let group: &[&[u8]] = &[&[8, 0, 27, 0, 0, 0, 0, 0]];
        assert_eq!(finish(9).unwrap(), changed(group));
        let addresses: &[&[u8]] = &[&[16, 0, 26, 0], &[12, 0, 10, 0], &[5, 0, 8, 0, 1, 0, 0, 0]];
        assert_eq!(without_addresses(9).unwrap(), changed(addresses));
        let settings: &[&[u8]] = &[
            &[8, 0, 4, 0, 0xdc, 5, 0, 0],
            &[10, 0, 1, 0, 2, 0, 0, 0, 0, 0x0b, 0, 0],
        ];
        assert_eq!(configure(9, &FAR).unwrap(), changed(settings));
        let name: &[&[u8]] = &[&[9, 0, 3, 0], b"eth0\0", &[0; 3]];
        let named = named("eth0").unwrap();
        assert_eq!(named, [&[0; 16][..], &name.concat()[..]].concat());
        assert!(set_alias(9, &"a".repeat(1 << 16)).is_err());
    }

    /// Returns the reply of the kernel about interface 9.
    fn reply(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut all = Vec::new();
        for (kind, value) in attributes {
            push(&mut all, *kind, value).unwrap();
        }
        let kind = libc::RTM_NEWLINK.to_ne_bytes();
        let header = [&[0; 4][..], &kind, &[0; 10]].concat();
        [header, link(9, 0, 0, &all)].concat()
    }

    #[test]
    fn an_interface_is_read_from_the_reply() {
        let plain = Link {
            index: 9,
            is_veth: false,
            peer: 9,
            alias: String::new(),
            is_unfinished: false,
            promiscuity: 0,
        };
        assert_eq!(Link::parse(&reply(&[])), Some(plain.clone()));
        let mut information = Vec::new();
        push(&mut information, IFLA_INFO_KIND, b"veth\0").unwrap();
        let whole = reply(&[
            (IFLA_LINKINFO, &information),
            (IFLA_LINK, &3u32.to_ne_bytes()),
            (IFLA_IFALIAS, b"mine\0"),
            (IFLA_GROUP, &UNFINISHED.to_ne_bytes()),
            (IFLA_PROMISCUITY, &2u32.to_ne_bytes()),
        ]);
        let read = Link {
            is_veth: true,
            peer: 3,
            alias: "mine".to_owned(),
            is_unfinished: true,
            promiscuity: 2,
            ..plain
        };
        assert_eq!(Link::parse(&whole), Some(read));
        assert_eq!(Link::parse(&whole[..31]), None);
    }
}
