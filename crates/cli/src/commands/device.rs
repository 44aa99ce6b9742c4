// SPDX-License-Identifier: Apache-2.0
//! The device, where it is a switch of quietwire's that runs already.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use quietwire_dpdk::PortUri;
use quietwire_study::RunningSwitch;

use crate::exit::Usage;

/// Whose counters tell where frames were lost.
#[derive(Debug, Args)]
pub(super) struct DeviceArgs {
    /// Control socket of the device, if it is `quietwire switch run`: account for each lost frame by its counters.
    #[arg(long, value_name = "PATH")]
    device_control: Option<PathBuf>,
}

impl DeviceArgs {
    /// Returns true if a control socket was named.
    pub(super) fn is_named(&self) -> bool {
        self.device_control.is_some()
    }

    /// The switch at the control socket; none if none was named.
    pub(super) fn find(&self, ports: &[PortUri]) -> Result<Option<RunningSwitch>> {
        let Some(socket) = &self.device_control else {
            return Ok(None);
        };
        let found = RunningSwitch::find(socket, ports).map_err(|why| {
            Usage(format!(
                "--device-control {}: {why} (name the control socket of a running `quietwire switch run`)",
                socket.display()
            ))
        })?;
        Ok(Some(found))
    }
}
