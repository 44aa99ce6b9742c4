// SPDX-License-Identifier: Apache-2.0
//! The start of processes. Tests replace it for their thread by a hook.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::process::Child;
use std::rc::Rc;

/// A hook before and after the start of each process, for tests.
pub trait SpawnHook {
    /// Returns the words of the command that is started in place of these.
    ///
    /// # Errors
    /// The process is not started, and the start returns this error.
    fn before(&self, words: &[OsString]) -> io::Result<Vec<OsString>>;

    /// Receives a process that was just started and is not reaped.
    fn after(&self, child: &Child);
}

thread_local! {
    /// The hook of this thread. Only tests set one.
    static HOOK: RefCell<Option<Rc<dyn SpawnHook>>> = const { RefCell::new(None) };
}

/// Restores the former hook when it is dropped.
struct Former(Option<Rc<dyn SpawnHook>>);

impl Drop for Former {
    fn drop(&mut self) {
        HOOK.set(self.0.take());
    }
}

/// Runs `work` with a hook for all processes that this thread starts.
pub fn with_spawn_hook<T>(hook: Rc<dyn SpawnHook>, work: impl FnOnce() -> T) -> T {
    let _former = Former(HOOK.replace(Some(hook)));
    work()
}

/// Starts a process by `start`, with the hook of this thread if it has one.
pub(super) fn spawn(
    words: &[OsString],
    start: impl FnOnce(&[OsString]) -> io::Result<Child>,
) -> io::Result<Child> {
    let Some(hook) = HOOK.with_borrow(Clone::clone) else {
        return start(words);
    };
    let child = start(&hook.before(words)?)?;
    hook.after(&child);
    Ok(child)
}
