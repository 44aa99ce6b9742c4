// SPDX-License-Identifier: Apache-2.0
//! Frames that a switch has received, by the state of their connections.

use serde_json::Value;

use super::switch::Switch;

/// Reason of the switch for dropping frames that begin connections, while they take more than their share of its time.
const NEW_SHARE: &str = "new_share";

/// Frames by the state of their connections.
pub(crate) struct Packets {
    established: f64,
    all: f64,
    /// Frames that the switch had no time for.
    dropped: f64,
}

impl Packets {
    /// Returns those since the start of a switch.
    pub(crate) fn of(switch: &Switch) -> Self {
        let tracker = switch.shown(&["connections", "--limit", "1"]);
        let tracker = tracker.expect("the state of the tracker");
        let packets = &tracker["counters"]["packets"];
        let counts = packets.as_object().expect("frames by state").values();
        let ports = switch.shown(&["ports"]).expect("the ports");
        let ports = ports.as_array().expect("a list of ports").iter();
        let dropped = ports.map(|port| port["drops"][NEW_SHARE].as_f64().expect(NEW_SHARE));
        Self {
            established: packets["established"].as_f64().expect("a number"),
            all: counts.filter_map(Value::as_f64).sum(),
            dropped: dropped.sum(),
        }
    }

    /// Returns the share of established connections in the frames since an earlier moment that the switch had time for.
    pub(crate) fn established_share_since(&self, earlier: &Self) -> Option<f64> {
        let all = (self.all - earlier.all) - (self.dropped - earlier.dropped);
        (all > 0.0).then(|| (self.established - earlier.established) / all)
    }
}
