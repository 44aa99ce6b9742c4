// SPDX-License-Identifier: Apache-2.0
//! Values of keys of a study file.

use std::fmt;

use quietwire_host::vfio::Iommu;
use quietwire_lab::topology::{CATALOG, CatalogEntry, LinkKind, Program, named};
use quietwire_tester::{FrameSizes, OFFERED_RATE_PPS_MAX};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Switch: the forwarding program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Program that the lab starts.
    Program(Program),
    /// Device that the lab does not start: an external or a simulated one.
    Other,
}

/// Name of [`Switch::Other`].
const OTHER: &str = "other";

impl Default for Switch {
    fn default() -> Self {
        Self::Program(Program::Quietwire)
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(program) => program.fmt(f),
            Self::Other => f.write_str(OTHER),
        }
    }
}

impl Serialize for Switch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let mut all = Program::ALL.iter();
        match all.find(|program| program.name() == name) {
            Some(program) => Ok(Self::Program(*program)),
            None if name == OTHER => Ok(Self::Other),
            None => {
                let names: Vec<&str> = Program::ALL.iter().map(|program| program.name()).collect();
                Err(de::Error::custom(format!(
                    "unknown switch '{name}' (available: {}, and {OTHER} for a device that the lab does not start)",
                    names.join(", ")
                )))
            }
        }
    }
}

/// Topology between device and tester, by its name in the vNet-SLA material.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology(pub &'static CatalogEntry);

impl Serialize for Topology {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name)
    }
}

impl<'de> Deserialize<'de> for Topology {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        named(&name).map(Self).ok_or_else(|| {
            let names: Vec<&str> = CATALOG.iter().map(|topology| topology.name).collect();
            de::Error::custom(format!(
                "unknown topology '{name}' (available: {})",
                names.join(", ")
            ))
        })
    }
}

/// Kind of the links between tester and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// Shared memory between two processes.
    Memif,
    /// Virtio network card and its backend.
    VhostUser,
    /// Pair of kernel interfaces (veth).
    Veth,
    /// Kernel interface with a process as its other side (TAP).
    Tap,
    /// Any link to a device that the lab does not start.
    Other,
}

impl Link {
    /// Returns the lab's kind of link; none for a device outside the lab.
    pub(crate) fn kind(self) -> Option<LinkKind> {
        match self {
            Self::Memif => Some(LinkKind::Memif),
            Self::VhostUser => Some(LinkKind::VhostUser),
            Self::Veth => Some(LinkKind::Veth),
            Self::Tap => Some(LinkKind::Tap),
            Self::Other => None,
        }
    }
}

/// Forwarding mode of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Forwards every frame received on one port to the other.
    #[default]
    CrossConnect,
    /// Learning bridge.
    Bridge,
}

/// Driver of the device's network cards and virtual functions while a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CardDriver {
    /// The present driver.
    Keep,
    /// `vfio-pci` behind an IOMMU, unless the present driver supports DPDK.
    VfioPci,
    /// As [`Self::VfioPci`], and without protection by an IOMMU if the machine has none.
    VfioPciNoIommu,
}

impl CardDriver {
    /// Returns the treatment of cards without an IOMMU; `None` if cards keep their drivers.
    pub(crate) fn iommu(self) -> Option<Iommu> {
        match self {
            Self::Keep => None,
            Self::VfioPci => Some(Iommu::Required),
            Self::VfioPciNoIommu => Some(Iommu::Optional),
        }
    }
}

/// Placement of neighbours. Some placements are relative to the forwarding CPUs; on a machine without such CPUs the case is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NeighboursIn {
    /// No neighbours.
    #[default]
    None,
    /// All CPUs.
    Everywhere,
    /// All CPUs but the forwarding ones.
    OffForwardingCpus,
    /// Forwarding CPUs only, as if all others are reserved.
    ForwardingCpus,
    /// Sibling threads of the forwarding cores.
    Siblings,
    /// Other cores that share a last-level cache with a forwarding core.
    SameLlc,
    /// NUMA nodes without a forwarding CPU.
    OtherNode,
}

/// Monitors that run in the trials of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaseMonitors {
    /// All that the machine offers.
    #[default]
    All,
    /// None: only the cycles that the device counts itself are read, before and after each trial.
    None,
}

