// SPDX-License-Identifier: Apache-2.0
//! Front end: the side that owns the rings and the memory.
//!
//! ```text
//! start()     SET_OWNER, GET_FEATURES, GET_ and SET_PROTOCOL_FEATURES, GET_QUEUE_NUM, SET_FEATURES, SET_STATUS
//!             -> Action::Negotiated: the caller makes rings of the kind and number that was negotiated
//! provide()   GET_ or SET_INFLIGHT_FD, SET_MEM_TABLE, SET_VRING_* for each ring, SET_VRING_ENABLE, NET_SET_MTU, SET_STATUS
//!             -> Action::Ready
//! stop()      SET_VRING_ENABLE, GET_VRING_BASE for each ring
//!             -> Action::Stopped: the caller may provide() again
//! ```
//!
//! With `PROTOCOL_F_REPLY_ACK`, each request waits for its acknowledgement.

use std::collections::VecDeque;

use crate::features::*;
use crate::message::{
    FrontendRequest, InflightArea, MemoryTable, Region, Reply, RingAddresses, RingBase, RingEvent,
    RingSize, code, has_reply,
};

use super::{QUEUE_PAIRS_MAX, SessionError};

/// Protocol features that this front end implements.
pub const PROTOCOL_FEATURES: u64 = PROTOCOL_F_MQ
    | PROTOCOL_F_REPLY_ACK
    | PROTOCOL_F_MTU
    | PROTOCOL_F_INFLIGHT_SHMFD
    | PROTOCOL_F_STATUS;

/// Configuration of a front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendConfig {
    /// Virtio features to use if the back end offers them. Segmentation is not used without the checksum feature that it requires.
    pub features: u64,
    /// Virtio features that the session requires.
    pub required_features: u64,
    /// Protocol features to use if the back end offers them. Those not in [`PROTOCOL_FEATURES`] are ignored.
    pub protocol_features: u64,
    /// Number of queue pairs to use, 1 to [`QUEUE_PAIRS_MAX`]. Fewer are used if the back end has fewer.
    pub queue_pairs: u16,
    /// MTU for the back end, octets, if it accepts one (`PROTOCOL_F_MTU`).
    pub mtu: Option<u16>,
}

impl Default for FrontendConfig {
    /// Returns one queue pair with `F_VERSION_1` and all protocol features but `PROTOCOL_F_INFLIGHT_SHMFD`.
    fn default() -> Self {
        Self {
            features: F_VERSION_1,
            required_features: F_VERSION_1,
            protocol_features: PROTOCOL_FEATURES & !PROTOCOL_F_INFLIGHT_SHMFD,
            queue_pairs: 1,
            mtu: None,
        }
    }
}

/// The negotiated features and number of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Virtio features, without `F_PROTOCOL_FEATURES`.
    pub features: u64,
    /// Protocol features; 0 if the back end has none.
    pub protocol_features: u64,
    /// Number of queue pairs, at least 1.
    pub queue_pairs: u16,
}

/// A ring of the front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendRing<F> {
    /// Number of entries.
    pub size: u16,
    /// Addresses of its areas, as user addresses of the regions.
    pub addresses: RingAddresses,
    /// Start position of the back end.
    pub base: RingBase,
    /// Eventfd that notifies the back end; `None`: it polls.
    pub kick: Option<F>,
    /// Eventfd that notifies the front end; `None`: it polls.
    pub call: Option<F>,
}

/// Tracking of buffers in flight. Used if `PROTOCOL_F_INFLIGHT_SHMFD` is negotiated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inflight<F> {
    /// None.
    Off,
    /// Ask the back end for an area: [`Action::KeepInflight`].
    Request,
    /// Restore the area of a previous connection.
    Restore(InflightArea, F),
}

/// Rings and memory of a front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources<F> {
    /// Memory regions with their files, 1 to 8.
    pub regions: Vec<(Region, F)>,
    /// Rings, two for each queue pair: the one that receives, then the one that sends.
    pub rings: Vec<FrontendRing<F>>,
    /// Tracking of buffers in flight.
    pub inflight: Inflight<F>,
}

/// An action that a caller carries out for a front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<F> {
    /// Send these octets with these file descriptors.
    Send(Vec<u8>, Vec<F>),
    /// Features are negotiated. Call [`Frontend::provide`].
    Negotiated(Negotiated),
    /// Keep this area for the next connection ([`Inflight::Restore`]).
    KeepInflight(InflightArea, F),
    /// The back end processes the rings.
    Ready(Negotiated),
    /// The back end has stopped the rings at these positions.
    Stopped(Vec<RingBase>),
}

/// A request to be sent.
#[derive(Debug)]
struct Message<F> {
    request: FrontendRequest,
    descriptors: Vec<F>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Negotiating,
    /// Waits for the caller's resources.
    Negotiated,
    SettingUp,
    Ready,
    Stopping,
    Ended,
}

