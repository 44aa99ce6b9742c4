// SPDX-License-Identifier: Apache-2.0
//! The socket of a virtio-user port, as server or client, and its one connection to a back end.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use quietwire_base::{Deadline, RateLimit};
use quietwire_memory::gate::GateOwner;
use quietwire_memory::{Doorbell, Mapping};
use quietwire_vhost::driver::Layout;
use quietwire_vhost::features::F_RING_PACKED;
use quietwire_vhost::message::{Region, Reply, RingAddresses, RingBase};
use quietwire_vhost::session::frontend::{
    Action, Frontend, FrontendConfig, FrontendRing, Inflight, Negotiated, Resources,
};

use super::rings::{RxRing, TxRing};
use crate::eal::Memory;
use crate::port::peer::{Guest, Status, shared_memory};
use crate::port::peers::input::Input;
use crate::port::peers::socket::{self, Address, Kind};
use crate::port::peers::{self, Control, LogLimit, RETRY, retry_after};

/// Timeout for a back end to process the rings. Open vSwitch allocates its buffers first.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// Rate limit of connections: a burst, then one per interval.
const CONNECTIONS_BURST: u32 = 16;
const CONNECTION_INTERVAL: Duration = Duration::from_millis(100);
/// Most replies per connection. Each answers a request, and a ring has about a dozen.
const REPLIES_MAX: u32 = 16 * 1024;
const REPLIES_AT_ONCE: usize = 32;
/// Interval between attempts to reuse memory that a thread uses.
const COLLECT: Duration = Duration::from_millis(10);
/// Interval between attempts to send messages while the socket is full.
const FLUSH: Duration = Duration::from_millis(1);
const NO_DESCRIPTORS: Duration = Duration::from_secs(1);

const LISTENER: u32 = 0;
const CONNECTION: u32 = 1;

/// Slots that attach rings to queues, in the queues' order.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) rx: Vec<GateOwner<RxRing>>,
    pub(super) tx: Vec<GateOwner<TxRing>>,
}

impl Queues {
    fn close(&mut self) {
        self.rx.iter_mut().for_each(GateOwner::close);
        self.tx.iter_mut().for_each(GateOwner::close);
    }

    /// Returns true if no thread uses a ring of a former connection.
    fn collect(&mut self) -> bool {
        let rx = self.rx.iter_mut().map(|owner| {
            drop(owner.collect());
            owner.former()
        });
        let tx = self.tx.iter_mut().map(|owner| {
            drop(owner.collect());
            owner.former()
        });
        rx.chain(tx).sum::<usize>() == 0
    }
}

struct Connection {
    socket: OwnedFd,
    session: Frontend<OwnedFd>,
    input: Input,
    replies: u32,
    /// Requests that wait for space in the socket.
    outbox: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    began: Instant,
    deadline: Deadline,
    /// Rings that are attached when the back end processes them.
    rx: Vec<RxRing>,
    tx: Vec<TxRing>,
    is_attached: bool,
}

/// The socket of a port.
pub(super) struct Endpoint {
    port: String,
    address: Address,
    config: FrontendConfig,
    layout: Layout,
    memory: Memory,
    /// Memory of rings and buffers, created for the first connection and reused later.
    shared: Option<(Arc<Mapping>, OwnedFd)>,
    queues: Queues,
    status: Arc<Status>,
    listener: Option<OwnedFd>,
    is_listening: bool,
    connection: Option<Connection>,
    paused_until: Option<Instant>,
    rate: RateLimit,
    log: LogLimit,
}

impl Endpoint {
    pub(super) fn new(
        port: &str,
        address: Address,
        config: FrontendConfig,
        layout: Layout,
        memory: Memory,
        queues: Queues,
        status: Arc<Status>,
    ) -> Self {
        Self {
            port: port.to_owned(),
            address,
            config,
            layout,
            memory,
            shared: None,
            queues,
            status,
            listener: None,
            is_listening: false,
            connection: None,
            paused_until: None,
            rate: RateLimit::new(CONNECTION_INTERVAL, CONNECTIONS_BURST, Instant::now()),
            log: LogLimit::new(),
        }
    }

    /// Creates the socket.
    pub(super) fn listen(mut self) -> io::Result<Self> {
        self.listener = Some(socket::listen_at(&self.address, Kind::Stream)?);
        Ok(self)
    }

    fn pause(&mut self, wait: Duration, control: &mut Control<'_>) {
        self.paused_until = control.now.checked_add(wait);
        control.wake_in(wait);
    }

