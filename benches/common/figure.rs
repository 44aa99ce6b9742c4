// SPDX-License-Identifier: Apache-2.0
//! Quantities that benchmarks measure, and how they are shown.

use serde::{Deserialize, Serialize};

/// A quantity that benchmarks measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    OfferedPps,
    ForwardedPps,
    ReceivedPps,
    CyclesAFrame,
    /// Receiving and sending only.
    PortCyclesAFrame,
    /// Filter rules only.
    FilterCyclesAFrame,
    /// Those of the filter, without those of the filter with one rule that matches all frames.
    MoreThanOneRuleCycles,
    /// Router decisions and rewriting only.
    RouteCyclesAFrame,
    LoadedS,
    /// MAC addresses that the peer had learned.
    Learned,
    /// Flows in the cache of the forwarding thread.
    Flows,
    CleanPps,
    GenerateCycles,
    CheckCycles,
    MakeAndCheckCycles,
    RateError,
    /// Without the frames that stalls left unsent.
    RateErrorRunning,
    /// Relative to the duration of a burst, like all gaps.
    GapP999,
    LongestGap,
    /// Gaps in which the tester stalled; they are not among the other gaps.
    StalledGaps,
    /// Times over 10 µs for which the host did not run the tester, and their sum.
    HostStalls,
    HostStalledUs,
    NdrPps,
    Trials,
    SearchS,
    LoadPps,
    P50Us,
    P99Us,
    MaxUs,
    ThroughputBps,
    /// Memory of compiled filter rules.
    OctetsARule,
    /// Compilation of filter rules.
    CompileMs,
    /// From compiled filter rules until the forwarding threads have them.
    SwapMs,
    /// More than the Linux bridge in the same round.
    BeyondBridgeUs,
    /// From the command to the finished page.
    ReportS,
    /// Reading the state of a study.
    StateS,
    /// Completed connections per second.
    ConnectionsPs,
    /// Connections open at once.
    OpenConnections,
    /// Of a frame that begins a connection.
    NewConnectionCycles,
    /// Connections that begin per second if the forwarding CPU has no other frames.
    NewConnectionsPs,
    /// Memory of the table of connections.
    OctetsAConnection,
    /// Answers to requests on open connections, per second.
    AnswersPs,
    FailedConnections,
    /// Frames of connections in which both sides have sent frames.
    EstablishedPps,
    /// Forwarded frames of other connections, most of which begin one.
    NewPps,
    /// Established connections that the device has forgotten.
    LostConnections,
}

impl Figure {
    /// Returns the column header.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::OfferedPps => "offered, Mpps",
            Self::ForwardedPps => "forwarded, Mpps",
            Self::ReceivedPps => "received, Mpps",
            Self::CyclesAFrame => "cycles a frame",
            Self::PortCyclesAFrame => "of those, ports",
            Self::FilterCyclesAFrame => "of those, filter",
            Self::MoreThanOneRuleCycles => "of those, beyond one rule",
            Self::RouteCyclesAFrame => "of those, route and rewrite",
            Self::LoadedS => "loaded in, s",
            Self::Learned => "addresses learned",
            Self::Flows => "flows",
            Self::CleanPps => "highest clean rate, Mpps",
            Self::GenerateCycles => "cycles to make a frame",
            Self::CheckCycles => "cycles to check a frame",
            Self::MakeAndCheckCycles => "cycles together",
            Self::RateError => "rate off by, %",
            Self::RateErrorRunning => "without stalls, %",
            Self::GapP999 => "99.9 % of gaps, burst times",
            Self::LongestGap => "longest gap, burst times",
            Self::StalledGaps => "gaps with stalls",
            Self::HostStalls => "stalls of the host",
            Self::HostStalledUs => "their sum, µs",
            Self::NdrPps => "NDR, Mpps",
            Self::Trials => "trials",
            Self::SearchS => "seconds",
            Self::LoadPps => "load, Mpps",
            Self::P50Us => "50 %, µs",
            Self::P99Us => "99 %, µs",
            Self::MaxUs => "longest, µs",
            Self::ThroughputBps => "Gbit/s",
            Self::OctetsARule => "octets a rule",
            Self::CompileMs => "of those, compiled in, ms",
            Self::SwapMs => "of those, exchanged in, ms",
            Self::BeyondBridgeUs => "beyond the Linux bridge, µs",
            Self::ReportS => "page, s",
            Self::StateS => "state, s",
            Self::ConnectionsPs => "connections a second",
            Self::OpenConnections => "open at once",
            Self::NewConnectionCycles => "cycles of a new connection",
            Self::NewConnectionsPs => "new connections a second",
            Self::OctetsAConnection => "octets a connection",
            Self::AnswersPs => "answers a second",
            Self::FailedConnections => "failed",
            Self::EstablishedPps => "established, Mpps",
            Self::NewPps => "others, Mpps",
            Self::LostConnections => "established connections lost",
        }
    }

    /// Returns the divisor of a value before it is shown, and the number of decimals.
    pub(crate) fn shown(self) -> (f64, usize) {
        match self {
            Self::OfferedPps
            | Self::ForwardedPps
            | Self::ReceivedPps
            | Self::CleanPps
            | Self::EstablishedPps
            | Self::NewPps
            | Self::LoadPps => (1e6, 2),
            Self::NdrPps => (1e6, 3),
            Self::LoadedS | Self::ReportS => (1.0, 2),
            Self::StateS => (1.0, 3),
            Self::ThroughputBps => (1e9, 2),
            Self::RateError | Self::RateErrorRunning => (0.01, 4),
            Self::GapP999 => (1.0, 3),
            Self::Trials | Self::SearchS | Self::CompileMs => (1.0, 1),
            Self::SwapMs => (1.0, 2),
            _ => (1.0, 0),
        }
    }

    /// Returns true if the standard deviation is shown too.
    pub(crate) fn shows_deviation(self) -> bool {
        self == Self::NdrPps
    }
}
