// SPDX-License-Identifier: Apache-2.0
//! One connection of a front end: its messages, its session, and the actions that the session requests.
//!
//! Rings are changed only while all of them are parked. If a forwarding thread uses one, further work waits and no further
//! message is read. An IOTLB changes while rings are in use: an invalidation is answered when no thread can use the removed
//! entries any more.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quietwire_base::{Deadline, RateLimit};
use quietwire_memory::{Doorbell, Sealing};
use quietwire_vhost::address_space::{Miss, Permission as Access};
use quietwire_vhost::features::{F_ACCESS_PLATFORM, F_RING_PACKED};
use quietwire_vhost::message::{FrontendRequest, IotlbEntry, IotlbRange, Permission, RingBase};
use quietwire_vhost::ring::{self, Ring, RingError};
use quietwire_vhost::session::backend::{Action, Backend, BackendConfig, Kick, RingConfig};

use super::memory::Memory;
use super::rings::{IOTLB_PAGE, Misses, RingContext, RxRing, TxRing};
use super::slots::Slots;
use crate::port::interrupts::Watched;
use crate::port::peer::{Guest, Status};
use crate::port::peers::input::{Incoming, Input};
use crate::port::peers::socket;

/// Rate limit of messages of a connection: a burst, then one per interval.
const MESSAGES_BURST: u32 = 512;
const MESSAGE_INTERVAL: Duration = Duration::from_millis(2);
/// Rate limit of IOTLB messages. A guest that maps each buffer causes several per frame.
const IOTLB_MESSAGES_BURST: u32 = 2048;
const IOTLB_MESSAGE_INTERVAL: Duration = Duration::from_micros(100);
/// Timeout for a front end to send the rest of a message.
const MESSAGE: Duration = Duration::from_secs(2);
/// Timeout for a forwarding thread to leave a ring.
const PARKING: Duration = Duration::from_secs(10);
/// Time for the front end to answer before a miss is reported again. QEMU answers each report. If the guest has unmapped the
/// address before the second report, QEMU treats that as a fault of the device.
const MISS_AGAIN: Duration = Duration::from_millis(500);
/// Most reported misses without an answer. These are fewer messages than fit in a socket.
const ASKED_MAX: usize = 128;
/// Number of checks whether forwarding threads have left the rings, before the thread serves others.
const LOOKS: usize = 1000;

/// Remaining work at the end of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// None: wait for the next message.
    Idle,
    /// A thread uses a ring: try again shortly.
    Parking,
    /// The front end exceeds the rate limit: continue after this time.
    Pause(Duration),
}

/// A ring that runs, or waits for an address.
struct Running {
    config: RingConfig<OwnedFd>,
    misses: Arc<Misses>,
    /// The ring waits until the IOTLB has this address of the ring.
    pending: Option<Miss>,
    /// The guest's kicks, while threads may wait for them.
    _kick: Option<Watched>,
}

/// An invalidation of the IOTLB.
#[derive(Clone, Copy)]
struct Invalidated {
    first: u64,
    size: u64,
    result: Result<(), ()>,
}

/// A connection.
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    /// Number of the connection on its port.
    number: u32,
    port: String,
    session: Backend<OwnedFd>,
    actions: VecDeque<Action<OwnedFd>>,
    memory: Memory,
    rings: Vec<Option<Running>>,
    /// Socket for requests to the front end.
    channel: Option<OwnedFd>,
    /// Misses that were reported recently and not answered.
    asked: Vec<(Miss, Instant)>,
    /// An invalidation that is answered when no forwarding thread uses the removed entries.
    invalidated: Option<Invalidated>,
    input: Input,
    /// Deadlines for the complete message, and for parked rings.
    message_by: Option<Deadline>,
    parked_by: Option<Deadline>,
    is_parked: bool,
    rate: RateLimit,
    iotlb_rate: RateLimit,
    /// True if the last message was an IOTLB message.
    was_iotlb: bool,
}

type Done = Result<(), String>;

