// SPDX-License-Identifier: Apache-2.0
//! The log of pages that the device wrote to, for live migration (vhost-user, "Migration").
//!
//! A bitmap in memory that the front end shares: bit `n % 8` of octet `n / 8` stands for the page of 4 KiB that begins at
//! guest address `4096 * n`. The front end reads and clears it while the device sets bits.

use std::sync::Arc;

use quietwire_memory::atomic::{AtomicU8, Ordering};
use quietwire_memory::{Mapping, SharedSlice};

/// Octets of a page of the log (`VHOST_LOG_PAGE`).
pub const LOG_PAGE: u64 = 4096;
/// Maximum number of pages marked at once: more than the longest frame or ring covers.
const PAGES_MAX: usize = 256;

/// A log of pages. Clones share it.
#[derive(Clone, Debug)]
pub struct DirtyLog {
    bitmap: Arc<SharedSlice<AtomicU8>>,
}

impl DirtyLog {
    /// Returns the log of `len` octets from `offset` on; `None` if they are not within the mapping.
    #[must_use]
    pub fn new(mapping: &Arc<Mapping>, offset: u64, len: u64) -> Option<Self> {
        let bitmap = SharedSlice::new(mapping, offset, usize::try_from(len).ok()?)?;
        Some(Self {
            bitmap: Arc::new(bitmap),
        })
    }

    /// Marks the pages of `len` octets from a guest address on, after they were written. Ignores pages beyond the log, and a
    /// log that its owner truncated.
    pub fn mark(&self, guest: u64, len: u64) {
        let Some(last) = len.checked_sub(1).and_then(|last| guest.checked_add(last)) else {
            return;
        };
        let first = guest / LOG_PAGE;
        for page in (first..=last / LOG_PAGE).take(PAGES_MAX) {
            let octet = usize::try_from(page / 8).ok();
            if let Some(octet) = octet.and_then(|octet| self.bitmap.get(octet)) {
                // The previous write must be visible to a front end that clears the bit and copies the page.
                octet.fetch_or(1 << (page % 8), Ordering::SeqCst);
            }
        }
    }

    /// Returns true if an access found a page of the log missing.
    #[must_use]
    pub fn has_faulted(&self) -> bool {
        self.bitmap.mapping().has_faulted()
    }
}

/// The log of one ring.
#[derive(Debug, Default)]
pub struct RingLog {
    log: Option<DirtyLog>,
    /// True if there is a log and it is enabled.
    is_on: bool,
    /// Guest address of the memory that the device writes to: used ring, or descriptors of a packed ring.
    ring: u64,
    /// Guest address of the device's event suppression structure (packed).
    event: u64,
}

impl RingLog {
    pub(crate) fn new(log: Option<DirtyLog>, is_on: bool, ring: u64, event: u64) -> Self {
        Self {
            is_on: is_on && log.is_some(),
            log,
            ring,
            event,
        }
    }

    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(crate) fn switch(&mut self, is_on: bool) {
        self.is_on = is_on && self.log.is_some();
    }

    pub(crate) fn replace(&mut self, log: Option<DirtyLog>) {
        self.is_on &= log.is_some();
        self.log = log;
    }

    pub(crate) fn has_faulted(&self) -> bool {
        self.log.as_ref().is_some_and(DirtyLog::has_faulted)
    }

    /// Marks octets of the ring.
    #[inline(always)]
    pub(crate) fn mark_ring(&self, offset: u64, len: u64) {
        if self.is_on {
            self.mark(self.ring.wrapping_add(offset), len);
        }
    }

    /// Marks the device's event suppression structure.
    #[inline(always)]
    pub(crate) fn mark_event(&self, len: u64) {
        if self.is_on {
            self.mark(self.event, len);
        }
    }

    /// Marks octets at a guest address.
    #[cold]
    pub(crate) fn mark(&self, guest: u64, len: u64) {
        if let Some(log) = &self.log {
            log.mark(guest, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_has_its_bit_and_none_is_beyond_the_log() {
        let (mapping, _file) = Mapping::create("quietwire-test", 4096).unwrap();
        let mapping = Arc::new(mapping);
        let log = DirtyLog::new(&mapping, 8, 4).unwrap();
        log.mark(4095, 2);
        log.mark(LOG_PAGE * 9, 1);
        log.mark(LOG_PAGE * 31, LOG_PAGE * 5);
        log.mark(u64::MAX, 5);
        log.mark(0x7fff_ffff_ffff_f000, 4096);
        log.mark(LOG_PAGE * 12, 0);
        let octets = mapping.span(0, 32).unwrap().read_array::<32>().unwrap();
        let mut expected = [0; 32];
        expected[8] = 0b11;
        expected[9] = 0b10;
        expected[11] = 0x80;
        assert_eq!(octets, expected);
        assert!(DirtyLog::new(&mapping, 0, 4097).is_none());
    }
}
