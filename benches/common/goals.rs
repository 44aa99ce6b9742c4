// SPDX-License-Identifier: Apache-2.0
//! The goals of all benchmarks, as ratios within a run.

use super::figure::Figure;
use super::spread::Estimate;
use super::verdict::{Bound, Judged, Verdict};
use super::words::VPP;

/// Divisor of a figure: a case and a side.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ratio {
    /// The median of the ratios of paired rounds.
    Of((&'static str, &'static str)),
    /// The ratio of the relative standard deviations.
    Deviations((&'static str, &'static str)),
    /// None: the figure is already a ratio or an amount.
    Itself,
}

/// A goal of a benchmark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    pub(crate) bench: &'static str,
    pub(crate) name: &'static str,
    /// Case and side.
    pub(crate) of: (&'static str, &'static str),
    pub(crate) figure: Figure,
    pub(crate) ratio: Ratio,
    pub(crate) bound: Bound,
    pub(crate) wanted: f64,
}

impl Goal {
    pub(crate) fn judged(
        &self,
        estimate: Option<Estimate>,
        verdict: Verdict,
        reason: Option<String>,
    ) -> Judged {
        let peer = match self.ratio {
            Ratio::Of((case, side)) | Ratio::Deviations((case, side)) => {
                if case == self.of.0 {
                    side.to_owned()
                } else {
                    format!("{side}, {case}")
                }
            }
            Ratio::Itself => "-".to_owned(),
        };
        Judged {
            goal: self.name.to_owned(),
            peer,
            bound: self.bound,
            wanted: self.wanted,
            estimate,
            verdict,
            reason,
        }
    }
}

use Bound::{AtLeast, AtMost};
use Figure::{CyclesAFrame, ForwardedPps};

const fn goal(
    bench: &'static str,
    name: &'static str,
    of: (&'static str, &'static str),
    figure: Figure,
    ratio: Ratio,
    bound: Bound,
    wanted: f64,
) -> Goal {
    Goal {
        bench,
        name,
        of,
        figure,
        ratio,
        bound,
        wanted,
    }
}

/// Returns the goal of a rate that is at least this ratio of another.
const fn rate(
    bench: &'static str,
    name: &'static str,
    of: (&'static str, &'static str),
    to: (&'static str, &'static str),
    wanted: f64,
) -> Goal {
    goal(
        bench,
        name,
        of,
        ForwardedPps,
        Ratio::Of(to),
        AtLeast,
        wanted,
    )
}

/// Returns the goal of cycles per frame that are at most this ratio of others.
const fn cycles(
    bench: &'static str,
    name: &'static str,
    of: (&'static str, &'static str),
    to: (&'static str, &'static str),
    wanted: f64,
) -> Goal {
    goal(bench, name, of, CyclesAFrame, Ratio::Of(to), AtMost, wanted)
}

/// Returns the goal that this build forwards at least 0.98 times as many frames as the other.
const fn of_builds(case: &'static str) -> Goal {
    let (this, that) = ((case, "this build"), (case, "other build"));
    rate("builds", case, this, that, 0.98)
}

/// Returns the goal that this build uses at most this ratio of the other's cycles per frame.
const fn cycles_of_builds(name: &'static str, case: &'static str, wanted: f64) -> Goal {
    let (this, that) = ((case, "this build"), (case, "other build"));
    cycles("builds", name, this, that, wanted)
}

/// Returns the goal of a figure of the tester alone that is at most this value.
const fn paced(name: &'static str, case: &'static str, figure: Figure, wanted: f64) -> Goal {
    let of = (case, "quietwire's tester");
    goal("pacing", name, of, figure, Ratio::Itself, AtMost, wanted)
}

/// Returns a goal of the tester's connections without a device.
const fn at_least(name: &'static str, case: &'static str, figure: Figure, wanted: f64) -> Goal {
    let of = (case, TESTER);
    let itself = Ratio::Itself;
    goal("connections", name, of, figure, itself, AtLeast, wanted)
}

/// Returns the goal that the tester is at least so many times as fast with several CPUs as with one.
const fn scaled(name: &'static str, case: &'static str, wanted: f64) -> Goal {
    received(name, case, (ONE_CPU, TESTER), wanted)
}

/// Returns the goal that the tester generates and checks at least as many frames as a peer generates and counts.
const fn generated(name: &'static str, case: &'static str, peer: &'static str) -> Goal {
    received(name, case, (case, peer), 1.0)
}

