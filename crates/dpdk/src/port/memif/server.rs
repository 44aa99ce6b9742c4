// SPDX-License-Identifier: Apache-2.0
//! A memif server: a listening socket, its interfaces and their clients.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quietwire_base::{Deadline, RateLimit};
use quietwire_memif::message::{Direction, RingLocation};
use quietwire_memif::ring;
use quietwire_memif::session::{
    self, Action, Greeting, Limits, ServerConfig, SessionError, goodbye,
};
use quietwire_memory::{Doorbell, Mapping, Sealing};

use super::messages::{self, MESSAGES_AT_ONCE};
use super::program::program;
use super::queues::Queues;
use super::rings::{RxRing, TxRing};
use crate::port::peers::populate::POPULATE;
use crate::port::peers::socket::{self, Address, Kind};
use crate::port::peers::{Control, Endpoint, LogLimit};

/// Most clients that have not requested an interface yet.
const GREETINGS_MAX: usize = 8;
/// Timeout for a client to set up its rings, from its connection on.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Rate limit of connections: a burst, then one per interval.
const CONNECTIONS_BURST: u32 = 16;
const CONNECTION_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between checks of the client's memory.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between attempts to unmap memory that a thread uses.
const COLLECT: Duration = Duration::from_millis(10);
/// Pause in accepting connections if the process has no free descriptors.
const NO_DESCRIPTORS: Duration = Duration::from_secs(1);

const LISTENER: u32 = 0;

/// An interface: one port.
pub(super) struct Interface {
    config: ServerConfig,
    sealing: Sealing,
    queues: Queues,
    /// The connection that owns the interface.
    client: Option<u32>,
}

impl Interface {
    pub(super) fn new(config: ServerConfig, sealing: Sealing, queues: Queues) -> Self {
        Self {
            config,
            sealing,
            queues,
            client: None,
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.config.id
    }
}

/// Stage of a connection.
enum Stage {
    Greeting(Greeting),
    Session(Box<Session>),
    /// Rings are attached.
    Connected(Box<Session>),
}

/// Session of a client, with its regions and rings.
struct Session {
    id: u32,
    server: session::Server,
    regions: Vec<Arc<Mapping>>,
    rings: Vec<(RingLocation, OwnedFd)>,
}

struct Connection {
    socket: OwnedFd,
    stage: Stage,
    deadline: Deadline,
    messages: u32,
}

/// The listening socket.
pub(super) struct Server {
    address: Address,
    listener: OwnedFd,
    /// Time from which connections are accepted again.
    paused_until: Option<Instant>,
    is_watched: bool,
    interfaces: HashMap<u32, Interface>,
    connections: HashMap<u32, Connection>,
    next: u32,
    rate: RateLimit,
    log: LogLimit,
}

impl Server {
    pub(super) fn listen(address: Address, interface: Interface) -> io::Result<Self> {
        Ok(Self {
            listener: socket::listen_at(&address, Kind::Packets)?,
            address,
            paused_until: None,
            is_watched: false,
            interfaces: HashMap::from([(interface.id(), interface)]),
            connections: HashMap::new(),
            next: LISTENER,
            rate: RateLimit::new(CONNECTION_INTERVAL, CONNECTIONS_BURST, Instant::now()),
            log: LogLimit::new(),
        })
    }

    /// Adds an interface. Fails if its number is in use.
    pub(super) fn add(
        &mut self,
        interface: Interface,
        _control: &mut Control<'_>,
    ) -> Result<(), ()> {
        if self.interfaces.contains_key(&interface.id()) {
            return Err(());
        }
        self.interfaces.insert(interface.id(), interface);
        Ok(())
    }

    /// Removes an interface. Returns true if none is left.
    pub(super) fn remove(&mut self, id: u32, control: &mut Control<'_>) -> bool {
        if let Some(token) = self.interfaces.get(&id).and_then(|found| found.client) {
            self.end(token, None, control);
        }
        self.interfaces.remove(&id);
        self.interfaces.is_empty()
    }

    fn accept(&mut self, control: &mut Control<'_>) {
        if let Err(wait) = self.rate.take(control.now) {
            return self.pause(wait, control);
        }
        let socket = match socket::accept(&self.listener) {
            Ok(Some(socket)) => socket,
            Ok(None) => return,
            Err(error) => {
                if self.log.allows() {
                    tracing::warn!("{}: cannot accept a connection: {error}", self.address);
                }
                return self.pause(NO_DESCRIPTORS, control);
            }
        };
        self.end_oldest_greeting(control);
        self.next = self.next.wrapping_add(1).max(LISTENER + 1);
        let token = self.next;
        let greeting = Greeting::new(program(), &self.limits());
        if control.watch(&socket, token).is_err() {
            return;
        }
        let actions = greeting.start::<OwnedFd>();
        self.connections.insert(
            token,
            Connection {
                socket,
                stage: Stage::Greeting(greeting),
                deadline: Deadline::at(control.now, HANDSHAKE),
                messages: 0,
            },
        );
        control.wake_in(HANDSHAKE);
        if let Err(error) = self.carry_out(token, actions) {
            self.end(token, Some(error), control);
        }
    }

