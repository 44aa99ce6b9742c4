// SPDX-License-Identifier: Apache-2.0
//! Counters of VPP's interfaces, as `show interface` and `show errors` print them. Tests parse text in the format of VPP's
//! documentation; no test starts VPP.

use quietwire_tester::account::{DropStage, PortCounts};

use crate::statistics::interface_counters;

/// Drop counters of an interface and the stage at which they count.
const DROPS: [(&str, DropStage); 4] = [
    ("rx-miss", DropStage::BeforeReceipt),
    ("rx-error", DropStage::BeforeReceipt),
    ("drops", DropStage::Received),
    ("tx-error", DropStage::ToSend),
];

/// Parses the counters of one interface. VPP counts a frame as sent before its transmit node drops it; `show errors` has the number
/// of these drops.
pub(crate) fn of_interfaces(interfaces: &str, errors: &str, name: &str) -> PortCounts {
    let mut port = PortCounts::default();
    let own = interface_counters(interfaces).filter(|(interface, ..)| *interface == name);
    for (_, counter, count) in own {
        let drops = DROPS.iter().find(|(key, _)| *key == counter);
        match (counter.as_str(), drops) {
            ("rx packets", _) => port.received = count,
            ("tx packets", _) => port.sent = count,
            (_, Some((key, stage))) => port = port.with_drops(*stage, key, count),
            _ => {}
        }
    }
    for (count, reason) in of_node(errors, &format!("{name}-tx")) {
        port.sent = port.sent.saturating_sub(count);
        port = port.with_drops(DropStage::ToSend, &reason, count);
    }
    port
}

/// Parses the errors of a node.
fn of_node(printed: &str, node: &str) -> Vec<(u64, String)> {
    let own = errors(printed).filter(|(_, other, _)| *other == node);
    own.map(|(count, _, reason)| (count, reason)).collect()
}

/// Parses the output of `show errors` into counts, nodes and reasons: lines `COUNT NODE REASON`, in newer versions with a severity.
pub(crate) fn errors(printed: &str) -> impl Iterator<Item = (u64, &str, String)> {
    printed.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let count = words.next()?.parse::<u64>().ok()?;
        let node = words.next()?;
        let mut reason: Vec<&str> = words.collect();
        let severities = ["error", "warn", "info", "counter"];
        if reason.len() > 1 && reason.last().is_some_and(|last| severities.contains(last)) {
            reason.pop();
        }
        Some((count, node, reason.join(" ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERFACES: &str = "              Name               Idx    State  MTU (L3/IP4/IP6/MPLS)     Counter          Count
local0                            0     down          0/0/0/0
memif1/0                          1      up          9000/0/0/0     rx packets                   100
                                                                    rx bytes                    6000
                                                                    tx packets                    80
                                                                    drops                          7
                                                                    rx-miss                        3
memif2/0                          2      up          9000/0/0/0     tx packets                    93
";
    const ERRORS: &str =
        "   Count                  Node                              Reason               Severity
        20               memif1/0-tx                    no free tx slots               error
         9               l2-output                      L2 output packets              error
";

    #[test]
    fn an_interface_has_its_own_lines() {
        let expected = PortCounts {
            received: 100,
            sent: 60,
            ..PortCounts::default()
        }
        .with_drops(DropStage::Received, "drops", 7)
        .with_drops(DropStage::BeforeReceipt, "rx-miss", 3)
        .with_drops(DropStage::ToSend, "no free tx slots", 20);
        assert_eq!(of_interfaces(INTERFACES, ERRORS, "memif1/0"), expected);
        let other = of_interfaces(INTERFACES, "", "memif2/0");
        assert_eq!((other.received, other.sent), (0, 93));
        assert_eq!(
            of_interfaces(INTERFACES, ERRORS, "memif3/0"),
            PortCounts::default()
        );
    }
}