/// Returns the goal that the tester generates and checks at least this ratio of the frames of another side.
const fn received(
    name: &'static str,
    case: &'static str,
    to: (&'static str, &'static str),
    wanted: f64,
) -> Goal {
    let (of, to) = ((case, TESTER), Ratio::Of(to));
    let figure = Figure::ReceivedPps;
    goal("generators", name, of, figure, to, AtLeast, wanted)
}

/// Case of one benchmark.
pub(crate) const TCP_RIGHT: &str = "iperf3, TCP to the right host";
const TCP_LEFT: &str = "iperf3, TCP to the left host";
pub(crate) const UDP_ECHO: &str = "request and response, UDP";
const TCP_ECHO: &str = "request and response, TCP";
pub(crate) const SMALL: &str = "iperf3, frames of 64 octets";
pub(crate) const SILENCE: &str = "request after a silence of 50 ms";
const TAP: &str = "quietwire, tap";
const SLEEPING_TAP: &str = "quietwire, tap, idle = sleep";
const VETH_PORT: &str = "quietwire, veth";
const VETH_OF_SWITCH: &str = "quietwire, veth, kernel-forwarding = false";
const PACKET: &str = "quietwire, af-packet";
const XDP: &str = "quietwire, af-xdp";
const STEERED_XDP: &str = "quietwire, af-xdp with steering rules";
const KERNEL_BRIDGE: &str = "Linux bridge";
const UNMERGED: &str = "quietwire, af-xdp to tap";
const MERGED: &str = "quietwire, af-xdp to tap, gro=on";
const TCP_TO_GUEST: &str = "iperf3, TCP to the guest";
const TCP_FROM_GUEST: &str = "iperf3, TCP from the guest";
const SMALL_TO_GUEST: &str = "iperf3, frames of 64 octets to the guest";
const GUEST_ECHO: &str = "request and response with the guest, ICMP";
const GUEST: &str = "quietwire, guest";
const GUEST_BRIDGE: &str = "Linux bridge, guest";
const GUEST_USER_OVS: &str = "Open vSwitch, userspace datapath, guest";
const GUEST_DPDK_OVS: &str = "Open vSwitch, DPDK datapath, guest";
const KERNEL_OVS: &str = "Open vSwitch, kernel datapath";
const USER_OVS: &str = "Open vSwitch, userspace datapath";
const DPDK_OVS: &str = "Open vSwitch, DPDK datapath";

/// Returns the goal of TCP data between hosts that are at least this ratio of those of another side.
const fn streams(
    name: &'static str,
    case: &'static str,
    side: &'static str,
    to: &'static str,
    wanted: f64,
) -> Goal {
    let (figure, ratio) = (Figure::ThroughputBps, Ratio::Of((case, to)));
    goal(
        "kernel_ports",
        name,
        (case, side),
        figure,
        ratio,
        AtLeast,
        wanted,
    )
}

/// Returns the goal that the median of a round trip between hosts is no longer than with the Linux bridge.
const fn round_trip(name: &'static str, case: &'static str, side: &'static str) -> Goal {
    round_trip_of(name, case, side, KERNEL_BRIDGE)
}

/// Returns the goal that the median of a round trip is no longer than that of another side.
const fn round_trip_of(
    name: &'static str,
    case: &'static str,
    side: &'static str,
    to: &'static str,
) -> Goal {
    let (figure, ratio) = (Figure::P50Us, Ratio::Of((case, to)));
    goal(
        "kernel_ports",
        name,
        (case, side),
        figure,
        ratio,
        AtMost,
        1.0,
    )
}

/// Returns the goal that the first frame after a silence is forwarded within 100 µs.
const fn first_frame(name: &'static str, side: &'static str) -> Goal {
    let figure = Figure::BeyondBridgeUs;
    goal(
        "kernel_ports",
        name,
        (SILENCE, side),
        figure,
        Ratio::Itself,
        AtMost,
        100.0,
    )
}

/// Returns the goal that MLRsearch's results deviate at most half as much as those of single-run.
const fn repeated(device: &'static str) -> Goal {
    let to = Ratio::Deviations((device, "single-run"));
    let of = (device, "mlrsearch");
    goal("repeatability", device, of, Figure::NdrPps, to, AtMost, 0.5)
}

