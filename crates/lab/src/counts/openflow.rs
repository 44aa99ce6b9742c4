// SPDX-License-Identifier: Apache-2.0
//! Counters of Open vSwitch's ports (`ovs-ofctl dump-ports`). These are current. The counters in its database are up to 5 s old
//! (`stats-update-interval` of ovs-vswitchd.conf.db(5)).

// Text of others: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use quietwire_tester::account::{DropStage, PortCounts};

/// Parses the output of `ovs-ofctl dump-ports` and returns the counters of each port by its OpenFlow number.
pub(crate) fn of_dump(reported: &str) -> Result<Vec<(u32, PortCounts)>, String> {
    let mut ports: Vec<(u32, PortCounts)> = Vec::new();
    let mut number = None;
    for line in reported.lines() {
        let line = line.trim();
        let (words, way) = if let Some(rest) = line.strip_prefix("port ") {
            let (port, rest) = rest.split_once(':').ok_or("a port has no counters")?;
            // The bridge's own port is LOCAL.
            number = port.trim().parse().ok();
            (rest.trim(), "rx")
        } else if line.starts_with("tx ") {
            (line, "tx")
        } else {
            continue;
        };
        let Some(number) = number else { continue };
        let words = words.strip_prefix(way).unwrap_or(words);
        let count = |key: &str| {
            let mut fields = words.split(',').map(str::trim);
            let value = fields.find_map(|field| field.strip_prefix(key)?.strip_prefix('='));
            // A counter that a port does not have is printed as a question mark.
            value.and_then(|value| value.parse::<u64>().ok())
        };
        let frames = count("pkts").ok_or_else(|| format!("port {number} counts no {way} pkts"))?;
        let [drops, errors] = ["drop", "errs"].map(|key| count(key).unwrap_or(0));
        match (way, ports.last_mut()) {
            ("tx", Some((last, port))) if *last == number => {
                port.sent = frames;
                *port = std::mem::take(port)
                    .with_drops(DropStage::ToSend, "tx_dropped", drops)
                    .with_drops(DropStage::ToSend, "tx_errors", errors);
            }
            _ => {
                let port = PortCounts {
                    received: frames,
                    ..PortCounts::default()
                }
                .with_drops(DropStage::BeforeReceipt, "rx_dropped", drops)
                .with_drops(DropStage::BeforeReceipt, "rx_errors", errors);
                ports.push((number, port));
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
        assert_eq!(of_dump(REPORTED), Ok(vec![(1, expected)]));
        assert_eq!(of_dump(""), Ok(Vec::new()));
        assert!(of_dump("port 1: rx pkts=?").is_err());
    }
}
