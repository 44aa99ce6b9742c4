// SPDX-License-Identifier: Apache-2.0
//! A switch between the two ports of a tester that sends described flows.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Load;
use super::switch::{Switch, Work};

/// Runs of the tester after which the switch must have all connections, and the seconds of each.
pub(crate) const FILLS: u32 = 5;
pub(crate) const FILL_S: f64 = 0.1;

/// A switch with the tester's flows.
pub(crate) struct Device {
    pub(crate) switch: Switch,
    pub(crate) directory: PathBuf,
    pub(crate) seconds: f64,
}

impl Device {
    /// Writes a description; returns its path.
    pub(crate) fn describe(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn load<'a>(&self, more: &'a [&'a str], seconds: f64) -> Load<'a> {
        Load {
            ports: [0, 1].map(|port| self.switch.tester_uri(port)),
            seconds,
            more,
            connect: None,
        }
    }

    /// Sends the flows one way, and returns the forwarded frames per second.
    pub(crate) fn rate(&self, flows: &Path) -> f64 {
        let flows = flows.to_str().unwrap();
        let more = ["--traffic", flows, "--direction", "one-way"];
        self.load(&more, self.seconds).rate()
    }

    /// Sends frames one way to this many destinations, drawn at random, and returns the forwarded frames per second. The tester takes less
    /// time for such frames than for described flows.
    pub(crate) fn rate_to(&self, destinations: u32) -> f64 {
        let destinations = destinations.to_string();
        self.load(&["--destinations", &destinations], self.seconds)
            .rate()
    }

    /// Sends the flows a first time.
    pub(crate) fn send(&self, flows: &Path, direction: &str) {
        let flows = flows.to_str().unwrap();
        let more = ["--traffic", flows, "--direction", direction];
        self.load(&more, FILL_S).send();
    }

    /// Sends the flows until the switch has this number of connections.
    pub(crate) fn fill(&self, flows: &Path, direction: &str, count: u64) {
        for _ in 0..FILLS {
            self.send(flows, direction);
            if self.number("total") >= count as f64 {
                return;
            }
        }
        let total = self.number("total");
        panic!("the switch has {total} of {count} connections");
    }

    /// Returns the state of the tracker.
    fn tracker(&self) -> Value {
        let shown = self.switch.shown(&["connections", "--limit", "1"]);
        shown.expect("the state of the tracker")
    }

    /// Returns a number of the state of the tracker.
    pub(crate) fn number(&self, key: &str) -> f64 {
        self.tracker()[key].as_f64().expect("a number")
    }

    pub(crate) fn created(&self) -> f64 {
        let created = &self.tracker()["counters"]["created"];
        created.as_f64().expect("the number of new connections")
    }

    pub(crate) fn work(&self) -> Work {
        self.switch.work().expect("the cycles of the switch")
    }

    /// Returns the frames that the switch has received, and those that its threads have handed over.
    pub(crate) fn received_and_handed_over(&self) -> [f64; 2] {
        let shown = self.switch.shown(&["cycles"]);
        let shown = shown.expect("the cycles of the switch");
        let threads = shown["threads"].as_array().expect("threads");
        let steps = |name: &str| -> f64 {
            let steps = threads.iter().filter_map(|one| one["steps"].as_array());
            let steps = steps.flatten().filter(|one| one["step"] == name);
            steps.filter_map(|one| one["frames"].as_f64()).sum()
        };
        // Both threads count a frame that is handed over.
        [steps("receive"), steps("relay") / 2.0]
    }
}
