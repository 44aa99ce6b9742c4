// SPDX-License-Identifier: Apache-2.0
//! Pools of packet buffers.

use std::ffi::CString;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::eal::Eal;
use crate::error::{self, Error};
use crate::sys::{self, field};

/// Buffers in the cache of each thread (RTE_MEMPOOL_CACHE_MAX_SIZE is 512).
const CACHE_SIZE: u32 = 256;
/// Place of the port in [`field::first_fields`].
const PORT: usize = 3;
/// Port of a buffer that is not a driver's. DPDK gives ports numbers below RTE_MAX_ETHPORTS, and a buffer that a driver takes from a pool
/// RTE_MBUF_PORT_INVALID, the largest number (rte_pktmbuf_reset).
const NOT_A_DRIVERS: u16 = u16::MAX - 1;

/// Marks a buffer as one that a driver has given back: with a frame, or into its pool.
///
/// # Safety
/// The caller owns `mbuf`, alone.
#[inline(always)]
pub(crate) unsafe fn mark_given_back(mbuf: *mut sys::rte_mbuf) {
    // SAFETY: the caller owns the buffer.
    unsafe { (*field::first_fields(mbuf))[PORT] = NOT_A_DRIVERS };
}

/// Pools of closed ports that could not be freed yet, because frames in their buffers were in use.
static RETIRED: Mutex<Vec<Retired>> = Mutex::new(Vec::new());

/// A pool that nothing takes buffers from any more.
#[derive(Debug)]
struct Retired {
    pool: NonNull<sys::rte_mempool>,
    count: u32,
}

// SAFETY: rte_mempool is designed for use from many threads at once (multi-producer, multi-consumer).
unsafe impl Send for Retired {}

impl Retired {
    /// Frees the pool if every buffer has been returned, because a burst may still hold one. Returns false if it stays.
    fn free(&self) -> bool {
        // SAFETY: the pool is alive; nothing refers to it if all its buffers are there.
        unsafe {
            let is_whole = sys::rte_mempool_avail_count(self.pool.as_ptr()) == self.count;
            if is_whole {
                sys::rte_mempool_free(self.pool.as_ptr());
            }
            is_whole
        }
    }

    /// Takes back the buffers that AF_XDP sockets had when they were closed: all buffers that a driver has taken from the pool and that it has
    /// not given back. No thread has a cache of this pool.
    fn reclaim(&self) {
        let (pool, count) = (self.pool.as_ptr(), self.count as usize);
        let mut buffers = Vec::with_capacity(count);
        let mut free = ptr::null_mut();
        // SAFETY: the pool is alive; there is space for one buffer, which is this function's then.
        while buffers.len() < count && unsafe { sys::qw_take_bulk(pool, &raw mut free, 1) } == 0 {
            // SAFETY: just taken.
            unsafe { mark_given_back(free) };
            buffers.push(free);
        }
        let rest = count - buffers.len();
        let mut lost = vec![ptr::null_mut(); rest];
        // SAFETY: there is space for as many buffers; nothing takes buffers from the pool any more.
        let found = unsafe { sys::qw_without_port(pool, lost.as_mut_ptr(), rest as u32) };
        buffers.extend(lost.into_iter().take(found as usize));
        // SAFETY: the buffers are those taken above, and others that only the closed sockets had.
        unsafe { sys::qw_free_bulk(buffers.as_mut_ptr(), buffers.len() as u32) };
    }
}

