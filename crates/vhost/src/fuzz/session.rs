// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets for messages and sessions. Octets control what a peer sends; a model of the caller checks the actions that
//! the session requests.

use std::cell::Cell;
use std::rc::Rc;

use crate::features::*;
use crate::message::{
    BackendRequest, ConfigWrite, FrontendRequest, Header, InflightArea, IotlbEntry, IotlbRange,
    LogArea, MemoryTable, Permission, Region, Reply, RingAddresses, RingBase, RingEvent, RingSize,
    code, has_reply,
};
use crate::session::backend::{Action, Backend, BackendConfig, RingConfig};
use crate::session::frontend::{self, Frontend, FrontendConfig, FrontendRing, Inflight, Resources};
use crate::session::{MEMORY_SLOTS_MAX, SessionError};

/// Octets that are consumed one by one; zeros after the end.
struct Octets<'o>(&'o [u8]);

impl Octets<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn is(&mut self) -> bool {
        self.next() & 1 != 0
    }

    /// Returns a number that is small, near a limit, or arbitrary.
    fn number(&mut self) -> u64 {
        let shape = self.next();
        match shape >> 6 {
            0 => (shape & 0x3f).into(),
            1 => u64::from(self.next()) << (shape & 0x3f),
            2 => u64::MAX.wrapping_sub(self.next().into()) >> (shape & 0x3f),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.next())),
        }
    }
}

/// File descriptor that counts how many of its kind exist.
#[derive(Debug)]
pub struct Token(Rc<Cell<usize>>);

