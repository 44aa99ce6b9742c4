// SPDX-License-Identifier: Apache-2.0
//! Counters of Open vSwitch's ports (`ovs-ofctl dump-ports`). These are current. The counters in its database are up to 5 s old
//! (`stats-update-interval` of ovs-vswitchd.conf.db(5)).

use std::collections::BTreeMap;

use quietwire_tester::account::{DropStage, PortCounts};

use crate::statistics::dump_counters;

/// Drop counters of a port: way, name, the stage at which they count, and reason.
const DROPS: [(&str, &str, DropStage, &str); 4] = [
    ("rx", "drop", DropStage::BeforeReceipt, "rx_dropped"),
    ("rx", "errs", DropStage::BeforeReceipt, "rx_errors"),
    ("tx", "drop", DropStage::ToSend, "tx_dropped"),
    ("tx", "errs", DropStage::ToSend, "tx_errors"),
];

/// Parses the output of `ovs-ofctl dump-ports` and returns the counters of each port by its OpenFlow number.
pub(crate) fn of_dump(printed: &str) -> Result<BTreeMap<u32, PortCounts>, String> {
    let mut ports: BTreeMap<u32, PortCounts> = BTreeMap::new();
    for counter in dump_counters(printed) {
        let (number, value) = (counter.port, counter.value);
        // Counters of drivers follow those that all ports have.
        let Some(way) = counter.way else { continue };
        let missing = |way: &str| format!("port {number} counts no {way} pkts");
        if (way, counter.name) == ("rx", "pkts") {
            let received = value.ok_or_else(|| missing(way))?;
            let port = PortCounts {
                received,
                ..PortCounts::default()
            };
            ports.insert(number, port);
        }
        let port = ports.get_mut(&number).ok_or_else(|| missing("rx"))?;
        if (way, counter.name) == ("tx", "pkts") {
            port.sent = value.ok_or_else(|| missing(way))?;
        }
        for (of_way, name, stage, reason) in DROPS {
            if (of_way, name) == (way, counter.name) {
                *port = std::mem::take(port).with_drops(stage, reason, value.unwrap_or(0));
            }
        }
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of `ovs-ofctl dump-ports` of Open vSwitch 3.1.
    const REPORTED: &str = "OFPST_PORT reply (xid=0x2): 2 ports
  port LOCAL: rx pkts=7, bytes=0, drop=0, errs=0, frame=0, over=0, crc=0
           tx pkts=7, bytes=0, drop=0, errs=0, coll=0
  port  1: rx pkts=100, bytes=90, drop=2, errs=1, frame=?, over=?, crc=?
           tx pkts=5, bytes=90, drop=4, errs=?, coll=?
";

    #[test]
    fn ports_are_known_by_their_numbers() {
        let expected = PortCounts {
            received: 100,
            sent: 5,
            ..PortCounts::default()
        }
        .with_drops(DropStage::BeforeReceipt, "rx_dropped", 2)
        .with_drops(DropStage::BeforeReceipt, "rx_errors", 1)
        .with_drops(DropStage::ToSend, "tx_dropped", 4)
        .with_drops(DropStage::ToSend, "tx_errors", 0);
        assert_eq!(of_dump(REPORTED), Ok(BTreeMap::from([(1, expected)])));
        assert_eq!(of_dump(""), Ok(BTreeMap::new()));
        for lacking in [
            "port 1: rx pkts=?",
            "port 1: rx bytes=9",
            "port 1:\n tx pkts=1",
        ] {
            assert!(of_dump(lacking).is_err(), "{lacking}");
        }
    }

    #[test]
    fn counters_of_rfc_2819_and_of_drivers_are_no_frames_of_ports() {
        let ports = of_dump(include_str!("../../tests/corpus/statistics/ovs-ports")).unwrap();
        let frames = ports
            .iter()
            .map(|(number, port)| (*number, port.received, port.sent));
        assert_eq!(frames.collect::<Vec<_>>(), [(1, 1000, 998), (2, 1000, 998)]);
    }
}
