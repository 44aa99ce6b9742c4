// SPDX-License-Identifier: Apache-2.0
//! Back end: the side that processes the rings of a front end (section 'Communication' and those that follow).
//!
//! A ring starts once its size, its addresses and its kick descriptor (or the statement that there is none) are set,
//! features are set and memory is mapped, in any order of the messages. It stops on GET_VRING_BASE. It starts disabled until
//! SET_VRING_ENABLE, or enabled if `F_PROTOCOL_FEATURES` is not negotiated (section 'Ring states').
//!
//! A refused request ends the session, unless the front end requested an acknowledgement: then the session acknowledges the
//! failure and continues as if the request had not been sent.

mod action;
mod memory;
mod ring;
mod ring_requests;

use crate::features::*;
use crate::message::{
    BackendRequest, CONFIG_MAX, ConfigWrite, FrontendRequest, InflightArea, Permission, Reply,
    RingBase, code, has_reply,
};
use ring::Ring;

use super::{MEMORY_SLOTS_MAX, QUEUE_PAIRS_MAX, SessionError};

pub use crate::message::Region;
pub use action::{Action, BackendConfig, Kick, PROTOCOL_FEATURES, RingConfig};

/// Smallest MTU of IPv4 (RFC 791).
const MTU_MIN: u64 = 68;

/// Request whose outcome the caller must report.
#[derive(Debug)]
enum Waiting {
    Memory {
        change: memory::Change,
        request: u32,
        acknowledge: bool,
    },
    Log,
    RingBase {
        index: u8,
    },
    Iotlb {
        acknowledge: bool,
    },
    CreateInflight,
    SetInflight {
        acknowledge: bool,
    },
}

/// Progress of a request.
enum Progress<F> {
    /// Done: an acknowledgement follows if the front end requested one.
    Done(Vec<Action<F>>),
    /// The reply is among the actions.
    Replied(Vec<Action<F>>),
    /// The session waits for the caller.
    Waiting(Vec<Action<F>>, Waiting),
}

/// Result of a step: actions, or the reason for the end of the session.
type Step<F> = Result<Vec<Action<F>>, SessionError>;

/// Back end of a connection.
#[derive(Debug)]
pub struct Backend<F> {
    config: BackendConfig,
    features: Option<u64>,
    protocol_features: u64,
    regions: Vec<Region>,
    has_log: bool,
    rings: Vec<Ring<F>>,
    status: u8,
    /// True between `DeviceReady` and `DeviceGone`.
    is_ready: bool,
    waiting: Option<Waiting>,
    has_ended: bool,
}

impl<F> Backend<F> {
    /// Returns a back end for a new connection. Numbers out of range are limited to it.
    #[must_use]
    pub fn new(mut config: BackendConfig) -> Self {
        config.protocol_features &= PROTOCOL_FEATURES;
        config.features &= !F_PROTOCOL_FEATURES;
        if config.protocol_features != 0 {
            config.features |= F_PROTOCOL_FEATURES;
        }
        config.queue_pairs = config.queue_pairs.clamp(1, QUEUE_PAIRS_MAX);
        config.memory_slots = config.memory_slots.clamp(8, MEMORY_SLOTS_MAX);
        config.config_space.truncate(CONFIG_MAX);
        let rings = (0..config.queue_pairs.saturating_mul(2))
            .map(|_| Ring::new())
            .collect();
        Self {
            config,
            features: None,
            protocol_features: 0,
            regions: Vec::new(),
            has_log: false,
            rings,
            status: 0,
            is_ready: false,
            waiting: None,
            has_ended: false,
        }
    }

    /// Returns the virtio features in use, `F_LOG_ALL` and `F_PROTOCOL_FEATURES` included; 0 before SET_FEATURES.
    #[must_use]
    pub fn features(&self) -> u64 {
        self.features.unwrap_or(0)
    }

    /// Returns the protocol features in use.
    #[must_use]
    pub fn protocol_features(&self) -> u64 {
        self.protocol_features
    }

    /// Returns the memory regions in use.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Returns the device status that the front end has set (virtio 1.2, section 2.1).
    #[must_use]
    pub fn status(&self) -> u8 {
        self.status
    }