impl Connection {
    pub(super) fn new(
        socket: OwnedFd,
        number: u32,
        port: &str,
        config: &BackendConfig,
        sealing: Sealing,
        now: Instant,
    ) -> Self {
        Self {
            socket,
            number,
            port: port.to_owned(),
            session: Backend::new(config.clone()),
            actions: VecDeque::new(),
            memory: Memory::new(sealing),
            rings: (0..config.queue_pairs.saturating_mul(2))
                .map(|_| None)
                .collect(),
            channel: None,
            asked: Vec::new(),
            invalidated: None,
            input: Input::default(),
            message_by: None,
            parked_by: None,
            is_parked: false,
            rate: RateLimit::new(MESSAGE_INTERVAL, MESSAGES_BURST, now),
            iotlb_rate: RateLimit::new(IOTLB_MESSAGE_INTERVAL, IOTLB_MESSAGES_BURST, now),
            was_iotlb: false,
        }
    }

    /// Continues pending work, then reads at most `messages` messages.
    ///
    /// # Errors
    /// The reason why the connection must end.
    pub(super) fn advance(
        &mut self,
        slots: &mut Slots,
        status: &Status,
        messages: usize,
        now: Instant,
    ) -> Result<Step, String> {
        for _ in 0..=messages {
            if !self.carry_out(slots, status, now)? {
                return Ok(Step::Parking);
            }
            // The kind of the next message is known only after it is read, so it counts as the kind of the previous one.
            let rate = if self.was_iotlb {
                &mut self.iotlb_rate
            } else {
                &mut self.rate
            };
            if let Err(wait) = rate.take(now) {
                self.unpark(slots);
                return Ok(Step::Pause(wait));
            }
            let Some(incoming) = self.read(now)? else {
                break;
            };
            let request = incoming.message;
            self.was_iotlb = matches!(
                request,
                FrontendRequest::IotlbUpdate(_) | FrontendRequest::IotlbInvalidate(_)
            );
            let need_reply = incoming.header.need_reply();
            let actions = self.session.handle(request, need_reply, incoming.files);
            self.actions
                .extend(actions.map_err(|error| error.to_string())?);
        }
        let is_done = self.carry_out(slots, status, now)?;
        if is_done {
            self.unpark(slots);
        }
        Ok(if is_done { Step::Idle } else { Step::Parking })
    }

    fn unpark(&mut self, slots: &mut Slots) {
        if std::mem::take(&mut self.is_parked) {
            slots.unpark();
        }
    }

    /// Reads a message. `None` if it is not complete yet.
    fn read(&mut self, now: Instant) -> Result<Option<Incoming<FrontendRequest>>, String> {
        let incoming = self
            .input
            .read(&self.socket, "front end", FrontendRequest::parse)?;
        let is_partial = incoming.is_none() && !self.input.is_empty();
        self.message_by = is_partial.then(|| {
            self.message_by
                .unwrap_or_else(|| Deadline::at(now, MESSAGE))
        });
        Ok(incoming)
    }

    /// Performs the actions of the session. Returns false if a thread uses a ring.
    fn carry_out(
        &mut self,
        slots: &mut Slots,
        status: &Status,
        now: Instant,
    ) -> Result<bool, String> {
        loop {
            if let Some(invalidated) = self.invalidated {
                if !(0..LOOKS).any(|_| slots.visits_have_ended()) {
                    return self.wait_for_threads(now);
                }
                self.parked_by = None;
                self.invalidated = None;
                // Earlier misses of rings were for buffers that they have returned.
                self.forget_misses(invalidated.first, invalidated.size);
                self.continue_setup(|session| session.iotlb_updated(invalidated.result))?;
            }
            let Some(action) = self.actions.pop_front() else {
                return Ok(true);
            };
            if self.changes_rings(&action) && !self.is_parked {
                if !slots.park(self.number) {
                    self.actions.push_front(action);
                    return self.wait_for_threads(now);
                }
                self.parked_by = None;
                self.is_parked = true;
            }
            self.act(action, slots, status)?;
        }
    }

    /// Postpones the work until the forwarding thread has left the rings. Returns false.
    fn wait_for_threads(&mut self, now: Instant) -> Result<bool, String> {
        let by = *self.parked_by.get_or_insert(Deadline::at(now, PARKING));
        if by.remaining_at(now).is_zero() {
            return Err("a forwarding thread did not leave the rings in time".to_owned());
        }
        Ok(false)
    }