    /// Listens for a back end, or connects.
    fn poll_peer(&mut self, control: &mut Control<'_>) {
        if let Some(until) = self.paused_until.filter(|until| *until > control.now) {
            return control.wake_at(until);
        }
        self.paused_until = None;
        // The same memory is laid out again.
        if !self.queues.collect() {
            return control.wake_in(COLLECT);
        }
        if let Some(listener) = &self.listener {
            if !self.is_listening {
                self.is_listening = control.watch(listener, LISTENER).is_ok();
            }
            return;
        }
        match socket::connect_to(&self.address, Kind::Stream) {
            Ok(socket) => self.begin(socket, control),
            Err(error) => {
                tracing::debug!("port '{}': {}: {error}", self.port, self.address);
                self.pause(RETRY, control);
            }
        }
    }

    fn accept(&mut self, control: &mut Control<'_>) {
        let Some(listener) = &self.listener else {
            return;
        };
        let limited = self.rate.take(control.now);
        let accepted = limited
            .map_err(|wait| (wait, None))
            .and_then(|()| socket::accept(listener).map_err(|error| (NO_DESCRIPTORS, Some(error))));
        if matches!(accepted, Ok(None)) {
            return;
        }
        // Further back ends wait until the connection has ended.
        control.unwatch(listener);
        self.is_listening = false;
        match accepted {
            Ok(Some(socket)) => self.begin(socket, control),
            Ok(None) => {}
            Err((wait, error)) => {
                if let Some(error) = error
                    && self.log.allows()
                {
                    tracing::warn!("{}: cannot accept a connection: {error}", self.address);
                }
                self.pause(wait, control);
            }
        }
    }

    fn begin(&mut self, socket: OwnedFd, control: &mut Control<'_>) {
        if control.watch(&socket, CONNECTION).is_err() {
            return self.pause(RETRY, control);
        }
        self.status.set_process(socket::peer_process(&socket));
        let mut session = Frontend::new(self.config.clone());
        let actions = session.start();
        self.connection = Some(Connection {
            socket,
            session,
            input: Input::default(),
            replies: 0,
            outbox: VecDeque::new(),
            began: control.now,
            deadline: Deadline::at(control.now, HANDSHAKE),
            rx: Vec::new(),
            tx: Vec::new(),
            is_attached: false,
        });
        control.wake_in(HANDSHAKE);
        control.wake_in(FLUSH);
        let done = actions
            .map_err(|error| error.to_string())
            .and_then(|actions| self.carry_out(actions));
        if let Err(reason) = done {
            self.end(reason, control);
        }
    }

    /// Reads a reply and performs the resulting actions. Returns false if there is no complete reply.
    fn read(&mut self) -> Result<bool, String> {
        let Some(connection) = &mut self.connection else {
            return Ok(false);
        };
        let incoming = connection
            .input
            .read(&connection.socket, "back end", Reply::parse)?;
        let Some(incoming) = incoming else {
            return Ok(false);
        };
        connection.replies = connection.replies.saturating_add(1);
        if connection.replies > REPLIES_MAX {
            return Err("too many replies".to_owned());
        }
        let actions = connection
            .session
            .handle_reply(incoming.message, incoming.files);
        self.carry_out(actions.map_err(|error| error.to_string())?)?;
        Ok(true)
    }

