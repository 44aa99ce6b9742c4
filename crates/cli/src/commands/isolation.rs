// SPDX-License-Identifier: Apache-2.0
//! Options of what keeps the rest of the machine away from the built-in tester and from a device that runs already.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use quietwire_host::CpuList;
use quietwire_host::threads::online_cpus;
use quietwire_lab::{
    IsolationLevel, IsolationRequest, LabOptions, RunningIsolation, STATE_DIRECTORY, Stop,
};
use quietwire_tester::Tester;

use super::own_tester::OwnTesterArgs;
use crate::text::say;

/// `--isolation`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    /// Nothing is isolated.
    None,
    /// Everything else keeps off the CPUs of tester and device.
    Isolated,
    /// As isolated, with all else that the machine has.
    Full,
}

/// What is isolated while the tester runs.
#[derive(Debug, Args)]
pub(super) struct IsolationArgs {
    /// Keep everything else off the CPUs of tester and device while this runs, as isolation cases of studies do.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "full")]
    isolation: Level,
    /// CPUs on which the device forwards, like 3,4,8-11. Default: those of pinned, busy threads at the other end of memif, vhost
    /// and virtio-user ports.
    #[arg(long, value_name = "LIST")]
    device_cpus: Option<CpuList>,
    /// Where labs keep their state.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY, hide = true)]
    state_directory: PathBuf,
}

impl IsolationArgs {
    /// Whether CPUs of the device are named.
    pub(super) fn names_device(&self) -> bool {
        self.device_cpus.is_some()
    }

    fn request(&self, own: &OwnTesterArgs, trial_s: f64) -> IsolationRequest {
        IsolationRequest {
            level: match self.isolation {
                Level::None => IsolationLevel::None,
                Level::Isolated => IsolationLevel::Isolated,
                Level::Full => IsolationLevel::Full,
            },
            tester: own.cpu_list().clone(),
            device: self.device_cpus.clone(),
            peers: Vec::new(),
            realtime_priority: own.chosen_priority(),
            trial_s,
        }
    }

    /// Refuses CPUs that the device cannot have.
    pub(super) fn check(&self, own: &OwnTesterArgs) -> Result<()> {
        let online = online_cpus(Path::new("/"))?;
        Ok(self.request(own, 0.0).check(&online)?)
    }

    /// Isolates a tester whose ports are connected, and gives it its priority. `trial_s` is the length of the longest trial.
    pub(super) fn isolate(
        &self,
        own: &OwnTesterArgs,
        tester: &mut Tester,
        trial_s: f64,
        stop: &Arc<AtomicBool>,
    ) -> Result<RunningIsolation> {
        let options = LabOptions {
            state_directory: self.state_directory.clone(),
            program: std::env::current_exe().context("where this program is")?,
        };
        let request = IsolationRequest {
            peers: tester.peer_processes(),
            ..self.request(own, trial_s)
        };
        let isolation = RunningIsolation::apply(&request, &options, &Stop::from(stop))?;
        let record = isolation.record();
        record.not_isolated.iter().for_each(say);
        tester.set_realtime_priority(record.realtime_priority);
        if record.realtime_priority.is_some() && record.isolated_cpus.is_empty() {
            own.warn_of_throttling(trial_s);
        }
        Ok(isolation)
    }
}