    /// Returns true if an action requires parked rings.
    fn changes_rings(&self, action: &Action<OwnedFd>) -> bool {
        match action {
            Action::IotlbUpdate(_) => self
                .rings
                .iter()
                .flatten()
                .any(|ring| ring.pending.is_some()),
            Action::Reply(..)
            | Action::Refused(_)
            | Action::DeviceReady { .. }
            | Action::DeviceGone
            | Action::SetKick { .. }
            | Action::SetError { .. }
            | Action::IotlbChannel(_)
            | Action::IotlbInvalidate(_)
            | Action::CreateInflight { .. }
            | Action::SetMtu(_) => false,
            _ => true,
        }
    }

    fn act(&mut self, action: Action<OwnedFd>, slots: &mut Slots, status: &Status) -> Done {
        match action {
            Action::Reply(octets, files) => {
                socket::send(&self.socket, &octets, &files).map_err(|error| error.to_string())
            }
            Action::Refused(error) => {
                tracing::debug!("port '{}': refused: {error}", self.port);
                Ok(())
            }
            Action::SetMemory(regions) => {
                let result = self.memory.set(regions);
                self.memory_changed(result, slots, status)
            }
            Action::AddRegion(region, file) => {
                let result = self.memory.add(region, file);
                self.memory_changed(result, slots, status)
            }
            Action::RemoveRegion(region) => {
                let result = self.memory.remove(&region);
                self.memory_changed(result, slots, status)
            }
            Action::SetLog { size, offset, file } => {
                let result = self.memory.set_log(size, offset, &file);
                self.log_changed(slots);
                let result = self.warned(result);
                self.continue_setup(|session| session.log_mapped(result))
            }
            Action::SetLogging(is_on) => {
                set_logging(is_on, slots, status);
                Ok(())
            }
            Action::SetRingLogging { index, log } => {
                self.with_running(index, |running| running.config.log = log);
                self.rebuild(index, slots)
            }
            Action::DeviceReady { features, .. } => {
                // Rings are counted when they start.
                status.up(Guest {
                    features,
                    ..Guest::default()
                });
                tracing::info!("port '{}': connected", self.port);
                Ok(())
            }
            Action::DeviceGone => {
                status.down(Some("the guest's driver is not ready".to_owned()));
                Ok(())
            }
            Action::StartRing(config) => self.start_ring(*config, slots, status),
            Action::StopRing { index } => self.stop_ring(index, slots),
            Action::EnableRing { index, is_enabled } => {
                self.with_running(index, |running| running.config.is_enabled = is_enabled);
                slots.enable(index, is_enabled);
                Ok(())
            }
            Action::SetCall { index, call } => self.set_call(index, call, slots),
            Action::SetKick { index, kick } => self.set_kick(index, kick, slots),
            // Faults end the connection: the descriptor is closed.
            Action::SetError { .. } => Ok(()),
            Action::IotlbChannel(channel) => {
                self.channel = Some(channel);
                Ok(())
            }
            Action::IotlbUpdate(entry) => self.update_iotlb(&entry, slots),
            Action::IotlbInvalidate(range) => {
                self.invalidate_iotlb(&range, slots);
                Ok(())
            }
            Action::CreateInflight {
                rings,
                ring_size,
                is_packed,
            } => {
                let result = Memory::create_inflight(rings, ring_size, is_packed);
                let result = self.warned(result);
                self.continue_setup(|session| session.inflight_created(result))
            }
            Action::SetInflight(area, file) => {
                let is_packed = self.session.features() & F_RING_PACKED != 0;
                let result = self.memory.set_inflight(area, &file, is_packed);
                let result = self.warned(result);
                self.continue_setup(|session| session.inflight_mapped(result))
            }
            // The port accepts frames of any length up to its largest frame anyway.
            Action::SetMtu(_) => Ok(()),
            Action::SendRarp(address) => {
                let (mut rx, _) = slots.parked();
                if let Some(first) = rx.next() {
                    first.announce = Some(address);
                }
                Ok(())
            }
        }
    }