/// Result of a step: actions, or the reason for the end of the session.
type Step<F> = Result<Vec<Action<F>>, SessionError>;

/// Front end of a connection.
#[derive(Debug)]
pub struct Frontend<F> {
    config: FrontendConfig,
    phase: Phase,
    queue: VecDeque<Message<F>>,
    /// The request whose reply is awaited.
    waiting: Option<FrontendRequest>,
    offered: u64,
    features: u64,
    protocol_features: u64,
    queue_pairs: u16,
    status: u8,
    bases: Vec<RingBase>,
}

impl<F> Frontend<F> {
    /// Returns a front end for a new connection. Numbers out of range are limited to it.
    #[must_use]
    pub fn new(mut config: FrontendConfig) -> Self {
        config.queue_pairs = config.queue_pairs.clamp(1, QUEUE_PAIRS_MAX);
        config.features |= config.required_features;
        config.features &= !F_PROTOCOL_FEATURES;
        config.required_features &= !F_PROTOCOL_FEATURES;
        config.protocol_features &= PROTOCOL_FEATURES;
        Self {
            config,
            phase: Phase::New,
            queue: VecDeque::new(),
            waiting: None,
            offered: 0,
            features: 0,
            protocol_features: 0,
            queue_pairs: 1,
            status: 0,
            bases: Vec::new(),
        }
    }

    /// Starts the negotiation.
    ///
    /// # Errors
    /// [`SessionError::OutOfOrder`]: it has been started before. The session has ended.
    pub fn start(&mut self) -> Step<F> {
        self.enter(Phase::New, Phase::Negotiating)?;
        self.push(FrontendRequest::SetOwner);
        self.push(FrontendRequest::GetFeatures);
        self.advance()
    }

    /// Provides rings and memory to the back end, after [`Action::Negotiated`] or [`Action::Stopped`].
    ///
    /// # Errors
    /// [`SessionError`]: the resources do not match the negotiation, or the session does not wait for them. The session has
    /// ended.
    pub fn provide(&mut self, resources: Resources<F>) -> Step<F> {
        self.enter(Phase::Negotiated, Phase::SettingUp)?;
        let result = self.push_resources(resources).and_then(|()| self.advance());
        self.end_on_error(result)
    }

    /// Stops the rings, after [`Action::Ready`].
    ///
    /// # Errors
    /// [`SessionError::OutOfOrder`]: the rings do not run. The session has ended.
    pub fn stop(&mut self) -> Step<F> {
        self.enter(Phase::Ready, Phase::Stopping)?;
        self.bases.clear();
        let rings = self.rings();
        if self.uses_protocol_features() {
            for index in 0..rings {
                self.push_enable(index, false);
            }
        }
        for index in 0..rings {
            self.push(FrontendRequest::GetRingBase {
                index: index_of(index),
            });
        }
        self.advance()
    }

    /// Handles a reply of the back end with its file descriptors.
    ///
    /// # Errors
    /// [`SessionError`]: the session has ended: the reply is not the expected one, or the back end refuses a request or
    /// lacks a feature.
    pub fn handle_reply(&mut self, reply: Reply, descriptors: Vec<F>) -> Step<F> {
        if self.phase == Phase::Ended {
            return Err(SessionError::Ended);
        }
        let result = self.take_reply(reply, descriptors).and_then(|mut first| {
            first.append(&mut self.advance()?);
            Ok(first)
        });
        self.end_on_error(result)
    }

    /// Returns what has been negotiated so far.
    #[must_use]
    pub fn negotiated(&self) -> Negotiated {
        Negotiated {
            features: self.features,
            protocol_features: self.protocol_features,
            queue_pairs: self.queue_pairs,
        }
    }

    /// Returns true if the back end processes the rings.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Returns the number of file descriptors that the session holds until they are sent.
    #[must_use]
    pub fn descriptors_held(&self) -> usize {
        self.queue
            .iter()
            .map(|message| message.descriptors.len())
            .sum()
    }

