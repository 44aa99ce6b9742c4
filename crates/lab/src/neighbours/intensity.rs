// SPDX-License-Identifier: Apache-2.0
//! How hard neighbours work while something is measured. One that gets no CPU disturbs nobody, and a result beside it says
//! nothing of its kind.

use std::path::Path;

use quietwire_host::CpuList;
use quietwire_monitor::{Activity, Snapshot};
use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// What neighbours did between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intensity {
    /// Their threads, those that only wait for others included.
    pub threads: usize,
    /// CPUs that they may use.
    pub cpus: usize,
    /// CPU time that all of them used, seconds.
    pub cpu_time_s: f64,
    /// From the first look to the second, seconds.
    pub elapsed_s: f64,
    /// Part of the time of those CPUs that they had, 0 to 1. Of kinds that wait much, as for timers, it is small by nature.
    pub share: f64,
    /// Frames per second that neighbours sent through the device under test, on ports of their own; none without such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_pps: Option<f64>,
}

/// Neighbours at work, looked at once.
#[derive(Debug)]
pub struct NeighbourSample {
    pids: Vec<u32>,
    cpus: usize,
    then: Snapshot,
    /// Frames that the device had got from them.
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

    /// Whether some of them send through the device.
    pub(crate) fn has_network(&self) -> bool {
        self.received.is_some()
    }

    /// What they did since. `received` is what the device has got from them by now, where they send.
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
