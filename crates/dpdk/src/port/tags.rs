// SPDX-License-Identifier: Apache-2.0
//! VLAN tags in the frames of `af-xdp` ports, and a warning of their lengths.
//!
//! AF_XDP shows the octets of a frame. A tag that a network card or a kernel keeps apart from them is lost, and the frame would be one of
//! another VLAN. A port therefore switches off the features that keep tags apart: those of its network card for received frames, or those
//! of the other end of a veth pair for sent ones, if this process finds the network namespace of that end. Namespaces without a name are
//! those of processes, which a process without all their capabilities may not open. A process that gives up rights therefore opens them
//! before ([`PeerNamespaces`]).
//!
//! The kernel keeps a feature switched off when the port's process ends. A record is therefore written before the change. The features are
//! switched on when the port is closed, or by a later process if this one was killed.

mod peer_namespaces;
mod record;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_indextoname;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use quietwire_base::netns::{self, Failure, NotFound};
use quietwire_base::rtnetlink::{self, attribute, contents, parse_link, push};
use quietwire_base::{ProcessId, net_device};

use self::record::{INSERTED, REMOVED, Record};
use super::features::Features;
use super::xdp_program::DIRECTORY;
use super::xdp_program::kernel::{InterfaceId, interface, network};
use crate::port::records::Record as _;

pub use peer_namespaces::PeerNamespaces;
use peer_namespaces::find;

impl PeerNamespaces {
    /// Opens the namespaces of the other ends of these interfaces of the caller's namespace, as far as they are found. Each port searches
    /// again when it is opened, and reports what it does not find.
    pub fn open<'a>(interfaces: impl IntoIterator<Item = &'a str>) -> Self {
        let of_pair = |name| other_end(interface(name).ok()?).ok()??.namespace;
        Self::holding(interfaces.into_iter().filter_map(of_pair))
    }
}

/// Features that a port has switched off, and its interface. They are switched on with the end of this value.
#[derive(Debug, Default)]
pub(super) struct TagsInFrames(Option<(InterfaceId, Record)>);

impl TagsInFrames {
    /// Has the frames that an interface receives contain their tags. Warns if they may lose them.
    pub(super) fn of(name: &str) -> Self {
        let own = interface(name).map_err(|error| error.to_string());
        let kept = own.and_then(|own| {
            let record = keep(name, Path::new(DIRECTORY))?;
            Ok(record.map(|record| (own, record)))
        });
        Self(kept.unwrap_or_else(|cause| {
            tracing::warn!(
                "frames of VLANs may arrive at interface '{name}' without their tags: {cause} (for tagged frames use af-packet)"
            );
            None
        }))
    }
}

impl Drop for TagsInFrames {
    fn drop(&mut self) {
        if let Some((own, record)) = self.0.take() {
            let located = LocatedInterface::of(record.interface);
            // Both ends of a pair end together.
            let is_left = if_indextoname(own.index).is_ok();
            let located = located.map_err(|reason| match is_left {
                true => reason,
                false => NotFound::Absent,
            });
            give_back_at(Path::new(DIRECTORY), &record, located);
        }
    }
}

/// An interface of any network namespace.
#[derive(Debug)]
struct LocatedInterface {
    id: InterfaceId,
    /// Its namespace, if that is another one than the caller's.
    namespace: Option<File>,
}

impl LocatedInterface {
    /// Finds the namespace of an interface.
    fn of(id: InterfaceId) -> Result<Self, NotFound> {
        if network() == Some(id.network) {
            let namespace = None;
            return Ok(Self { id, namespace });
        }
        let namespace = Some(find(|_, number| number == id.network)?);
        Ok(Self { id, namespace })
    }

