// SPDX-License-Identifier: Apache-2.0
//! A running topology as the device under test: operations that cases and procedures require in addition to its state.

use std::path::{Path, PathBuf};

use quietwire_base::Deadline;

use super::{Running, UpLab};
use crate::counts::TIMEOUT;
use crate::element::{ElementContext, NEIGHBOUR_PORTS};
use crate::error::LabError;

impl UpLab {
    /// Checks that all processes run.
    ///
    /// # Errors
    /// The first element that exited, with the end of its log.
    pub fn check(&mut self) -> Result<(), LabError> {
        let mut all = self.running.iter_mut();
        all.try_for_each(|running| running.forwarder.check())
    }

    /// Kills a standalone switch and starts it again with the same command (RFC 6201, section 4.2).
    ///
    /// # Errors
    /// [`LabError::Topology`] if it is not standalone; a start that failed.
    pub fn restart(&mut self) -> Result<(), LabError> {
        let ([running], Some(claim)) = (&mut self.running[..], &mut self.claim) else {
            return Err(LabError::Topology(format!(
                "{} elements are up, but only a standalone switch can be restarted",
                self.state.elements.len()
            )));
        };
        let mut commands = Vec::new();
        let mut context = ElementContext::new(claim.journal(), &mut commands);
        context.set = self.set.clone();
        running.step(&mut context, |forwarder, plan, context| {
            forwarder.restart(plan, context)
        })?;
        running.finish(&mut context)?;
        if let Some(state) = self.state.elements.first_mut() {
            *state = running.state()?;
        }
        self.state.write(claim.directory())
    }

    /// Clears the MAC address tables.
    ///
    /// # Errors
    /// [`LabError::Device`] of an element that fails.
    pub fn forget_addresses(&self) -> Result<(), LabError> {
        self.running.iter().try_for_each(|running| {
            let forgotten = running.forwarder.forget_addresses(&running.plan);
            forgotten.map_err(|reason| {
                let what = format!("cannot clear its address table: {reason}");
                running.plan.failed(what)
            })
        })
    }

    /// Returns the sockets of ports for neighbours that send through it: two, or none.
    pub(crate) fn neighbour_sockets(&self) -> Vec<PathBuf> {
        let ports = self.running.iter().map(|running| &running.plan);
        let ports = ports.flat_map(|plan| &plan.neighbour_ports);
        let sockets = ports.filter_map(|port| port.attachment.own_socket());
        sockets.map(Path::to_owned).collect()
    }

    /// Returns the number of frames received at its ports for neighbours since it was started.
    pub(crate) fn received_from_neighbours(&self) -> Result<u64, LabError> {
        let has_ports = |running: &&Running| !running.plan.neighbour_ports.is_empty();
        let mut all = self.running.iter().filter(has_ports);
        all.try_fold(0u64, |sum, running| {
            let received = received(running).map_err(|reason| {
                let what = format!("does not report the frames of neighbours: {reason}");
                running.plan.failed(what)
            })?;
            Ok(sum.saturating_add(received))
        })
    }
}

fn received(running: &Running) -> Result<u64, String> {
    let deadline = Deadline::after(TIMEOUT);
    let counts = running.forwarder.frames(&running.plan, deadline)?;
    let of_port = |name: &str| {
        let port = counts.ports.get(name);
        port.map(|port| port.received)
            .ok_or_else(|| format!("it does not count what port {name} receives"))
    };
    NEIGHBOUR_PORTS.iter().map(|name| of_port(name)).sum()
}
