// SPDX-License-Identifier: Apache-2.0
//! The line between the control thread and a forwarding thread, as in `crates/switch`, and what depends on it: ports that are detached
//! while threads use them, and memory of tables that is used again once all threads have replied.

#[cfg(test)]
#[allow(dead_code, reason = "some functions are for the switch only")]
#[path = "../../../crates/switch/src/forward/line.rs"]
mod line;
#[cfg(test)]
mod sync;
#[cfg(test)]
mod tests;
