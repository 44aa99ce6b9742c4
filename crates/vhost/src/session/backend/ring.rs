// SPDX-License-Identifier: Apache-2.0
//! Rings: their settings, and when they start and stop.

use super::{Action, Backend, Kick, Progress, RingConfig, Waiting, done, reply};
use crate::features::{F_LOG_ALL, F_RING_PACKED};
use crate::message::{FrontendRequest, Reply, RingAddresses, RingBase, RingEvent, RingSize};
use crate::session::SessionError;

/// A ring as the front end has set it so far. While it runs, its descriptors are the caller's.
#[derive(Debug)]
pub(super) struct Ring<F> {
    pub(super) size: Option<RingSize>,
    pub(super) addresses: Option<RingAddresses>,
    /// Positions as messages have them: their meaning depends on features, which may follow.
    pub(super) base: Option<u32>,
    /// Where the ring was stopped by a reset, for GET_VRING_BASE alone.
    pub(super) stopped_at: Option<u32>,
    /// `None` while the ring runs or until it is to start.
    kick: Option<Kick<F>>,
    call: Option<F>,
    error: Option<F>,
    is_enabled: bool,
    pub(super) is_running: bool,
    /// True if the front end has sent anything about the ring.
    is_named: bool,
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
        usize::from(matches!(self.kick, Some(Kick::Event(_))))
            + usize::from(self.call.is_some())
            + usize::from(self.error.is_some())
    }

    pub(super) fn enable(&mut self, index: u8, is_enabled: bool, actions: &mut Vec<Action<F>>) {
        let is_change = self.is_enabled != is_enabled;
        self.is_enabled = is_enabled;
        if is_change && self.is_running {
            actions.push(Action::EnableRing { index, is_enabled });
        }
    }

    /// Sets the descriptor of a kick, call or error request: the caller's while the ring runs, and kept until then.
    fn set_event(
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

    /// Returns where the ring starts if all that it needs is set; `None` if something is missing or it runs already.
    fn check(&self, index: u8, is_packed: bool) -> Result<Option<RingBase>, SessionError> {
        let (Some(size), Some(addresses), Some(_)) = (self.size, self.addresses, &self.kick) else {
            return Ok(None);
        };
        let bad = |reason| SessionError::BadRing { index, reason };
        check_size(size, is_packed).map_err(bad)?;
        check_addresses(&addresses, is_packed).map_err(bad)?;
        let base = self
            .base(is_packed)
            .ok_or(bad("reserved bits of its base are set"))?;
        check_base(base, size).map_err(bad)?;
        Ok(Some(base))
    }

    /// Starts the ring if all that it needs is set.
    fn start(&mut self, index: u8, features: u64) -> Result<Option<RingConfig<F>>, SessionError> {
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

/// Alignments of virtio 1.2, sections 2.7 and 2.8.
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

/// Positions in a packed ring are entries of it.
fn check_base(base: RingBase, size: RingSize) -> Result<(), &'static str> {
    match base {
        RingBase::Packed {
            available, used, ..
        } if available >= size.get() || used >= size.get() => Err("base is beyond its end"),
        _ => Ok(()),
    }
}

impl<F> Backend<F> {
    /// Handles requests about a ring.
    pub(super) fn ring_request(
        &mut self,
        request: FrontendRequest,
        mut descriptors: Vec<F>,
    ) -> Result<Progress<F>, SessionError> {
        use FrontendRequest as R;
        let code = request.code();
        match request {
            R::SetRingSize { index, size } => {
                let ring = self.ring(index)?;
                if ring.is_running && ring.size != Some(size) {
                    return Err(SessionError::RingRunning {
                        request: code,
                        index,
                    });
                }
                ring.size = Some(size);
                done()
            }
            R::SetRingAddresses { index, addresses } => self.set_addresses(index, addresses, code),
            R::SetRingBase { index, bits } => {
                let ring = self.ring(index)?;
                if ring.is_running {
                    return Err(SessionError::RingRunning {
                        request: code,
                        index,
                    });
                }
                ring.base = Some(bits);
                ring.stopped_at = None;
                done()
            }
            R::GetRingBase { index } => self.stop_ring(index),
            R::SetRingKick(RingEvent { index, .. })
            | R::SetRingCall(RingEvent { index, .. })
            | R::SetRingError(RingEvent { index, .. }) => {
                let ring = self.ring(index)?;
                let action = ring.set_event(&request, index, descriptors.pop());
                Ok(Progress::Done(action.into_iter().collect()))
            }
            R::SetRingEnable { index, is_enabled } => {
                let mut actions = Vec::new();
                self.ring(index)?.enable(index, is_enabled, &mut actions);
                Ok(Progress::Done(actions))
            }
            _ => Err(SessionError::Unknown(code)),
        }
    }

    /// Sets the addresses of a ring. Those of a running ring do not change, but logging does (section 'Migration').
    fn set_addresses(
        &mut self,
        index: u8,
        addresses: RingAddresses,
        request: u32,
    ) -> Result<Progress<F>, SessionError> {
        let ring = self.ring(index)?;
        let mut actions = Vec::new();
        if ring.is_running {
            let log = ring.addresses.and_then(|former| former.log);
            if ring.addresses != Some(RingAddresses { log, ..addresses }) {
                return Err(SessionError::RingRunning { request, index });
            }
            if log != addresses.log {
                actions.push(Action::SetRingLogging {
                    index,
                    log: addresses.log,
                });
            }
        }
        ring.addresses = Some(addresses);
        Ok(Progress::Done(actions))
    }

    /// Stops a ring. It starts again with the next kick descriptor.
    fn stop_ring(&mut self, index: u8) -> Result<Progress<F>, SessionError> {
        let is_packed = self.has_feature(F_RING_PACKED);
        let ring = self.ring(index)?;
        ring.kick = None;
        if std::mem::take(&mut ring.is_running) {
            return Ok(Progress::Waiting(
                vec![Action::StopRing { index }],
                Waiting::RingBase { index },
            ));
        }
        let initial = RingBase::initial(is_packed).bits();
        let bits = ring.stopped_at.or(ring.base).unwrap_or(initial);
        Ok(Progress::Replied(vec![reply(&Reply::RingBase {
            index,
            bits,
        })]))
    }

    fn ring(&mut self, index: u8) -> Result<&mut Ring<F>, SessionError> {
        let rings = 2 * self.config.queue_pairs;
        let ring = self.rings.get_mut(usize::from(index));
        let ring = ring.ok_or(SessionError::NoSuchRing { index, rings })?;
        ring.is_named = true;
        Ok(ring)
    }

    /// Starts all rings that have what they need.
    ///
    /// With `F_LOG_ALL`, rings wait for the log: front ends that start a device during a migration send it last.
    pub(super) fn start_rings(&mut self, actions: &mut Vec<Action<F>>) -> Result<(), SessionError> {
        let Some(features) = self.features else {
            return Ok(());
        };
        if self.regions.is_empty() || (features & F_LOG_ALL != 0 && !self.has_log) {
            return Ok(());
        }
        // All are checked before the first one starts, so that an error leaves none half started.
        let is_packed = features & F_RING_PACKED != 0;
        let mut is_any = false;
        for (index, ring) in (0..=u8::MAX).zip(&self.rings) {
            is_any |= ring.check(index, is_packed)?.is_some();
        }
        match self.config.required_features & !features {
            missing if is_any && missing != 0 => return Err(SessionError::Missing(missing)),
            _ => {}
        }
        let named = self
            .rings
            .iter()
            .rposition(|ring| ring.is_named)
            .map_or(0, |last| last + 1);
        for (index, ring) in (0..=u8::MAX).zip(&mut self.rings) {
            let Some(config) = ring.start(index, features)? else {
                continue;
            };
            if !std::mem::replace(&mut self.is_ready, true) {
                actions.push(Action::DeviceReady {
                    features,
                    protocol_features: self.protocol_features,
                    rings: u16::try_from(named).unwrap_or(u16::MAX),
                });
            }
            actions.push(Action::StartRing(Box::new(config)));
        }
        Ok(())
    }
}