impl CaseMonitors {
    /// Returns true for all monitors.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// Isolation of a case in a store of an earlier version, by the keys `pinning` and `partition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierIsolation {
    /// Each thread of the device is pinned to the CPUs of its role.
    pub is_pinned: bool,
    /// Everything else is excluded from the forwarding CPUs.
    pub keeps_others_off: bool,
}

/// Search method; `docs/methods.md` compares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchMethod {
    /// Linear steps up, then a binary search: one search for each goal.
    #[default]
    SingleRun,
    /// As `single-run`, with up to N trials at each rate, of which one must hold.
    BestOfN,
    /// As `single-run`, with up to N trials at each rate, all of which must hold.
    WorstOfN,
    /// Both best-of-N and worst-of-N; shared trials run once.
    BestAndWorstOfN,
    /// MLRsearch (RFC 9971): all goals in one search.
    #[serde(rename = "mlrsearch")]
    MlrSearch,
}

/// Percentage of the maximum rate, above 0 and at most 100.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Percent(pub(crate) f64);

impl Percent {
    /// Returns the number: 50 for 50 %.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    /// Returns this percentage of a rate.
    #[must_use]
    pub fn of(self, max_rate_pps: f64) -> f64 {
        max_rate_pps * self.0 / 100.0
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let percent = f64::deserialize(deserializer)?;
        if percent > 0.0 && percent <= 100.0 {
            Ok(Self(percent))
        } else {
            Err(de::Error::custom(format!(
                "{percent} is not a percentage of the maximum rate (write a number above 0 and at most 100)"
            )))
        }
    }
}

/// Frame size, octets with FCS, 64 to 9000; or `imix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSize(pub FrameSizes);

impl Default for FrameSize {
    fn default() -> Self {
        Self(FrameSizes::Fixed(64))
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FrameSizes::Fixed(size) => size.fmt(f),
            FrameSizes::Imix => "imix".fmt(f),
        }
    }
}

impl Serialize for FrameSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            FrameSizes::Fixed(size) => serializer.serialize_u16(size),
            FrameSizes::Imix => serializer.serialize_str("imix"),
        }
    }
}

impl<'de> Deserialize<'de> for FrameSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FrameSizeVisitor)
    }
}

struct FrameSizeVisitor;

impl Visitor<'_> for FrameSizeVisitor {
    type Value = FrameSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame size of 64 to 9000 octets with FCS, or \"imix\"")
    }

    fn visit_i64<E: de::Error>(self, size: i64) -> Result<Self::Value, E> {
        u16::try_from(size)
            .ok()
            .filter(|size| (64..=9000).contains(size))
            .map(|size| FrameSize(FrameSizes::Fixed(size)))
            .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Signed(size), &self))
    }

    fn visit_u64<E: de::Error>(self, size: u64) -> Result<Self::Value, E> {
        self.visit_i64(i64::try_from(size).unwrap_or(i64::MAX))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            "imix" => Ok(FrameSize(FrameSizes::Imix)),
            _ => Err(de::Error::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}

/// 100 % of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MaxRate {
    /// Maximum rate of the tester itself, measured before the first trial.
    #[default]
    Auto,
    /// Fixed rate, frames per second, summed over directions.
    Pps(f64),
}

impl Serialize for MaxRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Pps(rate) => serializer.serialize_f64(*rate),
        }
    }
}

impl<'de> Deserialize<'de> for MaxRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MaxRateVisitor)
    }
}

struct MaxRateVisitor;

impl Visitor<'_> for MaxRateVisitor {
    type Value = MaxRate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a number of frames per second above 0 and at most {OFFERED_RATE_PPS_MAX:e}, or \"auto\""
        )
    }

    fn visit_f64<E: de::Error>(self, rate_pps: f64) -> Result<Self::Value, E> {
        if rate_pps > 0.0 && rate_pps <= OFFERED_RATE_PPS_MAX {
            Ok(MaxRate::Pps(rate_pps))
        } else {
            Err(de::Error::invalid_value(
                de::Unexpected::Float(rate_pps),
                &self,
            ))
        }
    }

    fn visit_i64<E: de::Error>(self, rate_pps: i64) -> Result<Self::Value, E> {
        self.visit_f64(rate_pps as f64)
    }

    fn visit_u64<E: de::Error>(self, rate_pps: u64) -> Result<Self::Value, E> {
        self.visit_f64(rate_pps as f64)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            "auto" => Ok(MaxRate::Auto),
            _ => Err(de::Error::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}
