// SPDX-License-Identifier: Apache-2.0
//! Mappings of files that another process maps too.

#[cfg(miri)]
mod ordinary;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Whence, ftruncate, lseek64};

use crate::nodes::octets_by_node;
use crate::sigbus::Registration;
use crate::span::Span;
use crate::word;

/// Whether a file must be sealed against truncation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealing {
    /// Refuse a file that cannot be sealed.
    Required,
    /// Map a file even if it cannot be sealed: its owner is trusted not to truncate it.
    Trusted,
}

/// Reason why a file was not mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The file cannot be sealed against truncation (`F_SEAL_SHRINK`).
    #[error("shared memory cannot be sealed against truncation: {0}")]
    Unsealed(io::Error),
    /// The file cannot be mapped, or is shorter than its owner states.
    #[error("shared memory must be a file of at least {wanted} octets, but is {found}")]
    TooShort {
        /// Octets that the mapping requires.
        wanted: u64,
        /// Kind and size of the file.
        found: String,
    },
    /// The size is 0 or exceeds the address space, or the offset is not a multiple of the page size.
    #[error("shared memory of {len} octets at offset {offset} is out of range")]
    Range {
        /// Offset in the file.
        offset: u64,
        /// Octets.
        len: u64,
    },
    /// The process has more mappings of this kind than 256 ports.
    #[error("too many shared mappings in this process")]
    TooMany,
    /// The kernel refused the request.
    #[error("{call}: {error}")]
    System {
        /// The system call.
        call: &'static str,
        /// Error of the kernel.
        error: io::Error,
    },
}

