// SPDX-License-Identifier: Apache-2.0
//! Page tables of peers' memory, filled ahead of the forwarding threads.
//!
//! The first access to a page of shared memory is a page fault, even if the file has the page. The peer thread
//! takes these faults in small steps instead of the forwarding threads. Pages that the file lacks stay
//! unallocated.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use quietwire_memory::Mapping;

/// Octets per step: about 1 ms of work.
const STEP: usize = 4 << 20;
/// Runs of pages per step: a file may have holes between all pages.
const RUNS: usize = 64;
/// Interval between two steps.
pub(crate) const POPULATE: Duration = Duration::from_millis(2);

/// A mapping that is not completely populated.
#[derive(Debug)]
struct Part {
    mapping: Arc<Mapping>,
    /// The mapped file, and the offset at which the mapping begins in it.
    file: OwnedFd,
    file_offset: u64,
    next: u64,
}

/// Mappings of a connection whose page tables are not completely filled.
#[derive(Debug, Default)]
pub(crate) struct Populating(VecDeque<Part>);

impl Populating {
    /// Adds a mapping of `file` that begins at `file_offset`.
    pub(crate) fn push(&mut self, mapping: &Arc<Mapping>, file: OwnedFd, file_offset: u64) {
        self.0.push_back(Part {
            mapping: Arc::clone(mapping),
            file,
            file_offset,
            next: 0,
        });
    }

    /// Populates the next few MiB. Returns true while more remains.
    pub(crate) fn step(&mut self) -> bool {
        // A mapping without other users belongs to an ended connection or to replaced memory.
        self.0.retain(|part| Arc::strong_count(&part.mapping) > 1);
        let mut left = STEP;
        for _ in 0..RUNS {
            let Some(part) = self.0.front_mut() else {
                return false;
            };
            let file = part.file.as_fd();
            let end = part
                .mapping
                .populate_present(file, part.file_offset, part.next, left);
            match end {
                Some(end) => {
                    // Skipping a hole takes no time, so only the run counts.
                    let run = usize::try_from(end.saturating_sub(part.next)).unwrap_or(usize::MAX);
                    part.next = end;
                    left = left.saturating_sub(run);
                    if left == 0 {
                        break;
                    }
                }
                None => drop(self.0.pop_front()),
            }
        }
        !self.0.is_empty()
    }
}