    fn take_reply(&mut self, reply: Reply, mut descriptors: Vec<F>) -> Step<F> {
        use FrontendRequest as R;
        let Some(request) = self.waiting.take() else {
            return Err(SessionError::UnexpectedReply(reply.code()));
        };
        if request.code() != reply.code() {
            return Err(SessionError::UnexpectedReply(reply.code()));
        }
        match (request, reply) {
            (R::GetFeatures, Reply::Number { value, .. }) => self.take_features(value)?,
            (R::GetProtocolFeatures, Reply::Number { value, .. }) => {
                self.take_protocol_features(value)
            }
            (R::GetQueueNumber, Reply::Number { value, .. }) => {
                let pairs = u16::try_from(value).unwrap_or(u16::MAX);
                if pairs == 0 {
                    return Err(SessionError::Value {
                        request: code::GET_QUEUE_NUM,
                        field: "number of queue pairs",
                    });
                }
                self.queue_pairs = pairs.min(self.config.queue_pairs);
            }
            (R::GetStatus, Reply::Number { value, .. }) => {
                // The device clears this bit if it does not accept the features (virtio 1.2, section 3.1.1).
                if value & u64::from(STATUS_FEATURES_OK) == 0 {
                    return Err(SessionError::Refused(code::SET_FEATURES));
                }
            }
            (R::GetRingBase { index }, Reply::RingBase { index: other, bits })
                if index == other =>
            {
                let base = RingBase::from_bits(bits, self.features & F_RING_PACKED != 0);
                let reason = "reserved bits of the base are set";
                self.bases
                    .push(base.ok_or(SessionError::BadRing { index, reason })?);
            }
            (R::GetInflight { .. }, Reply::Inflight(Some(area))) => {
                let missing = SessionError::Descriptors {
                    request: code::GET_INFLIGHT_FD,
                    count: 0,
                };
                let file = descriptors.pop().ok_or(missing)?;
                return Ok(vec![Action::KeepInflight(area, file)]);
            }
            (R::GetInflight { .. }, Reply::Inflight(None)) => {}
            (request, Reply::Number { value, .. }) if !has_reply(request.code()) => {
                if value != 0 {
                    return Err(SessionError::Refused(request.code()));
                }
            }
            (_, reply) => return Err(SessionError::UnexpectedReply(reply.code())),
        }
        Ok(Vec::new())
    }

    fn take_features(&mut self, offered: u64) -> Result<(), SessionError> {
        match self.config.required_features & !offered {
            0 => {}
            missing => return Err(SessionError::Missing(missing)),
        }
        self.offered = offered;
        self.features = without_unmet_segmentation(offered & self.config.features);
        if self.uses_protocol_features() {
            self.push(FrontendRequest::GetProtocolFeatures);
        } else {
            self.push_features();
        }
        Ok(())
    }

    fn take_protocol_features(&mut self, offered: u64) {
        let used = offered & self.config.protocol_features;
        self.protocol_features = used;
        self.push(FrontendRequest::SetProtocolFeatures(used));
        if used & PROTOCOL_F_MQ != 0 && self.config.queue_pairs > 1 {
            self.push(FrontendRequest::GetQueueNumber);
        }
        self.push_features();
    }

    /// Queues the end of the negotiation (virtio 1.2, section 3.1.1).
    fn push_features(&mut self) {
        self.push_status(STATUS_ACKNOWLEDGE | STATUS_DRIVER);
        let protocol = if self.uses_protocol_features() {
            F_PROTOCOL_FEATURES
        } else {
            0
        };
        self.push(FrontendRequest::SetFeatures(self.features | protocol));
        self.push_status(STATUS_FEATURES_OK);
        if self.protocol_features & PROTOCOL_F_STATUS != 0 {
            self.push(FrontendRequest::GetStatus);
        }
    }

    fn push_resources(&mut self, resources: Resources<F>) -> Result<(), SessionError> {
        let Resources {
            regions,
            rings,
            inflight,
        } = resources;
        if rings.len() != usize::from(self.rings()) {
            return Err(SessionError::Config(
                "number of rings differs from the queue pairs",
            ));
        }
        let (regions, files): (Vec<_>, Vec<_>) = regions.into_iter().unzip();
        let table = MemoryTable::new(regions);
        let table = table.ok_or(SessionError::Config(
            "memory requires 1 to 8 regions that do not overlap",
        ))?;
        let is_packed = self.features & F_RING_PACKED != 0;
        let mut prepared = Vec::with_capacity(rings.len());
        for (index, ring) in (0..self.rings()).zip(rings) {
            let size = RingSize::new(ring.size)
                .ok_or(SessionError::Config("ring size is out of range"))?;
            if matches!(ring.base, RingBase::Packed { .. }) != is_packed {
                return Err(SessionError::Config("base is of the other kind of ring"));
            }
            prepared.push((index_of(index), size, ring));
        }
        self.push_inflight(inflight, prepared.iter().map(|(_, size, _)| *size).max());
        self.push_with(FrontendRequest::SetMemoryTable(table), files);
        for (index, _, ring) in &mut prepared {
            let (event, call) = event(*index, ring.call.take());
            self.push_with(FrontendRequest::SetRingCall(event), call);
        }
        for (index, size, ring) in prepared {
            let (event, kick) = event(index, ring.kick);
            self.push(FrontendRequest::SetRingSize { index, size });
            self.push(FrontendRequest::SetRingBase {
                index,
                bits: ring.base.bits(),
            });
            self.push(FrontendRequest::SetRingAddresses {
                index,
                addresses: ring.addresses,
            });
            self.push_with(FrontendRequest::SetRingKick(event), kick);
        }
        if self.uses_protocol_features() {
            for index in 0..self.rings() {
                self.push_enable(index, true);
            }
        }
        if let Some(mtu) = self.config.mtu
            && self.protocol_features & PROTOCOL_F_MTU != 0
        {
            self.push(FrontendRequest::SetMtu(mtu.into()));
        }
        self.push_status(STATUS_DRIVER_OK);
        Ok(())
    }

