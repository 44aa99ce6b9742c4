// SPDX-License-Identifier: Apache-2.0
//! Maps whose keys and values have sizes that are known at compile time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::bpf;

/// A map whose keys have `KEY` octets and whose values have `VALUE` octets.
#[derive(Debug)]
pub(crate) struct Table<const KEY: usize, const VALUE: usize>(OwnedFd);

fn size(octets: usize) -> io::Result<u32> {
    u32::try_from(octets).map_err(io::Error::other)
}

impl<const KEY: usize, const VALUE: usize> Table<KEY, VALUE> {
    /// Creates a hash table for at most `entries` keys. `name` is that which `bpftool` shows, of at most 15 octets.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn hash(name: &str, entries: u32) -> io::Result<Self> {
        let sizes = [size(KEY)?, size(VALUE)?, entries];
        bpf::hash_map(name, sizes).map(Self)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// The kernel's error, such as E2BIG if the table is full.
    pub(crate) fn set(&self, key: [u8; KEY], value: [u8; VALUE]) -> io::Result<()> {
        // SAFETY: the map was created with these sizes.
        unsafe { bpf::set_value(self.as_fd(), &key, &value) }
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn get(&self, key: [u8; KEY]) -> io::Result<Option<[u8; VALUE]>> {
        let mut value = [0; VALUE];
        // SAFETY: the map was created with these sizes.
        let is_found = unsafe { bpf::value(self.as_fd(), &key, &mut value) }?;
        Ok(is_found.then_some(value))
    }

    /// Removes a key. Returns false if the table does not have it.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn remove(&self, key: [u8; KEY]) -> io::Result<bool> {
        // SAFETY: the map was created with keys of this size.
        unsafe { bpf::remove_key(self.as_fd(), &key) }
    }
}

impl<const VALUE: usize> Table<4, VALUE> {
    /// Creates an array, whose keys are numbers below `entries`.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn array(name: &str, entries: u32) -> io::Result<Self> {
        bpf::array_map(name, size(VALUE)?, entries).map(Self)
    }
}

impl<const KEY: usize, const VALUE: usize> AsFd for Table<KEY, VALUE> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An array whose values are `NUMBERS` numbers of 64 bits for each CPU. A program writes those of the CPU that it runs on.
#[derive(Debug)]
pub(crate) struct CpuNumbers<const NUMBERS: usize>(OwnedFd);

impl<const NUMBERS: usize> CpuNumbers<NUMBERS> {
    /// Creates an array of this many values, all 0.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn new(name: &str, entries: u32) -> io::Result<Self> {
        let value_size = size(NUMBERS.saturating_mul(size_of::<u64>()))?;
        bpf::per_cpu_map(name, value_size, entries).map(Self)
    }

    /// Returns the sums of a value over all CPUs.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn sums(&self, index: u32) -> io::Result<[u64; NUMBERS]> {
        // SAFETY: the map was created with values of this size.
        unsafe { bpf::sums(self.as_fd(), index) }
    }
}

impl<const NUMBERS: usize> AsFd for CpuNumbers<NUMBERS> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