    /// Runs a task with a socket in the namespace and the name of the interface.
    fn within<T: Send>(
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

/// Switches off the features of an interface, or of the other end of its pair, that keep tags apart. Returns the record of it; `None` if
/// there are no such features.
fn keep(name: &str, directory: &Path) -> Result<Option<Record>, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let text = |error: io::Error| error.to_string();
    let own = interface(name).map_err(text)?;
    let (located, features) = match other_end(own).map_err(text)? {
        Some(located) => (located, INSERTED),
        None if net_device::path(name, "device").exists() => {
            let namespace = None;
            (LocatedInterface { id: own, namespace }, REMOVED)
        }
        // Other interfaces without a card take frames as they are, such as taps.
        None => return Ok(None),
    };
    let failed = |(step, error): Failure| format!("{step}: {}", error.desc());
    let active = located.within(Features::of).map_err(failed)?;
    let mut records = Record::all(directory);
    records.retain(|record| record.interface == located.id);
    // Another port may have switched them off.
    let is_recorded = |feature: &str| {
        let mut others = records.iter();
        others.any(|record| record.features.contains(&feature))
    };
    let features: Vec<&'static str> = features
        .into_iter()
        .filter(|feature| active.has(feature) || is_recorded(feature))
        .collect();
    if features.is_empty() {
        return Ok(None);
    }
    let process = ProcessId::own().ok_or("/proc/self/stat cannot be read")?;
    let record = Record {
        home: own.network,
        interface: located.id,
        process: (process.pid, process.start_time),
        number: NUMBER.fetch_add(1, Ordering::Relaxed),
        features,
    };
    record
        .write(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    // The new record has their features.
    for left in records.iter().filter(|left| !left.is_of_a_living_process()) {
        left.remove(directory);
    }
    let switched = located.within(|socket, name| {
        Features::switch(socket, name, &record.features, false)?;
        Features::of(socket, name)
    });
    match switched {
        Ok(active) => {
            let mut fixed = record.features.clone();
            fixed.retain(|feature| active.has(feature));
            if !fixed.is_empty() {
                tracing::warn!(
                    "frames of VLANs may arrive at interface '{name}' without their tags, because its driver does not switch off {} (for tagged frames use af-packet)",
                    fixed.join(" and ")
                );
            }
            Ok(Some(record))
        }
        Err(failure) => {
            give_back(directory, &record);
            Err(failed(failure))
        }
    }
}

// linux/if_link.h.
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;

/// Returns the other end of the pair of an interface of this namespace. `None` if it is no end of a pair, or the other one is gone.
fn other_end(own: InterfaceId) -> io::Result<Option<LocatedInterface>> {
    let socket = rtnetlink::open()?;
    let request = rtnetlink::link(own.index, 0, 0, &[]);
    let reply = rtnetlink::ask(&socket, libc::RTM_GETLINK, 0, &request)?;
    let Some((index, number)) = other_index(&reply).filter(|(index, _)| *index != 0) else {
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

/// Reads index and namespace of the other end from the reply about one end of a pair. The namespace is a number that belongs to that of the
/// first end; `None` for the same namespace.
fn other_index(reply: &[u8]) -> Option<(u32, Option<i32>)> {
    let (own, attributes) = parse_link(reply)?;
    let kind = attribute(attribute(attributes, IFLA_LINKINFO)?, IFLA_INFO_KIND)?;
    if !matches!(kind, b"veth" | b"veth\0") {
        return None;
    }
    let word = |kind| Some(*attribute(attributes, kind)?.first_chunk::<4>()?);
    let index = word(IFLA_LINK).map_or(own, u32::from_ne_bytes);
    Some((index, word(IFLA_LINK_NETNSID).map(i32::from_ne_bytes)))
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

/// Switches the features of a record on, except those that another port needs off, and removes the record. Returns true for a record that
/// is done.
fn give_back(directory: &Path, record: &Record) -> bool {
    give_back_at(directory, record, LocatedInterface::of(record.interface))
}

/// Does what [`give_back`] does, with the interface of the record. If this process may not open its namespace, the record stays for one with
/// more rights.
fn give_back_at(
    directory: &Path,
    record: &Record,
    located: Result<LocatedInterface, NotFound>,
) -> bool {
    let mut others = Record::all(directory);
    others.retain(|other| {
        let is_same = other.interface == record.interface;
        is_same && other != record && other.is_of_a_living_process()
    });
    let mut features = record.features.clone();
    features.retain(|feature| !others.iter().any(|other| other.features.contains(feature)));
    let InterfaceId { network, index } = record.interface;
    let restored = match located {
        Ok(located) => {
            located.within(|socket, name| Features::switch(socket, name, &features, true))
        }
        Err(NotFound::Absent) => {
            tracing::info!(
                "network namespace {network} was not found: the features for VLAN tags of its interface {index} stay as they are"
            );
            Ok(())
        }
        Err(NotFound::Denied) => {
            tracing::info!(
                "network namespace {network} has no name, and its processes have more rights than this one: the features for VLAN tags of its interface {index} are left to `quietwire lab clean` after the end of this process"
            );
            return false;
        }
    };
    match restored {
        // The interface may be gone.
        Ok(()) | Err((_, Errno::ENODEV | Errno::ENXIO)) => {
            record.remove(directory);
            true
        }
        Err((step, error)) => {
            tracing::warn!(
                "cannot switch {} of interface {} on again: {step}: {} (`quietwire lab clean` tries again after the end of this process)",
                features.join(" and "),
                index,
                error.desc()
            );
            false
        }
    }
}

/// Switches features on that ports of killed processes in this network namespace have left switched off. Returns the indexes of their
/// interfaces, each in its namespace.
#[must_use]
pub fn restore_left_tag_features() -> Vec<u32> {
    restore_left(Path::new(DIRECTORY))
}

fn restore_left(directory: &Path) -> Vec<u32> {
    let home = network();
    let records = Record::all(directory).into_iter();
    let left = records
        .filter(|record| Some(record.home) == home && !record.is_of_a_living_process())
        .filter(|record| give_back(directory, record));
    left.map(|record| record.interface.index).collect()
}

/// Warns if packets of the MTU of an interface are longer than the frames that the port receives, `frame_size_max` octets with FCS.
pub(super) fn warn_of_mtu(name: &str, frame_size_max: u16) {
    /// Octets of MAC addresses, type and FCS.
    const FRAMING: u32 = 18;
    if let Some(mtu) = net_device::value::<u32>(name, "mtu")
        && mtu.saturating_add(FRAMING) > u32::from(frame_size_max)
    {
        tracing::warn!(
            "data may arrive at interface '{name}' in frames longer than frame-size-max, which the port loses: its MTU is {mtu} octets (use af-packet)"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::testing::{in_a_namespace, spawn_in_namespace};

    fn ip(arguments: &[&str]) {
        let status = Command::new("ip").args(arguments).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    }

    fn add_pair() {
        ip(&[
            "link", "add", "qwt0", "type", "veth", "peer", "name", "qwt1",
        ]);
    }

    /// Returns which of the features of sent frames an interface of this namespace has.
    fn inserts(name: &str) -> [bool; 2] {
        let id = interface(name).unwrap();
        let located = LocatedInterface::of(id).unwrap();
        let features = located.within(Features::of).unwrap();
        INSERTED.map(|feature| features.has(feature))
    }

    fn switch(name: &str, is_on: bool) {
        let located = LocatedInterface::of(interface(name).unwrap()).unwrap();
        let switched =
            located.within(|socket, name| Features::switch(socket, name, &INSERTED, is_on));
        switched.unwrap();
    }

    #[test]
    fn the_other_end_of_a_pair_writes_tags_into_frames_until_all_ports_are_closed() {
        in_a_namespace(|| {
            let directory = tempfile::tempdir().unwrap();
            let directory = directory.path();
            add_pair();
            let first = keep("qwt0", directory).unwrap().unwrap();
            assert_eq!((inserts("qwt0"), inserts("qwt1")), ([true; 2], [false; 2]));
            assert_eq!(first.features, INSERTED);
            let second = keep("qwt0", directory).unwrap().unwrap();
            assert!(give_back(directory, &first));
            assert_eq!(inserts("qwt1"), [false; 2]);
            assert!(give_back(directory, &second));
            assert_eq!(inserts("qwt1"), [true; 2]);
            // Features that an administrator has switched off stay off.
            switch("qwt1", false);
            assert_eq!(keep("qwt0", directory), Ok(None));
            assert_eq!(Record::all(directory), []);
            // Other interfaces than pairs and cards have no such features, and one that is gone needs them no more.
            assert_eq!(keep("lo", directory), Ok(None));
            switch("qwt1", true);
            let last = keep("qwt0", directory).unwrap().unwrap();
            ip(&["link", "delete", "qwt0"]);
            assert!(give_back(directory, &last));
            assert_eq!(Record::all(directory), []);
            assert!(keep("qwt0", directory).is_err());
        });
    }

    #[test]
    fn features_of_killed_processes_are_switched_on_by_the_next_port_or_by_clean() {
        in_a_namespace(|| {
            let directory = tempfile::tempdir().unwrap();
            let directory = directory.path();
            add_pair();
            let index = interface("qwt1").unwrap().index;
            // The record of a process that had the number of this one, and has ended.
            let killed = || {
                let mut left = keep("qwt0", directory).unwrap().unwrap();
                left.process.1 += 1;
                left.write(directory).unwrap();
                assert_eq!(inserts("qwt1"), [false; 2]);
            };
            killed();
            let next = keep("qwt0", directory).unwrap().unwrap();
            assert_eq!(Record::all(directory), std::slice::from_ref(&next));
            // Those of a living process stay.
            assert_eq!(restore_left(directory), Vec::<u32>::new());
            assert_eq!(inserts("qwt1"), [false; 2]);
            assert!(give_back(directory, &next));
            assert_eq!(inserts("qwt1"), [true; 2]);
            killed();
            assert_eq!(restore_left(directory), [index]);
            assert_eq!(inserts("qwt1"), [true; 2]);
            assert_eq!(Record::all(directory), []);
        });
    }

    #[test]
    fn namespaces_of_before_are_found_until_they_are_closed() {
        in_a_namespace(|| {
            let records = tempfile::tempdir().unwrap();
            let other = spawn_in_namespace(|| File::open("/proc/thread-self/ns/net").unwrap());
            // The namespace has neither a name nor a process: only this descriptor leads to it.
            let other = other.join().unwrap();
            let file = format!("/proc/{}/fd/{}", std::process::id(), other.as_raw_fd());
            let end = ["peer", "name", "qwt3", "netns", &file];
            ip(&[&["link", "add", "qwt2", "type", "veth"][..], &end].concat());
            let error = keep("qwt2", records.path()).unwrap_err();
            assert!(error.contains("namespace of the other end"), "{error}");
            assert_eq!(PeerNamespaces::open(["qwt2", "lo", "none"]).count(), 0);
            let opened = PeerNamespaces::holding([other.try_clone().unwrap()]);
            let found = PeerNamespaces::open(["qwt2", "lo", "none"]);
            assert_eq!(found.count(), 1);
            drop(opened);
            let record = keep("qwt2", records.path()).unwrap().unwrap();
            assert_eq!(record.interface.network, other.metadata().unwrap().ino());
            assert_eq!(record.features, INSERTED);
            assert!(give_back(records.path(), &record));
            drop(found);
            assert!(keep("qwt2", records.path()).is_err());
        });
    }

    #[test]
    fn a_record_stays_if_the_namespace_may_not_be_opened() {
        in_a_namespace(|| {
            let directory = tempfile::tempdir().unwrap();
            let directory = directory.path();
            add_pair();
            let record = keep("qwt0", directory).unwrap().unwrap();
            assert!(!give_back_at(directory, &record, Err(NotFound::Denied)));
            assert_eq!(Record::all(directory), std::slice::from_ref(&record));
            assert_eq!(inserts("qwt1"), [false; 2]);
            assert!(give_back(directory, &record));
            assert_eq!(inserts("qwt1"), [true; 2]);
            let record = keep("qwt0", directory).unwrap().unwrap();
            assert!(give_back_at(directory, &record, Err(NotFound::Absent)));
            assert_eq!(Record::all(directory), []);
        });
    }

    #[test]
    fn the_other_end_is_read_from_the_reply() {
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
        assert_eq!(other_index(&reply(&[])), None);
        assert_eq!(other_index(&reply(&[pair])), Some((9, None)));
        let index = 3u32.to_ne_bytes();
        let number = 5i32.to_ne_bytes();
        let whole = [
            pair,
            (IFLA_LINK, &index[..]),
            (IFLA_LINK_NETNSID, &number[..]),
        ];
        assert_eq!(other_index(&reply(&whole)), Some((3, Some(5))));
        let mut information = Vec::new();
        push(&mut information, IFLA_INFO_KIND, b"vethx\0").unwrap();
        let other = [(IFLA_LINKINFO, &information[..]), (IFLA_LINK, &index[..])];
        assert_eq!(other_index(&reply(&other)), None);
    }
}
