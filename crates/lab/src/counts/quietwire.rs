// SPDX-License-Identifier: Apache-2.0
//! Counters of quietwire's switch (`show stats` at its control socket), and its own view of its work.

use std::path::Path;

use quietwire_base::Deadline;
use quietwire_switch::control::{Request, Subject};
use quietwire_switch::report::{
    CyclesReport, PortDrop, PortReport, Punt, RouterCounts, StatsReport,
};
use quietwire_tester::account::{DropStage, ElementCounts, PortCounts, UnitDrop};

use super::too_late;
use crate::control::ask_within;
use crate::own_view::OwnView;

/// Punts that end a packet: its sender gets an ICMP error at most.
const ENDING: [Punt; 5] = [
    Punt::NoRoute,
    Punt::Unreachable,
    Punt::Prohibited,
    Punt::TimeExceeded,
    Punt::TooBig,
];

const ROUTER: &str = "router";

/// Reads the counters of the switch with this control socket.
pub(crate) fn of_switch(socket: &Path, deadline: Deadline) -> Result<ElementCounts, String> {
    let left = deadline.remaining();
    if left.is_zero() {
        return Err(too_late());
    }
    let stats: StatsReport = ask_within(socket, &Request::Show(Subject::Stats), left)?;
    Ok(counts_of(&stats))
}

/// Reads what the switch with this control socket counts about its own work, or why it does not report it.
pub(crate) fn own_view_of_switch(socket: &Path, deadline: Deadline) -> Result<OwnView, String> {
    let cycles = Request::Show(Subject::Cycles);
    let reported: CyclesReport = ask_within(socket, &cycles, deadline.remaining())?;
    let ports = Request::Show(Subject::Ports);
    let ports: Vec<PortReport> = ask_within(socket, &ports, deadline.remaining())?;
    let view = OwnView::of_quietwire(&reported).with_ports(&ports);
    Ok(view.with_memory(&ports, &reported.queues))
}

/// Returns the place at which a port's counter counts dropped frames.
fn stage(reason: PortDrop) -> DropStage {
    match reason {
        // Frames that are not counted as received.
        PortDrop::NoBuffers | PortDrop::RxMissed | PortDrop::RxErrors => DropStage::BeforeReceipt,
        // Counted at the frame's egress port.
        PortDrop::TxFull | PortDrop::DeniedOut | PortDrop::NotSegmented => DropStage::ToSend,
        _ => DropStage::Received,
    }
}