impl Token {
    /// Returns one more descriptor.
    #[must_use]
    pub fn new(live: &Rc<Cell<usize>>) -> Self {
        live.set(live.get() + 1);
        Self(Rc::clone(live))
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Parses octets as each kind of message. A parsed message must be the same after encoding and parsing again. Returns the request of a front
/// end, if they are one.
#[allow(clippy::missing_panics_doc)]
pub fn fuzz_message(octets: &[u8]) -> Option<FrontendRequest> {
    let (count, octets) = octets.split_first()?;
    let (head, payload) = octets.split_first_chunk()?;
    let header = Header::parse(head).ok()?;
    let mut parsed = None;
    let payload = payload.get(..header.size()).unwrap_or(payload);
    let count = usize::from(*count & 0x0f);
    if let Ok(request) = FrontendRequest::parse(header, payload, count) {
        let again = reparse(&request, header.need_reply());
        assert_eq!(again.as_ref(), Ok(&request));
        parsed = Some(request);
    }
    if let Ok(request) = BackendRequest::parse(header, payload, count) {
        let (header, payload) = split(&request.encode(header.need_reply()));
        assert_eq!(BackendRequest::parse(header, &payload, 0), Ok(request));
    }
    if let Ok(reply) = Reply::parse(header, payload, count) {
        let (header, payload) = split(&reply.encode());
        assert_eq!(
            Reply::parse(header, &payload, reply.descriptors()),
            Ok(reply)
        );
    }
    if let Ok((number, is_success)) = BackendRequest::parse_acknowledgement(header, payload, count)
    {
        let (header, payload) = split(&BackendRequest::Unknown(number).acknowledge(is_success));
        let again = BackendRequest::parse_acknowledgement(header, &payload, 0);
        assert_eq!(again, Ok((number, is_success)));
    }
    parsed
}

/// Encodes a request and parses it again.
fn reparse(
    request: &FrontendRequest,
    need_reply: bool,
) -> Result<FrontendRequest, crate::message::MessageError> {
    let (header, payload) = split(&request.encode(need_reply));
    assert_eq!(header.need_reply(), need_reply);
    FrontendRequest::parse(header, &payload, request.descriptors())
}

/// Splits a message that this crate has encoded.
fn split(message: &[u8]) -> (Header, Vec<u8>) {
    let head = message.first_chunk().copied().unwrap_or_default();
    let payload = message.get(Header::LENGTH..).unwrap_or_default().to_vec();
    // A header of zeros is invalid: the comparison with the encoded one then fails.
    let header = Header::parse(&head);
    assert!(header.is_ok(), "{header:?} of {message:?}");
    let header = header.unwrap_or_else(|_| std::process::abort());
    assert_eq!(header.size(), payload.len());
    (header, payload)
}

/// Model of a back end's caller: carries out actions, and checks that each of them is possible.
#[derive(Debug)]
pub struct Caller {
    running: [bool; 256],
    enabled: [bool; 256],
    is_ready: bool,
    is_logging: bool,
    has_log: bool,
    regions: Vec<Region>,
    /// Starts of rings since the connection.
    starts: usize,
    /// Replies since the last request.
    replies: usize,
    /// Replies of the last request, and the descriptors with them.
    pub sent: Vec<(Vec<u8>, usize)>,
}

impl Default for Caller {
    fn default() -> Self {
        Self {
            running: [false; 256],
            enabled: [false; 256],
            is_ready: false,
            is_logging: false,
            has_log: false,
            regions: Vec::new(),
            starts: 0,
            replies: 0,
            sent: Vec::new(),
        }
    }
}

impl Caller {
    /// Returns true if the ring runs.
    #[must_use]
    pub fn is_running(&self, index: u8) -> bool {
        self.running
            .get(usize::from(index))
            .copied()
            .unwrap_or(false)
    }

    /// Returns true if the ring is enabled.
    #[must_use]
    pub fn is_enabled(&self, index: u8) -> bool {
        self.enabled
            .get(usize::from(index))
            .copied()
            .unwrap_or(false)
    }

    fn set_running(&mut self, index: u8, is_running: bool) {
        assert_ne!(self.is_running(index), is_running, "ring {index}");
        if let Some(ring) = self.running.get_mut(usize::from(index)) {
            *ring = is_running;
        }
    }

    fn set_enabled(&mut self, index: u8, is_enabled: bool) {
        if let Some(ring) = self.enabled.get_mut(usize::from(index)) {
            *ring = is_enabled;
        }
    }

    /// Passes a request to the back end and carries out all resulting actions, with successes and failures as the octets
    /// choose.
    fn handle(
        &mut self,
        backend: &mut Backend<Token>,
        request: FrontendRequest,
        need_reply: bool,
        live: &Rc<Cell<usize>>,
        outcomes: &mut Octets<'_>,
    ) -> Result<(), SessionError> {
        self.replies = 0;
        self.sent.clear();
        let request_code = request.code();
        let descriptors = (0..request.descriptors())
            .map(|_| Token::new(live))
            .collect();
        let mut actions = backend.handle(request, need_reply, descriptors)?;
        loop {
            let mut more = Vec::new();
            for action in actions {
                assert!(
                    more.is_empty(),
                    "an action follows one that waits for an answer"
                );
                more = self.carry_out(backend, action, live, outcomes)?;
            }
            if more.is_empty() {
                break;
            }
            actions = more;
        }
        let acknowledges = need_reply
            && (backend.protocol_features() & PROTOCOL_F_REPLY_ACK != 0
                || request_code == code::IOTLB_MSG);
        let expected = usize::from(has_reply(request_code) || acknowledges);
        assert_eq!(self.replies, expected, "replies to request {request_code}");
        assert_eq!(self.regions, backend.regions());
        Ok(())
    }

    fn carry_out(
        &mut self,
        backend: &mut Backend<Token>,
        action: Action<Token>,
        live: &Rc<Cell<usize>>,
        outcomes: &mut Octets<'_>,
    ) -> Result<Vec<Action<Token>>, SessionError> {
        // Zero, which is also the value after the end of the octets, is success.
        let result = |outcomes: &mut Octets<'_>| {
            if outcomes.next() % 16 == 15 {
                Err(())
            } else {
                Ok(())
            }
        };
        match action {
            Action::SetMemory(regions) => {
                let result = result(outcomes);
                if result.is_ok() {
                    self.regions = regions.iter().map(|(region, _)| *region).collect();
                }
                drop(regions);
                backend.memory_mapped(result)
            }
            Action::AddRegion(region, file) => {
                drop(file);
                let result = result(outcomes);
                if result.is_ok() {
                    self.regions.push(region);
                }
                backend.memory_mapped(result)
            }
            Action::RemoveRegion(region) => {
                assert!(self.regions.contains(&region));
                let result = result(outcomes);
                if result.is_ok() {
                    self.regions.retain(|other| *other != region);
                }
                backend.memory_mapped(result)
            }
            Action::SetLog { size, file, .. } => {
                assert!(size > 0);
                drop(file);
                let result = result(outcomes);
                self.has_log |= result.is_ok();
                backend.log_mapped(result)
            }
            Action::StopRing { index } => {
                self.set_running(index, false);
                let bits = u32::try_from(outcomes.number() & 0xffff).unwrap_or(0);
                let is_packed = backend.features() & F_RING_PACKED != 0;
                let base = RingBase::from_bits(bits, is_packed);
                backend.ring_stopped(index, base.unwrap_or(RingBase::initial(is_packed)))
            }
            Action::IotlbUpdate(entry) => {
                assert!(entry.size() > 0);
                backend.iotlb_updated(result(outcomes))
            }
            Action::IotlbInvalidate(range) => {
                assert!(range.first() <= range.last());
                backend.iotlb_updated(result(outcomes))
            }
            Action::CreateInflight {
                rings, ring_size, ..
            } => {
                let area = RingSize::new(ring_size)
                    .and_then(|ring_size| InflightArea::new(4096, 0, rings, ring_size));
                let made = result(outcomes).and_then(|()| area.ok_or(()));
                backend.inflight_created(made.map(|area| (area, Token::new(live))))
            }
            Action::SetInflight(_, file) => {
                assert!(self.running.iter().all(|is_running| !is_running));
                drop(file);
                backend.inflight_mapped(result(outcomes))
            }
            other => {
                self.note(other);
                Ok(Vec::new())
            }
        }
    }

    /// Carries out an action that has no answer.
    fn note(&mut self, action: Action<Token>) {
        match action {
            Action::Reply(octets, descriptors) => {
                let (header, payload) = split(&octets);
                let reply = Reply::parse(header, &payload, descriptors.len());
                assert!(reply.is_ok(), "{reply:?}");
                self.replies += 1;
                self.sent.push((octets, descriptors.len()));
            }
            Action::StartRing(config) => self.start(&config),
            Action::DeviceReady { rings, .. } => {
                assert!(!self.is_ready && (1..=256).contains(&rings));
                self.is_ready = true;
                self.is_logging = false;
            }
            Action::DeviceGone => {
                assert!(self.is_ready && self.running.iter().all(|is_running| !is_running));
                self.is_ready = false;
            }
            Action::SetLogging(is_logging) => {
                assert!(self.is_ready && (self.has_log || !is_logging));
                assert_ne!(self.is_logging, is_logging);
                self.is_logging = is_logging;
            }
            Action::EnableRing { index, is_enabled } => {
                assert!(self.is_running(index));
                assert_ne!(self.is_enabled(index), is_enabled);
                self.set_enabled(index, is_enabled);
            }
            Action::SetRingLogging { index, .. }
            | Action::SetKick { index, .. }
            | Action::SetCall { index, .. }
            | Action::SetError { index, .. } => assert!(self.is_running(index)),
            Action::SetMtu(mtu) => assert!(mtu >= 68),
            _ => {}
        }
    }

    fn start(&mut self, config: &RingConfig<Token>) {
        self.starts += 1;
        assert!(self.is_ready && !self.regions.is_empty());
        assert!((1..=32_768).contains(&config.size));
        assert_eq!(config.is_packed, config.features & F_RING_PACKED != 0);
        assert_eq!(
            matches!(config.base, RingBase::Packed { .. }),
            config.is_packed
        );
        assert!(config.is_packed || (config.size > 1 && config.size.is_power_of_two()));
        if let RingBase::Packed {
            available, used, ..
        } = config.base
        {
            assert!(available < config.size && used < config.size);
        }
        assert!(config.descriptors.is_multiple_of(16) && config.used.is_multiple_of(4));
        self.set_running(config.index, true);
        self.set_enabled(config.index, config.is_enabled);
        self.is_logging = config.features & F_LOG_ALL != 0;
        assert!(self.has_log || !self.is_logging);
    }

    /// Ends the session, as a caller does after an error.
    fn close(&mut self, backend: &mut Backend<Token>) {
        for action in backend.close() {
            match action {
                Action::StopRing { index } => self.set_running(index, false),
                Action::DeviceGone => self.is_ready = false,
                other => assert!(!self.is_ready, "{other:?}"),
            }
        }
        assert!(!self.is_ready && self.running.iter().all(|is_running| !is_running));
        assert_eq!(backend.descriptors_held(), 0);
        let late = backend.handle(FrontendRequest::GetFeatures, false, Vec::new());
        assert!(matches!(late, Err(SessionError::Ended)));
    }
}

/// Plays a front end that sends what the octets choose, and checks all actions of the back end. Returns how often a ring was started.
#[allow(clippy::missing_panics_doc)]
pub fn fuzz_backend_session(octets: &[u8]) -> usize {
    let mut octets = Octets(octets);
    let setup = octets.next();
    let mut config = BackendConfig {
        features: F_VERSION_1 | F_RING_PACKED | F_LOG_ALL | F_ACCESS_PLATFORM | NET_F_MRG_RXBUF,
        queue_pairs: if setup & 1 != 0 {
            128
        } else {
            1 + u16::from(setup >> 6)
        },
        protocol_features: if setup & 2 != 0 { 0 } else { u64::MAX },
        required_features: if setup & 4 != 0 { F_VERSION_1 } else { 0 },
        config_space: vec![7; 16],
        ..BackendConfig::default()
    };
    config.memory_slots = 8 + u16::from(octets.next() & 0x1f);
    let rings = 2 * config.queue_pairs;
    let live = Rc::new(Cell::new(0));
    let mut backend = Backend::new(config);
    let mut caller = Caller::default();
    if setup & 8 != 0 {
        // Most sessions never come this far with arbitrary octets alone.
        let mut none = Octets(&[]);
        for request in prologue(setup & 16 != 0) {
            if caller
                .handle(&mut backend, request, false, &live, &mut none)
                .is_err()
            {
                break;
            }
        }
    }
    while !octets.0.is_empty() {
        let Some(request) = any_request(&mut octets, setup & 2 == 0) else {
            continue;
        };
        assert_eq!(reparse(&request, false).as_ref(), Ok(&request));
        let need_reply = octets.is();
        let result = caller.handle(&mut backend, request, need_reply, &live, &mut octets);
        if result.is_err() {
            break;
        }
        assert_eq!(live.get(), backend.descriptors_held());
        assert!(backend.descriptors_held() <= 3 * usize::from(rings));
        assert!(backend.regions().len() <= usize::from(MEMORY_SLOTS_MAX));
    }
    caller.close(&mut backend);
    assert_eq!(live.get(), 0);
    caller.starts
}

/// Returns the requests that start the first ring of a back end.
fn prologue(is_packed: bool) -> Vec<FrontendRequest> {
    let packed = if is_packed { F_RING_PACKED } else { 0 };
    let region = Region::new(0, 1 << 20, 1 << 32, 0);
    let table = region.and_then(|region| MemoryTable::new(vec![region]));
    let protocol = PROTOCOL_F_REPLY_ACK
        | PROTOCOL_F_LOG_SHMFD
        | PROTOCOL_F_CONFIGURE_MEM_SLOTS
        | PROTOCOL_F_INFLIGHT_SHMFD
        | PROTOCOL_F_STATUS;
    let addresses = RingAddresses {
        descriptors: 1 << 32,
        available: (1 << 32) + 0x1000,
        used: (1 << 32) + 0x2000,
        log: None,
    };
    [
        Some(FrontendRequest::SetProtocolFeatures(protocol)),
        Some(FrontendRequest::SetFeatures(
            F_VERSION_1 | F_PROTOCOL_FEATURES | packed,
        )),
        table.map(FrontendRequest::SetMemoryTable),
        RingSize::new(256).map(|size| FrontendRequest::SetRingSize { index: 0, size }),
        Some(FrontendRequest::SetRingAddresses {
            index: 0,
            addresses,
        }),
        Some(FrontendRequest::SetRingKick(RingEvent {
            index: 0,
            has_descriptor: true,
        })),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns a request of any kind. Values are such that many of them are valid.
fn any_request(octets: &mut Octets<'_>, is_kind: bool) -> Option<FrontendRequest> {
    use FrontendRequest as R;
    let kind = octets.next() % 44;
    Some(match kind {
        1 => R::GetFeatures,
        2 => {
            let choice = octets.next();
            let bit = |bit: u8, mask: u64| if choice & bit != 0 { mask } else { 0 };
            let features = bit(1, F_LOG_ALL) | bit(2, F_PROTOCOL_FEATURES) | bit(4, F_RING_PACKED);
            let features = features | bit(8, F_ACCESS_PLATFORM) | bit(16, NET_F_MRG_RXBUF);
            let version = if choice & 32 != 0 && !is_kind {
                0
            } else {
                F_VERSION_1
            };
            let any = if choice >> 5 == 7 { octets.number() } else { 0 };
            R::SetFeatures(features | version | any)
        }
        3 => R::SetOwner,
        4 => R::ResetOwner,
        5 => {
            let count = 1 + octets.next() % 8;
            let regions = (0..count).filter_map(|_| any_region(octets)).collect();
            R::SetMemoryTable(MemoryTable::new(regions)?)
        }
        6 => R::SetLogBase(LogArea::new(octets.number(), octets.number())?),
        7 => R::SetLogEvent,
        8..=14 | 18 | 41 | 42 => any_ring_request(octets, kind)?,
        15 => R::GetProtocolFeatures,
        16 => R::SetProtocolFeatures(octets.number() | PROTOCOL_F_REPLY_ACK),
        17 => R::GetQueueNumber,
        19 => R::SendRarp(std::array::from_fn(|_| octets.next())),
        20 => R::SetMtu(octets.number()),
        21 => R::SetRequestChannel,
        22 => {
            let (iova, size, user) = (octets.number(), octets.number(), octets.number());
            R::IotlbUpdate(IotlbEntry::new(iova, size, user, Permission::ReadWrite)?)
        }
        23 => R::IotlbInvalidate(IotlbRange::new(octets.number(), octets.number())?),
        24 => {
            let offset = u32::try_from(octets.number()).unwrap_or(1);
            R::GetConfig {
                offset,
                size: 1 + u16::from(octets.next()),
                flags: 0,
            }
        }
        25 => R::SetConfig(ConfigWrite::new(0, octets.next().into(), vec![1])?),
        31 => {
            let rings = 1 + u16::from(octets.next());
            R::GetInflight {
                rings,
                ring_size: any_ring_size(octets)?,
            }
        }
        32 => {
            let (size, offset, rings) = (octets.number(), octets.number(), octets.next().into());
            R::SetInflight(InflightArea::new(
                size,
                offset,
                rings,
                any_ring_size(octets)?,
            )?)
        }
        34 => R::ResetDevice,
        36 => R::GetMemorySlots,
        37 => R::AddRegion(any_region(octets)?),
        38 => R::RemoveRegion(any_region(octets)?),
        39 => R::SetStatus(octets.next()),
        40 => R::GetStatus,
        unknown => R::Unknown(u32::from(unknown) + 1000 * u32::from(octets.next())),
    })
}

/// Returns a request about a ring, of the kind of this number.
fn any_ring_request(octets: &mut Octets<'_>, kind: u8) -> Option<FrontendRequest> {
    use FrontendRequest as R;
    let index = if octets.next() & 0x40 != 0 {
        octets.next()
    } else {
        octets.next() & 3
    };
    Some(match kind {
        8 => R::SetRingSize {
            index,
            size: any_ring_size(octets)?,
        },
        9 => R::SetRingAddresses {
            index,
            addresses: any_addresses(octets),
        },
        10 => R::SetRingBase {
            index,
            bits: u32::try_from(octets.number()).unwrap_or(0x8000_8000),
        },
        11 => R::GetRingBase { index },
        12 => R::SetRingKick(RingEvent {
            index,
            has_descriptor: octets.is(),
        }),
        13 => R::SetRingCall(RingEvent {
            index,
            has_descriptor: octets.is(),
        }),
        14 => R::SetRingError(RingEvent {
            index,
            has_descriptor: octets.is(),
        }),
        18 => R::SetRingEnable {
            index,
            is_enabled: octets.is(),
        },
        // A ring that starts at once: the separate steps are improbable.
        41 => R::SetRingAddresses {
            index,
            addresses: RingAddresses {
                used: 4,
                ..Default::default()
            },
        },
        _ => R::SetRingSize {
            index,
            size: RingSize::new(2)?,
        },
    })
}

fn any_region(octets: &mut Octets<'_>) -> Option<Region> {
    let place = octets.next();
    if place & 0x80 == 0 {
        let guest = u64::from(place) << 20;
        return Region::new(guest, 1 << 20, guest + (1 << 40), 0);
    }
    Region::new(
        octets.number(),
        octets.number(),
        octets.number(),
        octets.number(),
    )
}

fn any_ring_size(octets: &mut Octets<'_>) -> Option<RingSize> {
    let shape = octets.next();
    if shape & 0x80 == 0 {
        return RingSize::new(1 << (shape & 0x0f));
    }
    RingSize::new(u16::from_le_bytes([octets.next(), octets.next()]))
}

fn any_addresses(octets: &mut Octets<'_>) -> RingAddresses {
    let shape = octets.next();
    let mask = if shape & 0x0c == 0 { 0 } else { 15 };
    RingAddresses {
        descriptors: octets.number() & !mask,
        available: octets.number() & !mask,
        used: octets.number() & !mask,
        log: (shape & 1 != 0).then(|| octets.number()),
    }
}

/// Progress of a front end.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrontendDepth {
    /// It was ready at any time.
    pub was_ready: bool,
    /// Rings that it stopped after that.
    pub stopped_rings: usize,
}

/// Plays a back end that replies what the octets choose, and checks that the front end ends or becomes ready.
#[allow(clippy::missing_panics_doc)]
pub fn fuzz_frontend_session(octets: &[u8]) -> FrontendDepth {
    let mut octets = Octets(octets);
    let mut depth = FrontendDepth::default();
    let setup = octets.next();
    let live = Rc::new(Cell::new(0));
    let mut frontend = Frontend::new(FrontendConfig {
        features: F_VERSION_1 | F_RING_PACKED | NET_F_MRG_RXBUF,
        required_features: if setup & 1 != 0 { F_VERSION_1 } else { 0 },
        protocol_features: if setup & 2 != 0 { 0 } else { u64::MAX },
        queue_pairs: 1 + u16::from(setup >> 5),
        mtu: (setup & 4 != 0).then_some(1500),
    });
    // The last requests that wait for a reply, as the back end sees them.
    let mut due = Vec::new();
    let mut step = frontend.start();
    loop {
        let Ok(actions) = step else {
            break;
        };
        let mut next = None;
        for action in actions {
            match action {
                frontend::Action::Send(message, descriptors) => {
                    let (header, payload) = split(&message);
                    let request = FrontendRequest::parse(header, &payload, descriptors.len());
                    let Ok(request) = request else {
                        assert!(request.is_ok(), "{request:?} of {message:?}");
                        return depth;
                    };
                    if has_reply(request.code()) || header.need_reply() {
                        due.push(request);
                    }
                }
                frontend::Action::Negotiated(negotiated) => {
                    assert!((1..=1 + u16::from(setup >> 5)).contains(&negotiated.queue_pairs));
                    next = Some(frontend.provide(any_resources(&mut octets, negotiated, &live)));
                }
                frontend::Action::KeepInflight(_, file) => drop(file),
                frontend::Action::Ready(_) => {
                    assert!(frontend.is_ready());
                    depth.was_ready = true;
                    if octets.is() {
                        next = Some(frontend.stop());
                    }
                }
                frontend::Action::Stopped(bases) => {
                    assert_eq!(
                        bases.len(),
                        2 * usize::from(frontend.negotiated().queue_pairs)
                    );
                    depth.stopped_rings = bases.len();
                }
            }
        }
        assert!(due.len() <= 1, "{due:?}");
        // Otherwise the next actions hold some.
        assert!(next.is_some() || live.get() == frontend.descriptors_held());
        step = match next {
            Some(step) => step,
            None if octets.0.is_empty() => break,
            None => {
                let reply = any_reply(&mut octets, due.pop());
                let descriptors = (0..reply.descriptors())
                    .map(|_| Token::new(&live))
                    .collect();
                frontend.handle_reply(reply, descriptors)
            }
        };
    }
    drop(frontend);
    assert_eq!(live.get(), 0);
    depth
}

/// Returns resources that usually match the negotiation.
fn any_resources(
    octets: &mut Octets<'_>,
    negotiated: frontend::Negotiated,
    live: &Rc<Cell<usize>>,
) -> Resources<Token> {
    let shape = octets.next();
    let is_packed = negotiated.features & F_RING_PACKED != 0;
    let region = Region::new(0, 1 << 20, 0, 0);
    let rings = 2 * negotiated.queue_pairs + u16::from(shape >> 7);
    let rings = (0..rings).map(|_| FrontendRing {
        size: 256,
        addresses: RingAddresses::default(),
        base: RingBase::initial(is_packed),
        kick: (shape & 1 != 0).then(|| Token::new(live)),
        call: (shape & 2 != 0).then(|| Token::new(live)),
    });
    let area = RingSize::new(256).and_then(|size| InflightArea::new(4096, 0, 2, size));
    let inflight = match (shape >> 2 & 3, area) {
        (1, _) => Inflight::Request,
        (2, Some(area)) => Inflight::Restore(area, Token::new(live)),
        _ => Inflight::Off,
    };
    Resources {
        regions: region
            .into_iter()
            .map(|region| (region, Token::new(live)))
            .collect(),
        rings: rings.collect(),
        inflight,
    }
}

/// Returns a reply, usually of the right kind for the pending request.
fn any_reply(octets: &mut Octets<'_>, due: Option<FrontendRequest>) -> Reply {
    let shape = octets.next();
    if shape >= 0xf0 {
        let number = octets.number();
        return match shape & 3 {
            0 => Reply::Config(None),
            1 => Reply::Inflight(None),
            2 => Reply::RingBase {
                index: octets.next(),
                bits: 0,
            },
            _ => Reply::Number {
                request: octets.next().into(),
                value: number,
            },
        };
    }
    match due {
        Some(FrontendRequest::GetRingBase { index }) => Reply::RingBase {
            index,
            bits: octets.next().into(),
        },
        Some(FrontendRequest::GetInflight { rings, ring_size }) => {
            Reply::Inflight(InflightArea::new(octets.number(), 0, rings, ring_size))
        }
        Some(request) if has_reply(request.code()) => {
            let value = if shape & 1 != 0 {
                octets.number()
            } else {
                u64::MAX
            };
            Reply::Number {
                request: request.code(),
                value,
            }
        }
        Some(request) => Reply::acknowledge(request.code(), shape != 1),
        None => Reply::Number {
            request: octets.next().into(),
            value: 0,
        },
    }
}
