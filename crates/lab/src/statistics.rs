// SPDX-License-Identifier: Apache-2.0
//! Statistics of ports and of the drivers of network cards, as programs and the kernel print them. Each has its own names.

use std::collections::BTreeMap;

use serde_json::Value;

/// Largest number of ports with statistics, and of unavailable sources.
const PORTS_MAX: usize = 256;
/// Largest number of statistics of a port.
const STATISTICS_MAX: usize = 1024;
/// Longest name of a port, a statistic or a source, octets.
const NAME_MAX: usize = 64;
/// Longest reason, characters.
const REASON_MAX: usize = 256;

/// Returns whether a name is that of a port: `p0`, `p1` and so on.
fn is_port(name: &str) -> bool {
    name.strip_prefix('p').is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|octet| octet.is_ascii_digit())
    })
}

/// Counter in the output of `ovs-ofctl dump-ports`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DumpCounter<'printed> {
    /// OpenFlow number of the port.
    pub(crate) port: u32,
    /// `rx` or `tx`. `None` for a counter of the driver, whose name is complete.
    pub(crate) way: Option<&'printed str>,
    pub(crate) name: &'printed str,
    /// `None` if the port does not have the counter, which is printed as a question mark.
    pub(crate) value: Option<u64>,
}

/// Parses the output of `ovs-ofctl dump-ports`, with any version of OpenFlow. The bridge's own port has no number (LOCAL) and is left
/// out.
pub(crate) fn dump_counters(printed: &str) -> impl Iterator<Item = DumpCounter<'_>> {
    let mut port: Option<u32> = None;
    let lines = printed.lines().map(move |line| {
        let mut line = line.trim();
        let heading = line
            .strip_prefix("port ")
            .and_then(|rest| rest.split_once(':'));
        if let Some((number, rest)) = heading {
            port = number.trim().parse().ok();
            line = rest.trim();
        }
        // Counters of a line are of one way: `rx pkts=1, bytes=2`. Those of a driver have complete names.
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (way, fields) = match first {
            "rx" | "tx" => (Some(first), rest.trim().trim_start_matches("rfc2819")),
            _ => (None, line),
        };
        (port, way, fields)
    });
    lines.flat_map(|(port, way, fields)| {
        fields.split(',').filter_map(move |field| {
            let (name, value) = field.trim().split_once('=')?;
            let (port, value) = (port?, value.parse().ok());
            Some(DumpCounter {
                port,
                way,
                name,
                value,
            })
        })
    })
}

/// Parses the output of VPP's `show interface` into interfaces, names of counters and values: name, number, state and MTUs of an
/// interface, and a counter in this line and in each line that follows.
pub(crate) fn interface_counters(printed: &str) -> impl Iterator<Item = (&str, String, u64)> {
    let mut interface = None;
    printed.lines().filter_map(move |line| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if !line.starts_with(char::is_whitespace) {
            interface = words.first().copied();
        }
        let value = words.pop()?.parse::<u64>().ok()?;
        // MTUs are before the counter.
        let start = words.iter().rposition(|word| word.contains('/'));
        let name = words.get(start.map_or(0, |at| at.saturating_add(1))..)?;
        (!name.is_empty()).then_some((interface?, name.join(" "), value))
    })
}

/// Parses the output of `ip -s -j link` into the kernel's interfaces `p0`, `p1` and so on, each with its counters: direction and name in
/// `struct rtnl_link_stats64` (linux/if_link.h), such as `rx packets`.
///
/// # Errors
/// The output is not a list in JSON.
pub(crate) fn link_counters(
    printed: &str,
) -> serde_json::Result<Vec<(String, BTreeMap<String, u64>)>> {
    let links: Vec<Value> = serde_json::from_str(printed)?;
    let ports = links.iter().filter_map(|link| {
        let name = link.get("ifname").and_then(Value::as_str);
        let name = name.filter(|name| is_port(name))?;
        let mut counters = BTreeMap::new();
        for way in ["rx", "tx"] {
            let found = link.get("stats64").and_then(|stats| stats.get(way));
            for (key, value) in found.and_then(Value::as_object).into_iter().flatten() {
                if let Some(value) = value.as_u64() {
                    counters.insert(format!("{way} {key}"), value);
                }
            }
        }
        Some((name.to_owned(), counters))
    });
    Ok(ports.collect())
}

