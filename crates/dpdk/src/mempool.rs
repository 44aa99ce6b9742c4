// SPDX-License-Identifier: Apache-2.0
//! Pools of packet buffers.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::eal::Eal;
use crate::error::{self, Error};
use crate::sys;

/// Buffers in the cache of each thread (RTE_MEMPOOL_CACHE_MAX_SIZE is 512).
const CACHE_SIZE: u32 = 256;

#[derive(Debug)]
struct MempoolInner {
    pool: NonNull<sys::rte_mempool>,
    count: u32,
    data_room: u16,
    // Dropped after the pool is freed.
    _eal: Eal,
}

// SAFETY: rte_mempool is designed for use from many threads at once (multi-producer, multi-consumer).
unsafe impl Send for MempoolInner {}
// SAFETY: as above.
unsafe impl Sync for MempoolInner {}

/// A pool of packet buffers. Clones share it.
#[derive(Clone, Debug)]
pub struct Mempool(Arc<MempoolInner>);

impl Mempool {
    /// Creates a pool of `count` buffers, each with space for `data_room` octets of a frame.
    ///
    /// # Errors
    /// [`Error::Mempool`] if there is too little memory or the name is in use.
    pub fn new(eal: &Eal, name: &str, count: u32, data_room: u16) -> Result<Self, Error> {
        Self::with_cache(eal, name, (count, CACHE_SIZE), data_room)
    }

    /// Creates a pool whose buffers are in no thread's cache, so that each is available to every thread: a pool of few buffers.
    pub(crate) fn uncached(
        eal: &Eal,
        name: &str,
        count: u32,
        data_room: u16,
    ) -> Result<Self, Error> {
        Self::with_cache(eal, name, (count, 0), data_room)
    }

    fn with_cache(
        eal: &Eal,
        name: &str,
        (count, cache): (u32, u32),
        data_room: u16,
    ) -> Result<Self, Error> {
        let fail = |cause: String| Error::Mempool {
            name: name.to_owned(),
            count,
            cause,
        };
        let c_name =
            CString::new(name).map_err(|_| fail("the name contains a NUL character".to_owned()))?;
        let headroom = u16::try_from(sys::RTE_PKTMBUF_HEADROOM).unwrap_or(128);
        let space = data_room
            .checked_add(headroom)
            .ok_or_else(|| fail(format!("{data_room} octets per buffer are too many")))?;
        const ANY_NODE: i32 = -1;
        // SAFETY: the EAL is started; the name is terminated.
        let pool = unsafe {
            sys::rte_pktmbuf_pool_create(c_name.as_ptr(), count, cache, 0, space, ANY_NODE)
        };
        let pool = NonNull::new(pool).ok_or_else(|| fail(error::last()))?;
        Ok(Self(Arc::new(MempoolInner {
            pool,
            count,
            data_room,
            _eal: eal.clone(),
        })))
    }

    /// Returns the number of buffers.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.count
    }

    /// Returns the space for frame octets in each buffer.
    #[must_use]
    pub fn data_room(&self) -> u16 {
        self.0.data_room
    }

    /// Returns the number of buffers in the pool. Others are in use, for example in rings and queues.
    #[must_use]
    pub fn available(&self) -> u32 {
        // SAFETY: the pool is alive.
        unsafe { sys::rte_mempool_avail_count(self.0.pool.as_ptr()) }
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::rte_mempool {
        self.0.pool.as_ptr()
    }
}

impl Drop for MempoolInner {
    fn drop(&mut self) {
        // SAFETY: the pool is alive. It is freed only if every buffer has been returned, because a burst
        // may still hold one. Otherwise it stays until the process ends.
        unsafe {
            if sys::rte_mempool_avail_count(self.pool.as_ptr()) == self.count {
                sys::rte_mempool_free(self.pool.as_ptr());
            }
        }
    }
}
