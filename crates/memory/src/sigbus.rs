// SPDX-License-Identifier: Apache-2.0
//! Handler for page faults in shared memory.
//!
//! If another process truncates a file that is mapped here, or the file system has no space for a page, the next access
//! raises SIGBUS (mmap(2)). The handler replaces the missing page with an empty private page and marks the mapping; the
//! access is then repeated and succeeds. The owner of the mapping checks the mark and unmaps it.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use nix::libc;

/// Ports of a switch.
const PORTS: usize = 256;
/// Mappings of a port: 32 regions, dirty page log and inflight area of a connection, a new table of regions, and two former connections.
const MAPPINGS_OF_PORT: usize = 4 * (32 + 2);
/// Maximum number of mappings: those of all ports, so that the peers of some leave space to those of others.
const MAPPINGS_MAX: usize = PORTS * MAPPINGS_OF_PORT;

/// A mapping that the handler knows.
struct Entry {
    /// First octet; 0 when the entry is free.
    start: AtomicUsize,
    /// Octets.
    len: AtomicUsize,
    /// Page size, octets.
    page: AtomicUsize,
    has_faulted: AtomicBool,
}

static ENTRIES: [Entry; MAPPINGS_MAX] = [const {
    Entry {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        has_faulted: AtomicBool::new(false),
    }
}; MAPPINGS_MAX];
/// Upper bound of the indices in use.
static ENTRIES_END: AtomicUsize = AtomicUsize::new(0);
static REGISTRATION: Mutex<()> = Mutex::new(());

/// The previous handler, for faults elsewhere: its address and flags.
static FORMER_HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static FORMER_FLAGS: AtomicUsize = AtomicUsize::new(0);
static INSTALL: Once = Once::new();

/// The entry of a mapping that the handler knows. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Registration(usize);

impl Registration {
    /// Registers a mapping that no thread uses yet. Returns `None` if there are too many.
    pub(crate) fn new(start: usize, len: usize, page: usize) -> Option<Self> {
        INSTALL.call_once(install);
        let _one_at_a_time = REGISTRATION.lock().unwrap_or_else(PoisonError::into_inner);
        let index = ENTRIES
            .iter()
            .position(|entry| entry.start.load(Ordering::Relaxed) == 0)?;
        let entry = ENTRIES.get(index)?;
        entry.len.store(len, Ordering::Relaxed);
        entry.page.store(page, Ordering::Relaxed);
        entry.has_faulted.store(false, Ordering::Relaxed);
        entry.start.store(start, Ordering::Release);
        ENTRIES_END.fetch_max(index.saturating_add(1), Ordering::Release);
        Some(Self(index))
    }

    /// Returns true if an access has found a page missing since the registration.
    #[inline(always)]
    pub(crate) fn has_faulted(&self) -> bool {
        ENTRIES
            .get(self.0)
            .is_some_and(|entry| entry.has_faulted.load(Ordering::Relaxed))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(entry) = ENTRIES.get(self.0) {
            entry.start.store(0, Ordering::Release);
        }
    }
}

/// Returns the bits of a field of flags.
const fn bits(flags: libc::c_int) -> usize {
    flags.cast_unsigned() as usize
}

fn install() {
    // SAFETY: structures of integers for which zero is a value; the handler makes no call that is not async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let mut former: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, &raw const action, &raw mut former) == 0 {
            FORMER_FLAGS.store(bits(former.sa_flags), Ordering::Relaxed);
            FORMER_HANDLER.store(former.sa_sigaction, Ordering::Release);
        }
    }
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid structure; the thread's errno is its own.
    let (address, errno) = unsafe { ((*info).si_addr() as usize, *libc::__errno_location()) };
    let is_repaired = map_zeros(address);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if !is_repaired {
        defer_to_former(signal, info, context);
    }
}

/// Replaces the page of an address with an empty one, if the address belongs to a registered mapping.
fn map_zeros(address: usize) -> bool {
    let end = ENTRIES_END.load(Ordering::Acquire).min(MAPPINGS_MAX);
    for entry in ENTRIES.iter().take(end) {
        let start = entry.start.load(Ordering::Acquire);
        let offset = address.checked_sub(start).filter(|_| start != 0);
        if offset.is_none_or(|offset| offset >= entry.len.load(Ordering::Relaxed)) {
            continue;
        }
        let page = entry.page.load(Ordering::Relaxed).max(1);
        let first = address.saturating_sub(address.checked_rem(page).unwrap_or_default());
        entry.has_faulted.store(true, Ordering::Relaxed);
        // SAFETY: the page belongs to a registered mapping, which consists of whole pages of this size; its contents are
        // already lost. A system call without a wrapper is async-signal-safe.
        let mapped = unsafe {
            libc::syscall(
                libc::SYS_mmap,
                first,
                page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        return mapped != -1;
    }
    false
}

/// Passes a fault outside all registered mappings to the previous handler, or terminates the process.
fn defer_to_former(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let handler = FORMER_HANDLER.load(Ordering::Acquire);
    let flags = FORMER_FLAGS.load(Ordering::Relaxed);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: async-signal-safe; the access is repeated with the default action in place.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
        return;
    }
    // SAFETY: the address is that of the handler that sigaction(2) gave, with this signature by its flags.
    unsafe {
        if flags & bits(libc::SA_SIGINFO) != 0 {
            let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                mem::transmute(handler);
            call(signal, info, context);
        } else {
            let call: extern "C" fn(libc::c_int) = mem::transmute(handler);
            call(signal);
        }
    }
}

// Miri has no signals.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn peers_with_many_regions_leave_space_to_others() {
        // Ten per port, at addresses that no access of a process has.
        let known: Vec<Option<Registration>> = (1..=10 * PORTS)
            .map(|number| Registration::new(usize::MAX - number * 4096, 4096, 4096))
            .collect();
        assert!(known.iter().all(Option::is_some));
        assert!(known.iter().flatten().all(|one| !one.has_faulted()));
    }
}