    /// Makes space for one more client without an interface: ends the oldest of too many, which may never request one.
    fn end_oldest_greeting(&mut self, control: &mut Control<'_>) {
        let greetings = self
            .connections
            .iter()
            .filter(|(_, connection)| matches!(connection.stage, Stage::Greeting(_)));
        let (count, oldest) =
            greetings.fold((0_usize, None), |(count, oldest), (token, connection)| {
                let this = (connection.deadline, *token);
                (
                    count.saturating_add(1),
                    Some(oldest.map_or(this, |other: (_, _)| this.min(other))),
                )
            });
        if let Some((_, token)) = oldest.filter(|_| count >= GREETINGS_MAX) {
            let reason = "too many clients without an interface";
            self.end(
                token,
                Some(SessionError::Failed(reason.to_owned())),
                control,
            );
        }
    }

    /// Returns the most permissive limits of all interfaces.
    fn limits(&self) -> Limits {
        let all = self.interfaces.values().map(|found| found.config.limits);
        all.reduce(|one, other| Limits {
            regions: one.regions.max(other.regions),
            octets: one.octets.max(other.octets),
            c2s_rings: one.c2s_rings.max(other.c2s_rings),
            s2c_rings: one.s2c_rings.max(other.s2c_rings),
            log2_ring_size: one.log2_ring_size.max(other.log2_ring_size),
        })
        .unwrap_or_default()
    }

    /// Pauses the acceptance of connections.
    fn pause(&mut self, wait: Duration, control: &mut Control<'_>) {
        if self.is_watched {
            control.unwatch(&self.listener);
            self.is_watched = false;
        }
        self.paused_until = control.now.checked_add(wait);
        control.wake_in(wait);
    }

    /// Reads one message. Returns false if there is none.
    fn read(&mut self, token: u32) -> Result<bool, SessionError> {
        let Some(connection) = self.connections.get_mut(&token) else {
            return Ok(false);
        };
        let read = messages::read(&connection.socket, &mut connection.messages, "client")?;
        let Some((message, files)) = read else {
            return Ok(false);
        };
        let actions = match &mut connection.stage {
            Stage::Greeting(greeting) => {
                let greeting =
                    std::mem::replace(greeting, Greeting::new(program(), &Limits::default()));
                let init = greeting.handle(&message, &files)?;
                self.begin(token, &init)?
            }
            Stage::Session(session) | Stage::Connected(session) => {
                session.server.handle(message, files)?
            }
        };
        self.carry_out(token, actions)?;
        Ok(true)
    }

    /// Gives a client its requested interface.
    fn begin(
        &mut self,
        token: u32,
        init: &quietwire_memif::message::Init,
    ) -> Result<Vec<Action<OwnedFd>>, SessionError> {
        let interface = self
            .interfaces
            .get_mut(&init.id)
            .ok_or(SessionError::UnknownInterface(init.id))?;
        if interface.client.is_some() {
            return Err(SessionError::AlreadyConnected(init.id));
        }
        let mut server = session::Server::new(interface.config.clone());
        let actions = server.start(init)?;
        interface.client = Some(token);
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.stage = Stage::Session(Box::new(Session {
                id: init.id,
                server,
                regions: Vec::new(),
                rings: Vec::new(),
            }));
        }
        Ok(actions)
    }

    fn carry_out(&mut self, token: u32, actions: Vec<Action<OwnedFd>>) -> Result<(), SessionError> {
        for action in actions {
            let Some(connection) = self.connections.get_mut(&token) else {
                return Ok(());
            };
            if let Action::Send(message, files) = action {
                socket::send(&connection.socket, &message.encode(), &files)
                    .map_err(|error| SessionError::Failed(error.to_string()))?;
                continue;
            }
            let (Stage::Session(session) | Stage::Connected(session)) = &mut connection.stage
            else {
                continue;
            };
            let Some(interface) = self.interfaces.get_mut(&session.id) else {
                return Err(SessionError::UnknownInterface(session.id));
            };
            match action {
                Action::MapRegion { size, file, .. } => {
                    use std::os::fd::AsFd;
                    let mapping = Mapping::of_peer(file.as_fd(), 0, size, interface.sealing)
                        .map(Arc::new)
                        .map_err(|error| SessionError::Failed(error.to_string()))?;
                    interface.queues.populating.push(&mapping, file, 0);
                    session.regions.push(mapping);
                }
                Action::AddRing { place, event } => session.rings.push((place, event)),
                Action::Connect { .. } => {
                    attach(interface, session).map_err(SessionError::Failed)?;
                    let process = socket::peer_process(&connection.socket);
                    interface.queues.set_process(process);
                    tracing::info!("port '{}': connected", interface.queues.port);
                    // Removed and put back because a stage owns its session.
                    let stage = std::mem::replace(
                        &mut connection.stage,
                        Stage::Greeting(Greeting::new(program(), &Limits::default())),
                    );
                    if let Stage::Session(session) = stage {
                        connection.stage = Stage::Connected(session);
                    }
                }
                Action::Disconnect(reason) => {
                    return Err(SessionError::Failed(format!(
                        "the client disconnected: {reason}"
                    )));
                }
                Action::Send(..) | Action::Allocate { .. } => {}
            }
        }
        Ok(())
    }

