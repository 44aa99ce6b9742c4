// SPDX-License-Identifier: Apache-2.0
//! Consistency checks of a traffic description. Errors have the path of the key.

use quietwire_base::locate::At::{self, Key};
use quietwire_base::locate::LocatedFault;

use super::field::{EXPONENT_MAX, FLOWS_MAX, Order};
use super::{Headers, Timing, Traffic};

fn fault(path: &[At], message: impl Into<String>) -> Option<LocatedFault> {
    Some(LocatedFault {
        path: path.to_vec(),
        message: message.into(),
    })
}

impl Traffic {
    /// Returns the first error with its path under `[traffic]`; `None` if the description is valid.
    #[must_use]
    pub fn first_fault(&self) -> Option<LocatedFault> {
        self.fault_of_headers()
            .or_else(|| self.fault_of_flows())
            .or_else(|| self.fault_of_load())
            .or_else(|| self.fault_of_replay())
    }

    fn fault_of_headers(&self) -> Option<LocatedFault> {
        let (outer, _) = self.headers();
        if let Some(fault) = fault_of(&outer, &[]) {
            return Some(fault);
        }
        match (&self.vxlan, &self.inner) {
            (None, Some(_)) => {
                return fault(
                    &[Key("inner")],
                    "inner headers require [traffic.vxlan] with its vni",
                );
            }
            (Some(_), _) if self.tcp.is_some() => {
                return fault(&[Key("vxlan")], "VXLAN requires UDP (remove [traffic.tcp])");
            }
            _ => {}
        }
        let ipv6_without = self.ipv6.is_some()
            && self.vxlan.is_none()
            && self
                .udp
                .as_ref()
                .is_some_and(|udp| udp.checksum == Some(false));
        if ipv6_without {
            return fault(
                &[Key("udp"), Key("checksum")],
                "UDP over IPv6 requires a checksum (RFC 8200, section 8.1)",
            );
        }
        let inner = self.inner.as_ref()?;
        fault_of(inner, &[Key("inner")])
    }

    fn fault_of_flows(&self) -> Option<LocatedFault> {
        let flows = self.flows.as_ref()?;
        if let Some(count) = flows.count
            && !(1..=FLOWS_MAX).contains(&count)
        {
            return fault(
                &[Key("flows"), Key("count")],
                format!("count is {count} (must be 1 to {FLOWS_MAX})"),
            );
        }
        let exponent = flows.exponent?;
        if flows.order != Order::Zipf {
            return fault(
                &[Key("flows"), Key("exponent")],
                "exponent requires order = \"zipf\"",
            );
        }
        if !(0.0..=EXPONENT_MAX).contains(&exponent) {
            return fault(
                &[Key("flows"), Key("exponent")],
                format!("exponent is {exponent} (must be 0 to {EXPONENT_MAX})"),
            );
        }
        None
    }

    fn fault_of_load(&self) -> Option<LocatedFault> {
        if let Some(shares) = self.shares {
            let positive = shares.iter().all(|share| share.is_finite() && *share > 0.0);
            if !positive {
                return fault(
                    &[Key("shares")],
                    "both shares must be above 0 (for one direction, use directions = \"one-way\")",
                );
            }
        }
        let burst = self.burst.as_ref()?;
        if burst.frames == 0 {
            return fault(
                &[Key("burst"), Key("frames")],
                "a burst requires at least 1 frame",
            );
        }
        let gap_us = burst.gap_us?;
        if !gap_us.is_finite() || gap_us <= 0.0 {
            return fault(
                &[Key("burst"), Key("gap-us")],
                format!("gap-us is {gap_us} (must be above 0)"),
            );
        }
        None
    }

    fn fault_of_replay(&self) -> Option<LocatedFault> {
        let replay = self.replay.as_ref()?;
        let given = Traffic {
            replay: None,
            directions: None,
            shares: None,
            burst: None,
            ..self.clone()
        };
        if given != Traffic::default() {
            return fault(
                &[Key("replay")],
                "a capture is sent unchanged (remove headers, flows, sizes, seed and integrity)",
            );
        }
        let own = replay.timing == Timing::File;
        if own && self.burst.is_some() {
            return fault(
                &[Key("burst")],
                "bursts cannot be combined with timing = \"file\" (remove one of them)",
            );
        }
        let speed = replay.speed?;
        if !own {
            return fault(
                &[Key("replay"), Key("speed")],
                "speed requires timing = \"file\"",
            );
        }
        if !speed.is_finite() || speed <= 0.0 || speed > 1e6 {
            return fault(
                &[Key("replay"), Key("speed")],
                format!("speed is {speed} (must be above 0 and at most 1000000)"),
            );
        }
        None
    }
}