    /// Returns the number of file descriptors that the session holds: at most three for each ring.
    #[must_use]
    pub fn descriptors_held(&self) -> usize {
        self.rings.iter().map(Ring::descriptors_held).sum()
    }

    /// Returns the message that reports a missing or refused translation to the front end, for the socket of
    /// [`Action::IotlbChannel`]. `None` if the front end does not accept such messages.
    #[must_use]
    pub fn iotlb_miss(&self, iova: u64, permission: Permission) -> Option<Vec<u8>> {
        let is_negotiated =
            self.has_feature(F_ACCESS_PLATFORM) && self.has_protocol(PROTOCOL_F_BACKEND_REQ);
        is_negotiated.then(|| BackendRequest::IotlbMiss { iova, permission }.encode(false))
    }

    /// Handles a request of the front end with its file descriptors. `need_reply` is [`crate::message::Header::need_reply`].
    /// Descriptors that are neither in an action nor kept by the session are dropped.
    ///
    /// # Errors
    /// [`SessionError`]: the session has ended. Call [`Self::close`] and close the socket.
    pub fn handle(
        &mut self,
        request: FrontendRequest,
        need_reply: bool,
        descriptors: Vec<F>,
    ) -> Step<F> {
        if self.has_ended {
            return Err(SessionError::Ended);
        }
        if self.waiting.is_some() {
            return self.end(SessionError::OutOfOrder);
        }
        let code = request.code();
        match self.dispatch(request, need_reply, descriptors) {
            Ok(Progress::Done(actions)) => {
                let acknowledge = self.acknowledges(code, need_reply);
                self.finish(
                    actions,
                    acknowledge.then_some(Reply::acknowledge(code, true)),
                )
            }
            Ok(Progress::Replied(actions)) => Ok(actions),
            Ok(Progress::Waiting(actions, waiting)) => {
                self.waiting = Some(waiting);
                Ok(actions)
            }
            Err(error) => self.refuse(code, self.acknowledges(code, need_reply), error),
        }
    }

    /// Reports the outcome of [`Action::SetMemory`], [`Action::AddRegion`] or [`Action::RemoveRegion`].
    ///
    /// # Errors
    /// [`SessionError`]: the session has ended: mapping failed and the front end requested no acknowledgement, a ring cannot
    /// start, or the session does not wait for this.
    pub fn memory_mapped<E>(&mut self, result: Result<(), E>) -> Step<F> {
        match self.waiting.take() {
            Some(Waiting::Memory {
                change,
                request,
                acknowledge,
            }) => {
                if result.is_err() {
                    return self.refuse(request, acknowledge, SessionError::Failed(request));
                }
                change.apply(&mut self.regions);
                self.finish(
                    Vec::new(),
                    acknowledge.then_some(Reply::acknowledge(request, true)),
                )
            }
            _ => self.end(SessionError::OutOfOrder),
        }
    }

    /// Reports the outcome of [`Action::SetLog`].
    ///
    /// # Errors
    /// [`SessionError`]: the session has ended: the log cannot be mapped, so that writes would be lost in a migration, or
    /// the session does not wait for this.
    pub fn log_mapped<E>(&mut self, result: Result<(), E>) -> Step<F> {
        match self.waiting.take() {
            Some(Waiting::Log) => {
                if result.is_err() {
                    return self.end(SessionError::Failed(code::SET_LOG_BASE));
                }
                self.has_log = true;
                // This reply depends on LOG_SHMFD alone (section 'Communication').
                self.finish(
                    Vec::new(),
                    Some(Reply::acknowledge(code::SET_LOG_BASE, true)),
                )
            }
            _ => self.end(SessionError::OutOfOrder),
        }
    }

