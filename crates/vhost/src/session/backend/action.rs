// SPDX-License-Identifier: Apache-2.0
//! Configuration of a back end, and the actions that it requests of its caller.

use crate::features::*;
use crate::message::{InflightArea, IotlbEntry, IotlbRange, Region, RingBase};
use crate::session::{MEMORY_SLOTS_MAX, SessionError};

/// Protocol features that this back end implements.
pub const PROTOCOL_FEATURES: u64 = PROTOCOL_F_MQ
    | PROTOCOL_F_LOG_SHMFD
    | PROTOCOL_F_RARP
    | PROTOCOL_F_REPLY_ACK
    | PROTOCOL_F_MTU
    | PROTOCOL_F_BACKEND_REQ
    | PROTOCOL_F_CONFIG
    | PROTOCOL_F_INFLIGHT_SHMFD
    | PROTOCOL_F_RESET_DEVICE
    | PROTOCOL_F_CONFIGURE_MEM_SLOTS
    | PROTOCOL_F_STATUS;

/// Configuration of a back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// Offered virtio features. `F_PROTOCOL_FEATURES` is added if there are protocol features.
    pub features: u64,
    /// Virtio features that the front end must accept before a ring starts.
    pub required_features: u64,
    /// Offered protocol features. Those not in [`PROTOCOL_FEATURES`] are ignored.
    pub protocol_features: u64,
    /// Largest number of queue pairs, 1 to [`QUEUE_PAIRS_MAX`](crate::session::QUEUE_PAIRS_MAX).
    pub queue_pairs: u16,
    /// Largest number of memory regions, 8 to [`MEMORY_SLOTS_MAX`](crate::session::MEMORY_SLOTS_MAX).
    pub memory_slots: u16,
    /// Largest MTU that the front end may set.
    pub mtu_max: u16,
    /// The device's configuration space, at most 256 octets (virtio 1.2, section 5.1.4). Used with `PROTOCOL_F_CONFIG`.
    pub config_space: Vec<u8>,
}

impl Default for BackendConfig {
    /// Returns one queue pair with `F_VERSION_1` and all protocol features but `PROTOCOL_F_CONFIG`.
    fn default() -> Self {
        Self {
            features: F_VERSION_1,
            required_features: F_VERSION_1,
            protocol_features: PROTOCOL_FEATURES & !PROTOCOL_F_CONFIG,
            queue_pairs: 1,
            memory_slots: MEMORY_SLOTS_MAX,
            mtu_max: u16::MAX,
            config_space: Vec::new(),
        }
    }
}

/// Notification of the back end by the front end about available buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kick<F> {
    /// No notification: the back end polls.
    Poll,
    /// By this eventfd.
    Event(F),
}

/// A ring that starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingConfig<F> {
    /// Index of the ring. Even ones carry frames to the guest, odd ones frames from the guest.
    pub index: u8,
    /// Number of entries. A power of two, at least 2, if the ring is split.
    pub size: u16,
    /// True if the ring is packed.
    pub is_packed: bool,
    /// Address of the descriptor table or the packed ring. A multiple of 16; not yet translated, see
    /// [`crate::message::RingAddresses`].
    pub descriptors: u64,
    /// Address of the available ring (a multiple of 2) or the driver's event suppression structure (of 4).
    pub available: u64,
    /// Address of the used ring or the device's event suppression structure. A multiple of 4.
    pub used: u64,
    /// Guest address of the used ring for the log, if writes to it are logged.
    pub log: Option<u64>,
    /// Start position.
    pub base: RingBase,
    /// Virtio features in use.
    pub features: u64,
    /// True if the ring starts enabled.
    pub is_enabled: bool,
    /// Notification of the back end by the front end.
    pub kick: Kick<F>,
    /// Notification of the front end by the back end; `None` if it polls, or until [`Action::SetCall`].
    pub call: Option<F>,
    /// Notification of the front end about an error.
    pub error: Option<F>,
}

/// An action that a caller carries out for a back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<F> {
    /// Send these octets with these file descriptors.
    Reply(Vec<u8>, Vec<F>),
    /// A request was refused; the acknowledgement of the failure follows. For the log.
    Refused(SessionError),
    /// Map these regions, then replace all previous ones with them. Running rings are translated again. If it fails, the
    /// previous regions are kept. Answer with [`super::Backend::memory_mapped`].
    SetMemory(Vec<(Region, F)>),
    /// Map one more region. Answer with [`super::Backend::memory_mapped`].
    AddRegion(Region, F),
    /// Unmap a region. A running ring in it stops. Answer with [`super::Backend::memory_mapped`].
    RemoveRegion(Region),
    /// Map the log in place of the previous one. Answer with [`super::Backend::log_mapped`].
    SetLog {
        /// Octets of the log.
        size: u64,
        /// Offset in the file.
        offset: u64,
        /// The file.
        file: F,
    },
    /// Start or stop logging of writes to guest memory, without stopping the rings.
    SetLogging(bool),
    /// Start or stop logging of writes to a running ring's used ring; `Some` is its guest address in the log.
    SetRingLogging {
        /// Index of the ring.
        index: u8,
        /// Guest address of the used ring.
        log: Option<u64>,
    },
    /// The first ring starts. Contains the features in use and the number of rings that the front end has named so far; more
    /// may follow.
    DeviceReady {
        /// Virtio features.
        features: u64,
        /// Protocol features.
        protocol_features: u64,
        /// Number of rings.
        rings: u16,
    },
    /// The last ring has stopped. The back end does not access guest memory (section 'Suspended device state').
    DeviceGone,
    /// Start a ring. If that fails, end the session.
    StartRing(Box<RingConfig<F>>),
    /// Stop a ring, and close its descriptors. Answer with [`super::Backend::ring_stopped`].
    StopRing {
        /// Index of the ring.
        index: u8,
    },
    /// Enable or disable a running ring.
    EnableRing {
        /// Index of the ring.
        index: u8,
        /// True to enable it.
        is_enabled: bool,
    },
    /// Replace the kick descriptor of a running ring.
    SetKick {
        /// Index of the ring.
        index: u8,
        /// Notification of the back end by the front end.
        kick: Kick<F>,
    },
    /// Replace the call descriptor of a running ring, and notify once: buffers may have been used in between.
    SetCall {
        /// Index of the ring.
        index: u8,
        /// The eventfd; `None` if the front end polls.
        call: Option<F>,
    },
    /// Replace the error descriptor of a running ring.
    SetError {
        /// Index of the ring.
        index: u8,
        /// The eventfd, if any.
        error: Option<F>,
    },
    /// Send requests of the back end over this socket, in place of a previous one.
    IotlbChannel(F),
    /// Add an entry to the IOTLB if its user addresses are mapped. Answer with [`super::Backend::iotlb_updated`].
    IotlbUpdate(IotlbEntry),
    /// Remove a range from the IOTLB and stop using its translations. Answer with [`super::Backend::iotlb_updated`].
    IotlbInvalidate(IotlbRange),
    /// Allocate an area that tracks buffers in flight. Answer with [`super::Backend::inflight_created`].
    CreateInflight {
        /// Number of rings.
        rings: u16,
        /// Entries of each ring.
        ring_size: u16,
        /// True if rings are packed, by the features set so far.
        is_packed: bool,
    },
    /// Map an area that tracks buffers in flight. Answer with [`super::Backend::inflight_mapped`].
    SetInflight(InflightArea, F),
    /// The guest's MTU.
    SetMtu(u16),
    /// Broadcast a RARP frame from this MAC address.
    SendRarp([u8; 6]),
}