/// Statistics of ports, and the sources that reported none. Both are bounded.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Statistics {
    /// By port and name.
    pub(crate) ports: BTreeMap<String, BTreeMap<String, u64>>,
    /// Reasons of unavailable sources, as clauses.
    pub(crate) unavailable: BTreeMap<String, String>,
}

impl Statistics {
    /// Sets a statistic of a port, if it fits.
    pub(crate) fn set(&mut self, port: &str, name: &str, value: u64) {
        let is_known = self.ports.contains_key(port);
        let fits = port.len() <= NAME_MAX && name.len() <= NAME_MAX && !name.is_empty();
        if !fits || (!is_known && self.ports.len() >= PORTS_MAX) {
            return;
        }
        let of_port = self.ports.entry(port.to_owned()).or_default();
        if of_port.len() < STATISTICS_MAX || of_port.contains_key(name) {
            of_port.insert(name.to_owned(), value);
        }
    }

    /// Parses the output of a source with `parse`, which returns false if the output has no statistics. Records the reason if the source
    /// is unavailable.
    pub(crate) fn read(
        &mut self,
        source: &str,
        printed: Result<String, String>,
        parse: impl FnOnce(&mut Self, &str) -> bool,
    ) {
        let reason = match printed {
            Ok(printed) if printed.trim().is_empty() => "it printed nothing".to_owned(),
            Ok(printed) => match parse(self, &printed) {
                true => return,
                false => "its output has no statistics".to_owned(),
            },
            Err(reason) => reason,
        };
        self.lacks(source, &reason);
    }

    /// Records why a source is unavailable.
    pub(crate) fn lacks(&mut self, source: &str, reason: &str) {
        if source.len() <= NAME_MAX && self.unavailable.len() < PORTS_MAX {
            let reason: String = reason.trim().chars().take(REASON_MAX).collect();
            self.unavailable.insert(source.to_owned(), reason);
        }
    }

    /// Names a port as the lab does.
    pub(crate) fn rename(&mut self, port: &str, name: &str) {
        if let Some(statistics) = self.ports.remove(port) {
            self.ports.insert(name.to_owned(), statistics);
        }
    }

    /// Parses the output of `ovs-ofctl -O OpenFlow14 dump-ports`: counters of RFC 2819 and of the driver follow the counters that all
    /// versions of OpenFlow have. The number of a port is one more than the number in its name.
    pub(crate) fn of_dump(&mut self, printed: &str) -> bool {
        let mut is_found = false;
        for counter in dump_counters(printed) {
            let (Some(index), Some(value)) = (counter.port.checked_sub(1), counter.value) else {
                continue;
            };
            is_found = true;
            let port = format!("p{index}");
            match counter.way {
                Some(way) => self.set(&port, &format!("{way} {}", counter.name), value),
                None => self.set(&port, counter.name, value),
            }
        }
        is_found
    }

    /// Parses the output of `ip -s -s -j link`: counters of the kernel's interfaces `p0`, `p1` and so on.
    pub(crate) fn of_links(&mut self, printed: &str) -> bool {
        let mut is_found = false;
        for (port, counters) in link_counters(printed).unwrap_or_default() {
            for (name, value) in counters {
                is_found = true;
                self.set(&port, &name, value);
            }
        }
        is_found
    }

    /// Parses the output of `ethtool -S PORT`: lines `NAME: NUMBER`.
    pub(crate) fn of_ethtool(&mut self, port: &str, printed: &str) -> bool {
        let mut is_found = false;
        for line in printed.lines() {
            // Some drivers put the number of a queue and a colon before the name.
            let Some((name, value)) = line.rsplit_once(':') else {
                continue;
            };
            if let Ok(value) = value.trim().parse() {
                is_found = true;
                self.set(port, name.trim(), value);
            }
        }
        is_found
    }

    /// Parses an answer of DPDK's telemetry to `/ethdev/xstats,PORT`.
    pub(crate) fn of_telemetry(&mut self, port: &str, answer: &Value) -> bool {
        let known = answer.get("/ethdev/xstats").and_then(Value::as_object);
        let mut is_found = false;
        for (name, value) in known.into_iter().flatten() {
            if let Some(value) = value.as_u64() {
                is_found = true;
                self.set(port, name, value);
            }
        }
        is_found
    }

    /// Parses the output of VPP's `show interface`.
    pub(crate) fn of_vpp_interfaces(&mut self, printed: &str) -> bool {
        let mut is_found = false;
        for (port, name, value) in interface_counters(printed) {
            is_found = true;
            self.set(port, &name, value);
        }
        is_found
    }