    /// Adds an entry to the IOTLB, and starts the rings that have waited for it.
    fn update_iotlb(&mut self, entry: &IotlbEntry, slots: &mut Slots) -> Done {
        let is_added = self.memory.iotlb().is_some_and(|iotlb| {
            let access = access_of(entry.permission());
            iotlb.update(entry.iova(), entry.size(), entry.user_address(), access)
        });
        self.forget_misses(entry.iova(), entry.size());
        self.start_pending(slots)?;
        let result = if is_added { Ok(()) } else { Err(()) };
        self.continue_setup(|session| session.iotlb_updated(result))
    }

    /// Removes entries from the IOTLB. The session answers when no forwarding thread uses them.
    fn invalidate_iotlb(&mut self, range: &IotlbRange, slots: &mut Slots) {
        // The size of the range of all addresses exceeds the integer type; the last address then stays.
        let size = range.last().saturating_sub(range.first()).saturating_add(1);
        let is_removed = self
            .memory
            .iotlb()
            .is_some_and(|iotlb| iotlb.invalidate(range.first(), size));
        self.invalidated = Some(Invalidated {
            first: range.first(),
            size,
            result: if is_removed { Ok(()) } else { Err(()) },
        });
        slots.await_visits();
    }

    /// Logs an error. The session answers the front end.
    fn warned<T>(&self, result: Result<T, String>) -> Result<T, String> {
        result.inspect_err(|error| tracing::warn!("port '{}': {error}", self.port))
    }

    /// Reports an outcome to the session, and queues the actions that it then requests.
    fn continue_setup<E: ToString>(
        &mut self,
        report: impl FnOnce(&mut Backend<OwnedFd>) -> Result<Vec<Action<OwnedFd>>, E>,
    ) -> Done {
        let actions = report(&mut self.session).map_err(|error| error.to_string())?;
        for action in actions.into_iter().rev() {
            self.actions.push_front(action);
        }
        Ok(())
    }

    fn with_running(&mut self, index: u8, change: impl FnOnce(&mut Running)) {
        if let Some(Some(running)) = self.rings.get_mut(usize::from(index)) {
            change(running);
        }
    }

    fn memory_changed(
        &mut self,
        result: Result<(), String>,
        slots: &mut Slots,
        status: &Status,
    ) -> Done {
        status.set_memory(self.memory.mappings());
        let result = self.warned(result);
        if result.is_ok() {
            for index in 0..self.rings.len() {
                self.rebuild(u8::try_from(index).unwrap_or(u8::MAX), slots)?;
            }
        }
        self.continue_setup(|session| session.memory_mapped(result))
    }

    fn log_changed(&mut self, slots: &mut Slots) {
        let (rx, tx) = slots.parked();
        let log = self.memory.log();
        rx.for_each(|found| found.ring.set_log(log.clone()));
        tx.for_each(|found| found.ring.set_log(log.clone()));
    }

    /// Starts a ring, or records that it waits for the IOTLB.
    fn start_ring(
        &mut self,
        mut config: RingConfig<OwnedFd>,
        slots: &mut Slots,
        status: &Status,
    ) -> Done {
        let index = config.index;
        if config.features & F_ACCESS_PLATFORM != 0 {
            self.memory.use_iotlb()?;
        }
        status.add_ring(config.size);
        // The first queue of a guest is its receive queue (virtio 1.2, section 5.1.2).
        match index {
            0 => status.set_tx_ring_size(config.size),
            1 => status.set_rx_ring_size(config.size),
            _ => {}
        }
        slots.enable(index, config.is_enabled);
        let kick = std::mem::replace(&mut config.kick, Kick::Poll);
        let running = Running {
            config,
            misses: Arc::default(),
            pending: None,
            _kick: None,
        };
        if let Some(place) = self.rings.get_mut(usize::from(index)) {
            *place = Some(running);
        }
        self.set_kick(index, kick, slots)?;
        self.try_start(index, slots)
    }

    /// Creates and attaches a waiting ring, unless it must still wait.
    fn try_start(&mut self, index: u8, slots: &mut Slots) -> Done {
        let Some(Some(running)) = self.rings.get_mut(usize::from(index)) else {
            return Ok(());
        };
        let call = match running.config.call.take() {
            Some(call) => Some(doorbell(call)?),
            None => None,
        };
        let base = running.config.base.bits();
        match attach(&self.memory, running, base, call, self.number, slots) {
            Ok(()) => {
                running.pending = None;
                Ok(())
            }
            Err((RingError::Miss(miss), call)) => {
                // For the next attempt.
                running.config.call = call.map(Doorbell::into_event);
                running.pending = Some(miss);
                Ok(())
            }
            Err((error, _)) => Err(error.to_string()),
        }
    }

