// SPDX-License-Identifier: Apache-2.0
//! A ring as configured by the front end, and the conditions for its start.

use super::action::{Action, Kick, RingConfig};
use crate::features::F_RING_PACKED;
use crate::message::{FrontendRequest, RingAddresses, RingBase, RingSize};
use crate::session::SessionError;

/// A ring as configured by the front end so far. While it runs, its descriptors belong to the caller.
#[derive(Debug)]
pub(super) struct Ring<F> {
    pub(super) size: Option<RingSize>,
    pub(super) addresses: Option<RingAddresses>,
    /// Positions in the message's format: their meaning depends on features, which may follow.
    pub(super) base: Option<u32>,
    /// Position at which a reset stopped the ring, for GET_VRING_BASE alone.
    pub(super) stopped_at: Option<u32>,
    /// `None` while the ring runs or before its start is due.
    pub(super) kick: Option<Kick<F>>,
    call: Option<F>,
    error: Option<F>,
    is_enabled: bool,
    pub(super) is_running: bool,
    /// True if the front end has sent anything about the ring.
    pub(super) is_named: bool,
}

impl<F> Ring<F> {
    pub(super) fn new() -> Self {
        Self {
            size: None,
            addresses: None,
            base: None,
            stopped_at: None,
            kick: None,
            call: None,
            error: None,
            is_enabled: false,
            is_running: false,
            is_named: false,
        }
    }

    pub(super) fn descriptors_held(&self) -> usize {
        [
            matches!(self.kick, Some(Kick::Event(_))),
            self.call.is_some(),
            self.error.is_some(),
        ]
        .into_iter()
        .filter(|is_held| *is_held)
        .count()
    }

    pub(super) fn enable(&mut self, index: u8, is_enabled: bool, actions: &mut Vec<Action<F>>) {
        let is_change = self.is_enabled != is_enabled;
        self.is_enabled = is_enabled;
        if is_change && self.is_running {
            actions.push(Action::EnableRing { index, is_enabled });
        }
    }

    /// Sets the descriptor of a kick, call or error request. It is passed to the caller while the ring runs, and kept until
    /// then.
    pub(super) fn set_event(
        &mut self,
        request: &FrontendRequest,
        index: u8,
        descriptor: Option<F>,
    ) -> Option<Action<F>> {
        match request {
            FrontendRequest::SetRingKick(_) => {
                let kick = descriptor.map_or(Kick::Poll, Kick::Event);
                if self.is_running {
                    return Some(Action::SetKick { index, kick });
                }
                self.kick = Some(kick);
            }
            FrontendRequest::SetRingCall(_) if self.is_running => {
                return Some(Action::SetCall {
                    index,
                    call: descriptor,
                });
            }
            FrontendRequest::SetRingCall(_) => self.call = descriptor,
            _ if self.is_running => {
                return Some(Action::SetError {
                    index,
                    error: descriptor,
                });
            }
            _ => self.error = descriptor,
        }
        None
    }

    fn base(&self, is_packed: bool) -> Option<RingBase> {
        match self.base {
            Some(bits) => RingBase::from_bits(bits, is_packed),
            None => Some(RingBase::initial(is_packed)),
        }
    }

    /// Returns the start position if all conditions are met; `None` if something is missing or the ring runs already.
    pub(super) fn check(
        &self,
        index: u8,
        is_packed: bool,
    ) -> Result<Option<RingBase>, SessionError> {
        let (Some(size), Some(addresses), Some(_)) = (self.size, self.addresses, &self.kick) else {
            return Ok(None);
        };
        let bad = |reason| SessionError::BadRing { index, reason };
        check_size(size, is_packed).map_err(bad)?;
        check_addresses(&addresses, is_packed).map_err(bad)?;
        let base = self
            .base(is_packed)
            .ok_or(bad("reserved bits of the base are set"))?;
        check_base(base, size).map_err(bad)?;
        Ok(Some(base))
    }

    /// Starts the ring if all conditions are met.
    pub(super) fn start(
        &mut self,
        index: u8,
        features: u64,
    ) -> Result<Option<RingConfig<F>>, SessionError> {
        let is_packed = features & F_RING_PACKED != 0;
        let base = self.check(index, is_packed)?;
        let (Some(base), Some(size), Some(addresses)) = (base, self.size, self.addresses) else {
            return Ok(None);
        };
        let Some(kick) = self.kick.take() else {
            return Ok(None);
        };
        self.is_running = true;
        self.stopped_at = None;
        Ok(Some(RingConfig {
            index,
            size: size.get(),
            is_packed,
            descriptors: addresses.descriptors,
            available: addresses.available,
            used: addresses.used,
            log: addresses.log,
            base,
            features,
            is_enabled: self.is_enabled,
            kick,
            call: self.call.take(),
            error: self.error.take(),
        }))
    }
}

/// Sizes of split rings are powers of two (virtio 1.2, section 2.7), here at least 2: no driver uses a ring of one entry.
/// Packed rings have any size (section 2.8).
fn check_size(size: RingSize, is_packed: bool) -> Result<(), &'static str> {
    if is_packed || (size.get().is_power_of_two() && size.get() >= 2) {
        Ok(())
    } else {
        Err("size is not a power of two from 2 to 32,768")
    }
}

/// Checks the alignments of virtio 1.2, sections 2.7 and 2.8.
fn check_addresses(addresses: &RingAddresses, is_packed: bool) -> Result<(), &'static str> {
    let available = if is_packed { 4 } else { 2 };
    if !addresses.descriptors.is_multiple_of(16) {
        Err("descriptor area is not aligned")
    } else if !addresses.available.is_multiple_of(available) {
        Err("driver area is not aligned")
    } else if !addresses.used.is_multiple_of(4) {
        Err("device area is not aligned")
    } else {
        Ok(())
    }
}

/// Checks that positions in a packed ring are within the ring.
fn check_base(base: RingBase, size: RingSize) -> Result<(), &'static str> {
    match base {
        RingBase::Packed {
            available, used, ..
        } if available >= size.get() || used >= size.get() => {
            Err("base is beyond the end of the ring")
        }
        _ => Ok(()),
    }
}
