// SPDX-License-Identifier: Apache-2.0
//! Threads that DPDK knows.

use std::marker::PhantomData;

use crate::eal::Eal;
use crate::error::{self, Error};
use crate::sys;
use crate::thread::{failed, refuse_signals};

/// The calling thread as one that DPDK knows, with a buffer cache of its own. Ends with the value.
#[derive(Debug)]
pub struct Registered {
    _eal: Eal,
    // The registration belongs to the thread: the value cannot leave it.
    _not_send: PhantomData<*const ()>,
}

impl Registered {
    /// Registers the calling thread (`rte_thread_register`). From then on the process's signals go to its other
    /// threads.
    ///
    /// # Errors
    /// [`Error::Thread`] when DPDK has no room for more threads (RTE_MAX_LCORE).
    pub fn new(eal: &Eal) -> Result<Self, Error> {
        refuse_signals()?;
        // SAFETY: the EAL is started; the thread is not registered twice through this type
        // (a second registration is refused by DPDK).
        if unsafe { sys::rte_thread_register() } < 0 {
            return Err(failed(
                "registering a thread with DPDK".to_owned(),
                error::last(),
            ));
        }
        Ok(Self {
            _eal: eal.clone(),
            _not_send: PhantomData,
        })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered by `new` in this very thread.
        unsafe { sys::rte_thread_unregister() }
    }
}