/// Part of a file, mapped for reading and writing and shared with other processes. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    // Removed before the memory is unmapped (field order, and `drop` runs first: see below).
    registration: Option<Registration>,
    /// The whole mapping, made of whole pages.
    base: NonNull<u8>,
    base_len: usize,
    page: usize,
    /// The requested part.
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: memory shared with other processes, accessed through copies and atomics only; any thread may unmap it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates a file in memory of `len` octets (rounded up to whole pages), seals it against any change of its size, and
    /// maps it. `name` shows in `/proc/PID/maps`.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn create(name: &str, len: usize) -> Result<(Self, OwnedFd), MapError> {
        Self::create_with(name, len, MFdFlags::empty())
    }

    /// As [`Self::create`], in huge pages of 2 MiB.
    ///
    /// # Errors
    /// The error of the kernel, usually because too few huge pages are free.
    pub fn create_huge(name: &str, len: usize) -> Result<(Self, OwnedFd), MapError> {
        Self::create_with(name, len, MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB)
    }

    #[cfg(miri)]
    fn create_with(_: &str, len: usize, _: MFdFlags) -> Result<(Self, OwnedFd), MapError> {
        let range = || MapError::Range {
            offset: 0,
            len: len as u64,
        };
        let (base, len, page) = ordinary::allocate(len).ok_or_else(range)?;
        let mapping = Self {
            registration: None,
            base,
            base_len: len,
            page,
            start: base,
            len,
        };
        let file = ordinary::file().map_err(|error| MapError::System {
            call: "open",
            error,
        })?;
        Ok((mapping, file))
    }

    #[cfg(not(miri))]
    fn create_with(name: &str, len: usize, flags: MFdFlags) -> Result<(Self, OwnedFd), MapError> {
        let name = CString::new(name).unwrap_or_default();
        let file = memfd_create(
            name.as_c_str(),
            flags | MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC,
        )
        .map_err(system("memfd_create"))?;
        let page = page_size(&file)?;
        let range = || MapError::Range {
            offset: 0,
            len: len as u64,
        };
        let len = len.checked_next_multiple_of(page).ok_or_else(range)?;
        let octets = i64::try_from(len).map_err(|_| range())?;
        ftruncate(&file, octets).map_err(system("ftruncate"))?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(system("fcntl(F_ADD_SEALS)"))?;
        let mapping = Self::map(file.as_fd(), 0, len, page, MapFlags::MAP_POPULATE)?;
        Ok((mapping, file))
    }

    /// Maps `len` octets of a peer's file from `offset` on.
    ///
    /// The file is sealed against truncation before its size is read, so that the size cannot change afterwards.
    /// Faults in the mapping are caught in any case (see [`Self::has_faulted`]).
    ///
    /// # Errors
    /// [`MapError`]: the file cannot be sealed, is too short, or the kernel refuses.
    pub fn of_peer(
        file: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        sealing: Sealing,
    ) -> Result<Self, MapError> {
        if sealing == Sealing::Required {
            seal(file).map_err(MapError::Unsealed)?;
        } else {
            // Seals the file if that is possible; the owner is trusted otherwise.
            let _ = seal(file);
        }
        let status = fstat(file).map_err(system("fstat"))?;
        let range = || MapError::Range { offset, len };
        let end = offset
            .checked_add(len)
            .filter(|_| len > 0)
            .ok_or_else(range)?;
        let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
        let size = u64::try_from(status.st_size).unwrap_or(0);
        if kind != SFlag::S_IFREG || size < end {
            return Err(MapError::TooShort {
                wanted: end,
                found: match kind {
                    SFlag::S_IFREG => format!("a file of {size} octets"),
                    _ => "not a regular file".to_owned(),
                },
            });
        }
        let page = page_size(file)?;
        let offset = usize::try_from(offset).map_err(|_| range())?;
        let len = usize::try_from(len).map_err(|_| range())?;
        // Whole pages around the requested octets; a file in huge pages consists of whole ones.
        let start = align_down(offset, page);
        let before = offset.saturating_sub(start);
        let whole = before
            .checked_add(len)
            .and_then(|len| len.checked_next_multiple_of(page))
            .ok_or_else(range)?;
        let mut mapping = Self::map(file, start, whole, page, MapFlags::empty())?;
        // SAFETY: `before + len` octets are mapped.
        mapping.start = unsafe { mapping.base.add(before) };
        mapping.len = len;
        Ok(mapping)
    }

    fn map(
        file: BorrowedFd<'_>,
        offset: usize,
        len: usize,
        page: usize,
        flags: MapFlags,
    ) -> Result<Self, MapError> {
        let range = || MapError::Range {
            offset: offset as u64,
            len: len as u64,
        };
        let count = NonZeroUsize::new(len).ok_or_else(range)?;
        let at = i64::try_from(offset).map_err(|_| range())?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses an address range that nothing else uses.
        let base = unsafe { mmap(None, count, access, MapFlags::MAP_SHARED | flags, file, at) }
            .map_err(system("mmap"))?
            .cast::<u8>();
        let mut mapping = Self {
            registration: None,
            base,
            base_len: len,
            page,
            start: base,
            len,
        };
        // The memory of a guest does not belong in a core file of this process. Errors below unmap it.
        // SAFETY: the range is the mapping just made; the advice changes no contents.
        unsafe { madvise(base.cast(), len, MmapAdvise::MADV_DONTDUMP) }
            .map_err(system("madvise(MADV_DONTDUMP)"))?;
        // Dropped, and so unmapped, when there is no space.
        let registration = Registration::new(base.addr().get(), len, page);
        mapping.registration = Some(registration.ok_or(MapError::TooMany)?);
        Ok(mapping)
    }

    /// Returns the number of octets.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns false: a mapping has at least one octet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if an access found a page of the file missing. From then on the mapping differs from what its peer sees,
    /// and the connection that uses it must be closed.
    #[inline(always)]
    #[must_use]
    pub fn has_faulted(&self) -> bool {
        self.registration
            .as_ref()
            .is_some_and(Registration::has_faulted)
    }

    /// Returns its octets by NUMA node, as [`octets_by_node`] estimates them.
    ///
    /// # Errors
    /// Those of [`octets_by_node`].
    pub fn octets_by_node(&self) -> io::Result<BTreeMap<u32, u64>> {
        octets_by_node(self.base.addr().get(), self.base_len)
    }

    /// Returns `len` octets from `offset` on; `None` if they are not within the mapping.
    #[inline(always)]
    #[must_use]
    pub fn span(&self, offset: u64, len: usize) -> Option<Span<'_>> {
        let start = self.address(offset, len)?;
        // SAFETY: within this mapping, which is borrowed.
        Some(unsafe { Span::new(start, len) })
    }

    #[inline(always)]
    pub(crate) fn address(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let rest = (self.len as u64).checked_sub(offset)?;
        if len as u64 > rest {
            return None;
        }
        // SAFETY: within the mapping (checked).
        Some(unsafe { self.start.add(word::index(offset)) })
    }

    /// Fills the page tables for the pages that the file already has, from `offset` on, so that the first access to each
    /// causes no page fault. Does not allocate pages that the file lacks. Stops after `limit` octets; returns the offset at
    /// which to continue, or `None` at the end.
    ///
    /// `file` is the mapped file, and `file_offset` the offset at which the mapping begins in it.
    #[must_use]
    pub fn populate_present(
        &self,
        file: BorrowedFd<'_>,
        file_offset: u64,
        offset: u64,
        limit: usize,
    ) -> Option<u64> {
        let end = self.len as u64;
        let seek = |at: u64, whence| {
            let at = i64::try_from(file_offset.checked_add(at)?).ok()?;
            let found = lseek64(file, at, whence).ok()?;
            Some(u64::try_from(found).ok()?.saturating_sub(file_offset))
        };
        let data = seek(offset, Whence::SeekData).filter(|data| *data < end)?;
        let hole = seek(data, Whence::SeekHole)
            .unwrap_or(end)
            .min(end)
            .min(data.saturating_add(limit as u64));
        // `data` and `hole` are within the mapping.
        let start = align_down(self.address(data, 0)?.addr().get(), self.page);
        let stop = self.address(hole, 0)?.addr().get();
        let stop = stop.checked_next_multiple_of(self.page)?;
        let stop = stop.min(self.base.addr().get().checked_add(self.base_len)?);
        let start = NonNull::new(start as *mut libc::c_void)?;
        let len = stop.saturating_sub(start.addr().get());
        // SAFETY: whole pages of this mapping; the advice does not change their contents. Older kernels refuse it.
        let _ = unsafe { madvise(start, len, MmapAdvise::MADV_POPULATE_WRITE) };
        (hole < end && hole > offset).then_some(hole)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The handler must not access the addresses once they may be mapped again.
        self.registration = None;
        #[cfg(miri)]
        // SAFETY: allocated by `create_with`, the only constructor that Miri runs; nothing borrows it any more.
        unsafe {
            ordinary::free(self.base, self.base_len);
        }
        #[cfg(not(miri))]
        // SAFETY: the whole mapping, which nothing borrows any more.
        let _ = unsafe { munmap(self.base.cast(), self.base_len) };
    }
}

