// SPDX-License-Identifier: Apache-2.0
//! Kernel features that change the frames of `af-xdp` ports: their VLAN tags and their lengths.
//!
//! AF_XDP shows the octets of a frame. A tag that a network card or a kernel keeps apart from them is lost, and the frame would be one of
//! another VLAN. A port therefore switches off the features that keep tags apart: those of its network card for received frames, or those
//! of the other end of a veth pair for sent ones, if this process finds the network namespace of that end. Namespaces without a name are
//! those of processes, which a process without all their capabilities may not open. A process that gives up rights therefore opens them
//! before ([`PeerNamespaces`]).
//!
//! DPDK's driver receives a frame in one buffer. An interface that gets its frames from another one, such as macvlan, gets those longer
//! than that in which the other one has merged data. The port switches off the features that merge data ([`lengths`]).
//!
//! The kernel keeps a feature switched off when the port's process ends. A record is therefore written before the change. The features are
//! switched on when the port is closed, or by a later process if this one was killed.

// Text of sysfs and messages of the kernel: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod lengths;
mod located;
mod peer_namespaces;
mod record;

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::net::if_::if_indextoname;
use quietwire_base::netns::{Failure, NotFound};
use quietwire_base::{ProcessId, net_device};

use self::located::{LocatedInterface, other_end};
use self::record::{INSERTED, REMOVED, Record};
use super::features::Features;
use super::xdp_program::DIRECTORY;
use super::xdp_program::kernel::{InterfaceId, interface, network};
use crate::port::records::Record as _;

pub use peer_namespaces::PeerNamespaces;

impl PeerNamespaces {
    /// Opens the namespaces in which ports on these interfaces of the caller's namespace change features, as far as they are found. Each
    /// port searches again when it is opened, and reports what it does not find.
    pub fn open<'a>(interfaces: impl IntoIterator<Item = &'a str>) -> Self {
        let of_port = |name| {
            let own = interface(name).ok()?;
            if let Ok(Some(end)) = other_end(own) {
                return end.namespace;
            }
            let mut sources = Vec::new();
            lengths::sources(own, &mut sources).ok()?;
            let mut sources = sources.into_iter();
            sources.find_map(|source| source.located.namespace)
        };
        Self::holding(interfaces.into_iter().filter_map(of_port))
    }
}

/// Features that a port has switched off. Each record has the index of the interface of the port's namespace that ends together with that
/// of the record. The features are switched on with the end of this value.
#[derive(Debug, Default)]
pub(super) struct ChangedFeatures(Vec<(u32, Record)>);

impl ChangedFeatures {
    /// Has the frames that an interface receives contain their tags, and be no longer than their senders' MTUs. Warns if they may differ.
    pub(super) fn of(name: &str) -> Self {
        let directory = Path::new(DIRECTORY);
        let own = interface(name).map_err(|error| error.to_string());
        let kept = own.and_then(|own| {
            let record = keep(name, directory)?;
            Ok(record.map(|record| (own.index, record)))
        });
        let kept = kept.unwrap_or_else(|cause| {
            tracing::warn!(
                "frames of VLANs may arrive at interface '{name}' without their tags: {cause} (for tagged frames use af-packet)"
            );
            None
        });
        let mut changed: Vec<(u32, Record)> = kept.into_iter().collect();
        changed.extend(shorten(name, directory));
        Self(changed)
    }
}

impl Drop for ChangedFeatures {
    fn drop(&mut self) {
        for (twin, record) in self.0.drain(..) {
            let located = LocatedInterface::of(record.interface);
            // Both ends of a pair end together.
            let is_left = if_indextoname(twin).is_ok();
            let located = located.map_err(|reason| match is_left {
                true => reason,
                false => NotFound::Absent,
            });
            give_back_at(Path::new(DIRECTORY), &record, located);
        }
    }
}

/// Switches off the features of an interface, or of the other end of its pair, that keep tags apart. Returns the record of it; `None` if
/// there are no such features.
fn keep(name: &str, directory: &Path) -> Result<Option<Record>, String> {
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
    let off = switch_off(own.network, &located, &features, directory)?;
    Ok(off.map(|off| {
        if !off.fixed.is_empty() {
            tracing::warn!(
                "frames of VLANs may arrive at interface '{name}' without their tags, because its driver does not switch off {} (for tagged frames use af-packet)",
                off.fixed.join(" and ")
            );
        }
        off.record
    }))
}

