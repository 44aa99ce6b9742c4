// SPDX-License-Identifier: Apache-2.0
//! Connection tracking: which packets belong to which connection, and whether they fit its state.
//!
//! Each forwarding thread has its own [`Tracker`], without locks: both directions of a connection must reach one thread. An entry of 128
//! octets serves both directions; the index adds 8 to 16 octets. [`Tracker::new`] makes all allocations, and every operation takes a bounded
//! number of steps.
//!
//! A burst is processed in two phases. [`Tracker::track`] classifies all packets ([`CtState`]) and updates known connections; rules decide
//! which packets are accepted; [`Tracker::commit`] creates the connections of accepted new packets. Packets that rules drop use no space.
//!
//! Connections are of TCP (RFC 9293, with the window checks described in `tcp`), UDP, ICMP echoes and other IP protocols by their addresses.
//! ICMP errors are related to the connection of the packet that they are about. The tracker does not verify checksums. Connections that
//! began before the tracker did are not known, and TCP segments of them are invalid.
//!
//! The tracker does not reassemble: [`Tracker::join`] remembers the connection of a first fragment for the later ones. A later fragment
//! that arrives before the first one, or 15 s after it, is invalid.
//!
//! Helpers ([`Tracker::allow_helpers`]) read which connections FTP and TFTP announce; without them, the tracker reads no data.
//!
//! With [`Tracker::allow_labels`], a connection has a label of 128 bits beside its mark, in a table of its own: entries have the same size
//! without labels.
//!
//! With [`Tracker::allow_sessions`], connections that NAT translates have events for a log: [`SessionEvent`].
//!
//! If the table or a zone is full, a new connection replaces the oldest embryonic one, or the oldest closed one; established connections stay.
//! With [`Tracker::limit_half_open`], it also replaces the oldest embryonic one if there are as many as allowed (RFC 4987, section 3.4).
//!
//! [`NewShare`] limits the time that a saturated thread spends on new connections.

mod ct_bits;
mod entry;
mod handle;
mod helpers;
mod joined;
mod key;
mod list;
mod names;
mod new_share;
mod noted;
mod packet;
#[cfg(any(test, feature = "reference"))]
pub mod reference;
mod saved;
mod sessions;
mod settings;
mod sources;
mod tcp;
#[cfg(test)]
mod tests;
mod tracker;
mod wheel;
mod zones;

pub use ct_bits::{CtBits, CtValue, LabelBits, MarkBits};
pub use key::Endpoint;
pub use list::{ConnectionFilter, ConnectionInfo, Page};
pub use names::{CtState, Direction, Eviction, Helper, InvalidReason, Refusal, State};
pub use new_share::NewShare;
pub use packet::{FlowKey, Packet};
pub use saved::{ConnectionChange, SAVED_OCTETS, SAVED_VERSION, SavedConnection};
pub use sessions::SessionEvent;
pub use settings::{
    ENTRIES_MAX, ENTRY_OCTETS, Seconds, Settings, SettingsError, SourceLimits, TIMEOUT_MAX_S,
    Timeouts, ZONES_MAX,
};
pub use tracker::{Connection, Counters, RestoreError, Tracked, Tracker, WaitingSession};
