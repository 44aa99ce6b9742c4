// SPDX-License-Identifier: Apache-2.0
//! A description of traffic, and what it makes: the octets of every frame of every flow.
//!
//! A description says which headers there are and how their fields vary, by what rule flows follow each other, and how
//! large frames are. Each field is a function of the flow's number, so that all frames of a flow have the same headers.

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

pub(crate) use draw::mix;
pub use field::{
    DscpKind, FLOWS_MAX, Field, FlagsKind, Ipv4Kind, Ipv6Kind, Kind, LabelKind, MacKind, Order,
    PortKind, PriorityKind, TtlKind, VlanIdKind, VniKind, WordKind,
};
pub use genome::{Genome, Imix, SEQUENCE_MAX, Sizes};
pub(crate) use integrity::Pattern;
pub(crate) use layout::Cover;
pub(crate) use program::{Program, TRACKED_MAX, smallest};

pub use replay::{Capture, ReplayError};

pub use headers::{Ethernet, Headers, Ipv4, Ipv6, TagType, Tcp, Udp, Vlan, Vxlan};

use crate::trial::Directions;

/// `[traffic]`: a description of traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Traffic {
    /// Frame sizes. Without it those of the trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
    /// Which ports send. Without it as the trial says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directions: Option<Directions>,
    /// Parts of the whole rate that the ports that send have, in their order; without it all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<[f64; 2]>,
    /// Whether the whole payload is checked at its arrival.
    pub integrity: bool,
    /// What everything drawn is drawn from.
    pub seed: u64,
    /// Flows and in which order they have their frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<Flows>,
    /// Frames sent back to back. Without it one at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// Frames of a capture file instead of all the headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// Ethernet.
    pub ethernet: Ethernet,
    /// Tags, the outer one first; two at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlan: Vec<Vlan>,
    /// IPv4, which it is unless IPv6 is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Ipv4>,
    /// IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6>,
    /// UDP, which it is unless TCP is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<Udp>,
    /// TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
    /// VXLAN behind UDP.
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
    /// How many. Without it as many as the field with most values has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// In which order flows have their frames.
    #[serde(default)]
    pub order: Order,
    /// For `zipf`; 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exponent: Option<f64>,
}

/// `[traffic.burst]`: the rate stays what it is, as a mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Frames back to back, 1 to 65535.
    pub frames: u16,
    /// From the start of one burst to that of the next, microseconds, in place of the trial's rate.
    #[serde(
        rename(serialize = "gap_us", deserialize = "gap-us"),
        alias = "gap_us",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub gap_us: Option<f64>,
}

/// `[traffic.replay]`: a capture file, sent again and again for as long as the trial takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// A pcap or pcapng file of Ethernet frames.
    pub file: String,
    /// When frames are sent.
    #[serde(default)]
    pub timing: Timing,
    /// For `timing = "file"`: how many times faster than the file says; 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
}

/// When replayed frames are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timing {
    /// As the file's time stamps say.
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
    /// [`FileError`], with file, line and key.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(path).map_err(|error| FileError::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        Self::parse(&text, path)
    }

    /// Reads and checks the text of such a file. `path` is only told in errors.
    ///
    /// # Errors
    /// [`FileError`], with file, line and key.
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

    /// The headers of the whole frame, and those inside VXLAN.
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

    /// Whether it says when frames are sent, so that a trial's rate is not asked for.
    #[must_use]
    pub fn says_rate(&self) -> bool {
        let replay = self.replay.as_ref();
        self.burst
            .as_ref()
            .is_some_and(|burst| burst.gap_us.is_some())
            || replay.is_some_and(|replay| replay.timing == Timing::File)
    }

    /// Flows of each direction.
    #[must_use]
    pub fn flow_count(&self) -> u32 {
        let said = self.flows.as_ref().and_then(|flows| flows.count);
        said.unwrap_or_else(|| {
            let (outer, inner) = self.headers();
            let inner = inner.map_or(1, |(vxlan, inner)| {
                vxlan.vni.count().max(inner.values_max())
            });
            outer.values_max().max(inner)
        })
    }
}
