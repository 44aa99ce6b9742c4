// SPDX-License-Identifier: Apache-2.0
//! Atomics of loom with the interface of `std::sync::atomic`, on their own or in shared memory.

use std::fmt;
use std::sync::Arc;
pub use std::sync::atomic::Ordering;

use crate::memory::Memory;
use crate::plant;

/// A fence, unless a defect removes it.
pub fn fence(order: Ordering) {
    if plant::has_fences() {
        loom::sync::atomic::fence(order);
    }
}

/// Executes an operation between two fences if its ordering is `SeqCst`.
fn ordered<T>(order: Ordering, operation: impl FnOnce() -> T) -> T {
    let is_total = order == Ordering::SeqCst;
    if is_total {
        fence(order);
    }
    let result = operation();
    if is_total {
        fence(order);
    }
    result
}

/// Location of a word.
enum Location {
    Own(loom::sync::atomic::AtomicU64),
    Shared(Arc<Memory>, u64),
}

impl Location {
    fn load(&self, octets: u32, order: Ordering) -> u64 {
        ordered(order, || match self {
            Self::Own(word) => word.load(plant::for_load(order)),
            Self::Shared(memory, at) => memory.load(*at, octets, plant::for_load(order)),
        })
    }

    fn store(&self, octets: u32, value: u64, order: Ordering) {
        ordered(order, || match self {
            Self::Own(word) => word.store(value, plant::for_store(order)),
            Self::Shared(memory, at) => {
                memory.store(*at, octets, value, plant::for_store(order));
            }
        });
    }

    fn swap(&self, octets: u32, value: u64, order: Ordering) -> u64 {
        ordered(order, || match self {
            Self::Own(word) => word.swap(value, plant::for_change(order)),
            Self::Shared(memory, at) => memory.swap(*at, octets, value, plant::for_change(order)),
        })
    }
}

macro_rules! atomics {
    ($($name:ident: $word:ty),*) => {$(
        /// An atomic of loom.
        pub struct $name(Location);

        impl $name {
            const OCTETS: u32 = <$word>::BITS / 8;

            /// Creates an atomic on its own.
            #[must_use]
            pub fn new(value: $word) -> Self {
                Self(Location::Own(loom::sync::atomic::AtomicU64::new(value.into())))
            }

            pub(crate) fn at(memory: &Arc<Memory>, at: u64) -> Self {
                Self(Location::Shared(Arc::clone(memory), at))
            }

            /// Loads the value.
            pub fn load(&self, order: Ordering) -> $word {
                self.0.load(Self::OCTETS, order) as $word
            }

            /// Stores a value.
            pub fn store(&self, value: $word, order: Ordering) {
                self.0.store(Self::OCTETS, value.into(), order);
            }

            /// Stores a value and returns the former one.
            pub fn swap(&self, value: $word, order: Ordering) -> $word {
                self.0.swap(Self::OCTETS, value.into(), order) as $word
            }

            /// Sets bits, and returns the former value. No model has two threads that set bits of one word.
            pub fn fetch_or(&self, bits: $word, order: Ordering) -> $word {
                let former = self.load(Ordering::Relaxed);
                self.swap(former | bits, order)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}
atomics!(AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64);
