// SPDX-License-Identifier: Apache-2.0
//! What all programs are driven by.

use quietwire_base::Deadline;
use quietwire_tester::account::{ElementCounts, PortCounts};
use serde_json::{Map, Value, json};

use crate::counts::TIMEOUT;
use crate::cycles::CycleCount;
use crate::element::{ElementContext, GuestSide, Plan, Process};
use crate::error::LabError;
use crate::thread::DeviceThread;
use crate::unavailable::Unavailable;

/// Why a device cannot be asked for what only quietwire's switch can.
const NOT_QUIETWIRE: &str = "only quietwire's switch can be asked for that";

/// A program that forwards: how the lab starts, connects, queries and stops it.
pub(crate) trait Forwarder: std::fmt::Debug + Send {
    /// Its version as it says itself.
    ///
    /// # Errors
    /// The reason why the program is unavailable here.
    fn probe(&self) -> Result<String, Unavailable>;

    /// Starts it, and waits until it answers. Programs that take ports and what they forward when they start take all of it
    /// here.
    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError>;

    /// Gives it its ports, where it takes them while it runs.
    fn connect(&mut self, _plan: &Plan, _room: &mut ElementContext<'_>) -> Result<(), LabError> {
        Ok(())
    }

    /// Tells it what to forward between, where it takes that while it runs.
    fn program(&mut self, _plan: &Plan, _room: &mut ElementContext<'_>) -> Result<(), LabError> {
        Ok(())
    }

    /// Its counters.
    ///
    /// # Errors
    /// Why it does not tell.
    fn counters(&self, plan: &Plan) -> Result<Value, String> {
        let counts = self.frames(plan, Deadline::after(TIMEOUT))?;
        let of_port = |(name, port): (String, PortCounts)| {
            let reported = json!({ "rx_frames": port.received, "tx_frames": port.sent });
            (name, reported)
        };
        Ok(counts
            .ports
            .into_iter()
            .map(of_port)
            .collect::<Map<_, _>>()
            .into())
    }

    /// Its counters of frames, those of the moment.
    ///
    /// # Errors
    /// Why it does not tell them by the deadline, in a clause.
    fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String>;

    /// What forwarding has cost since it started; none where it does not count that.
    ///
    /// # Errors
    /// Why it does not tell.
    fn cycles(&self, _plan: &Plan) -> Result<Option<CycleCount>, String> {
        Ok(None)
    }

    /// Kills it and starts it again with the same command (RFC 6201, section 4.2). What it takes while it runs, it is to be given
    /// again.
    ///
    /// # Errors
    /// It cannot be restarted so, or did not come up again.
    fn restart(&mut self, plan: &Plan, _context: &mut ElementContext<'_>) -> Result<(), LabError> {
        Err(plan.failed(format!("cannot be restarted: {NOT_QUIETWIRE}")))
    }

    /// Empties its table of addresses.
    ///
    /// # Errors
    /// Why it does not.
    fn forget_addresses(&self, _plan: &Plan) -> Result<(), String> {
        Err(NOT_QUIETWIRE.to_owned())
    }

    /// Its threads with their roles.
    ///
    /// # Errors
    /// Why they cannot be told.
    fn threads(&self, plan: &Plan) -> Result<Vec<DeviceThread>, String>;

    /// Its exact configuration, as it tells it itself or was given it.
    ///
    /// # Errors
    /// Why it does not tell.
    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String>;

    /// Its processes, in the order in which they were started, but for that of a guest.
    fn processes(&mut self) -> &mut [Process];

    /// Numbers of all its processes.
    fn pids(&mut self) -> Vec<u32> {
        self.processes().iter().map(Process::pid).collect()
    }

    /// Looks whether all its processes run.
    ///
    /// # Errors
    /// What has ended.
    fn check(&mut self) -> Result<(), LabError> {
        self.processes().iter_mut().try_for_each(Process::check)
    }

    /// The guest that it is in.
    fn guest(&self) -> Option<GuestSide> {
        None
    }

    /// Asks its processes to end, and does not wait for that.
    fn ask_to_end(&mut self) {
        for process in self.processes() {
            process.ask_to_end();
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// What did not end.
    fn stop(&mut self) -> Result<(), LabError> {
        let mut outcome = Ok(());
        for process in self.processes().iter_mut().rev() {
            outcome = outcome.and(process.stop());
        }
        outcome
    }
}