    fn start_pending(&mut self, slots: &mut Slots) -> Done {
        for index in 0..self.rings.len() {
            let is_pending = self
                .rings
                .get(index)
                .and_then(Option::as_ref)
                .is_some_and(|running| running.pending.is_some());
            if is_pending {
                self.try_start(u8::try_from(index).unwrap_or(u8::MAX), slots)?;
            }
        }
        Ok(())
    }

    /// Recreates a parked ring at its position, after its memory or its log has changed.
    fn rebuild(&mut self, index: u8, slots: &mut Slots) -> Done {
        let Some(Some(running)) = self.rings.get_mut(usize::from(index)) else {
            return Ok(());
        };
        let (base, call) = if let Some(ring) = slots.rx(index).and_then(Option::take) {
            (ring.ring.base(), ring.context.call)
        } else if let Some(ring) = slots.tx(index).and_then(Option::take) {
            (ring.ring.base(), ring.context.call)
        } else {
            return Ok(());
        };
        // A notification of buffers that the former ring returned may be due.
        if let Some(call) = &call {
            call.ring();
        }
        running.config.features = self.session.features();
        match attach(&self.memory, running, base, call, self.number, slots) {
            Ok(()) => Ok(()),
            Err((error, _)) => Err(error.to_string()),
        }
    }

    /// Detaches a ring, and reports its position to the session.
    fn stop_ring(&mut self, index: u8, slots: &mut Slots) -> Done {
        let base = slots
            .rx(index)
            .and_then(Option::take)
            .map(|ring| ring.ring.base())
            .or_else(|| {
                let ring = slots.tx(index).and_then(Option::take);
                ring.map(|ring| ring.ring.base())
            });
        slots.remove(index);
        let running = self
            .rings
            .get_mut(usize::from(index))
            .and_then(Option::take);
        // A ring without a queue is at its initial position. After a reset, the session has no features any more.
        let (begin, is_packed) = running.map_or((RingBase::initial(false), false), |running| {
            (running.config.base, running.config.is_packed)
        });
        let base = base
            .and_then(|bits| RingBase::from_bits(bits, is_packed))
            .unwrap_or(begin);
        self.continue_setup(|session| session.ring_stopped(index, base))
    }

    fn set_kick(&mut self, index: u8, kick: Kick<OwnedFd>, slots: &Slots) -> Done {
        // A guest without kick descriptor is polled.
        let kick = match kick {
            Kick::Event(kick) => slots.watch(index, kick)?,
            Kick::Poll => None,
        };
        self.with_running(index, |running| running._kick = kick);
        Ok(())
    }

    fn set_call(&mut self, index: u8, call: Option<OwnedFd>, slots: &mut Slots) -> Done {
        let call = call.map(doorbell).transpose()?;
        // Buffers may have been used between the former eventfd and this one.
        if let Some(call) = &call {
            call.ring();
        }
        if let Some(Some(ring)) = slots.rx(index) {
            ring.context.call = call;
        } else if let Some(Some(ring)) = slots.tx(index) {
            ring.context.call = call;
        } else {
            self.with_running(index, |running| {
                running.config.call = call.map(Doorbell::into_event);
            });
        }
        Ok(())
    }

    /// Checks deadlines, memory and misses; called periodically.
    ///
    /// # Errors
    /// The reason why the connection must end.
    pub(super) fn look(&mut self, now: Instant) -> Done {
        let is_late = |by: &Deadline| by.remaining_at(now).is_zero();
        if self.message_by.as_ref().is_some_and(is_late) {
            return Err("the front end did not send the rest of a message in time".to_owned());
        }
        if self.memory.has_faulted() {
            return Err("the front end truncated its memory".to_owned());
        }
        self.report_misses(now)
    }

    /// Fills a part of the page tables of the guest's memory. Returns true while more remains.
    pub(super) fn populate(&mut self) -> bool {
        self.memory.populate()
    }

    /// Returns true if addresses may be missing, which requires frequent checks.
    pub(super) fn has_iotlb(&self) -> bool {
        self.memory.iotlb().is_some()
    }