    fn push_inflight(&mut self, inflight: Inflight<F>, ring_size: Option<RingSize>) {
        if self.protocol_features & PROTOCOL_F_INFLIGHT_SHMFD == 0 {
            return;
        }
        match (inflight, ring_size) {
            (Inflight::Request, Some(ring_size)) => {
                let rings = self.rings();
                self.push(FrontendRequest::GetInflight { rings, ring_size });
            }
            (Inflight::Restore(area, file), _) => {
                self.push_with(FrontendRequest::SetInflight(area), vec![file]);
            }
            _ => {}
        }
    }

    /// Queues the device status with additional bits, if the back end accepts it.
    fn push_status(&mut self, bits: u8) {
        if self.protocol_features & PROTOCOL_F_STATUS != 0 {
            self.status |= bits;
            self.push(FrontendRequest::SetStatus(self.status));
        }
    }

    fn push_enable(&mut self, index: u16, is_enabled: bool) {
        self.push(FrontendRequest::SetRingEnable {
            index: index_of(index),
            is_enabled,
        });
    }

    fn push(&mut self, request: FrontendRequest) {
        self.push_with(request, Vec::new());
    }

    fn push_with(&mut self, request: FrontendRequest, descriptors: Vec<F>) {
        self.queue.push_back(Message {
            request,
            descriptors,
        });
    }

    /// Sends queued requests up to the first one with a reply. Ends the phase when all are done.
    fn advance(&mut self) -> Step<F> {
        let mut actions = Vec::new();
        while self.waiting.is_none() {
            let Some(Message {
                request,
                descriptors,
            }) = self.queue.pop_front()
            else {
                actions.extend(self.end_phase());
                break;
            };
            let code = request.code();
            // The request that negotiates acknowledgements is not acknowledged.
            let need_reply = !has_reply(code)
                && code != code::SET_PROTOCOL_FEATURES
                && self.protocol_features & PROTOCOL_F_REPLY_ACK != 0;
            actions.push(Action::Send(request.encode(need_reply), descriptors));
            if need_reply || has_reply(code) {
                self.waiting = Some(request);
            }
        }
        Ok(actions)
    }

    fn end_phase(&mut self) -> Option<Action<F>> {
        let (next, action) = match self.phase {
            Phase::Negotiating => (Phase::Negotiated, Action::Negotiated(self.negotiated())),
            Phase::SettingUp => (Phase::Ready, Action::Ready(self.negotiated())),
            Phase::Stopping => (
                Phase::Negotiated,
                Action::Stopped(std::mem::take(&mut self.bases)),
            ),
            Phase::New | Phase::Negotiated | Phase::Ready | Phase::Ended => return None,
        };
        self.phase = next;
        Some(action)
    }

    fn enter(&mut self, from: Phase, to: Phase) -> Result<(), SessionError> {
        if self.phase == from {
            self.phase = to;
            return Ok(());
        }
        let error = if self.phase == Phase::Ended {
            SessionError::Ended
        } else {
            SessionError::OutOfOrder
        };
        self.end_on_error(Err(error))
    }

    fn end_on_error<T>(&mut self, result: Result<T, SessionError>) -> Result<T, SessionError> {
        if result.is_err() {
            self.phase = Phase::Ended;
            self.queue.clear();
            self.waiting = None;
        }
        result
    }

    /// Returns true if both sides have protocol features.
    fn uses_protocol_features(&self) -> bool {
        self.offered & F_PROTOCOL_FEATURES != 0 && self.config.protocol_features != 0
    }

    fn rings(&self) -> u16 {
        self.queue_pairs.saturating_mul(2)
    }
}

/// Returns the index of a ring for a message: there are at most 256.
fn index_of(index: u16) -> u8 {
    index.to_le_bytes()[0]
}

/// Returns the description of a ring's descriptor in a message, and the descriptor.
fn event<F>(index: u8, descriptor: Option<F>) -> (RingEvent, Vec<F>) {
    let has_descriptor = descriptor.is_some();
    (
        RingEvent {
            index,
            has_descriptor,
        },
        descriptor.into_iter().collect(),
    )
}
