// SPDX-License-Identifier: Apache-2.0
//! Tasks of threads.

/// Task of a thread. Each task has its own list of system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Receives and sends frames of any kind of port, and sleeps in between.
    Packets,
    /// Sends and receives frames and messages of the kernel over descriptors that exist.
    Service,
    /// Opens ports and sockets, starts threads, and serves peers and clients.
    Control,
}

impl Task {
    /// Every task.
    pub const ALL: [Self; 3] = [Self::Packets, Self::Service, Self::Control];

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Packets => 0,
            Self::Service => 1,
            Self::Control => 2,
        }
    }
}
