// SPDX-License-Identifier: Apache-2.0
//! Work done in DPDK's interrupt thread, in turn with what drivers do there.

use std::ffi::c_void;
use std::sync::mpsc;
use std::time::Duration;

use crate::error;
use crate::sys;

type Work = Box<dyn FnOnce() + Send>;

const PATIENCE: Duration = Duration::from_secs(60);
/// Shortest delay of an alarm, microseconds.
const AT_ONCE_US: u64 = 1;

unsafe extern "C" fn call(argument: *mut c_void) {
    // SAFETY: `argument` is what `run` made, and the alarm calls once.
    let work = unsafe { Box::from_raw(argument.cast::<Work>()) };
    work();
}

/// Runs `work` in the interrupt thread (rte_eal_alarm_set) and waits until it's done. Not to be called from there.
pub(crate) fn run(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::sync_channel(1);
    let work: Work = Box::new(move || {
        work();
        // Nobody waits any more only after PATIENCE, and that was said.
        let _ = done.send(());
    });
    let argument = Box::into_raw(Box::new(work));
    // SAFETY: the EAL is started, since there is a port; `argument` lives until `call` has taken it.
    let code = unsafe { sys::rte_eal_alarm_set(AT_ONCE_US, Some(call), argument.cast()) };
    if code != 0 {
        tracing::warn!(
            "DPDK's interrupt thread takes no work: {}",
            error::text(code)
        );
        // SAFETY: the alarm was not set, so `argument` is still this function's.
        unsafe { call(argument.cast()) };
    }
    if is_done.recv_timeout(PATIENCE).is_err() {
        tracing::warn!("DPDK's interrupt thread has not done its work for {PATIENCE:?}");
    }
}