    /// Reports that a ring has stopped at `base`. The front end gets the reply that it waits for, or may ask later.
    ///
    /// # Errors
    /// [`SessionError`]: the session has ended.
    pub fn ring_stopped(&mut self, index: u8, base: RingBase) -> Step<F> {
        let Some(ring) = self.rings.get_mut(usize::from(index)) else {
            return Ok(Vec::new());
        };
        match self.waiting {
            Some(Waiting::RingBase { index: wanted }) if wanted == index => {
                self.waiting = None;
                ring.base = Some(base.bits());
                let mut actions = Vec::new();
                self.report_gone(&mut actions);
                self.finish(
                    actions,
                    Some(Reply::RingBase {
                        index,
                        bits: base.bits(),
                    }),
                )
            }
            _ => {
                ring.stopped_at = Some(base.bits());
                Ok(Vec::new())
            }
        }
    }

    /// Reports the outcome of [`Action::IotlbUpdate`] or [`Action::IotlbInvalidate`].
    ///
    /// # Errors
    /// [`SessionError`]: the session has ended: the update failed and the front end requested no acknowledgement, or the
    /// session does not wait for this.
    pub fn iotlb_updated<E>(&mut self, result: Result<(), E>) -> Step<F> {
        match self.waiting.take() {
            Some(Waiting::Iotlb { acknowledge }) if result.is_err() => self.refuse(
                code::IOTLB_MSG,
                acknowledge,
                SessionError::Failed(code::IOTLB_MSG),
            ),
            Some(Waiting::Iotlb { acknowledge }) => {
                let reply = Reply::acknowledge(code::IOTLB_MSG, true);
                self.finish(Vec::new(), acknowledge.then_some(reply))
            }
            _ => self.end(SessionError::OutOfOrder),
        }
    }

    /// Reports the outcome of [`Action::CreateInflight`]: the area and its file for the front end.
    ///
    /// # Errors
    /// [`SessionError`]: the session has ended: it does not wait for this.
    pub fn inflight_created<E>(&mut self, result: Result<(InflightArea, F), E>) -> Step<F> {
        match self.waiting.take() {
            Some(Waiting::CreateInflight) => {
                let (area, files) = match result {
                    Ok((area, file)) => (Some(area), vec![file]),
                    Err(_) => (None, Vec::new()),
                };
                Ok(vec![Action::Reply(Reply::Inflight(area).encode(), files)])
            }
            _ => self.end(SessionError::OutOfOrder),
        }
    }

    /// Reports the outcome of [`Action::SetInflight`].
    ///
    /// # Errors
    /// [`SessionError`]: the session has ended: mapping failed and the front end requested no acknowledgement, or the
    /// session does not wait for this.
    pub fn inflight_mapped<E>(&mut self, result: Result<(), E>) -> Step<F> {
        const CODE: u32 = code::SET_INFLIGHT_FD;
        match self.waiting.take() {
            Some(Waiting::SetInflight { acknowledge }) if result.is_err() => {
                self.refuse(CODE, acknowledge, SessionError::Failed(CODE))
            }
            Some(Waiting::SetInflight { acknowledge }) => self.finish(
                Vec::new(),
                acknowledge.then_some(Reply::acknowledge(CODE, true)),
            ),
            _ => self.end(SessionError::OutOfOrder),
        }
    }

    /// Ends the session: returns the actions that stop the rings. They require no answers.
    pub fn close(&mut self) -> Vec<Action<F>> {
        self.has_ended = true;
        self.waiting = None;
        let mut actions = Vec::new();
        self.stop_rings(&mut actions);
        self.rings.clear();
        self.regions.clear();
        actions
    }

