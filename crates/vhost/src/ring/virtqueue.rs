// SPDX-License-Identifier: Apache-2.0
//! Common part of rings of either kind and direction.

use super::dirty_log::DirtyLog;
use crate::address_space::Miss;

/// Maximum number of chains of a burst.
pub const BURST_MAX: usize = 64;

/// Maximum number of chains that a call of [`Ring::look_ahead`] checks.
pub const AHEAD_MAX: usize = 32;

/// Counters of one ring since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Chains that violate the rules.
    pub bad: u64,
    /// Invalid indices of the driver.
    pub resyncs: u64,
}

/// Operations of the device on a ring, for either direction of frames.
pub trait Ring {
    /// Makes the used chains visible to the guest, like [`Receive::release`](super::Receive::release) and
    /// [`Transmit::publish`](super::Transmit::publish), but without checking whether it wants a notification.
    fn commit(&mut self);

    /// Returns true if the guest wants a notification of what was committed since the last call. Costs less some time after
    /// [`Self::commit`], when all writes have reached the cache.
    fn wants_notification(&mut self) -> bool;

    /// Searches chains of later frames for addresses missing in the IOTLB: at most [`AHEAD_MAX`] chains per call. Without an
    /// IOTLB, there are none. Call [`Self::commit`] first.
    fn look_ahead(&mut self, report: impl FnMut(Miss));

    /// Requests notifications of new chains from the guest, or suppresses them.
    ///
    /// Some chains may have arrived before the guest sees the request: call `ready` before waiting.
    fn request_notifications(&mut self, wanted: bool);

    /// Returns the base (`VHOST_USER_GET_VRING_BASE`): the first chain that was not used. The low 16 bits of a packed ring's
    /// base are the position to read from, the high ones the position to write to, each with its wrap counter.
    ///
    /// Call [`Self::commit`] first.
    fn base(&self) -> u32;

    /// Enables or disables logging of written pages.
    fn set_logging(&mut self, is_on: bool);

    /// Replaces the log of written pages.
    fn set_log(&mut self, log: Option<DirtyLog>);

    /// Returns true if the guest's memory or the log was found truncated.
    fn has_faulted(&self) -> bool;

    /// Returns the counters.
    fn counters(&self) -> Counters;
}
