// SPDX-License-Identifier: Apache-2.0
//! What vhost-user ports offer to guests, and what is known of the guest.

use std::ffi::{c_int, c_void};
use std::ptr;
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
    (1, "guest-csum"),
    (3, "mtu"),
    (5, "mac"),
    (GSO, "gso"),
    (7, "guest-tso4"),
    (8, "guest-tso6"),
    (9, "guest-ecn"),
    (10, "guest-ufo"),
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
const GSO: u32 = 6;
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

/// Features that a port does not offer. Segmentation never: a frame of 64 KiB fits no other port. The driver by itself
/// leaves out two of the bits that ask for it and offers the others.
fn refused(uri: &PortUri) -> u64 {
    let PortUri::Vhost {
        mergeable,
        checksum,
        ..
    } = uri
    else {
        return 0;
    };
    let mut bits = vec![GSO, HOST_TSO4, HOST_TSO6, HOST_ECN, HOST_UFO];
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

fn note(port: u16, guest: Option<Guest>) {
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
    fn segmentation_is_never_offered() {
        for uri in ["vhost:/v", "vhost:/v?checksum=off&mergeable=off"] {
            let refused = Guest {
                features: refused(&uri.parse().unwrap()),
                ..Guest::default()
            };
            let names = refused.feature_names();
            for name in ["gso", "host-tso4", "host-tso6", "host-ecn", "host-ufo"] {
                assert!(names.contains(&name), "{uri}: {names:?}");
            }
            assert_eq!(names.contains(&"csum"), uri.contains("checksum"), "{uri}");
            assert_eq!(names.contains(&"mrg-rxbuf"), uri.contains("mergeable"));
        }
        assert_eq!(refused(&"null:".parse().unwrap()), 0);
    }
}
