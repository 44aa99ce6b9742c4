// SPDX-License-Identifier: Apache-2.0
//! A memif client. It connects to a server's socket, reconnects after a failure, and provides the memory.

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use quietwire_base::Deadline;
use quietwire_memif::message::Direction;
use quietwire_memif::ring::{self, Layout};
use quietwire_memif::session::{self, Action, ClientConfig, Offer, SessionError, goodbye};
use quietwire_memory::{Doorbell, Mapping};

use super::messages::{self, MESSAGES_AT_ONCE};
use super::queues::Queues;
use super::rings::{RxRing, TxRing};
use crate::eal::Memory;
use crate::port::peer::shared_memory;
use crate::port::peers::socket::{self, Address, Kind};
use crate::port::peers::{Control, Endpoint, LogLimit, RETRY, retry_after};

/// Timeout for a server to set up the rings.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Interval between attempts to unmap memory that a thread uses.
const COLLECT: Duration = Duration::from_millis(10);

const SERVER: u32 = 1;

/// Rings in this side's memory, attached after the server has accepted them.
struct Prepared {
    mapping: Arc<Mapping>,
    rx: Vec<RxRing>,
    tx: Vec<TxRing>,
    /// Descriptors of a receive and of a transmit ring.
    sizes: (u16, u16),
}

struct Connection {
    socket: OwnedFd,
    session: session::Client<OwnedFd>,
    prepared: Option<Prepared>,
    is_attached: bool,
    began: Instant,
    deadline: Deadline,
    messages: u32,
}

/// A client and its port.
pub(super) struct Client {
    address: Address,
    config: ClientConfig,
    /// Size of a buffer, octets.
    buffer_size: u32,
    memory: Memory,
    queues: Queues,
    connection: Option<Connection>,
    log: LogLimit,
}

impl Client {
    pub(super) fn new(
        address: Address,
        config: ClientConfig,
        buffer_size: u32,
        memory: Memory,
        queues: Queues,
    ) -> Self {
        Self {
            address,
            config,
            buffer_size,
            memory,
            queues,
            connection: None,
            log: LogLimit::new(),
        }
    }

    fn connect(&mut self, control: &mut Control<'_>) {
        let socket = match socket::connect_to(&self.address, Kind::Packets) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::debug!("port '{}': {}: {error}", self.queues.port, self.address);
                return control.wake_in(RETRY);
            }
        };
        if control.watch(&socket, SERVER).is_err() {
            return control.wake_in(RETRY);
        }
        let session = session::Client::new(self.config.clone());
        let actions = session.start();
        self.queues.set_process(socket::peer_process(&socket));
        self.connection = Some(Connection {
            socket,
            session,
            prepared: None,
            is_attached: false,
            began: control.now,
            deadline: Deadline::at(control.now, HANDSHAKE),
            messages: 0,
        });
        control.wake_in(HANDSHAKE);
        if let Err(error) = self.carry_out(actions) {
            self.end(Some(&error), control);
        }
    }

    /// Reads one message. Returns false if there is none.
    fn read(&mut self) -> Result<bool, SessionError> {
        let Some(connection) = &mut self.connection else {
            return Ok(false);
        };
        let read = messages::read(&connection.socket, &mut connection.messages, "server")?;
        let Some((message, files)) = read else {
            return Ok(false);
        };
        let actions = connection.session.handle(message, files)?;
        self.carry_out(actions)?;
        Ok(true)
    }

    fn carry_out(&mut self, actions: Vec<Action<OwnedFd>>) -> Result<(), SessionError> {
        for action in actions {
            let Some(connection) = &mut self.connection else {
                return Ok(());
            };
            match action {
                Action::Send(message, files) => {
                    socket::send(&connection.socket, &message.encode(), &files)
                        .map_err(|error| SessionError::Failed(error.to_string()))?;
                }
                Action::Allocate {
                    c2s_rings,
                    s2c_rings,
                    sizes,
                } => {
                    let too_large = || SessionError::Failed("the rings are too large".to_owned());
                    let layout = Layout::new(c2s_rings, s2c_rings, sizes, self.buffer_size)
                        .ok_or_else(too_large)?;
                    let (prepared, offer) = prepare(&layout, self.memory, &self.queues)
                        .map_err(SessionError::Failed)?;
                    connection.prepared = Some(prepared);
                    connection.session.offer(offer)?;
                }
                Action::Connect { .. } => {
                    let Some(mut prepared) = connection.prepared.take() else {
                        return Err(SessionError::Failed("no memory offered".to_owned()));
                    };
                    connection.is_attached = true;
                    prepared.rx.iter_mut().for_each(RxRing::offer);
                    self.queues
                        .attach(
                            prepared.rx,
                            prepared.tx,
                            vec![prepared.mapping],
                            prepared.sizes,
                        )
                        .map_err(SessionError::Failed)?;
                    tracing::info!("port '{}': connected", self.queues.port);
                }
                Action::Disconnect(reason) => {
                    return Err(SessionError::Failed(format!(
                        "the server ended the connection: {reason}"
                    )));
                }
                Action::MapRegion { .. } | Action::AddRing { .. } => {}
            }
        }
        Ok(())
    }

    fn end(&mut self, error: Option<&SessionError>, control: &mut Control<'_>) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        control.unwatch(&connection.socket);
        let message = error.map_or_else(|| goodbye("the port is closed"), SessionError::message);
        let none: [OwnedFd; 0] = [];
        // The server may have ended already.
        let _ = socket::send(&connection.socket, &message.encode(), &none);
        let reason = error.map(ToString::to_string);
        if self.log.allows() {
            let reason = reason.as_deref().unwrap_or("the port is closed");
            tracing::info!("port '{}': disconnected: {reason}", self.queues.port);
        }
        self.queues.detach(reason);
        control.wake_in(if self.queues.collect() {
            retry_after(control.now.saturating_duration_since(connection.began))
        } else {
            COLLECT
        });
    }
}

