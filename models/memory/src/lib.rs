// SPDX-License-Identifier: Apache-2.0
//! The interface of `crates/memory` under a model checker: shared memory whose words are atomics of loom, and whose octets are cells that
//! report two accesses which nothing orders.
//!
//! The sources of `crates/memif`, `crates/vhost` and `crates/tables` are compiled against this crate without a change, and their tests run
//! in every order that the memory model allows. [`found`] weakens all accesses and shows that a model finds what that breaks.
//!
//! Two differences from C++'s memory model: a word that both ends access with different widths is as many words as the narrower width
//! makes of it; and an operation with `SeqCst` is one between two `SeqCst` fences, because loom knows that ordering for fences only.

pub mod atomic;
mod memory;
mod plant;
mod slice;
#[path = "../../../crates/memory/src/slot_buffer.rs"]
mod slot_buffer;
mod span;

pub use memory::{MapError, Mapping};
pub use plant::Defect;
pub use slice::{SharedSlice, Word};
pub use slot_buffer::SlotBuffer;
pub use span::Span;

/// Size of a cache line, octets.
pub const CACHE_LINE: usize = 64;

/// Returns true for a length that is copied without a call.
#[must_use]
pub fn is_short(length: usize) -> bool {
    (16..=128).contains(&length)
}

/// No effect.
pub fn prefetch<T>(_value: &T) {}

/// No effect.
pub fn prefetch_address(_address: *const u8) {}

/// No effect.
pub fn prefer_huge_pages<T>(_memory: &[T]) -> bool {
    true
}

/// Returns the message of the panic with which a model finds a planted defect.
///
/// # Panics
/// If no order panics: the model does not see what the defect breaks.
#[must_use]
#[expect(clippy::panic, reason = "part of a test")]
pub fn found(defect: Defect, model: impl Fn() + Send + Sync + 'static) -> String {
    let run = std::panic::AssertUnwindSafe(|| plant::with(defect, || check(model)));
    match std::panic::catch_unwind(run) {
        Ok(()) => panic!("the model does not find {defect:?}"),
        Err(payload) => match payload.downcast::<String>() {
            Ok(message) => *message,
            Err(other) => other
                .downcast::<&str>()
                .map_or_else(|_| String::new(), |message| (*message).to_owned()),
        },
    }
}

/// Runs a model in every order with at most three preemptions, or as many as `LOOM_MAX_PREEMPTIONS` states. Two or three are usually
/// enough to find a defect.
///
/// # Panics
/// In an order in which the model panics.
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    check_with(3, model);
}

/// Starts a thread of a model with space for rings on its stack.
///
/// # Panics
/// Outside a model.
pub fn spawn<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> loom::thread::JoinHandle<T> {
    /// Words.
    const STACK: usize = 1 << 16;
    match loom::thread::Builder::new().stack_size(STACK).spawn(f) {
        Ok(thread) => thread,
        Err(error) => unreachable!("{error}"),
    }
}

/// Runs a model like [`check`], with another default.
///
/// # Panics
/// In an order in which the model panics.
pub fn check_with(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let model = std::sync::Arc::new(model);
    let mut builder = loom::model::Builder::new();
    builder.max_branches = builder.max_branches.max(100_000);
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(move || {
        let model = std::sync::Arc::clone(&model);
        spawn(move || model()).join().unwrap_or_default();
    });
}
