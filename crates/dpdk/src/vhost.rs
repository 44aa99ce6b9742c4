// SPDX-License-Identifier: Apache-2.0
//! What vhost-user ports offer to guests, and what is known of the guest.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{self, Error};
use crate::sys;
use crate::uri::PortUri;

/// The guest of a vhost-user port, or what drives virtio in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guest {
    /// Feature bits that both sides agreed on (virtio 1.2, sections 5.1.3 and 6).
    pub features: u64,
    /// Rings that it has set up, both ways together.
    pub rings: u16,
    /// Descriptors of the first.
    pub ring_size: u16,
}

/// Names of feature bits: those of virtio 1.2, sections 5.1.3 and 6, without VIRTIO_NET_F_ and the like.
const FEATURES: &[(u32, &str)] = &[
    (CSUM, "csum"),
    (GUEST_CSUM, "guest-csum"),
    (3, "mtu"),
    (5, "mac"),
    (GSO, "gso"),
    (GUEST_TSO4, "guest-tso4"),
    (GUEST_TSO6, "guest-tso6"),
    (GUEST_ECN, "guest-ecn"),
    (GUEST_UFO, "guest-ufo"),
    (HOST_TSO4, "host-tso4"),
    (HOST_TSO6, "host-tso6"),
    (HOST_ECN, "host-ecn"),
    (HOST_UFO, "host-ufo"),
    (MRG_RXBUF, "mrg-rxbuf"),
    (16, "status"),
    (17, "ctrl-vq"),
    (18, "ctrl-rx"),
    (21, "guest-announce"),
    (22, "mq"),
    (26, "log-all"),
    (27, "any-layout"),
    (28, "indirect-desc"),
    (29, "event-idx"),
    (30, "protocol-features"),
    (32, "version-1"),
    (33, "iommu-platform"),
    (34, "ring-packed"),
    (35, "in-order"),
];

const CSUM: u32 = 0;
const GUEST_CSUM: u32 = 1;
const GSO: u32 = 6;
const GUEST_TSO4: u32 = 7;
const GUEST_TSO6: u32 = 8;
const GUEST_ECN: u32 = 9;
const GUEST_UFO: u32 = 10;
const HOST_TSO4: u32 = 11;
const HOST_TSO6: u32 = 12;
const HOST_ECN: u32 = 13;
const HOST_UFO: u32 = 14;
const MRG_RXBUF: u32 = 15;

impl Guest {
    /// Names of the features, in the order of their bits.
    #[must_use]
    pub fn feature_names(&self) -> Vec<&'static str> {
        FEATURES
            .iter()
            .filter(|(bit, _)| self.features >> bit & 1 == 1)
            .map(|(_, name)| *name)
            .collect()
    }
}

/// Features that a port does not offer. Segmentation only where it is asked for: a frame of 64 KiB fits no other port as it
/// is. That of UDP, and of TCP with its congestion bits (the driver cannot say so to a guest), never. The driver by itself
/// leaves out two of the bits and offers the others.
fn refused(uri: &PortUri) -> u64 {
    let PortUri::Vhost {
        mergeable,
        checksum,
        tso,
        ..
    } = uri
    else {
        return 0;
    };
    let mut bits = vec![GSO, HOST_ECN, HOST_UFO];
    bits.extend(if *tso {
        [GUEST_ECN, GUEST_UFO]
    } else {
        [HOST_TSO4, HOST_TSO6]
    });
    if !mergeable {
        bits.push(MRG_RXBUF);
    }
    if !checksum {
        bits.push(CSUM);
    }
    bits.into_iter().fold(0, |all, bit| all | 1 << bit)
}

/// RTE_MAX_ETHPORTS as Debian builds DPDK.
const PORTS_MAX: usize = 32;

/// Guests by number of the port.
static GUESTS: Mutex<[Option<Guest>; PORTS_MAX]> = Mutex::new([None; PORTS_MAX]);

/// Ports with `tso=on`, and whose guests take TCP data of IPv4 and IPv6 uncut: bits, by number of the port.
static UNCUT: [AtomicU8; PORTS_MAX] = [const { AtomicU8::new(0) }; PORTS_MAX];

const OFFERED: u8 = 1;
const TAKES_V4: u8 = 2;
const TAKES_V6: u8 = 4;

/// Whether a port's peer takes frames with TCP data of any length, with the request to cut them where that is needed.
pub(crate) fn takes_uncut(port: u16, is_ipv4: bool) -> bool {
    let bit = if is_ipv4 { TAKES_V4 } else { TAKES_V6 };
    UNCUT
        .get(usize::from(port))
        .is_some_and(|place| place.load(Ordering::Relaxed) & bit != 0)
}