    /// Requests from the front end the addresses that rings wait for.
    fn report_misses(&mut self, now: Instant) -> Done {
        let Some(channel) = &self.channel else {
            return Ok(());
        };
        self.asked
            .retain(|(_, at)| now.saturating_duration_since(*at) < MISS_AGAIN);
        for running in self.rings.iter().flatten() {
            if let Some(miss) = running.pending {
                running.misses.add(miss);
            }
            for miss in running.misses.take() {
                // A thread may have read the IOTLB before an update, and recorded the miss after it.
                let iotlb = self.memory.iotlb();
                let is_answered = iotlb.is_some_and(|iotlb| iotlb.allows(miss.iova, miss.write));
                let was_asked = self.asked.iter().any(|(asked, _)| *asked == miss);
                if is_answered || was_asked || self.asked.len() >= ASKED_MAX {
                    continue;
                }
                let permission = if miss.write {
                    Permission::Write
                } else {
                    Permission::Read
                };
                let Some(octets) = self.session.iotlb_miss(miss.iova, permission) else {
                    continue;
                };
                let none: [OwnedFd; 0] = [];
                match socket::send(channel, &octets, &none) {
                    Ok(()) => self.asked.push((miss, now)),
                    // The front end is slow. Rings will miss the address again.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error.to_string()),
                }
            }
        }
        Ok(())
    }

    /// Forgets misses of a range, reported or not. New misses of its addresses are reported at once.
    fn forget_misses(&mut self, first: u64, size: u64) {
        let last = first.saturating_add(size.saturating_sub(1));
        let is_other = |miss: &Miss| miss.iova > last || miss.iova | (IOTLB_PAGE - 1) < first;
        self.asked.retain(|(miss, _)| is_other(miss));
        for running in self.rings.iter().flatten() {
            running.misses.retain(is_other);
        }
    }
}

/// Starts or stops the log of written pages, of all parked rings.
fn set_logging(is_on: bool, slots: &mut Slots, status: &Status) {
    let (rx, tx) = slots.parked();
    rx.for_each(|found| found.ring.set_logging(is_on));
    tx.for_each(|found| found.ring.set_logging(is_on));
    status.set_logging(is_on);
}

/// Opens an eventfd of the front end.
fn doorbell(file: OwnedFd) -> Result<Doorbell, String> {
    Doorbell::new(file).map_err(|error| format!("eventfd: {error}"))
}

fn access_of(permission: Permission) -> Access {
    Access {
        read: permission != Permission::Write,
        write: permission != Permission::Read,
    }
}

/// Creates a ring and parks it in its queue's slot. An error returns the interrupt. Rings without a queue are not created.
fn attach(
    memory: &Memory,
    running: &Running,
    base: u32,
    call: Option<Doorbell>,
    connection: u32,
    slots: &mut Slots,
) -> Result<(), (RingError, Option<Doorbell>)> {
    let config = &running.config;
    let index = config.index;
    let Some(space) = memory.space() else {
        return Err((RingError::Outside("memory", 0), call));
    };
    let ring_config = ring::RingConfig {
        size: config.size,
        descriptors: config.descriptors,
        driver: config.available,
        device: config.used,
        space,
        base,
        features: config.features,
        log: memory.log(),
        ring_log_address: config.log,
        inflight: memory.inflight(index),
    };
    let context = |call| {
        RingContext::new(
            call,
            Arc::clone(&running.misses),
            config.features,
            connection,
        )
    };
    if let Some(place) = slots.rx(index) {
        match ring::Receiver::new(&ring_config) {
            Ok(mut ring) => {
                ring.request_notifications(false);
                *place = Some(Box::new(RxRing {
                    ring,
                    context: context(call),
                    announce: None,
                }));
            }
            Err(error) => return Err((error, call)),
        }
    } else if let Some(place) = slots.tx(index) {
        match ring::Sender::new(&ring_config) {
            Ok(mut ring) => {
                ring.request_notifications(false);
                ring.look_ahead(|miss| running.misses.add(miss));
                *place = Some(Box::new(TxRing {
                    ring,
                    context: context(call),
                }));
            }
            Err(error) => return Err((error, call)),
        }
    }
    Ok(())
}