/// Returns the router's counters that overlap with other counters, or whose frames may still be queued.
fn overlapping(router: &RouterCounts) -> [(&'static str, u64); 6] {
    [
        ("not_sent", router.not_sent),
        ("service_full", router.service_full),
        ("neighbour_queue_drops", router.neighbour_queue_drops),
        ("neighbour_table_full", router.neighbour_table_full),
        ("unknown_protocol", router.unknown_protocol),
        ("to_kernel", router.to_kernel),
    ]
}

/// Returns the counters in a switch's statistics.
fn counts_of(stats: &StatsReport) -> ElementCounts {
    let mut counts = ElementCounts::default();
    for port in &stats.ports {
        let reported = PortCounts {
            received: port.rx_frames,
            sent: port.tx_frames,
            ..PortCounts::default()
        };
        let reported = port
            .drops
            .iter()
            .fold(reported, |reported, (reason, frames)| {
                reported.with_drops(stage(reason), reason.name(), frames)
            });
        counts.ports.insert(port.name.clone(), reported);
    }
    let router = &stats.router;
    let mut add = |reason: &str, may_overlap: bool, frames: u64| {
        let unit = UnitDrop {
            unit: ROUTER.to_owned(),
            reason: reason.to_owned(),
            may_overlap,
        };
        counts.drops.insert(unit, frames);
    };
    for (reason, frames) in &router.dropped {
        add(reason, false, *frames);
    }
    for (reason, frames) in &router.punted {
        if ENDING.iter().any(|punt| punt.name() == reason) {
            add(reason, false, *frames);
        }
    }
    for (reason, frames) in overlapping(router) {
        add(reason, true, frames);
    }
    // Frames that the router originates.
    let made = [router.errors, router.echoed, router.neighbour_requests];
    counts.made = made.into_iter().fold(0, u64::saturating_add);
    counts
}

#[cfg(test)]
mod tests {
    use quietwire_base::fuzz::{check, planted};
    use quietwire_switch::report::{PortCounts as OfSwitch, PortDrops};

    use super::*;
    use crate::cycles::CycleCount;

    #[test]
    fn drops_stand_where_the_switch_counts_them() {
        let drops = |reason| match reason {
            PortDrop::Denied => 4,
            PortDrop::TxFull => 5,
            PortDrop::RxMissed => 6,
            _ => 0,
        };
        let port = |name: &str, rx_frames, tx_frames, drops| OfSwitch {
            name: name.to_owned(),
            rx_frames,
            tx_frames,
            drops,
            ..OfSwitch::default()
        };
        let named = |names: &[(&str, u64)]| {
            let named = names
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            named.collect()
        };
        let stats = StatsReport {
            ports: vec![
                port("p0", 10, 3, PortDrops::of(drops)),
                port("n0", 1, 2, PortDrops::default()),
            ],
            router: RouterCounts {
                dropped: named(&[("martian", 7)]),
                punted: named(&[("no-route", 8), ("arp", 9)]),
                service_full: 11,
                errors: 12,
                echoed: 13,
                ..RouterCounts::default()
            },
            ..StatsReport::default()
        };
        let counts = counts_of(&stats);
        let expected = PortCounts {
            received: 10,
            sent: 3,
            ..PortCounts::default()
        }
        .with_drops(DropStage::Received, "denied", 4)
        .with_drops(DropStage::ToSend, "tx_full", 5)
        .with_drops(DropStage::BeforeReceipt, "rx_missed", 6);
        let mut first = counts.ports["p0"].clone();
        assert_eq!(first.drops.len(), PortDrop::ALL.len());
        first.drops.retain(|_, frames| *frames > 0);
        assert_eq!(first, expected);
        assert_eq!(counts.ports["n0"].sent, 2);
        assert_eq!(counts.made, 25);
        let of_router = |reason: &str, may_overlap| {
            let unit = UnitDrop {
                unit: "router".to_owned(),
                reason: reason.to_owned(),
                may_overlap,
            };
            counts.drops.get(&unit).copied()
        };
        assert_eq!(of_router("martian", false), Some(7));
        assert_eq!(of_router("no-route", false), Some(8));
        assert_eq!(of_router("arp", false), None);
        assert_eq!(of_router("service_full", true), Some(11));
    }

    #[test]
    fn sums_that_overflow_saturate() {
        let router = RouterCounts {
            errors: u64::MAX,
            echoed: 1,
            ..RouterCounts::default()
        };
        let stats = StatsReport {
            router,
            ..StatsReport::default()
        };
        assert_eq!(counts_of(&stats).made, u64::MAX);
    }

    /// Parses any octets as the replies to `show stats` and `show cycles`.
    fn fuzz_switch_reply(octets: &[u8]) -> bool {
        if let Ok(report) = serde_json::from_slice::<CyclesReport>(octets) {
            std::hint::black_box(CycleCount::of_quietwire(&report));
            return true;
        }
        let Ok(stats) = serde_json::from_slice::<StatsReport>(octets) else {
            return false;
        };
        let counts = counts_of(&stats);
        assert!(counts.ports.len() <= stats.ports.len());
        planted("lab-switch-reply", || counts.made > 1 << 50);
        true
    }

    #[test]
    fn fuzz_switch_replies() {
        check(
            env!("CARGO_MANIFEST_DIR"),
            "lab-switch-reply",
            fuzz_switch_reply,
        );
    }
}