    fn dispatch(
        &mut self,
        request: FrontendRequest,
        need_reply: bool,
        descriptors: Vec<F>,
    ) -> Result<Progress<F>, SessionError> {
        use FrontendRequest as R;
        // The codec has checked this number, but the caller passes both.
        if descriptors.len() != request.descriptors()
            && !matches!(request, R::RemoveRegion(_) | R::Unknown(_))
        {
            return Err(SessionError::Descriptors {
                request: request.code(),
                count: descriptors.len(),
            });
        }
        match request {
            R::GetFeatures
            | R::GetProtocolFeatures
            | R::GetQueueNumber
            | R::GetStatus
            | R::GetConfig { .. } => self
                .device_query(&request)
                .map(|answer| Progress::Replied(vec![reply(&answer)])),
            R::SetFeatures(_)
            | R::SetOwner
            | R::ResetOwner
            | R::SetProtocolFeatures(_)
            | R::ResetDevice
            | R::SetStatus(_)
            | R::SetConfig(_)
            | R::SetMtu(_)
            | R::SendRarp(_) => self.device_request(request).map(Progress::Done),
            R::SetMemoryTable(_)
            | R::AddRegion(_)
            | R::RemoveRegion(_)
            | R::GetMemorySlots
            | R::IotlbUpdate(_)
            | R::IotlbInvalidate(_)
            | R::SetRequestChannel => self.memory_request(request, need_reply, descriptors),
            R::SetLogBase(_) | R::SetLogEvent | R::GetInflight { .. } | R::SetInflight(_) => {
                self.area_request(request, need_reply, descriptors)
            }
            R::SetRingSize { .. }
            | R::SetRingAddresses { .. }
            | R::SetRingBase { .. }
            | R::GetRingBase { .. }
            | R::SetRingKick(_)
            | R::SetRingCall(_)
            | R::SetRingError(_)
            | R::SetRingEnable { .. } => self.ring_request(request, descriptors),
            R::Unknown(number) => Err(SessionError::Unknown(number)),
        }
    }

    /// Handles queries about the device.
    fn device_query(&self, request: &FrontendRequest) -> Result<Reply, SessionError> {
        use FrontendRequest as R;
        let code = request.code();
        let value = match *request {
            R::GetFeatures => self.config.features,
            R::GetProtocolFeatures => {
                self.require_offered_protocols(code)?;
                self.config.protocol_features
            }
            R::GetQueueNumber => {
                self.require_offered(PROTOCOL_F_MQ, "PROTOCOL_F_MQ", code)?;
                self.config.queue_pairs.into()
            }
            R::GetStatus => {
                self.require(PROTOCOL_F_STATUS, "PROTOCOL_F_STATUS", code)?;
                self.status.into()
            }
            R::GetConfig {
                offset,
                size,
                flags,
            } => {
                self.require(PROTOCOL_F_CONFIG, "PROTOCOL_F_CONFIG", code)?;
                let octets = self.config_octets(offset, size);
                let config = octets.and_then(|octets| ConfigWrite::new(offset, flags, octets));
                return Ok(Reply::Config(config));
            }
            _ => return Err(SessionError::Unknown(code)),
        };
        Ok(Reply::Number {
            request: code,
            value,
        })
    }

    /// Handles requests about features and the device as a whole. Returns the actions; an acknowledgement may follow.
    fn device_request(&mut self, request: FrontendRequest) -> Step<F> {
        use FrontendRequest as R;
        let code = request.code();
        match request {
            R::SetFeatures(features) => self.set_features(features),
            R::SetProtocolFeatures(features) => {
                self.require_offered_protocols(code)?;
                match features & !self.config.protocol_features {
                    0 => self.protocol_features = features,
                    unknown => return Err(SessionError::NotOffered(unknown)),
                }
                Ok(Vec::new())
            }
            R::SetStatus(status) => {
                self.require(PROTOCOL_F_STATUS, "PROTOCOL_F_STATUS", code)?;
                self.status = status;
                // Writing 0 resets the device (virtio 1.2, section 2.4).
                Ok(if status == 0 {
                    self.reset()
                } else {
                    Vec::new()
                })
            }
            R::ResetDevice => {
                self.require(PROTOCOL_F_RESET_DEVICE, "PROTOCOL_F_RESET_DEVICE", code)?;
                Ok(self.reset())
            }
            R::SetConfig(_) => {
                self.require(PROTOCOL_F_CONFIG, "PROTOCOL_F_CONFIG", code)?;
                // All fields of a network device are read-only (virtio 1.2, section 5.1.4).
                Err(SessionError::Value {
                    request: code,
                    field: "write to a read-only field",
                })
            }
            R::SetMtu(mtu) => {
                self.require_offered(PROTOCOL_F_MTU, "PROTOCOL_F_MTU", code)?;
                match u16::try_from(mtu) {
                    Ok(short) if mtu >= MTU_MIN && short <= self.config.mtu_max => {
                        Ok(vec![Action::SetMtu(short)])
                    }
                    _ => Err(SessionError::Value {
                        request: code,
                        field: "MTU",
                    }),
                }
            }
            R::SendRarp(address) => {
                self.require_offered(PROTOCOL_F_RARP, "PROTOCOL_F_RARP", code)?;
                Ok(vec![Action::SendRarp(address)])
            }
            // SET_OWNER starts a session; RESET_OWNER is deprecated, and the specification recommends ignoring it.
            _ => Ok(Vec::new()),
        }
    }