    /// Ends a connection, and frees its interface.
    fn end(&mut self, token: u32, error: Option<SessionError>, control: &mut Control<'_>) {
        let Some(connection) = self.connections.remove(&token) else {
            return;
        };
        control.unwatch(&connection.socket);
        let message = error
            .as_ref()
            .map_or_else(|| goodbye("the port is closed"), SessionError::message);
        let none: [OwnedFd; 0] = [];
        // The client may have ended already.
        let _ = socket::send(&connection.socket, &message.encode(), &none);
        let (Stage::Session(session) | Stage::Connected(session)) = connection.stage else {
            // For a client without an interface, only a refusal is logged.
            if let Some(error) = error
                && !matches!(error, SessionError::Failed(_))
                && self.log.allows()
            {
                tracing::warn!("{}: client refused: {error}", self.address);
            }
            return;
        };
        if let Some(interface) = self.interfaces.get_mut(&session.id) {
            interface.client = None;
            let reason = error.map(|error| error.to_string());
            if self.log.allows() {
                let reason = reason.as_deref().unwrap_or("the port is closed");
                tracing::info!("port '{}': disconnected: {reason}", interface.queues.port);
            }
            interface.queues.detach(reason);
            if !interface.queues.collect() {
                control.wake_in(COLLECT);
            }
        }
    }

    fn is_late(&self, token: u32, control: &Control<'_>) -> bool {
        self.connections.get(&token).is_some_and(|connection| {
            !matches!(connection.stage, Stage::Connected(_))
                && connection.deadline.remaining_at(control.now).is_zero()
        })
    }

    /// Returns true if the client of a connection truncated the memory that it shares.
    fn has_faulted(&self, token: u32) -> bool {
        let Some(Stage::Connected(session)) =
            self.connections.get(&token).map(|found| &found.stage)
        else {
            return false;
        };
        let interface = self.interfaces.get(&session.id);
        interface.is_some_and(|interface| interface.queues.has_faulted())
    }
}

/// Attaches the rings of a client to the port's queues.
fn attach(interface: &mut Interface, session: &mut Session) -> Result<(), String> {
    let regions = std::mem::take(&mut session.regions);
    let (mut rx, mut tx, mut sizes) = (Vec::new(), Vec::new(), (0, 0));
    for (place, event) in std::mem::take(&mut session.rings) {
        let size = 1_u16 << place.log2_size.min(15);
        match place.direction {
            Direction::ClientToServer => {
                sizes.0 = size;
                let ring = ring::Receiver::server(&regions, &place);
                let interrupt = interface.queues.watch(rx.len(), event)?;
                rx.push(RxRing::new(
                    ring.map_err(|error| error.to_string())?,
                    interrupt,
                ));
            }
            Direction::ServerToClient => {
                sizes.1 = size;
                let ring = ring::Sender::server(&regions, &place);
                let doorbell = Doorbell::new(event).map_err(|error| error.to_string())?;
                tx.push(TxRing::new(
                    ring.map_err(|error| error.to_string())?,
                    doorbell,
                ));
            }
        }
    }
    interface.queues.attach(rx, tx, regions, sizes)
}

impl Endpoint for Server {
    fn ready(&mut self, token: u32, control: &mut Control<'_>) {
        if token == LISTENER {
            return self.accept(control);
        }
        for _ in 0..MESSAGES_AT_ONCE {
            match self.read(token) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return self.end(token, Some(error), control),
            }
        }
        control.wake_in(POLL_INTERVAL);
    }

    fn tick(&mut self, control: &mut Control<'_>) {
        if !self.is_watched && self.paused_until.is_none_or(|until| until <= control.now) {
            self.paused_until = None;
            self.is_watched = control.watch(&self.listener, LISTENER).is_ok();
        }
        if let Some(until) = self.paused_until {
            control.wake_at(until);
        }
        let tokens: Vec<u32> = self.connections.keys().copied().collect();
        for token in tokens {
            if self.is_late(token, control) {
                let late =
                    SessionError::Failed("the client did not set up its rings in time".to_owned());
                self.end(token, Some(late), control);
            } else if self.has_faulted(token) {
                let gone = SessionError::Failed("the client truncated its memory".to_owned());
                self.end(token, Some(gone), control);
            }
        }
        if !self.connections.is_empty() {
            control.wake_in(POLL_INTERVAL);
        }
        for interface in self.interfaces.values_mut() {
            if !interface.queues.collect() {
                control.wake_in(COLLECT);
            }
            if interface.queues.populating.step() {
                control.wake_in(POPULATE);
            }
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
