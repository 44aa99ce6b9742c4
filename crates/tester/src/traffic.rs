// SPDX-License-Identifier: Apache-2.0
//! Traffic descriptions, and the frames generated from them.
//!
//! A description specifies the headers and how their fields vary, the order of the flows, and the frame sizes. Each field is a function
//! of the flow number, so all frames of a flow have the same headers.

// Text and frames from outside: no cast loses or adds a sign.
#![cfg_attr(not(test), deny(clippy::cast_sign_loss, clippy::cast_possible_wrap))]

mod check;
mod draw;
mod field;
mod genome;
mod headers;
mod integrity;
mod layout;
mod program;
mod replay;
#[cfg(test)]
mod tests;

use std::path::Path;

use quietwire_base::locate::{self, FileError};
use serde::{Deserialize, Serialize};

pub use field::{
    DscpKind, FLOWS_MAX, Field, FlagsKind, Ipv4Kind, Ipv6Kind, Kind, LabelKind, MacKind, Order,
    PortKind, PriorityKind, TtlKind, VlanIdKind, VniKind, WordKind,
};
pub use genome::{Genome, Imix, SEQUENCE_MAX, Sizes};
pub(crate) use integrity::Pattern;
pub(crate) use layout::Cover;
pub(crate) use program::{BufferContents, Program, TRACKED_MAX, smallest};

pub use replay::{Capture, ReplayError};

pub use headers::{Ethernet, Headers, Ipv4, Ipv6, TagType, Tcp, Udp, Vlan, Vxlan};

use crate::trial::Directions;

/// `[traffic]`: a description of traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Traffic {
    /// Frame sizes. Default: those of the trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
    /// Sending ports. Default: those of the trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directions: Option<Directions>,
    /// Shares of the total rate of the sending ports, in port order. Default: equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<[f64; 2]>,
    /// Whether the receiver checks the whole payload.
    pub integrity: bool,
    /// Seed of all random values.
    pub seed: u64,
    /// Flows and their order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<Flows>,
    /// Frames sent back to back. Default: one at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// Frames of a capture file instead of the headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// Ethernet.
    pub ethernet: Ethernet,
    /// VLAN tags, the outer one first; at most two.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlan: Vec<Vlan>,
    /// IPv4. It is the default if IPv6 is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Ipv4>,
    /// IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6>,
    /// UDP. It is the default if TCP is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<Udp>,
    /// TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
    /// VXLAN over UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vxlan: Option<Vxlan>,
    /// Headers inside VXLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner: Option<Headers>,
}

/// `[traffic.flows]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flows {
    /// Number of flows. Default: as many as the field with the most values has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Order of the flows.
    #[serde(default)]
    pub order: Order,
    /// Exponent of `zipf`. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exponent: Option<f64>,
}

/// `[traffic.burst]`. Bursts do not change the mean rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Frames per burst, 1 to 65535.
    pub frames: u16,
    /// Time from the start of a burst to the start of the next, microseconds. It replaces the trial's rate.
    #[serde(
        rename(serialize = "gap_us", deserialize = "gap-us"),
        alias = "gap_us",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub gap_us: Option<f64>,
}

/// `[traffic.replay]`: a capture file, repeated for the duration of the trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Path of a pcap or pcapng file with Ethernet frames.
    pub file: String,
    /// Transmit times of the frames.
    #[serde(default)]
    pub timing: Timing,
    /// Speed-up of `timing = "file"`, as a factor. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
}

/// Transmit times of replayed frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timing {
    /// By the time stamps of the file.
    File,
    /// At the trial's rate.
    #[default]
    Rate,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrafficFile {
    traffic: Traffic,
}

impl Traffic {
    /// Reads and checks a file with one table, `[traffic]`.
    ///
    /// # Errors
    /// [`FileError`] with file, line and key.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::parse(&locate::read(path)?, path)
    }

    /// Parses and checks the text of such a file. `path` is used in errors only.
    ///
    /// # Errors
    /// [`FileError`] with file, line and key.
    pub fn parse(text: &str, path: &Path) -> Result<Self, FileError> {
        let TrafficFile { traffic } =
            toml::from_str(text).map_err(|error| locate::of_toml(text, path, &error))?;
        match traffic.first_fault() {
            None => Ok(traffic),
            Some(mut fault) => {
                fault.path.insert(0, locate::At::Key("traffic"));
                Err(locate::of_fault(text, path, fault))
            }
        }
    }

    /// Returns the headers of the whole frame, and those inside VXLAN.
    #[must_use]
    pub fn headers(&self) -> (Headers, Option<(Vxlan, Headers)>) {
        let outer = Headers {
            ethernet: self.ethernet.clone(),
            vlan: self.vlan.clone(),
            ipv4: self.ipv4.clone(),
            ipv6: self.ipv6.clone(),
            udp: self.udp.clone(),
            tcp: self.tcp.clone(),
        };
        let inner = || self.inner.clone().unwrap_or_default();
        (outer, self.vxlan.clone().map(|vxlan| (vxlan, inner())))
    }

    /// Returns true if the description specifies the transmit times, which replace a trial's rate.
    #[must_use]
    pub fn has_rate(&self) -> bool {
        let replay = self.replay.as_ref();
        self.burst
            .as_ref()
            .is_some_and(|burst| burst.gap_us.is_some())
            || replay.is_some_and(|replay| replay.timing == Timing::File)
    }

    /// Returns the number of flows of each direction.
    #[must_use]
    pub fn flow_count(&self) -> u32 {
        let given = self.flows.as_ref().and_then(|flows| flows.count);
        given.unwrap_or_else(|| {
            let (outer, inner) = self.headers();
            let inner = inner.map_or(1, |(vxlan, inner)| {
                vxlan.vni.count().max(inner.values_max())
            });
            outer.values_max().max(inner)
        })
    }
}
