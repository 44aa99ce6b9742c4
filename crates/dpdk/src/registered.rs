// SPDX-License-Identifier: Apache-2.0
//! Threads registered with DPDK.

use std::marker::PhantomData;

use crate::eal::Eal;
use crate::error::{self, Error};
use crate::sys;
use crate::thread::{failed, refuse_signals};

/// Registration of the calling thread with DPDK, which gives it a buffer cache. Drop ends it.
#[derive(Debug)]
pub struct Registered {
    _eal: Eal,
    // The registration belongs to the thread, so the value must not leave it.
    _not_send: PhantomData<*const ()>,
}

impl Registered {
    /// Registers the calling thread (`rte_thread_register`). From then on, other threads of the process receive its
    /// signals.
    ///
    /// # Errors
    /// [`Error::Thread`] if DPDK has no space for more threads (RTE_MAX_LCORE).
    pub fn new(eal: &Eal) -> Result<Self, Error> {
        refuse_signals()?;
        // SAFETY: the EAL is started; the thread is not registered twice through this type
        // (a second registration is refused by DPDK).
        if unsafe { sys::rte_thread_register() } < 0 {
            return Err(failed(
                "cannot register a thread with DPDK".to_owned(),
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
