// SPDX-License-Identifier: Apache-2.0
//! Options that isolate the built-in tester and a running device from the rest of the machine, and the tester's own rights after that.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use quietwire_host::CpuList;
use quietwire_host::privileges::{self, Capabilities, User};
use quietwire_host::threads::online_cpus;
use quietwire_lab::{
    IsolationLevel, IsolationRequest, LabOptions, RunningIsolation, STATE_DIRECTORY, Stop,
};
use quietwire_tester::Tester;

use super::own_tester::OwnTesterArgs;
use crate::exit::{Usage, require_root};
use crate::text::say;

/// Value of `--isolation`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    /// No isolation.
    None,
    /// Other work is excluded from the CPUs of tester and device.
    Isolated,
    /// Like isolated, with all further means that the machine supports.
    Full,
}

/// Isolation while the tester runs.
#[derive(Debug, Args)]
pub(super) struct IsolationArgs {
    /// Isolate the CPUs of tester and device, like isolation cases of studies.
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "full")]
    isolation: Level,
    /// Forwarding CPUs of the device, like 3,4,8-11. Default: those of pinned, busy threads of the peer processes of memif, vhost
    /// and virtio-user ports.
    #[arg(long, value_name = "LIST")]
    device_cpus: Option<CpuList>,
    /// Become this user once the ports are open and CPUs are isolated, keeping only the rights that trials require. Default: the user
    /// that starts the command.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// State directory of labs.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY, hide = true)]
    state_directory: PathBuf,
}

impl IsolationArgs {
    /// Returns true if the options name CPUs of the device.
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

    /// Returns true if the process becomes another user.
    pub(super) fn changes_user(&self) -> bool {
        self.user.is_some()
    }

    /// Checks the CPUs of tester and device against the online CPUs, and that the process can become the user.
    pub(super) fn check(&self, own: &OwnTesterArgs) -> Result<()> {
        if let Some(user) = &self.user {
            User::find(user).map_err(|error| Usage(format!("--user: {error}")))?;
            require_root("--user")?;
        }
        let online = online_cpus(Path::new("/"))?;
        Ok(self.request(own, 0.0).check(&online)?)
    }

    /// Isolates a tester whose ports are connected, sets its real-time priority, and becomes the user of the options. `trial_s` is the
    /// length of the longest trial, seconds.
    pub(super) fn isolate(
        &self,
        own: &OwnTesterArgs,
        tester: &mut Tester,
        trial_s: f64,
        stop: &Arc<AtomicBool>,
    ) -> Result<RunningIsolation> {
        let options = LabOptions {
            state_directory: self.state_directory.clone(),
            program: std::env::current_exe().context("path of this program")?,
        };
        let request = IsolationRequest {
            peers: tester.peer_processes(),
            ..self.request(own, trial_s)
        };
        let mut isolation = RunningIsolation::apply(&request, &options, &Stop::from(stop))?;
        if let Some(user) = &self.user {
            isolation.hand_over();
            privileges::refuse_new_privileges()?;
            privileges::reduce(Some(&User::find(user)?), Capabilities::TESTER)?;
        }
        let record = isolation.record();
        record.not_isolated.iter().for_each(say);
        tester.set_realtime_priority(record.realtime_priority);
        if record.realtime_priority.is_some() && record.isolated_cpus.is_empty() {
            own.warn_of_throttling(trial_s);
        }
        Ok(isolation)
    }
}