/// Returns the first error in one frame's headers.
fn fault_of(headers: &Headers, at: &[At]) -> Option<LocatedFault> {
    let there = |key| [at, &[Key(key)]].concat();
    if headers.ipv4.is_some() && headers.ipv6.is_some() {
        return fault(&there("ipv6"), "both IPv4 and IPv6 are given (remove one)");
    }
    if headers.udp.is_some() && headers.tcp.is_some() {
        return fault(&there("tcp"), "both UDP and TCP are given (remove one)");
    }
    if headers.vlan.len() > 2 {
        return fault(
            &there("vlan"),
            format!(
                "{} tags are given (a frame has at most two)",
                headers.vlan.len()
            ),
        );
    }
    // The checksum is required inside a tunnel as well, because the tester's signature follows.
    let checksum = headers.udp.as_ref().and_then(|udp| udp.checksum);
    if !at.is_empty() && headers.ipv6.is_some() && checksum == Some(false) {
        let path = [at, &[Key("udp"), Key("checksum")]].concat();
        return fault(
            &path,
            "UDP over IPv6 requires a checksum (RFC 8200, section 8.1)",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Result<Traffic, String> {
        Traffic::parse(text, Path::new("t.toml")).map_err(|error| error.to_string())
    }

    const WHOLE: &str = r#"
[traffic]
sizes = { genome = "20abcd,5Ag", custom = { A = 200 } }
directions = "both"
shares = [3, 1]
integrity = true
seed = 7
flows = { count = 1000, order = "zipf", exponent = 1.1 }
burst = { frames = 32, gap-us = 50.0 }
[traffic.ethernet]
source = { first = "02:00:00:00:01:00", count = 100 }
[[traffic.vlan]]
id = { first = 100, count = 16 }
[[traffic.vlan]]
id = 7
priority = 5
type = "802.1q"
[traffic.ipv6]
destination = { first = "2001:db8::1", step = 65536, count = 500, order = "uniform" }
dscp = 46
[traffic.udp]
source = { first = 1024, count = 60000, order = "zipf", exponent = 0.9 }
[traffic.vxlan]
vni = { first = 1, count = 200 }
[traffic.inner.ipv4]
destination = "10.0.0.1"
ttl = 3
[traffic.inner.tcp]
flags = "SA"
"#;

    #[test]
    fn a_whole_description_is_read_and_survives_storage() {
        let traffic = parse(WHOLE).unwrap();
        assert_eq!(traffic.flow_count(), 1000);
        let json = serde_json::to_string(&traffic).unwrap();
        assert!(!json.contains('-') || !json.contains("gap-us"), "{json}");
        let read: Traffic = serde_json::from_slice(json.as_bytes()).unwrap();
        assert_eq!(read, traffic);
        let flows = WHOLE.replace(
            "flows = { count = 1000, order = \"zipf\", exponent = 1.1 }",
            "",
        );
        assert_eq!(parse(&flows).unwrap().flow_count(), 60_000);
    }

    #[test]
    fn faults_are_reported_with_line_and_key() {
        for (text, reported) in [
            (
                "[traffic]\nsize = 64",
                "t.toml:2:1: traffic.size: unknown field",
            ),
            ("[trafic]\n", "unknown field"),
            (
                "[traffic]\nsizes = 63",
                "t.toml:2:9: traffic.sizes: invalid value: integer `63`",
            ),
            ("[traffic]\nsizes = \"imx\"", "imix-ipv6"),
            ("[traffic]\nsizes = [[64, 7], [70000, 1]]", "t.toml:2:"),
            ("[traffic]\nsizes = [[64, 0]]", "share must be at least 1"),
            (
                "[traffic]\n\nsizes = { genome = \"aaq\" }",
                "t.toml:3:9: traffic.sizes: the genome 'aaq'",
            ),
            (
                "[traffic]\nsizes = { genom = \"aaq\" }",
                "unknown field `genom`",
            ),
            (
                "[traffic.udp]\nsource = 65536",
                "t.toml:2:10: traffic.udp.source",
            ),
            ("[traffic.udp]\nsource = -1", "a port from 0 to 65535"),
            (
                "[traffic.udp]\nsource = { first = 65000, count = 1000 }",
                "exceed the field",
            ),
            (
                "[traffic.udp]\nsource = { first = 1, count = 0 }",
                "count is 0",
            ),
            (
                "[traffic.udp]\nsource = { first = 1, count = 3, exponent = 1.0 }",
                "zipf",
            ),
            ("[traffic.ethernet]\nsource = 5", "a MAC address such as"),
            (
                "[traffic.ipv4]\nsource = { first = \"300.0.0.1\", count = 2 }",
                "an IPv4 address such as",
            ),
            (
                "[traffic.ipv4]\n[traffic.ipv6]",
                "t.toml:2:1: traffic.ipv6: both IPv4 and IPv6",
            ),
            ("[traffic.udp]\n[traffic.tcp]", "UDP and TCP"),
            ("[traffic.tcp]\nflags = \"SX\"", "FSRPAUEC"),
            (
                "[traffic.tcp]\n[traffic.vxlan]\nvni = 1",
                "VXLAN requires UDP",
            ),
            ("[traffic.inner.udp]\n", "require [traffic.vxlan]"),
            (
                "[traffic.ipv6]\n[traffic.udp]\nchecksum = false",
                "t.toml:3:12: traffic.udp.checksum",
            ),
            (
                "[[traffic.vlan]]\nid = 1\n[[traffic.vlan]]\nid = 1\n[[traffic.vlan]]\nid = 1",
                "at most two",
            ),
            (
                "[traffic]\nflows = { count = 0 }",
                "traffic.flows.count: count is 0",
            ),
            ("[traffic]\nflows = { count = 2, exponent = 1.0 }", "zipf"),
            (
                "[traffic]\nflows = { count = 2, order = \"zipf\", exponent = nan }",
                "NaN",
            ),
            ("[traffic]\nshares = [1, 0]", "one-way"),
            ("[traffic]\nburst = { frames = 0 }", "at least 1 frame"),
            (
                "[traffic]\nburst = { frames = 1, gap-us = 0.0 }",
                "gap-us is 0",
            ),
            (
                "[traffic]\nseed = 1\nreplay = { file = \"x\" }",
                "sent unchanged",
            ),
            (
                "[traffic]\nreplay = { file = \"x\", speed = 2.0 }",
                "timing = \"file\"",
            ),
            (
                "[traffic]\nreplay = { file = \"x\", timing = \"file\", speed = -2.0 }",
                "above 0",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reported), "{text}: {error}");
        }
    }
}