    fn set_features(&mut self, features: u64) -> Step<F> {
        match features & !self.config.features {
            0 => {}
            unknown => return Err(SessionError::NotOffered(unknown)),
        }
        let is_running = self.rings.iter().any(|ring| ring.is_running);
        let changes = features ^ self.features();
        let mut actions = Vec::new();
        if is_running {
            match changes & !(F_LOG_ALL | F_PROTOCOL_FEATURES) {
                0 => {}
                fixed => return Err(SessionError::FeaturesInUse(fixed)),
            }
            if changes & F_LOG_ALL != 0 {
                let is_logging = features & F_LOG_ALL != 0;
                if is_logging && !self.has_log {
                    return Err(SessionError::LogMissing);
                }
                actions.push(Action::SetLogging(is_logging));
            }
        }
        self.features = Some(features);
        if features & F_PROTOCOL_FEATURES == 0 {
            for (index, ring) in (0..=u8::MAX).zip(&mut self.rings) {
                ring.enable(index, true, &mut actions);
            }
        }
        Ok(actions)
    }

    fn config_octets(&self, offset: u32, size: u16) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::from(size))?;
        self.config.config_space.get(start..end).map(<[u8]>::to_vec)
    }

    /// Handles requests about shared areas other than guest memory.
    fn area_request(
        &mut self,
        request: FrontendRequest,
        need_reply: bool,
        mut descriptors: Vec<F>,
    ) -> Result<Progress<F>, SessionError> {
        use FrontendRequest as R;
        let code = request.code();
        let missing = SessionError::Descriptors {
            request: code,
            count: descriptors.len(),
        };
        match request {
            R::SetLogBase(area) => {
                self.require(PROTOCOL_F_LOG_SHMFD, "PROTOCOL_F_LOG_SHMFD", code)?;
                let (size, offset) = (area.size(), area.offset());
                let file = descriptors.pop().ok_or(missing)?;
                Ok(Progress::Waiting(
                    vec![Action::SetLog { size, offset, file }],
                    Waiting::Log,
                ))
            }
            R::GetInflight { rings, ring_size } => {
                self.require(PROTOCOL_F_INFLIGHT_SHMFD, "PROTOCOL_F_INFLIGHT_SHMFD", code)?;
                self.check_inflight(rings, code)?;
                let is_packed = self.has_feature(F_RING_PACKED);
                let action = Action::CreateInflight {
                    rings,
                    ring_size: ring_size.get(),
                    is_packed,
                };
                Ok(Progress::Waiting(vec![action], Waiting::CreateInflight))
            }
            R::SetInflight(area) => {
                self.require(PROTOCOL_F_INFLIGHT_SHMFD, "PROTOCOL_F_INFLIGHT_SHMFD", code)?;
                self.check_inflight(area.rings(), code)?;
                let running = self.running().next();
                if let Some(index) = running {
                    return Err(SessionError::RingRunning {
                        request: code,
                        index,
                    });
                }
                let file = descriptors.pop().ok_or(missing)?;
                let waiting = Waiting::SetInflight {
                    acknowledge: self.acknowledges(code, need_reply),
                };
                Ok(Progress::Waiting(
                    vec![Action::SetInflight(area, file)],
                    waiting,
                ))
            }
            // SET_LOG_FD is optional for both sides. This back end does not use the descriptor, which is dropped.
            _ => done(),
        }
    }

    fn check_inflight(&self, rings: u16, request: u32) -> Result<(), SessionError> {
        if usize::from(rings) <= self.rings.len() {
            Ok(())
        } else {
            Err(SessionError::Value {
                request,
                field: "number of rings",
            })
        }
    }

    /// Returns the device to its initial state. Memory is kept, because front ends do not send it again, and so are the
    /// positions of stopped rings: front ends that stop a device reset it first (QEMU up to 7.2) and then ask for the
    /// positions.
    fn reset(&mut self) -> Vec<Action<F>> {
        let mut actions = Vec::new();
        self.stop_rings(&mut actions);
        for ring in &mut self.rings {
            *ring = Ring::new();
        }
        self.features = None;
        self.has_log = false;
        self.status = 0;
        actions
    }

    fn stop_rings(&mut self, actions: &mut Vec<Action<F>>) {
        for (index, ring) in (0..=u8::MAX).zip(&mut self.rings) {
            if std::mem::take(&mut ring.is_running) {
                actions.push(Action::StopRing { index });
            }
        }
        self.report_gone(actions);
    }

    /// Adds `DeviceGone` if no ring runs any more.
    fn report_gone(&mut self, actions: &mut Vec<Action<F>>) {
        if self.is_ready && self.running().next().is_none() {
            self.is_ready = false;
            actions.push(Action::DeviceGone);
        }
    }

    /// Returns the indices of rings that run.
    fn running(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX)
            .zip(&self.rings)
            .filter(|(_, ring)| ring.is_running)
            .map(|(index, _)| index)
    }

    /// Ends a request: starts the rings that can start now, then replies.
    fn finish(&mut self, mut actions: Vec<Action<F>>, last: Option<Reply>) -> Step<F> {
        if let Err(error) = self.start_rings(&mut actions) {
            return self.end(error);
        }
        actions.extend(last.as_ref().map(reply));
        Ok(actions)
    }

    /// Refuses a request: acknowledges the failure if the front end waits for that, and ends the session otherwise.
    fn refuse(&mut self, request: u32, acknowledge: bool, error: SessionError) -> Step<F> {
        // No further request is meaningful without negotiated features.
        if !acknowledge || matches!(error, SessionError::NotOffered(_)) {
            return self.end(error);
        }
        Ok(vec![
            Action::Refused(error),
            reply(&Reply::acknowledge(request, false)),
        ])
    }

    fn end(&mut self, error: SessionError) -> Step<F> {
        self.has_ended = true;
        self.waiting = None;
        Err(error)
    }

    /// Returns true if the front end waits for an acknowledgement of a request. Requests with a payload in their reply have
    /// none (section on REPLY_ACK). IOTLB messages have one in any case, but front ends mark those for which they wait.
    fn acknowledges(&self, request: u32, need_reply: bool) -> bool {
        match request {
            _ if has_reply(request) => false,
            code::IOTLB_MSG => need_reply,
            _ => need_reply && self.has_protocol(PROTOCOL_F_REPLY_ACK),
        }
    }

    fn has_feature(&self, feature: u64) -> bool {
        self.features() & feature != 0
    }

    fn has_protocol(&self, feature: u64) -> bool {
        self.protocol_features & feature != 0
    }

    /// Checks that a protocol feature is negotiated.
    fn require(&self, mask: u64, feature: &'static str, request: u32) -> Result<(), SessionError> {
        if self.has_protocol(mask) {
            Ok(())
        } else {
            Err(SessionError::NotNegotiated { request, feature })
        }
    }

    /// Checks that a protocol feature is offered, which is all that some requests require.
    fn require_offered(
        &self,
        mask: u64,
        feature: &'static str,
        request: u32,
    ) -> Result<(), SessionError> {
        if self.config.protocol_features & mask != 0 {
            Ok(())
        } else {
            Err(SessionError::NotNegotiated { request, feature })
        }
    }

    fn require_offered_protocols(&self, request: u32) -> Result<(), SessionError> {
        self.require_offered(u64::MAX, "F_PROTOCOL_FEATURES", request)
    }
}

fn reply<F>(reply: &Reply) -> Action<F> {
    Action::Reply(reply.encode(), Vec::new())
}

fn done<F>() -> Result<Progress<F>, SessionError> {
    Ok(Progress::Done(Vec::new()))
}
