// SPDX-License-Identifier: Apache-2.0
//! Counters of quietwire's switch (`show stats` at its control socket).

use std::path::Path;

use quietwire_base::Deadline;
use quietwire_tester::account::{DropStage, ElementCounts, PortCounts, UnitDrop};
use serde_json::{Value, json};

use super::too_late;
use crate::control::ask_within;

/// Drops of frames that are not counted as received.
const BEFORE_RECEIPT: [&str; 3] = ["no_buffers", "rx_missed", "rx_errors"];
/// Drops that are counted at the frame's egress port.
const TO_SEND: [&str; 2] = ["tx_full", "not_segmented"];

/// Punts that end a packet: its sender gets an ICMP error at most.
const ENDING: [&str; 5] = [
    "no-route",
    "unreachable",
    "prohibited",
    "time-exceeded",
    "too-big",
];
/// Counters of the router that overlap with other counters, or whose frames may still be queued.
const PERHAPS: [&str; 6] = [
    "not_sent",
    "service_full",
    "neighbour_queue_drops",
    "neighbour_table_full",
    "unknown_protocol",
    "to_kernel",
];
/// Frames that the router originates.
const MADE: [&str; 3] = ["errors", "echoed", "neighbour_requests"];

const ROUTER: &str = "router";

/// Reads the counters of the switch with this control socket.
pub(crate) fn of_switch(socket: &Path, deadline: Deadline) -> Result<ElementCounts, String> {
    let left = deadline.remaining();
    if left.is_zero() {
        return Err(too_late());
    }
    counts_of(&ask_within(socket, &json!({ "show": "stats" }), left)?)
}

/// Parses the counters in a switch's statistics.
fn counts_of(stats: &Value) -> Result<ElementCounts, String> {
    let mut counts = ElementCounts::default();
    let ports = stats["ports"].as_array();
    for port in ports.ok_or("its statistics have no ports")? {
        let count = |key: &str| {
            let number = port[key].as_u64();
            number.ok_or_else(|| format!("its statistics of a port have no {key}"))
        };
        let name = port["name"].as_str().ok_or("a port has no name")?;
        let mut reported = PortCounts {
            received: count("rx_frames")?,
            sent: count("tx_frames")?,
            ..PortCounts::default()
        };
        for (reason, frames) in port["drops"].as_object().into_iter().flatten() {
            let stage = match reason.as_str() {
                reason if BEFORE_RECEIPT.contains(&reason) => DropStage::BeforeReceipt,
                reason if TO_SEND.contains(&reason) => DropStage::ToSend,
                _ => DropStage::Received,
            };
            reported = reported.with_drops(stage, reason, frames.as_u64().unwrap_or(0));
        }
        counts.ports.insert(name.to_owned(), reported);
    }
    let router = &stats[ROUTER];
    let mut add = |reason: &str, may_overlap: bool, frames: &Value| {
        let unit = UnitDrop {
            unit: ROUTER.to_owned(),
            reason: reason.to_owned(),
            may_overlap,
        };
        counts.drops.insert(unit, frames.as_u64().unwrap_or(0));
    };
    for (reason, frames) in router["dropped"].as_object().into_iter().flatten() {
        add(reason, false, frames);
    }
    for (reason, frames) in router["punted"].as_object().into_iter().flatten() {
        if ENDING.contains(&reason.as_str()) {
            add(reason, false, frames);
        }
    }
    for reason in PERHAPS {
        add(reason, true, &router[reason]);
    }
    counts.made = MADE
        .iter()
        .map(|key| router[*key].as_u64().unwrap_or(0))
        .sum();
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_stand_where_the_switch_counts_them() {
        let stats = json!({
            "ports": [
                { "name": "p0", "rx_frames": 10, "tx_frames": 3, "drops": { "denied": 4, "tx_full": 5, "rx_missed": 6 } },
                { "name": "n0", "rx_frames": 1, "tx_frames": 2, "drops": {} },
            ],
            "router": {
                "dropped": { "martian": 7 },
                "punted": { "no-route": 8, "arp": 9 },
                "service_full": 11,
                "errors": 12,
                "echoed": 13,
            },
        });
        let counts = counts_of(&stats).unwrap();
        let expected = PortCounts {
            received: 10,
            sent: 3,
            ..PortCounts::default()
        }
        .with_drops(DropStage::Received, "denied", 4)
        .with_drops(DropStage::ToSend, "tx_full", 5)
        .with_drops(DropStage::BeforeReceipt, "rx_missed", 6);
        assert_eq!(counts.ports["p0"], expected);
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
        for (wrong, part) in [
            (json!({}), "no ports"),
            (json!({ "ports": [{ "name": "p0" }] }), "no rx_frames"),
            (json!({ "ports": [{ "rx_frames": 1 }] }), "no name"),
        ] {
            let reason = counts_of(&wrong).unwrap_err();
            assert!(reason.contains(part), "{reason}");
        }
    }
}