    fn carry_out(&mut self, actions: Vec<Action<OwnedFd>>) -> Result<(), String> {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            let Some(connection) = &mut self.connection else {
                return Ok(());
            };
            match action {
                Action::Send(octets, files) => {
                    connection.outbox.push_back((octets, files));
                    connection.flush()?;
                }
                Action::Negotiated(negotiated) => {
                    let resources = self.resources(negotiated)?;
                    if let Some(connection) = &mut self.connection {
                        let more = connection.session.provide(resources);
                        actions.extend(more.map_err(|error| error.to_string())?);
                    }
                }
                Action::Ready(negotiated) => self.attach(negotiated),
                // This side requests no inflight area and does not stop rings.
                Action::KeepInflight(..) | Action::Stopped(_) => {}
            }
        }
        Ok(())
    }

    /// Lays out memory and rings for the negotiated features.
    fn resources(&mut self, negotiated: Negotiated) -> Result<Resources<OwnedFd>, String> {
        if self.shared.is_none() {
            let (mapping, file) = shared_memory(self.layout.total(), self.memory)?;
            self.shared = Some((Arc::new(mapping), file));
        }
        let (Some((mapping, file)), Some(connection)) = (&self.shared, &mut self.connection) else {
            return Err("no memory available".to_owned());
        };
        if !self.layout.write(mapping) {
            return Err("the memory is too small".to_owned());
        }
        self.status.set_memory(std::iter::once(mapping));
        let file = file
            .try_clone()
            .map_err(|error| format!("descriptors: {error}"))?;
        let start = Layout::address(0);
        let region = Region::new(start, mapping.len() as u64, start, 0)
            .ok_or("the memory is out of range")?;
        let is_packed = negotiated.features & F_RING_PACKED != 0;
        let mut rings = Vec::new();
        for index in 0..u32::from(negotiated.queue_pairs).saturating_mul(2) {
            let queue = self.layout.queue(index).ok_or("a queue is out of range")?;
            let kick = eventfd()?;
            let own = kick
                .as_fd()
                .try_clone_to_owned()
                .and_then(Doorbell::new)
                .map_err(|error| format!("eventfd: {error}"))?;
            let features = negotiated.features;
            let set_up = if index % 2 == 0 {
                RxRing::new(mapping, &self.layout, index, features, is_packed, own)
                    .map(|ring| connection.rx.push(ring))
            } else {
                TxRing::new(mapping, &self.layout, index, features, is_packed, own)
                    .map(|ring| connection.tx.push(ring))
            };
            set_up.map_err(|error| error.to_string())?;
            let addresses = RingAddresses {
                descriptors: Layout::address(queue.descriptors),
                available: Layout::address(queue.driver_area),
                used: Layout::address(queue.device_area),
                log: None,
            };
            rings.push(FrontendRing {
                size: queue.size,
                addresses,
                base: RingBase::initial(is_packed),
                kick: Some(kick),
                // This side polls, but some back ends wait for a descriptor.
                call: Some(eventfd()?),
            });
        }
        Ok(Resources {
            regions: vec![(region, file)],
            rings,
            inflight: Inflight::Off,
        })
    }

    fn attach(&mut self, negotiated: Negotiated) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        connection.is_attached = true;
        let rings = connection.rx.len().saturating_add(connection.tx.len());
        let rings = u16::try_from(rings).unwrap_or(u16::MAX);
        for (owner, ring) in self.queues.rx.iter_mut().zip(connection.rx.drain(..)) {
            ring.kick();
            owner.open(Box::new(ring));
        }
        for (owner, ring) in self.queues.tx.iter_mut().zip(connection.tx.drain(..)) {
            owner.open(Box::new(ring));
        }
        self.status.up(Guest {
            features: negotiated.features,
            rings,
            ring_size: self.layout.queue(0).map_or(0, |queue| queue.size),
        });
        tracing::info!("port '{}': connected", self.port);
    }

    fn end(&mut self, reason: String, control: &mut Control<'_>) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        control.unwatch(&connection.socket);
        if self.log.allows() {
            tracing::info!("port '{}': disconnected: {reason}", self.port);
        }
        self.status.down(Some(reason));
        self.queues.close();
        let pause = if self.listener.is_some() {
            COLLECT
        } else {
            retry_after(control.now.saturating_duration_since(connection.began))
        };
        self.pause(pause, control);
    }
}

impl Connection {
    /// Sends queued requests as far as the socket has space. A back end without acknowledgements gets all of them at once.
    fn flush(&mut self) -> Result<(), String> {
        while let Some((octets, files)) = self.outbox.front() {
            match socket::send(&self.socket, octets, files) {
                Ok(()) => drop(self.outbox.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }
}

fn eventfd() -> Result<OwnedFd, String> {
    EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
        .map(OwnedFd::from)
        .map_err(|error| format!("eventfd: {error}"))
}

impl peers::Endpoint for Endpoint {
    fn ready(&mut self, token: u32, control: &mut Control<'_>) {
        if token == LISTENER {
            return self.accept(control);
        }
        for _ in 0..REPLIES_AT_ONCE {
            match self.read() {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => return self.end(reason, control),
            }
        }
        let waits = |connection: &Connection| !connection.outbox.is_empty();
        if self.connection.as_ref().is_some_and(waits) {
            control.wake_in(FLUSH);
        }
    }

    fn tick(&mut self, control: &mut Control<'_>) {
        let Some(connection) = &mut self.connection else {
            return self.poll_peer(control);
        };
        if let Err(reason) = connection.flush() {
            return self.end(reason, control);
        }
        if !connection.outbox.is_empty() {
            control.wake_in(FLUSH);
        }
        if !connection.is_attached {
            let remaining = connection.deadline.remaining_at(control.now);
            if remaining.is_zero() {
                self.end(
                    "the back end did not start the rings in time".to_owned(),
                    control,
                );
            } else {
                control.wake_in(remaining);
            }
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