    /// Parses the output of VPP's `show hardware-interfaces`: counters of cards are lines `rx NAME NUMBER` and `tx NAME NUMBER`, and the
    /// lines below `extended stats:`. Other interfaces have none, so a text of interfaces without counters is complete.
    pub(crate) fn of_vpp_hardware(&mut self, printed: &str) -> bool {
        let mut port = None;
        let mut is_found = false;
        // Indentation of the heading of extended statistics.
        let mut extended: Option<usize> = None;
        for line in printed.lines().filter(|line| !line.trim().is_empty()) {
            let mut words: Vec<&str> = line.split_whitespace().collect();
            let indentation = line.len().saturating_sub(line.trim_start().len());
            if indentation == 0 {
                // The number of the interface follows its name.
                port = match words[..] {
                    [name, number, ..] if number.parse::<u32>().is_ok() => Some(name),
                    _ => None,
                };
                is_found |= port.is_some();
                extended = None;
            }
            if line.trim() == "extended stats:" {
                extended = Some(indentation);
                continue;
            }
            if extended.is_some_and(|heading| indentation <= heading) {
                extended = None;
            }
            let is_counter = matches!(words.first(), Some(&("rx" | "tx"))) || extended.is_some();
            let value = words.pop().and_then(|word| word.parse::<u64>().ok());
            let name = words.join(" ");
            let is_list = name.contains([':', ',']);
            if let (Some(port), Some(value), true, false) = (port, value, is_counter, is_list) {
                self.set(port, &name, value);
            }
        }
        is_found
    }
}

#[cfg(test)]
mod tests {
    use quietwire_base::fuzz::{check, planted};

    use super::*;

    const DUMP: &str = include_str!("../tests/corpus/statistics/ovs-ports");
    const ETHTOOL: &str = include_str!("../tests/corpus/statistics/ethtool");
    const HARDWARE: &str = include_str!("../tests/corpus/statistics/vpp-hardware");
    const INTERFACES: &str = include_str!("../tests/corpus/statistics/vpp-interfaces");
    const LINKS: &str = include_str!("../tests/corpus/statistics/links");
    const XSTATS: &str = include_str!("../tests/corpus/statistics/xstats");

    /// Checks some statistics of a port and their number.
    fn assert_has(statistics: &Statistics, port: &str, wanted: &[(&str, u64)], count: usize) {
        let found = &statistics.ports[port];
        for (name, value) in wanted {
            assert_eq!(found.get(*name), Some(value), "{port} {name}: {found:?}");
        }
        assert_eq!(found.len(), count, "{port}: {found:?}");
    }

    #[test]
    fn ports_of_open_vswitch_have_the_counters_of_their_drivers() {
        let mut found = Statistics::default();
        assert!(found.of_dump(DUMP));
        let names: Vec<&String> = found.ports.keys().collect();
        assert_eq!(names, ["p0", "p1"]);
        let of_card = [
            ("rx pkts", 1000),
            ("rx crc", 3),
            ("tx coll", 0),
            ("rx 1_to_64_packets", 990),
            ("rx_missed_errors", 7),
            ("ovs_tx_failure_drops", 2),
        ];
        assert_has(&found, "p0", &of_card, 21);
        // This port counts neither errors of frames nor statistics of a driver.
        assert_has(&found, "p1", &[("tx pkts", 998)], 8);
        let none = "OFPST_PORT reply (OF1.4) (xid=0x2): 0 ports\n";
        assert!(!Statistics::default().of_dump(none));
    }

    #[test]
    fn interfaces_of_the_kernel_have_its_counters_and_those_of_the_driver() {
        let mut found = Statistics::default();
        assert!(found.of_links(LINKS));
        let wanted = [
            ("rx packets", 100),
            ("rx fifo_errors", 9),
            ("tx dropped", 4),
        ];
        assert_has(&found, "p0", &wanted, 11);
        assert_eq!(found.ports.len(), 1);
        assert!(found.of_ethtool("p0", ETHTOOL));
        let wanted = [
            ("rx packets", 100),
            ("rx_queue_0_xdp_packets", 12),
            ("[1]: rx_drops", 5),
        ];
        assert_has(&found, "p0", &wanted, 15);
        for wrong in ["", "NIC statistics:\n", "no stats available\n"] {
            assert!(!found.of_ethtool("p1", wrong), "{wrong}");
        }
        for wrong in ["", "{}", r#"[{"ifname":"p0","stats64":7}]"#] {
            assert!(!found.of_links(wrong), "{wrong}");
        }
    }

