// SPDX-License-Identifier: Apache-2.0
//! Log lines of DPDK and of the libraries of its drivers. They go to this program's log, and the last ones into the error of the
//! failed operation.

use std::collections::VecDeque;
use std::ffi::c_char;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::sys;

/// Environment variable with the level of DPDK's log. If set, the lines are logged at level info instead of debug.
const LEVEL: &str = "QUIETWIRE_DPDK_LOG";
const LEVEL_DEFAULT: &str = "warning";
/// Number of lines kept for errors.
const LINES_KEPT: usize = 64;
/// Maximum number of lines in one error.
const LINES_REPORTED: usize = 3;

#[derive(Debug, Default)]
struct Lines {
    last: VecDeque<String>,
    /// Number of lines since the start.
    count: usize,
}

static LINES: Mutex<Lines> = Mutex::new(Lines {
    last: VecDeque::new(),
    count: 0,
});

/// Returns the level of DPDK's log.
pub(crate) fn level() -> String {
    std::env::var(LEVEL).unwrap_or_else(|_| LEVEL_DEFAULT.to_owned())
}

/// Redirects DPDK's lines to this module. Call it before the EAL is started.
pub(crate) fn open() {
    // SAFETY: `take` is a function of this program and accepts any text of the stated length.
    let code = unsafe { sys::qw_log_to(Some(take)) };
    if code != 0 {
        let cause = crate::error::text(code);
        tracing::warn!("cannot redirect DPDK's log, so it is printed on the terminal: {cause}");
    }
}

/// Redirects the lines of libraries of drivers to this module. Call it after the drivers are loaded.
pub(crate) fn open_libraries() {
    // SAFETY: `take` was registered before; libraries that are not loaded are skipped.
    unsafe { sys::qw_log_libraries() };
}

/// A point in time. Errors report the lines logged after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(usize);

impl Mark {
    /// Returns the current point in time.
    pub(crate) fn now() -> Self {
        Self(lock().count)
    }

    /// Returns the last lines since then, in parentheses and with a space in front; nothing if there are none.
    pub(crate) fn message(self) -> String {
        let lines = lock();
        let new = lines.count.saturating_sub(self.0).min(LINES_REPORTED);
        let skipped = lines.last.len().saturating_sub(new);
        let reported: Vec<&str> = lines
            .last
            .iter()
            .skip(skipped)
            .map(String::as_str)
            .collect();
        match reported.is_empty() {
            true => String::new(),
            false => format!(" (DPDK: {})", reported.join("; ")),
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(line: &str) {
    static IS_SHOWN: LazyLock<bool> = LazyLock::new(|| std::env::var_os(LEVEL).is_some());
    let line = line.trim();
    if line.is_empty() {
        return;
    }
    if *IS_SHOWN {
        tracing::info!("DPDK: {line}");
    } else {
        tracing::debug!("DPDK: {line}");
    }
    let mut lines = lock();
    lines.count = lines.count.saturating_add(1);
    if lines.last.len() == LINES_KEPT {
        lines.last.pop_front();
    }
    lines.last.push_back(line.to_owned());
}

/// Logs the text of a library, usually whole lines.
unsafe extern "C" fn take(text: *const c_char, length: usize) {
    // SAFETY: the shim passes a valid length, and the text stays valid during the call.
    let octets = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    String::from_utf8_lossy(octets).lines().for_each(note);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_last_lines_since_a_moment() {
        // Lines of other tests may come between: these are recognised.
        note("before");
        let mark = Mark::now();
        let lines = ["one\n\ntwo", "three", "four"];
        for text in lines {
            // SAFETY: as many octets as there are.
            unsafe { take(text.as_ptr().cast(), text.len()) };
        }
        let message = mark.message();
        assert!(
            message.starts_with(" (DPDK: ") && message.contains("four"),
            "{message}"
        );
        assert!(
            !message.contains("before") && !message.contains("one;"),
            "{message}"
        );
        for number in 0..2 * LINES_KEPT {
            note(&format!("line {number}"));
        }
        assert_eq!(lock().last.len(), LINES_KEPT);
        assert_eq!(Mark::now().message(), "");
    }
}
