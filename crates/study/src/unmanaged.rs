// SPDX-License-Identifier: Apache-2.0
//! Control of a device that quietwire does not start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quietwire_base::Deadline;

use crate::executor::Device;

/// Interval between checks for an interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Control of a device that runs elsewhere: nothing can restart it. The generator of a simulated device restarts that itself.
pub(crate) struct UnmanagedDevice {
    /// True if the generator simulates the device.
    pub(crate) is_simulated: bool,
    /// Time until the device has forgotten its addresses, seconds.
    pub(crate) ageing_s: Option<f64>,
    /// Set by an interruption.
    pub(crate) abort: Arc<AtomicBool>,
}

impl Device for UnmanagedDevice {
    fn restart(&mut self) -> Result<(), String> {
        if self.is_simulated {
            Ok(())
        } else {
            Err("quietwire cannot restart a device that it did not start (run the study in the lab)".to_owned())
        }
    }

    fn forget(&mut self) -> Option<Result<(), String>> {
        let ageing_s = self.ageing_s.filter(|_| !self.is_simulated)?;
        let is_aborted = || self.abort.load(Ordering::Relaxed).then_some(());
        let aged = Deadline::after(Duration::try_from_secs_f64(ageing_s).unwrap_or(Duration::MAX));
        if aged.poll(POLL_INTERVAL, is_aborted).is_some() {
            return Some(Err(
                "interrupted while waiting for addresses to age out".to_owned()
            ));
        }
        Some(Ok(()))
    }
}
