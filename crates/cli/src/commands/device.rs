// SPDX-License-Identifier: Apache-2.0
//! Options for a device under test that is a running quietwire switch.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use quietwire_dpdk::PortUri;
use quietwire_study::RunningSwitch;

use crate::exit::Usage;

/// Source of the counters of a device.
#[derive(Debug, Args)]
pub(super) struct DeviceArgs {
    /// Control socket of a `quietwire switch run` under test; its counters locate lost frames and show its idle time.
    #[arg(long, value_name = "PATH")]
    device_control: Option<PathBuf>,
}

impl DeviceArgs {
    /// Returns true if the options name a control socket.
    pub(super) fn is_named(&self) -> bool {
        self.device_control.is_some()
    }

    /// Returns the switch at the control socket, or none if the options name no socket.
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