/// Notes what a guest takes, if the port offered it.
fn note_uncut(port: u16, features: u64) {
    let Some(place) = UNCUT.get(usize::from(port)) else {
        return;
    };
    let has = |bit: u32| features >> bit & features >> GUEST_CSUM & 1 == 1;
    let offered = place.load(Ordering::Relaxed) & OFFERED;
    let takes = match offered {
        0 => 0,
        _ => u8::from(has(GUEST_TSO4)) * TAKES_V4 + u8::from(has(GUEST_TSO6)) * TAKES_V6,
    };
    place.store(offered | takes, Ordering::Relaxed);
}

fn note(port: u16, guest: Option<Guest>) {
    note_uncut(port, guest.map_or(0, |guest| guest.features));
    let mut guests = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = guests.get_mut(usize::from(port)) {
        *place = guest;
    }
}

/// The guest of a port, if it has one.
pub(crate) fn guest(port: u16) -> Option<Guest> {
    let guests = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    *guests.get(usize::from(port))?
}

/// Called by the vhost library's thread, between a guest's coming and going: it cannot go meanwhile.
unsafe extern "C" fn on_change(
    port: u16,
    _event: sys::rte_eth_event_type,
    _argument: *mut c_void,
    _result: *mut c_void,
) -> c_int {
    let mut found = Guest::default();
    // SAFETY: the places outlive the call, and this is the library's thread.
    let code = unsafe {
        sys::qw_vhost_guest(
            port,
            &raw mut found.features,
            &raw mut found.rings,
            &raw mut found.ring_size,
        )
    };
    note(port, (code == 0).then_some(found));
    0
}

/// Before a port is configured, which starts its socket: settles what it offers, and has guests noted.
pub(crate) fn prepare(port: u16, uri: &PortUri) -> Result<(), Error> {
    // SAFETY: sets an integer of this thread.
    unsafe { sys::qw_vhost_refuse(refused(uri)) };
    if let Some(place) = UNCUT.get(usize::from(port)) {
        place.store(
            u8::from(uri.has_segmentation()) * OFFERED,
            Ordering::Relaxed,
        );
    }
    if !matches!(uri, PortUri::Vhost { .. }) {
        return Ok(());
    }
    note(port, None);
    // SAFETY: the port exists; the function lives as long as the process and needs no argument.
    let code = unsafe {
        sys::rte_eth_dev_callback_register(
            port,
            sys::RTE_ETH_EVENT_INTR_LSC,
            Some(on_change),
            ptr::null_mut(),
        )
    };
    if code == 0 {
        Ok(())
    } else {
        Err(Error::PortOpen {
            port: port.to_string(),
            uri: uri.to_string(),
            step: "rte_eth_dev_callback_register",
            cause: error::text(code),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segmentation_is_offered_where_it_is_asked_for() {
        for uri in [
            "vhost:/v",
            "vhost:/v?checksum=off&mergeable=off",
            "vhost:/v?tso=on",
        ] {
            let refused = Guest {
                features: refused(&uri.parse().unwrap()),
                ..Guest::default()
            };
            let names = refused.feature_names();
            for name in ["gso", "host-ecn", "host-ufo"] {
                assert!(names.contains(&name), "{uri}: {names:?}");
            }
            for name in ["host-tso4", "host-tso6"] {
                assert_ne!(names.contains(&name), uri.contains("tso"), "{uri}");
            }
            assert_eq!(names.contains(&"csum"), uri.contains("checksum"), "{uri}");
            assert_eq!(names.contains(&"mrg-rxbuf"), uri.contains("mergeable"));
        }
        assert_eq!(refused(&"null:".parse().unwrap()), 0);
    }

    #[test]
    fn a_guest_takes_uncut_data_where_it_said_so_and_was_offered_it() {
        const PORT: u16 = 31;
        let features = |bits: &[u32]| bits.iter().fold(0, |all, bit| all | 1_u64 << bit);
        let takes = || [takes_uncut(PORT, true), takes_uncut(PORT, false)];
        note_uncut(PORT, u64::MAX);
        assert_eq!(takes(), [false, false]);
        UNCUT[usize::from(PORT)].store(OFFERED, Ordering::Relaxed);
        note_uncut(PORT, features(&[GUEST_TSO4, GUEST_TSO6]));
        assert_eq!(takes(), [false, false]);
        note_uncut(PORT, features(&[GUEST_CSUM, GUEST_TSO4]));
        assert_eq!(takes(), [true, false]);
        note_uncut(PORT, features(&[GUEST_CSUM, GUEST_TSO6]));
        assert_eq!(takes(), [false, true]);
        note_uncut(PORT, 0);
        assert_eq!(takes(), [false, false]);
    }
}
