// SPDX-License-Identifier: Apache-2.0
//! Load of neighbours during a measurement. A neighbour that gets no CPU disturbs nothing, and such a result shows nothing about its kind.

use std::path::Path;

use quietwire_host::CpuList;
use quietwire_monitor::{Activity, Snapshot};
use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// Activity of neighbours between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intensity {
    /// Number of their threads, including those that only wait for others.
    pub threads: usize,
    /// CPUs that they may use.
    pub cpus: usize,
    /// CPU time of all neighbours, seconds.
    pub cpu_time_s: f64,
    /// Time from the first sample to the second, seconds.
    pub elapsed_s: f64,
    /// Share of the time of those CPUs that neighbours used, 0 to 1. Kinds that mostly wait, as for timers, have a small share by nature.
    pub share: f64,
    /// Frames per second that neighbours sent through the device under test, on their own ports; `None` without such neighbours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_pps: Option<f64>,
}

/// A sample of running neighbours.
#[derive(Debug)]
pub struct NeighbourSample {
    pids: Vec<u32>,
    cpus: usize,
    then: Snapshot,
    /// Frames that the device had received from them.
    received: Option<u64>,
}

impl NeighbourSample {
    pub(crate) fn look(
        pids: Vec<u32>,
        cpus: &CpuList,
        received: Option<u64>,
    ) -> Result<Self, LabError> {
        Ok(Self {
            received,
            then: Snapshot::take(Path::new("/"), &pids)?,
            cpus: cpus.len(),
            pids,
        })
    }

    /// Returns the process IDs of all neighbours at the sample.
    #[must_use]
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Returns true if some of them send through the device.
    pub(crate) fn has_network(&self) -> bool {
        self.received.is_some()
    }

    /// Returns their activity since the sample. `received` is the number of frames that the device has received from them by now, if they
    /// send.
    pub(crate) fn intensity(&self, received: Option<u64>) -> Result<Intensity, LabError> {
        let now = Snapshot::take(Path::new("/"), &self.pids)?;
        let activity = Activity::between(&self.then, &now);
        let cpu_time_s = activity.threads.iter().map(|t| t.cpu_time_s).sum::<f64>();
        let whole_s = self.cpus as f64 * activity.elapsed_s;
        Ok(Intensity {
            threads: activity.threads.len(),
            cpus: self.cpus,
            cpu_time_s,
            elapsed_s: activity.elapsed_s,
            share: if whole_s > 0.0 {
                cpu_time_s / whole_s
            } else {
                0.0
            },
            network_pps: self.received.zip(received).map(|(then, now)| {
                now.saturating_sub(then) as f64 / activity.elapsed_s.max(f64::MIN_POSITIVE)
            }),
        })
    }
}