/// Cases and our side of the benchmark of generators.
pub(crate) const ONE_FLOW: &str = "one flow";
pub(crate) const MANY_FLOWS: &str = "1,024 flows";
pub(crate) const ONE_CPU: &str = "1 CPU";
pub(crate) const TWO_CPUS: &str = "2 CPUs";
pub(crate) const FOUR_CPUS: &str = "4 CPUs";
pub(crate) const TESTER: &str = "quietwire's tester";
/// Cases of the tester alone: its ways to access frames.
pub(crate) const IN_PLACE: &str = "in place";
pub(crate) const IN_BUFFERS: &str = "in packet buffers";
/// Cases of the benchmark of connections.
pub(crate) const SHORT_CONNECTIONS: &str = "request of 64 octets, answer of 128, close";
pub(crate) const OPEN_AT_ONCE: &str = "open connections";
/// Case and side of the benchmark of reports.
pub(crate) const TEN_THOUSAND: &str = "10,000 trials";
pub(crate) const PAGE: &str = "study report";
/// Case and sides of the benchmark of monitors.
pub(crate) const MONITORED: &str = "cross-connect between null ports";
pub(crate) const WITH_MONITORS: &str = "all monitors";
pub(crate) const WITHOUT_MONITORS: &str = "no monitors";
const TESTPMD: &str = "testpmd io";
const CROSS_CONNECT: &str = "quietwire, cross-connect";
const BRIDGE: &str = "quietwire, bridge, 1 MAC address";
const BRIDGE_MANY: &str = "quietwire, bridge, 20,000 MAC addresses";

const MEMIF: &str = "quietwire, memif";
const VHOST: &str = "quietwire, vhost-user";
const OVS: &str = "Open vSwitch, vhost-user";
const MEMIF_TWO: &str = "quietwire, memif, 2 addresses";
const VHOST_TWO: &str = "quietwire, vhost-user, 2 addresses";
const ROUTER: &str = "quietwire";
const ONE_ROUTE: &str = "quietwire, 1 route";
const LPM: &str = "dpdk-l3fwd, lpm";
const FIB: &str = "dpdk-l3fwd, fib";

/// Returns the goal that the filter itself uses at most this number of cycles per frame.
const fn filter_cycles(name: &'static str, case: &'static str, wanted: f64) -> Goal {
    let of = (case, ROUTER);
    let figure = Figure::FilterCyclesAFrame;
    goal(
        "filter_scale",
        name,
        of,
        figure,
        Ratio::Itself,
        AtMost,
        wanted,
    )
}

/// Returns the goal that rules cost at most as much more than one rule as they do in Open vSwitch, whose lookup is never without a flow.
const fn filter_of_ovs(name: &'static str, case: &'static str) -> Goal {
    let of = (case, ROUTER);
    let figure = Figure::MoreThanOneRuleCycles;
    let to = Ratio::Of((case, OVS));
    goal("filter_scale", name, of, figure, to, AtMost, 1.0)
}

/// Returns the goal that a change of a set or of a rule is in force within 10 ms.
const fn rule_change(name: &'static str, case: &'static str) -> Goal {
    let of = (case, ROUTER);
    goal(
        "filter_scale",
        name,
        of,
        Figure::P99Us,
        Ratio::Itself,
        AtMost,
        10_000.0,
    )
}

/// Cases of the benchmark of the filter.
const FILTERED_ALONE: &str = "100,000 rules and connection tracking, 50,000 known flows alone";
const FILTERED_BESIDE: &str =
    "100,000 rules and connection tracking, 50,000 known flows beside as many frames of a scan";

/// Cases of the benchmark of the tracker.
pub(crate) const SOURCE_NAT: &str = "source NAT, 60,000 flows";
pub(crate) const TRACKED_NAT: &str = "tracked and source NAT, 60,000 flows";
pub(crate) const BALANCED: &str = "load balancer, 60,000 flows";
pub(crate) const NEW_TRACKED: &str = "a new connection, tracked";
pub(crate) const NEW_TRANSLATED: &str = "a new connection, tracked and translated";
pub(crate) const WITHOUT_FLOOD: &str = "requests on open connections";
pub(crate) const UNDER_FLOOD: &str = "requests on open connections beside 1,000,000 SYNs a second";
pub(crate) const SCANNED: &str = "60,000 connections beside a scan of all ports of 16 hosts";
pub(crate) const WITHOUT_NEW: &str = "60,000 known flows alone";
pub(crate) const BESIDE_NEW: &str = "60,000 known flows beside as many frames of a scan";
const TRACKED_ONE: &str = "tracked, 1 flow";
const TRACKED_MANY: &str = "tracked, 60,000 flows";
const TRACKED_MOST: &str = "tracked, 1,000,000 flows";

/// Returns the goal of a figure of the tracker that is at most this value.
const fn tracked(name: &'static str, case: &'static str, figure: Figure, wanted: f64) -> Goal {
    let (of, itself) = ((case, ROUTER), Ratio::Itself);
    goal("tracker_scale", name, of, figure, itself, AtMost, wanted)
}

