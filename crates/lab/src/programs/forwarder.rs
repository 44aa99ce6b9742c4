// SPDX-License-Identifier: Apache-2.0
//! The interface through which the lab drives all programs.

use quietwire_base::Deadline;
use quietwire_tester::account::ElementCounts;

use crate::cycle_reader::CycleReader;
use crate::cycles::CycleCount;
use crate::element::{ElementContext, GuestSide, Plan, Process};
use crate::error::LabError;
use crate::own_view::OwnView;
use crate::thread::DeviceThread;
use crate::unavailable::Unavailable;

/// The reason why a device has no feature that only quietwire's switch has.
const NOT_QUIETWIRE: &str = "only quietwire's switch supports that";
/// The reason why a program has no view of its own work.
pub(super) const NO_OWN_VIEW: &str = "the lab reads no counters of this program about its own work";

/// A program that forwards: how the lab starts, connects, queries and stops it.
pub(crate) trait Forwarder: std::fmt::Debug + Send {
    /// Returns its version, as the program reports it.
    ///
    /// # Errors
    /// The reason why the program is unavailable here.
    fn probe(&self) -> Result<String, Unavailable>;

    /// Starts the program, and waits until it answers. Programs that accept ports and joins only at the start get them here.
    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError>;

    /// Adds the ports, if the program accepts ports while it runs.
    fn connect(&mut self, _plan: &Plan, _context: &mut ElementContext<'_>) -> Result<(), LabError> {
        Ok(())
    }

    /// Configures forwarding between the ports, if the program accepts that while it runs.
    fn program(&mut self, _plan: &Plan, _context: &mut ElementContext<'_>) -> Result<(), LabError> {
        Ok(())
    }

    /// Returns its current frame counters.
    ///
    /// # Errors
    /// The reason, as a clause, why it does not report them by the deadline.
    fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String>;

    /// Returns the cost of forwarding since the start; `None` if the program does not count it.
    ///
    /// # Errors
    /// The reason why it does not report it.
    fn cycles(&self, _plan: &Plan) -> Result<Option<CycleCount>, String> {
        Ok(None)
    }

    /// Returns a reader of that cost for another thread; `None` if reading it starts a program, or the program does not count it.
    fn cycle_reader(&self, _plan: &Plan) -> Option<CycleReader> {
        None
    }

    /// Returns the program's counters of its own work since the start.
    ///
    /// # Errors
    /// The reason, as a clause, why it does not report it by the deadline.
    fn own_view(&self, _plan: &Plan, _deadline: Deadline) -> Result<OwnView, String> {
        Err(NO_OWN_VIEW.to_owned())
    }

    /// Kills the program and starts it again with the same command (RFC 6201, section 4.2). The caller repeats the configuration that the
    /// program accepts while it runs.
    ///
    /// # Errors
    /// The program does not support a restart, or did not start again.
    fn restart(&mut self, plan: &Plan, _context: &mut ElementContext<'_>) -> Result<(), LabError> {
        Err(plan.failed(format!("cannot be restarted: {NOT_QUIETWIRE}")))
    }

    /// Flushes its address table.
    ///
    /// # Errors
    /// The reason why it does not.
    fn forget_addresses(&self, _plan: &Plan) -> Result<(), String> {
        Err(NOT_QUIETWIRE.to_owned())
    }

    /// Returns its threads with their roles.
    ///
    /// # Errors
    /// The reason why they are not known.
    fn threads(&self, plan: &Plan) -> Result<Vec<DeviceThread>, String>;

    /// Returns its exact configuration, as the program reports it or as it was given.
    ///
    /// # Errors
    /// The reason why it does not report it.
    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String>;

    /// Returns its processes, in the order of their start, without the process of a guest.
    fn processes(&mut self) -> &mut [Process];

    /// Returns the numbers of all its processes.
    fn pids(&mut self) -> Vec<u32> {
        self.processes().iter().map(Process::pid).collect()
    }

    /// Checks that all its processes run.
    ///
    /// # Errors
    /// The process that has ended.
    fn check(&mut self) -> Result<(), LabError> {
        self.processes().iter_mut().try_for_each(Process::check)
    }

    /// Returns the guest that it runs in.
    fn guest(&self) -> Option<GuestSide> {
        None
    }

    /// Asks its processes to end, and does not wait for their end.
    fn ask_to_end(&mut self) {
        for process in self.processes() {
            process.ask_to_end();
        }
    }

    /// Stops it.
    ///
    /// # Errors
    /// The processes that did not end.
    fn stop(&mut self) -> Result<(), LabError> {
        let mut outcome = Ok(());
        for process in self.processes().iter_mut().rev() {
            outcome = outcome.and(process.stop());
        }
        outcome
    }
}