    #[test]
    fn programs_of_dpdk_have_extended_statistics() {
        let mut found = Statistics::default();
        let answer = serde_json::from_str(XSTATS).unwrap();
        assert!(found.of_telemetry("p1", &answer));
        assert_has(&found, "p1", &[("rx_q0_packets", 98)], 4);
        let none = serde_json::from_str(r#"{"/ethdev/xstats":null}"#).unwrap();
        assert!(!found.of_telemetry("p1", &none));
    }

    #[test]
    fn interfaces_of_vpp_have_their_counters_and_cards_their_extended_ones() {
        let mut found = Statistics::default();
        assert!(found.of_vpp_interfaces(INTERFACES));
        let wanted = [("rx packets", 100), ("rx-miss", 3), ("ip4", 99)];
        assert_has(&found, "memif1/0", &wanted, 6);
        // It has no counters.
        assert!(!found.ports.contains_key("local0"));
        assert!(found.of_vpp_hardware(HARDWARE));
        let wanted = [
            ("tx frames ok", 50),
            ("rx_good_packets", 100),
            ("rx missed errors", 4),
        ];
        assert_has(&found, "TenGigabitEthernet5/0/0", &wanted, 6);
        found.rename("memif1/0", "p0");
        assert!(found.ports.contains_key("p0") && !found.ports.contains_key("memif1/0"));
        let refused = "show: unknown input\n";
        assert!(!Statistics::default().of_vpp_hardware(refused));
        assert!(!Statistics::default().of_vpp_interfaces(refused));
    }

    #[test]
    fn statistics_are_bounded_and_a_source_that_reports_none_has_a_reason() {
        let mut found = Statistics::default();
        let mut printed = String::new();
        for number in 0..2 * STATISTICS_MAX {
            printed += &format!("n{number}: 1\n");
        }
        printed += &format!("{}: 1\n", "n".repeat(NAME_MAX + 1));
        assert!(found.of_ethtool("p0", &printed));
        assert_eq!(found.ports["p0"].len(), STATISTICS_MAX);
        for port in 0..2 * PORTS_MAX {
            found.set(&format!("p{port}"), "n", 1);
            found.lacks(&format!("ethtool -S p{port}"), &"x".repeat(2 * REASON_MAX));
        }
        assert_eq!(found.ports.len(), PORTS_MAX);
        assert_eq!(found.unavailable.len(), PORTS_MAX);
        assert_eq!(found.unavailable["ethtool -S p0"].len(), REASON_MAX);
        let mut found = Statistics::default();
        let parse = |found: &mut Statistics, printed: &str| found.of_ethtool("p0", printed);
        found.read("ethtool -S p0", Ok("NIC statistics:\n".to_owned()), parse);
        found.read("ethtool -S p1", Err("no permission".to_owned()), parse);
        found.read("ethtool -S p2", Ok("n: 1\n".to_owned()), parse);
        let reasons: Vec<&str> = found.unavailable.values().map(String::as_str).collect();
        assert_eq!(reasons, ["its output has no statistics", "no permission"]);
        assert_eq!(found.ports["p0"]["n"], 1);
    }

    /// Parses any text as each kind of output with statistics of ports.
    fn fuzz_statistics(octets: &[u8]) -> bool {
        const LARGE: u64 = 1_000_000_000_000;
        let text = String::from_utf8_lossy(octets);
        let mut found = Statistics::default();
        found.of_dump(&text);
        found.of_links(&text);
        found.of_ethtool("p0", &text);
        found.of_vpp_interfaces(&text);
        found.of_vpp_hardware(&text);
        if let Ok(answer) = serde_json::from_slice(octets) {
            found.of_telemetry("p0", &answer);
        }
        assert!(found.ports.len() <= PORTS_MAX);
        assert!(found.ports.values().all(|one| one.len() <= STATISTICS_MAX));
        planted("lab-statistics", || {
            let mut all = found.ports.values().flat_map(BTreeMap::values);
            found.ports.len() > 1 && all.any(|value| *value > LARGE)
        });
        !found.ports.is_empty()
    }

    #[test]
    fn fuzz_outputs() {
        check(
            env!("CARGO_MANIFEST_DIR"),
            "lab-statistics",
            fuzz_statistics,
        );
    }
}
