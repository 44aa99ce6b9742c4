// SPDX-License-Identifier: Apache-2.0
//! Pools of packet buffers.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use quietwire_memory::octets_by_node;

use crate::eal::Eal;
use crate::error::{self, Error};
use crate::sys;

/// Buffers in the cache of each thread (RTE_MEMPOOL_CACHE_MAX_SIZE is 512).
const CACHE_SIZE: u32 = 256;

/// Maximum number of buffers of a pool: those of DPDK's largest ring. DPDK does not refuse every number above it.
const BUFFERS_MAX: u32 = (1 << 30) - 1;

/// Most chunks of a pool's memory whose NUMA nodes are looked up.
const CHUNKS_MAX: usize = 64;

#[derive(Debug)]
struct MempoolInner {
    pool: NonNull<sys::rte_mempool>,
    count: u32,
    data_room: u16,
    // Dropped after the pool is freed.
    eal: Eal,
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
    /// [`Error::Mempool`] if there is too little memory, the name is in use, or a pool cannot have this number of buffers.
    pub fn new(eal: &Eal, name: &str, count: u32, data_room: u16) -> Result<Self, Error> {
        const ANY_NODE: i32 = -1;
        Self::create(eal, name, (count, data_room), |name, space| {
            let name = name.as_ptr();
            // SAFETY: the EAL is started; the name is terminated.
            unsafe { sys::rte_pktmbuf_pool_create(name, count, CACHE_SIZE, 0, space, ANY_NODE) }
        })
    }

    /// Creates a pool of few buffers. They are in no thread's cache, so that each is available to every thread. The buffer that was
    /// freed last, whose octets are most likely in the CPU's cache, is used first if DPDK's driver `stack` is loaded.
    pub(crate) fn uncached(
        eal: &Eal,
        name: &str,
        count: u32,
        data_room: u16,
    ) -> Result<Self, Error> {
        Self::create(eal, name, (count, data_room), |name, space| {
            // SAFETY: the EAL is started; the name is terminated.
            unsafe { sys::qw_create_stack_pool(name.as_ptr(), count, space) }
        })
    }

    /// Calls `create` with the name and the octets of each buffer, headroom included.
    fn create(
        eal: &Eal,
        name: &str,
        (count, data_room): (u32, u16),
        create: impl FnOnce(&CStr, u16) -> *mut sys::rte_mempool,
    ) -> Result<Self, Error> {
        let fail = |cause: String| Error::Mempool {
            name: name.to_owned(),
            count,
            cause,
        };
        if count > BUFFERS_MAX {
            return Err(fail(format!("too many (maximum: {BUFFERS_MAX})")));
        }
        let c_name =
            CString::new(name).map_err(|_| fail("the name contains a NUL character".to_owned()))?;
        let headroom = u16::try_from(sys::RTE_PKTMBUF_HEADROOM).unwrap_or(128);
        let space = data_room
            .checked_add(headroom)
            .ok_or_else(|| fail(format!("{data_room} octets per buffer are too many")))?;
        let pool = create(&c_name, space);
        let pool = NonNull::new(pool).ok_or_else(|| fail(error::last()))?;
        Ok(Self(Arc::new(MempoolInner {
            pool,
            count,
            data_room,
            eal: eal.clone(),
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

    pub(crate) fn eal(&self) -> &Eal {
        &self.0.eal
    }

    /// Returns the number of buffers in the pool. Others are in use, for example in rings and queues.
    #[must_use]
    pub fn available(&self) -> u32 {
        // SAFETY: the pool is alive.
        unsafe { sys::rte_mempool_avail_count(self.0.pool.as_ptr()) }
    }

    /// Returns the octets of its buffers by NUMA node, as [`octets_by_node`] estimates them. Empty if the kernel does not report nodes.
    pub(crate) fn octets_by_node(&self) -> BTreeMap<u32, u64> {
        let mut chunks: Vec<(usize, usize)> = Vec::new();
        // SAFETY: the pool is alive, and the callback gets the list, which nothing else uses meanwhile.
        unsafe {
            sys::rte_mempool_mem_iter(self.as_ptr(), Some(add_chunk), (&raw mut chunks).cast());
        }
        // Without huge pages of 1 GiB there may be many chunks. Each that is looked up stands for this number of chunks.
        let step = chunks.len().div_ceil(CHUNKS_MAX).max(1);
        let mut nodes = BTreeMap::new();
        for (start, len) in chunks.into_iter().step_by(step) {
            for (node, octets) in octets_by_node(start, len).unwrap_or_default() {
                let sum: &mut u64 = nodes.entry(node).or_default();
                *sum = sum.saturating_add(octets.saturating_mul(step as u64));
            }
        }
        nodes
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::rte_mempool {
        self.0.pool.as_ptr()
    }
}

/// Adds a part of a pool's memory to a list: its address and its octets.
unsafe extern "C" fn add_chunk(
    _pool: *mut sys::rte_mempool,
    chunks: *mut c_void,
    chunk: *mut sys::rte_mempool_memhdr,
    _index: c_uint,
) {
    // SAFETY: DPDK passes a part of the pool, and the list that `octets_by_node` gives it.
    let (chunks, chunk) = unsafe { (&mut *chunks.cast::<Vec<(usize, usize)>>(), &*chunk) };
    chunks.push((chunk.addr.addr(), chunk.len));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::eal;

    #[test]
    fn a_pool_of_too_many_buffers_is_refused() {
        let eal = eal();
        for count in [BUFFERS_MAX + 1, u32::MAX] {
            let error = Mempool::new(&eal, "too-many", count, 2048).unwrap_err();
            assert!(error.to_string().contains("too many"), "{error}");
        }
    }

    #[test]
    fn the_buffers_of_a_pool_are_on_nodes() {
        let eal = eal();
        let (count, data_room) = (1023, 2048);
        let pool = Mempool::new(&eal, "on-nodes", count, data_room).unwrap();
        let own = [1_u8; 4096];
        if octets_by_node(own.as_ptr().addr(), own.len()).is_ok() {
            let octets: u64 = pool.octets_by_node().values().sum();
            assert!(octets > u64::from(count) * u64::from(data_room), "{octets}");
        }
    }
}
