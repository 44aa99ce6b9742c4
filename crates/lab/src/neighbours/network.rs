// SPDX-License-Identifier: Apache-2.0
//! A neighbour on the network: another tester, which sends through the same device on its own ports.

use quietwire_host::CpuList;
use quietwire_host::journal::Journal;

use super::spec::{NeighbourContext, NetworkNeighbour};
use super::stress::{Worker, as_neighbour, require_setters};
use crate::error::LabError;

/// Memory for its frames, MiB.
const MEMORY_MIB: u32 = 64;
/// Longer than any case, seconds.
const DURATION: &str = "1440m";

impl NetworkNeighbour {
    /// Starts it on the last of the neighbours' CPUs: testers and services are usually on the first ones.
    pub(super) fn start(
        &self,
        journal: &mut Journal,
        cpus: &CpuList,
        around: &NeighbourContext<'_>,
    ) -> Result<Worker, LabError> {
        require_setters()?;
        let (Some(entrance), Some(cpu)) = (&around.entrance, cpus.iter().next_back()) else {
            return Err(LabError::Cpus(
                "the device has no ports through which neighbours can send".to_owned(),
            ));
        };
        let mut words = vec![around.program.display().to_string(), "generate".to_owned()];
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        for uri in &entrance.uris {
            option("--port", uri.clone());
        }
        option("--rate", self.rate_pps.to_string());
        option("--frame-size", self.frame_size.to_string());
        option("--duration", DURATION.to_owned());
        option("--warm-up", "0s".to_owned());
        option("--cpus", cpu.to_string());
        option("--memory-mib", MEMORY_MIB.to_string());
        option("--isolation", "none".to_owned());
        words.push("--no-huge".to_owned());
        Worker::start(
            journal,
            as_neighbour(words),
            "network-neighbour.log",
            1,
            around,
        )
    }
}