/// Switches off the features with which other interfaces merge data into frames for an interface. Returns the records of it as
/// [`ChangedFeatures`] has them. Warns if frames may still be too long.
fn shorten(name: &str, directory: &Path) -> Vec<(u32, Record)> {
    let own = match interface(name) {
        Ok(own) => own,
        Err(error) => {
            warn_of_lengths(name, &error);
            return Vec::new();
        }
    };
    let mut sources = Vec::new();
    if let Err(error) = lengths::sources(own, &mut sources) {
        warn_of_lengths(name, &error);
    }
    let mut changed = Vec::new();
    for source in sources {
        match switch_off(own.network, &source.located, source.features, directory) {
            Ok(Some(off)) => {
                if !off.fixed.is_empty() {
                    let fixed = off.fixed.join(" and ");
                    let cause = format!("a driver does not switch off {fixed}");
                    warn_of_lengths(name, &cause);
                }
                tracing::info!(
                    "interface {} has no {} while a port uses interface '{name}'",
                    off.record.interface.index,
                    off.record.features.join(" and ")
                );
                changed.push((source.twin, off.record));
            }
            Ok(None) => {}
            Err(cause) => warn_of_lengths(name, &cause),
        }
    }
    changed
}

/// Warns if packets of the MTU of an interface are longer than the frames that the port receives, `frame_size_max` octets with FCS.
pub(super) fn warn_of_mtu(name: &str, frame_size_max: u16) {
    /// Octets of MAC addresses, type and FCS.
    const FRAMING: u32 = 18;
    if let Some(mtu) = net_device::value::<u32>(name, "mtu")
        && mtu.saturating_add(FRAMING) > u32::from(frame_size_max)
    {
        let cause = format!("its MTU is {mtu} octets");
        warn_of_lengths(name, &cause);
    }
}

fn warn_of_lengths(name: &str, cause: &dyn Display) {
    tracing::warn!(
        "data may arrive at interface '{name}' in frames longer than frame-size-max, which the port loses: {cause} (use af-packet)"
    );
}

/// Features that were switched off.
#[derive(Debug)]
struct SwitchedOff {
    record: Record,
    /// Those that the driver keeps active.
    fixed: Vec<&'static str>,
}

/// Switches off those of the features that are active. `None` if there are none. `home` is the number of the port's namespace.
///
/// # Errors
/// The record cannot be written, or the kernel refuses the change.
fn switch_off(
    home: u64,
    located: &LocatedInterface,
    features: &[&'static str],
    directory: &Path,
) -> Result<Option<SwitchedOff>, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
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
        .iter()
        .copied()
        .filter(|feature| active.has(feature) || is_recorded(feature))
        .collect();
    if features.is_empty() {
        return Ok(None);
    }
    let process = ProcessId::own().ok_or("/proc/self/stat cannot be read")?;
    let record = Record {
        home,
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
            Ok(Some(SwitchedOff { record, fixed }))
        }
        Err(failure) => {
            give_back(directory, &record);
            Err(failed(failure))
        }
    }
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
                "network namespace {network} was not found: the offload features of its interface {index} stay as they are"
            );
            Ok(())
        }
        Err(NotFound::Denied) => {
            tracing::info!(
                "network namespace {network} has no name, and its processes have more rights than this one: the offload features of its interface {index} are left to `quietwire lab clean` after the end of this process"
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
pub fn restore_left_features() -> Vec<u32> {
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, BorrowedFd};
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    use super::record::{MERGED, SEGMENTED};
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
    fn no_interface_below_a_macvlan_merges_data_until_the_port_is_closed() {
        in_a_namespace(|| {
            let directory = tempfile::tempdir().unwrap();
            let directory = directory.path();
            add_pair();
            ip(&[
                "link", "add", "link", "qwt0", "name", "qwm0", "type", "macvlan", "mode",
                "passthru",
            ]);
            let located = |name| LocatedInterface::of(interface(name).unwrap()).unwrap();
            let active = |name| located(name).within(Features::of).unwrap();
            let merge =
                |socket: BorrowedFd<'_>, name: &str| Features::switch(socket, name, &MERGED, true);
            located("qwt0").within(merge).unwrap();
            let before = ["qwt0", "qwt1"].map(active);
            assert!(before[0].has("rx-gro") && before[1].has("tx-tcp-segmentation"));
            // The other end of a pair, and a program on the interface itself, merge nothing.
            assert!(shorten("qwt0", directory).is_empty());
            assert!(shorten("lo", directory).is_empty());
            let changed = shorten("qwm0", directory);
            let index = |name| interface(name).unwrap().index;
            let places = changed
                .iter()
                .map(|(twin, record)| (*twin, record.interface.index));
            let places: Vec<(u32, u32)> = places.collect();
            let lower = index("qwt0");
            assert_eq!(places, [(lower, lower), (lower, index("qwt1"))]);
            assert_eq!(changed[0].1.features, ["rx-gro"]);
            assert!(!active("qwt0").has("rx-gro"));
            assert!(active("qwt0").has("tx-tcp-segmentation"));
            assert!(SEGMENTED.iter().all(|name| !active("qwt1").has(name)));
            assert_eq!(Record::all(directory).len(), 2);
            for (_, record) in &changed {
                assert!(give_back(directory, record));
            }
            for (name, before) in ["qwt0", "qwt1"].into_iter().zip(before) {
                assert_eq!(format!("{:?}", active(name)), format!("{before:?}"));
            }
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
}