/// Returns the goal of a figure of the tracker that is at most this ratio of a peer's.
const fn tracked_of(
    name: &'static str,
    case: &'static str,
    figure: Figure,
    peer: (&'static str, &'static str),
    wanted: f64,
) -> Goal {
    let (of, to) = ((case, ROUTER), Ratio::Of(peer));
    goal("tracker_scale", name, of, figure, to, AtMost, wanted)
}

/// Every goal of every benchmark.
#[rustfmt::skip]
pub(crate) const GOALS: &[Goal] = &[
    rate("peers", "cross-connect, one way: rate", ("one way", CROSS_CONNECT), ("one way", TESTPMD), 0.9),
    rate("peers", "cross-connect, both ways: rate", ("both ways", CROSS_CONNECT), ("both ways", TESTPMD), 0.9),
    rate("peers", "cross-connect, one way: rate", ("one way", CROSS_CONNECT), ("one way", VPP), 1.0),
    rate("peers", "bridge, 1 MAC address, one way: rate", ("one way", BRIDGE), ("one way", TESTPMD), 0.9),
    rate("peers", "bridge, 1 MAC address, both ways: rate", ("both ways", BRIDGE), ("both ways", TESTPMD), 0.9),
    rate("peers", "bridge, 20,000 MAC addresses, one way: rate", ("one way", BRIDGE_MANY), ("one way", TESTPMD), 0.8),
    rate("peers", "bridge, 20,000 MAC addresses, both ways: rate", ("both ways", BRIDGE_MANY), ("both ways", TESTPMD), 0.8),
    rate("peers", "tester without a device: rate", ("generate and check", "quietwire's tester"),
        ("generate and check", "testpmd txonly to rxonly"), 0.9),

    generated("one flow: rate", ONE_FLOW, "testpmd txonly to rxonly"),
    generated("1,024 flows: rate", MANY_FLOWS, "testpmd flowgen to rxonly"),
    scaled("2 CPUs: rate", TWO_CPUS, 1.8),
    scaled("4 CPUs: rate", FOUR_CPUS, 3.4),

    rate("bridge_scale", "20,000 addresses, memif: rate", ("20,000", MEMIF), ("20,000", MEMIF_TWO), 0.8),
    rate("bridge_scale", "1,000,000 addresses, memif: rate", ("1,000,000", MEMIF), ("1,000,000", MEMIF_TWO), 0.5),
    rate("bridge_scale", "20,000 addresses, vhost-user: rate", ("20,000", VHOST), ("20,000", VHOST_TWO), 0.8),
    rate("bridge_scale", "1,000,000 addresses, vhost-user: rate", ("1,000,000", VHOST), ("1,000,000", VHOST_TWO), 0.5),
    rate("bridge_scale", "2 addresses, vhost-user: rate", ("2", VHOST), ("2", OVS), 1.5),
    rate("bridge_scale", "2,000 addresses, vhost-user: rate", ("2,000", VHOST), ("2,000", OVS), 4.0),
    rate("bridge_scale", "20,000 addresses, vhost-user: rate", ("20,000", VHOST), ("20,000", OVS), 4.0),
    rate("bridge_scale", "200,000 addresses, vhost-user: rate", ("200,000", VHOST), ("200,000", OVS), 4.0),
    rate("bridge_scale", "1,000,000 addresses, vhost-user: rate", ("1,000,000", VHOST), ("1,000,000", OVS), 4.0),
    cycles("bridge_scale", "2 addresses, vhost-user: cycles a frame", ("2", VHOST), ("2", OVS), 0.67),
    cycles("bridge_scale", "2,000 addresses, vhost-user: cycles a frame", ("2,000", VHOST), ("2,000", OVS), 0.25),
    cycles("bridge_scale", "20,000 addresses, vhost-user: cycles a frame", ("20,000", VHOST), ("20,000", OVS), 0.25),
    cycles("bridge_scale", "200,000 addresses, vhost-user: cycles a frame", ("200,000", VHOST), ("200,000", OVS), 0.25),
    cycles("bridge_scale", "1,000,000 addresses, vhost-user: cycles a frame", ("1,000,000", VHOST), ("1,000,000", OVS), 0.25),
    rate("bridge_scale", "20,000 addresses, memif: rate", ("20,000", MEMIF), ("20,000", VPP), 1.0),
    rate("bridge_scale", "1,000,000 addresses, memif: rate", ("1,000,000", MEMIF), ("1,000,000", VPP), 2.0),

    rate("route_scale", "20,000 IPv4 routes: rate", ("IPv4, 20,000", ROUTER), ("IPv4, 20,000", ONE_ROUTE), 0.85),
    rate("route_scale", "2,000,000 IPv4 routes: rate", ("IPv4, 2,000,000", ROUTER), ("IPv4, 2,000,000", ONE_ROUTE), 0.5),
    rate("route_scale", "20,000 IPv6 routes: rate", ("IPv6, 20,000", ROUTER), ("IPv6, 20,000", ONE_ROUTE), 0.85),
    rate("route_scale", "500,000 IPv6 routes: rate", ("IPv6, 500,000", ROUTER), ("IPv6, 500,000", ONE_ROUTE), 0.5),
    rate("route_scale", "1 IPv4 route: rate", ("IPv4, 1", ROUTER), ("IPv4, 1", LPM), 0.9),
    rate("route_scale", "1 IPv4 route: rate", ("IPv4, 1", ROUTER), ("IPv4, 1", FIB), 0.9),
    rate("route_scale", "20,000 IPv4 routes: rate", ("IPv4, 20,000", ROUTER), ("IPv4, 20,000", LPM), 0.9),
    rate("route_scale", "20,000 IPv4 routes: rate", ("IPv4, 20,000", ROUTER), ("IPv4, 20,000", FIB), 0.9),
    rate("route_scale", "200,000 IPv4 routes: rate", ("IPv4, 200,000", ROUTER), ("IPv4, 200,000", LPM), 0.9),
    rate("route_scale", "200,000 IPv4 routes: rate", ("IPv4, 200,000", ROUTER), ("IPv4, 200,000", FIB), 0.9),
    rate("route_scale", "2,000,000 IPv4 routes: rate", ("IPv4, 2,000,000", ROUTER), ("IPv4, 2,000,000", FIB), 0.9),
    rate("route_scale", "1 IPv6 route: rate", ("IPv6, 1", ROUTER), ("IPv6, 1", LPM), 0.9),
    rate("route_scale", "1 IPv6 route: rate", ("IPv6, 1", ROUTER), ("IPv6, 1", FIB), 0.9),
    rate("route_scale", "20,000 IPv6 routes: rate", ("IPv6, 20,000", ROUTER), ("IPv6, 20,000", LPM), 0.9),
    rate("route_scale", "20,000 IPv6 routes: rate", ("IPv6, 20,000", ROUTER), ("IPv6, 20,000", FIB), 0.9),
    rate("route_scale", "500,000 IPv6 routes: rate", ("IPv6, 500,000", ROUTER), ("IPv6, 500,000", LPM), 0.9),
    rate("route_scale", "1 IPv4 route: rate", ("IPv4, 1", ROUTER), ("IPv4, 1", VPP), 1.0),
    rate("route_scale", "20,000 IPv4 routes: rate", ("IPv4, 20,000", ROUTER), ("IPv4, 20,000", VPP), 1.0),
    goal("route_scale", "1 IPv4 route: cycles of route and rewrite", ("IPv4, 1", ROUTER), Figure::RouteCyclesAFrame, Ratio::Itself, AtMost, 50.0),
    goal("route_scale", "1 IPv4 route: cycles of route and rewrite, ratio of goal and peer", ("IPv4, 1", ROUTER),
        Figure::RouteCyclesAFrame, Ratio::Of(("IPv4, 1", VPP)), AtMost, 0.81),

    rate("ports_scale", "32 ports, two of them busy: rate", ("32 ports, two busy", ROUTER), ("2 ports, two busy", ROUTER), 0.9),
    rate("ports_scale", "32 ports, all busy: rate", ("32 ports, all busy", ROUTER), ("2 ports, all busy", ROUTER), 0.5),

    filter_cycles("10 rules: cycles of the filter a frame", "10 rules, another rule for each frame", 40.0),
    filter_cycles("1,000 rules: cycles of the filter a frame", "1,000 rules, another rule for each frame", 80.0),
    filter_cycles("10,000 rules: cycles of the filter a frame", "10,000 rules, another rule for each frame", 100.0),
    filter_cycles("100,000 rules: cycles of the filter a frame", "100,000 rules, another rule for each frame", 150.0),
    rate("filter_scale", "scan behind 100,000 rules: rate", ("100,000 rules, scan", ROUTER), ("100,000 rules, one flow", ROUTER), 0.5),
    rate("filter_scale", "scan behind 100,000 rules and tracking: rate",
        ("100,000 rules and connection tracking, scan", ROUTER), ("100,000 rules and connection tracking, one flow", ROUTER), 0.5),
    goal("filter_scale", "beside as many frames of a scan, 100,000 rules and tracking: frames of known flows", (FILTERED_BESIDE, ROUTER),
        Figure::EstablishedPps, Ratio::Of((FILTERED_ALONE, ROUTER)), AtLeast, 0.5),
    rule_change("an element of 10,000: µs until it is in force", "an element of 10,000, 0 other rules"),
    rule_change("an element beside 99,998 rules: µs until it is in force", "an element of 10,000, 99,998 other rules"),
    rule_change("a rule beside 10,000: µs until it is in force", "a rule, 10,000 other rules"),
    rule_change("a rule added or removed beside 10,000: µs until it is in force", "a rule added or removed, 10,000 other rules"),
    goal("filter_scale", "10 rules: cycles of the filter, ratio", ("10 rules, another rule for each frame", ROUTER),
        Figure::FilterCyclesAFrame, Ratio::Of(("10 rules, another rule for each frame", VPP)), AtMost, 1.0),
    goal("filter_scale", "1,000 rules: cycles of the filter, ratio", ("1,000 rules, another rule for each frame", ROUTER),
        Figure::FilterCyclesAFrame, Ratio::Of(("1,000 rules, another rule for each frame", VPP)), AtMost, 1.0),
    filter_of_ovs("10 rules: cycles beyond one rule, ratio", "10 rules, another rule for each frame"),
    filter_of_ovs("1,000 rules: cycles beyond one rule, ratio", "1,000 rules, another rule for each frame"),
    filter_of_ovs("10,000 rules: cycles beyond one rule, ratio", "10,000 rules, another rule for each frame"),
    filter_of_ovs("100,000 rules: cycles beyond one rule, ratio", "100,000 rules, another rule for each frame"),
    goal("filter_scale", "10 rules: cycles of the filter, ratio of goal and peer", ("10 rules, another rule for each frame", ROUTER),
        Figure::FilterCyclesAFrame, Ratio::Of(("10 rules, another rule for each frame", VPP)), AtMost, 0.43),
    goal("filter_scale", "1,000 rules: cycles of the filter, ratio of goal and peer", ("1,000 rules, another rule for each frame", ROUTER),
        Figure::FilterCyclesAFrame, Ratio::Of(("1,000 rules, another rule for each frame", VPP)), AtMost, 0.82),

    at_least("connections a second on one CPU", SHORT_CONNECTIONS, Figure::ConnectionsPs, 300_000.0),
    at_least("connections open at once", OPEN_AT_ONCE, Figure::OpenConnections, 4_000_000.0),

    tracked("tracked, 1 flow: cycles a frame", TRACKED_ONE, CyclesAFrame, 250.0),
    tracked("tracked, 60,000 flows: cycles a frame", TRACKED_MANY, CyclesAFrame, 350.0),
    tracked("tracked, 1,000,000 flows: cycles a frame", TRACKED_MOST, CyclesAFrame, 450.0),
    tracked("source NAT, 60,000 flows: cycles a frame", SOURCE_NAT, CyclesAFrame, 400.0),
    tracked("a new connection, tracked and translated: cycles", NEW_TRANSLATED, Figure::NewConnectionCycles, 1200.0),
    tracked_of("tracked, 1 flow: cycles a frame, ratio", TRACKED_ONE, CyclesAFrame, (TRACKED_ONE, OVS), 0.47),
    tracked_of("tracked, 60,000 flows: cycles a frame, ratio", TRACKED_MANY, CyclesAFrame, (TRACKED_MANY, OVS), 0.24),
    tracked_of("tracked, 1,000,000 flows: cycles a frame, ratio", TRACKED_MOST, CyclesAFrame, (TRACKED_MOST, OVS), 1.0),
    tracked_of("source NAT, 60,000 flows: cycles a frame, ratio", SOURCE_NAT, CyclesAFrame, (TRACKED_NAT, OVS), 0.22),
    tracked_of("tracked and source NAT, 60,000 flows: cycles a frame, ratio", TRACKED_NAT, CyclesAFrame, (TRACKED_NAT, OVS), 1.0),
    tracked_of("source NAT, 60,000 flows: cycles a frame, ratio", SOURCE_NAT, CyclesAFrame, (SOURCE_NAT, VPP), 0.72),
    tracked_of("a new connection, tracked and translated: cycles, ratio", NEW_TRANSLATED, Figure::NewConnectionCycles,
        (NEW_TRANSLATED, VPP), 0.49),
    goal("tracker_scale", "beside 1,000,000 SYNs a second: answers on open connections", (UNDER_FLOOD, ROUTER),
        Figure::AnswersPs, Ratio::Of((WITHOUT_FLOOD, ROUTER)), AtLeast, 0.99),
    tracked("beside a scan of all ports: established connections lost", SCANNED, Figure::LostConnections, 0.0),
    goal("tracker_scale", "beside as many frames of a scan: frames of known flows", (BESIDE_NEW, ROUTER),
        Figure::EstablishedPps, Ratio::Of((WITHOUT_NEW, ROUTER)), AtLeast, 0.5),

    of_builds("memif, cross-connect"),
    of_builds("memif with 4 queues, cross-connect"),
    of_builds("memif, bridge, 2 MAC addresses"),
    of_builds("memif, bridge, 20,000 MAC addresses"),
    of_builds("vhost-user, cross-connect"),
    of_builds("vhost-user with 4 queues, cross-connect"),
    of_builds("vhost-user with packed rings, cross-connect"),
    of_builds("vhost-user with packed rings and 4 queues, cross-connect"),
    cycles_of_builds("memif: cycles a frame", "memif, cross-connect", 0.8),
    cycles_of_builds("memif with 4 queues: cycles a frame", "memif with 4 queues, cross-connect", 1.0),
    cycles_of_builds("vhost-user: cycles a frame", "vhost-user, cross-connect", 1.0),
    cycles_of_builds("vhost-user with 4 queues: cycles a frame", "vhost-user with 4 queues, cross-connect", 1.0),
    cycles_of_builds("vhost-user with packed rings: cycles a frame", "vhost-user with packed rings, cross-connect", 1.0),
    cycles_of_builds("vhost-user with packed rings and 4 queues: cycles a frame",
        "vhost-user with packed rings and 4 queues, cross-connect", 1.0),
    cycles("builds", "vhost-user, packed rings: cycles a frame", ("vhost-user with packed rings, cross-connect", "this build"),
        ("vhost-user, cross-connect", "this build"), 1.1),
    cycles("builds", "vhost-user, packed rings, 4 queues: cycles a frame",
        ("vhost-user with packed rings and 4 queues, cross-connect", "this build"),
        ("vhost-user with 4 queues, cross-connect", "this build"), 1.1),

    paced("pacing, 10 %: error of the rate without stalls", "10 % of that", Figure::RateErrorRunning, 1e-4),
    paced("pacing, 50 %: error of the rate without stalls", "50 % of that", Figure::RateErrorRunning, 1e-4),
    paced("pacing, 90 %: error of the rate without stalls", "90 % of that", Figure::RateErrorRunning, 1e-4),
    paced("pacing, 10 %: 99.9 % of gaps, burst times", "10 % of that", Figure::GapP999, 1.0),
    paced("pacing, 50 %: 99.9 % of gaps, burst times", "50 % of that", Figure::GapP999, 1.0),
    paced("pacing, 90 %: 99.9 % of gaps, burst times", "90 % of that", Figure::GapP999, 1.0),
    paced("making and checking a frame: cycles", "as fast as is clean", Figure::MakeAndCheckCycles, 70.0),
    cycles("pacing", "sending and receiving in place: cycles a frame", (IN_PLACE, TESTER), (IN_BUFFERS, TESTER), 0.5),

    streams("tap, TCP to the right: throughput", TCP_RIGHT, TAP, KERNEL_BRIDGE, 0.8),
    streams("tap, TCP to the left: throughput", TCP_LEFT, TAP, KERNEL_BRIDGE, 0.8),
    streams("tap, TCP to the right: as much as the kernel", TCP_RIGHT, TAP, KERNEL_BRIDGE, 1.0),
    streams("tap, TCP to the left: as much as the kernel", TCP_LEFT, TAP, KERNEL_BRIDGE, 1.0),
    streams("af-packet, TCP to the right: throughput", TCP_RIGHT, PACKET, KERNEL_BRIDGE, 0.5),
    streams("af-packet, TCP to the left: throughput", TCP_LEFT, PACKET, KERNEL_BRIDGE, 0.5),
    streams("veth without kernel forwarding, TCP to the right: throughput", TCP_RIGHT, VETH_OF_SWITCH, KERNEL_BRIDGE, 0.5),
    streams("veth without kernel forwarding, TCP to the left: throughput", TCP_LEFT, VETH_OF_SWITCH, KERNEL_BRIDGE, 0.5),
    streams("veth, TCP to the right: throughput", TCP_RIGHT, VETH_PORT, KERNEL_BRIDGE, 0.8),
    streams("veth, TCP to the left: throughput", TCP_LEFT, VETH_PORT, KERNEL_BRIDGE, 0.8),
    streams("veth, TCP to the right: as much as the kernel", TCP_RIGHT, VETH_PORT, KERNEL_BRIDGE, 1.0),
    streams("veth, TCP to the left: as much as the kernel", TCP_LEFT, VETH_PORT, KERNEL_BRIDGE, 1.0),
    streams("tap, TCP to the right: throughput", TCP_RIGHT, TAP, KERNEL_OVS, 0.8),
    streams("tap, TCP to the right: throughput", TCP_RIGHT, TAP, USER_OVS, 1.0),
    streams("tap, TCP to the right: throughput", TCP_RIGHT, TAP, DPDK_OVS, 1.0),
    round_trip("tap, UDP: median round trip", UDP_ECHO, TAP),
    round_trip("tap, TCP: median round trip", TCP_ECHO, TAP),
    round_trip("veth without kernel forwarding, UDP: median round trip", UDP_ECHO, VETH_OF_SWITCH),
    round_trip("veth without kernel forwarding, TCP: median round trip", TCP_ECHO, VETH_OF_SWITCH),
    round_trip("veth, UDP: median round trip", UDP_ECHO, VETH_PORT),
    round_trip("veth, TCP: median round trip", TCP_ECHO, VETH_PORT),
    round_trip("af-packet, UDP: median round trip", UDP_ECHO, PACKET),
    round_trip("af-packet, TCP: median round trip", TCP_ECHO, PACKET),
    round_trip("af-xdp, UDP: median round trip", UDP_ECHO, XDP),
    round_trip("af-xdp, TCP: median round trip", TCP_ECHO, XDP),
    first_frame("tap: first frame after a silence, µs", TAP),
    first_frame("tap, idle = sleep: first frame after a silence, µs", SLEEPING_TAP),
    first_frame("veth: first frame after a silence, µs", VETH_PORT),
    first_frame("veth without kernel forwarding: first frame after a silence, µs", VETH_OF_SWITCH),
    first_frame("af-packet: first frame after a silence, µs", PACKET),
    first_frame("af-xdp: first frame after a silence, µs", XDP),
    rate("kernel_ports", "tap, frames of 64 octets: rate", (SMALL, TAP), (SMALL, KERNEL_BRIDGE), 0.8),
    rate("kernel_ports", "veth, frames of 64 octets: rate", (SMALL, VETH_PORT), (SMALL, KERNEL_BRIDGE), 0.8),
    rate("kernel_ports", "af-packet, frames of 64 octets: rate", (SMALL, PACKET), (SMALL, KERNEL_BRIDGE), 0.5),
    streams("af-xdp with steering rules, TCP to the right: throughput", TCP_RIGHT, STEERED_XDP, XDP, 0.9),
    streams("af-xdp with steering rules, TCP to the left: throughput", TCP_LEFT, STEERED_XDP, XDP, 0.9),
    rate("kernel_ports", "af-xdp with steering rules, frames of 64 octets: rate", (SMALL, STEERED_XDP), (SMALL, XDP), 0.9),
    streams("gro=on, TCP to the right: no less than without", TCP_RIGHT, MERGED, UNMERGED, 1.0),
    streams("guest, TCP to it: throughput", TCP_TO_GUEST, GUEST, GUEST_BRIDGE, 0.8),
    streams("guest, TCP from it: throughput", TCP_FROM_GUEST, GUEST, GUEST_BRIDGE, 0.8),
    streams("guest, TCP to it: throughput", TCP_TO_GUEST, GUEST, GUEST_USER_OVS, 1.0),
    streams("guest, TCP from it: throughput", TCP_FROM_GUEST, GUEST, GUEST_USER_OVS, 1.0),
    streams("guest, TCP to it: throughput", TCP_TO_GUEST, GUEST, GUEST_DPDK_OVS, 1.0),
    streams("guest, TCP from it: throughput", TCP_FROM_GUEST, GUEST, GUEST_DPDK_OVS, 1.0),
    round_trip_of("guest, ICMP: median round trip", GUEST_ECHO, GUEST, GUEST_BRIDGE),
    rate("kernel_ports", "guest, frames of 64 octets: rate", (SMALL_TO_GUEST, GUEST), (SMALL_TO_GUEST, GUEST_BRIDGE), 0.8),

    goal("reports", "page of 10,000 trials, s", (TEN_THOUSAND, PAGE), Figure::ReportS, Ratio::Itself, AtMost, 2.0),

    cycles("monitors", "all monitors: cycles a frame", (MONITORED, WITH_MONITORS), (MONITORED, WITHOUT_MONITORS), 1.01),

    repeated("simulated, capacity within 2 %"),
    repeated("simulated, capacity within 2 %, a tenth less in every twentieth trial"),
    repeated("switch, memif, 20,000 MAC addresses"),
];
