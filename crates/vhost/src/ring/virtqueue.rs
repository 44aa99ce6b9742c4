// SPDX-License-Identifier: Apache-2.0
//! What rings of either kind and direction have in common.

use super::dirty_log::DirtyLog;
use crate::address_space::Miss;

/// Chains of a burst, at most.
pub const BURST_MAX: usize = 64;

/// Chains looked at by a call of [`Ring::look_ahead`].
pub const AHEAD_MAX: usize = 32;

/// Counters of one ring since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Chains against the rules.
    pub bad: u64,
    /// Indices of the driver's that cannot be.
    pub resyncs: u64,
}

/// What the device does with a ring, whichever way its frames go.
pub trait Ring {
    /// Shows the guest the chains that were used: [`Receive::release`](super::Receive::release) and [`Transmit::publish`](super::Transmit::publish) without looking whether it
    /// wants a notification.
    fn commit(&mut self);

    /// Returns true if the guest wants a notification of what was committed since the last call. Costs less some time after
    /// [`Self::commit`], when what was written has reached the cache.
    fn wants_notification(&mut self) -> bool;

    /// Looks for addresses that the IOTLB lacks, in chains of later frames: at most [`AHEAD_MAX`] chains a call. Without an
    /// IOTLB, there are none. Call [`Self::commit`] first.
    fn look_ahead(&mut self, report: impl FnMut(Miss));

    /// Asks the guest for notifications of new chains, or for none.
    ///
    /// Some may have come before the guest sees the request: call `ready` before waiting.
    fn request_notifications(&mut self, wanted: bool);

    /// Returns the base (`VHOST_USER_GET_VRING_BASE`): the first chain that was not used. The low 16 bits of a packed ring's
    /// are the position to read from, the high ones that to write to, each with its wrap counter.
    ///
    /// Call [`Self::commit`] first.
    fn base(&self) -> u32;

    /// Switches logging of written pages on or off.
    fn set_logging(&mut self, is_on: bool);

    /// Replaces the log of written pages.
    fn set_log(&mut self, log: Option<DirtyLog>);

    /// Returns true if memory of the guest, or the log, was found truncated.
    fn has_faulted(&self) -> bool;

    /// Returns the counters.
    fn counters(&self) -> Counters;
}
