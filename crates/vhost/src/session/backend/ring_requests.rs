// SPDX-License-Identifier: Apache-2.0
//! Requests about rings, and conditions under which rings start and stop.

use super::ring::Ring;
use super::{Action, Backend, Progress, Waiting, done, reply};
use crate::features::{F_LOG_ALL, F_RING_PACKED};
use crate::message::{FrontendRequest, Reply, RingAddresses, RingBase, RingEvent};
use crate::session::SessionError;

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

    /// Sets the addresses of a ring. Those of a running ring cannot change, but logging can (section 'Migration').
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
        let rings = self.config.queue_pairs.saturating_mul(2);
        let ring = self.rings.get_mut(usize::from(index));
        let ring = ring.ok_or(SessionError::NoSuchRing { index, rings })?;
        ring.is_named = true;
        Ok(ring)
    }

    /// Starts all rings whose conditions are met.
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
            .map_or(0, |last| last.saturating_add(1));
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