/// Returns the start of the page that contains an offset or address. Pages have at least one octet.
fn align_down(at: usize, page: usize) -> usize {
    at.saturating_sub(at.checked_rem(page).unwrap_or(0))
}

/// Seals a file against truncation.
fn seal(file: BorrowedFd<'_>) -> io::Result<()> {
    let Err(error) = fcntl(file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)) else {
        return Ok(());
    };
    // Already sealed, including against further seals.
    let seals = fcntl(file, FcntlArg::F_GET_SEALS).unwrap_or(0);
    if SealFlag::from_bits_truncate(seals).contains(SealFlag::F_SEAL_SHRINK) {
        return Ok(());
    }
    Err(error.into())
}

/// Returns the page size of a file, octets: the huge page size for a file on hugetlbfs (`st_blksize`), otherwise the
/// system's page size. On other file systems `st_blksize` is the block size.
fn page_size(file: impl AsFd) -> Result<usize, MapError> {
    const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;
    let file = file.as_fd();
    // SAFETY: a structure of integers for which zero is a value; the descriptor is open.
    let (code, status) = unsafe {
        let mut status: libc::statfs = std::mem::zeroed();
        (libc::fstatfs(file.as_raw_fd(), &raw mut status), status)
    };
    if code != 0 {
        return Err(system("fstatfs")(Errno::last()));
    }
    #[allow(clippy::useless_conversion)] // Its type differs between C libraries.
    if i64::from(status.f_type) == HUGETLBFS_MAGIC {
        return Ok(usize::try_from(status.f_bsize).unwrap_or(0).max(4096));
    }
    // SAFETY: a call without preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(usize::try_from(page).unwrap_or(4096))
}

fn system(call: &'static str) -> impl FnOnce(Errno) -> MapError {
    move |errno| MapError::System {
        call,
        error: errno.into(),
    }
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