#[derive(Debug)]
struct MempoolInner {
    pool: NonNull<sys::rte_mempool>,
    count: u32,
    data_room: u16,
    /// Ports with AF_XDP sockets that use the buffers; none if the pool may have caches or other users.
    xdp_ports: Option<AtomicU32>,
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
        Self::with_cache(eal, name, (count, CACHE_SIZE), data_room, None)
    }

    /// Creates a pool for `af-xdp` ports alone. DPDK's driver loses the buffers that the kernel has when a port is closed. This pool takes
    /// them back. Its buffers are in no thread's cache, because only then all free ones can be found.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn for_xdp(eal: &Eal, name: &str, count: u32, data_room: u16) -> Result<Self, Error> {
        let ports = Some(AtomicU32::new(0));
        Self::with_cache(eal, name, (count, 0), data_room, ports)
    }

    /// Creates a pool whose buffers are in no thread's cache, so that each is available to every thread: a pool of few buffers.
    pub(crate) fn uncached(
        eal: &Eal,
        name: &str,
        count: u32,
        data_room: u16,
    ) -> Result<Self, Error> {
        Self::with_cache(eal, name, (count, 0), data_room, None)
    }

    fn with_cache(
        eal: &Eal,
        name: &str,
        (count, cache): (u32, u32),
        data_room: u16,
        xdp_ports: Option<AtomicU32>,
    ) -> Result<Self, Error> {
        let fail = |cause: String| Error::Mempool {
            name: name.to_owned(),
            count,
            cause,
        };
        free_retired();
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
            xdp_ports,
            _eal: eal.clone(),
        })))
    }

    /// Notes that the sockets of a port use buffers of the pool.
    pub(crate) fn begin_xdp(&self) {
        if let Some(ports) = &self.0.xdp_ports {
            ports.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that all sockets of a port are closed, and that the kernel writes to no buffer of theirs any more.
    pub(crate) fn end_xdp(&self) {
        if let Some(ports) = &self.0.xdp_ports {
            ports.fetch_sub(1, Ordering::Relaxed);
        }
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
        let pool = Retired {
            pool: self.pool,
            count: self.count,
        };
        // While a socket may be open, the kernel may write to its buffers.
        let ports = self.xdp_ports.as_mut().map(AtomicU32::get_mut);
        if ports.is_some_and(|ports| *ports == 0) {
            pool.reclaim();
        }
        if !pool.free() {
            retired().push(pool);
        }
    }
}

fn retired() -> std::sync::MutexGuard<'static, Vec<Retired>> {
    RETIRED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees pools of closed ports whose buffers have been returned meanwhile.
fn free_retired() {
    retired().retain(|pool| !pool.free());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::burst::{self, Mbuf};
    use crate::testing;

    const BUFFERS: u32 = 511;

    fn exists(name: &str) -> bool {
        let name = CString::new(name).unwrap();
        // SAFETY: the name is terminated.
        unsafe { !sys::rte_mempool_lookup(name.as_ptr()).is_null() }
    }

    /// Takes buffers as a driver does that gives them to the kernel and forgets them.
    fn lose(pool: &Mempool, count: usize) {
        let mut mbufs = vec![ptr::null_mut(); count];
        assert!(burst::allocate(pool, &mut mbufs));
    }

    #[test]
    fn buffers_that_a_driver_loses_are_taken_back_once_its_sockets_are_closed() {
        let eal = testing::eal();
        let pool = Mempool::for_xdp(&eal, "lost", BUFFERS, 256).unwrap();
        pool.begin_xdp();
        lose(&pool, 300);
        // A frame that was received, and one whose buffer is free again.
        let received = Mbuf::new(&eal, &pool, &[1; 100]).unwrap();
        // SAFETY: the buffer is owned and not shared.
        unsafe { mark_given_back(received.mbuf) };
        drop(Mbuf::new(&eal, &pool, &[2; 100]));
        assert_eq!(pool.available(), BUFFERS - 301);
        pool.end_xdp();
        drop(pool);
        // The pool stays while a frame is in use.
        assert!(exists("lost"));
        assert!(received.octets() == [1; 100]);
        drop(received);
        let _next = Mempool::new(&eal, "next", 15, 256).unwrap();
        assert!(!exists("lost"));
    }

    #[test]
    fn a_pool_stays_while_a_socket_may_be_open() {
        let eal = testing::eal();
        for (name, is_lost) in [("kept", true), ("whole", false)] {
            let pool = Mempool::for_xdp(&eal, name, BUFFERS, 256).unwrap();
            pool.begin_xdp();
            if is_lost {
                lose(&pool, 1);
            }
            drop(pool);
            assert_eq!(exists(name), is_lost);
        }
    }
}
