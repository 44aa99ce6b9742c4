// SPDX-License-Identifier: Apache-2.0
//! Counters of the kernel's interfaces (`struct rtnl_link_stats64` of linux/if_link.h), as `ip -s -j link` prints them.

use quietwire_tester::account::{DropStage, ElementCounts, PortCounts};

use crate::statistics::link_counters;

/// Parses the output of `ip` and returns the counters of the interfaces `p0`, `p1` and so on.
pub(crate) fn of_links(reported: &str) -> Result<ElementCounts, String> {
    let links = link_counters(reported)
        .map_err(|error| format!("cannot parse the output of `ip`: {error}"))?;
    let mut counts = ElementCounts::default();
    for (name, counters) in links {
        let count = |counter: &str| counters.get(counter).copied();
        let (Some(received), Some(sent)) = (count("rx packets"), count("tx packets")) else {
            return Err(format!("the output of `ip` has no counters of {name}"));
        };
        let drops = |counter: &str| count(counter).unwrap_or(0);
        let port = PortCounts {
            received,
            sent,
            ..PortCounts::default()
        }
        .with_drops(DropStage::BeforeReceipt, "rx_dropped", drops("rx dropped"))
        .with_drops(DropStage::BeforeReceipt, "rx_errors", drops("rx errors"))
        .with_drops(DropStage::ToSend, "tx_dropped", drops("tx dropped"))
        .with_drops(DropStage::ToSend, "tx_errors", drops("tx errors"));
        counts.ports.insert(name, port);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened output of `ip -s -j link show` (iproute2 6.1).
    const REPORTED: &str = r#"[
        {"ifindex":1,"ifname":"lo","stats64":{"rx":{"bytes":0,"packets":0,"errors":0,"dropped":0,"over_errors":0,"multicast":0},
         "tx":{"bytes":0,"packets":0,"errors":0,"dropped":0,"carrier_errors":0,"collisions":0}}},
        {"ifindex":2,"link_index":2,"ifname":"p0","stats64":{"rx":{"bytes":6000,"packets":100,"errors":1,"dropped":2,"over_errors":0,"multicast":0},
         "tx":{"bytes":300,"packets":5,"errors":3,"dropped":4,"carrier_errors":0,"collisions":0}}},
        {"ifindex":3,"ifname":"pimreg"}
    ]"#;

    #[test]
    fn ports_are_the_elements_interfaces() {
        let counts = of_links(REPORTED).unwrap();
        let expected = PortCounts {
            received: 100,
            sent: 5,
            ..PortCounts::default()
        }
        .with_drops(DropStage::BeforeReceipt, "rx_dropped", 2)
        .with_drops(DropStage::BeforeReceipt, "rx_errors", 1)
        .with_drops(DropStage::ToSend, "tx_dropped", 4)
        .with_drops(DropStage::ToSend, "tx_errors", 3);
        assert_eq!(counts.ports, [("p0".to_owned(), expected)].into());
        assert!(of_links("no JSON").is_err());
        assert!(of_links(r#"[{"ifname":"p0"}]"#).unwrap_err().contains("p0"));
    }
}