/// Makes memory with rings and buffers, and describes it for the server.
fn prepare(
    layout: &Layout,
    memory: Memory,
    queues: &Queues,
) -> Result<(Prepared, Offer<OwnedFd>), String> {
    let (mapping, file) = shared_memory(layout.region_size(), memory)?;
    let mapping = Arc::new(mapping);
    layout.write(&mapping).map_err(|error| error.to_string())?;
    let octets = mapping.len() as u64;
    let (mut rx, mut tx, mut rings) = (Vec::new(), Vec::new(), Vec::new());
    let mut sizes = (0, 0);
    for place in layout.places() {
        let event = eventfd().map_err(|error| format!("eventfd: {error}"))?;
        let size = 1_u16 << place.log2_size.min(15);
        match place.direction {
            Direction::ClientToServer => {
                sizes.1 = size;
                let own = event
                    .as_fd()
                    .try_clone_to_owned()
                    .and_then(Doorbell::new)
                    .map_err(|error| format!("eventfd: {error}"))?;
                let ring = ring::Sender::client(&mapping, layout, place.index);
                tx.push(TxRing::new(ring.map_err(|error| error.to_string())?, own));
            }
            Direction::ServerToClient => {
                sizes.0 = size;
                let ring = ring::Receiver::client(&mapping, layout, place.index);
                let own = event
                    .as_fd()
                    .try_clone_to_owned()
                    .map_err(|error| format!("eventfd: {error}"))?;
                let interrupt = queues.watch(rx.len(), own)?;
                rx.push(RxRing::new(
                    ring.map_err(|error| error.to_string())?,
                    interrupt,
                ));
            }
        }
        rings.push((place, event));
    }
    let prepared = Prepared {
        mapping,
        rx,
        tx,
        sizes,
    };
    let offer = Offer {
        regions: vec![(octets, file)],
        rings,
    };
    Ok((prepared, offer))
}

fn eventfd() -> nix::Result<OwnedFd> {
    EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).map(OwnedFd::from)
}

impl Endpoint for Client {
    fn ready(&mut self, _: u32, control: &mut Control<'_>) {
        for _ in 0..MESSAGES_AT_ONCE {
            match self.read() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return self.end(Some(&error), control),
            }
        }
    }

    fn tick(&mut self, control: &mut Control<'_>) {
        let is_clean = self.queues.collect();
        match &self.connection {
            None if is_clean => self.connect(control),
            None => control.wake_in(COLLECT),
            Some(connection) if !connection.is_attached => {
                let remaining = connection.deadline.remaining_at(control.now);
                if remaining.is_zero() {
                    let late = SessionError::Failed(
                        "the server did not set up the rings in time".to_owned(),
                    );
                    self.end(Some(&late), control);
                } else {
                    control.wake_in(remaining);
                }
            }
            Some(_) => {}
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
