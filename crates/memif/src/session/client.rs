// SPDX-License-Identifier: Apache-2.0
//! The client's side of the control channel.

mod offer;

use std::collections::VecDeque;

use super::action::{Action, Actions, SessionError, is_within};

use crate::message::{
    Direction, Hello, Init, MAX_LOG2_RING_SIZE, MODE_ETHERNET, Message, Name, Secret, VERSION,
};
use crate::ring::RingSizes;

pub use offer::Offer;

/// A client's configuration of its interface.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The number of the interface at the server.
    pub id: u32,
    /// The secret of the interface. Default: none (24 zeros).
    pub secret: Secret,
    /// This program's name, shown to the server.
    pub program: Name,
    /// This interface's name, shown to the server.
    pub interface: Name,
    /// Number of rings from client to server. A server may grant fewer. Default: 1.
    pub c2s_rings: u16,
    /// Number of rings from server to client. A server may grant fewer. Default: 1.
    pub s2c_rings: u16,
    /// The sizes of the rings. A server may grant less. Default: 1024 descriptors.
    pub sizes: RingSizes,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            id: 0,
            secret: Secret::default(),
            program: Name::default(),
            interface: Name::default(),
            c2s_rings: 1,
            s2c_rings: 1,
            sizes: RingSizes::both(10),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Hello,
    /// INIT was sent; its ACK is awaited.
    Init,
    /// A region or a ring was sent; its ACK is awaited.
    Memory,
    /// CONNECT was sent.
    Connect,
    Connected,
    Over,
}

/// The negotiated values.
#[derive(Clone, Copy, Debug)]
struct Agreed {
    c2s_rings: u16,
    s2c_rings: u16,
    sizes: RingSizes,
    /// Number of regions that the server accepts.
    regions: usize,
}

/// The client's session with a server.
#[derive(Debug)]
pub struct Client<F> {
    config: ClientConfig,
    state: State,
    agreed: Option<Agreed>,
    /// ADD_REGION and ADD_RING messages still to be sent; `None` until there is an offer.
    queue: Option<VecDeque<(Message, F)>>,
}

impl<F> Client<F> {
    /// Returns a session for a connected socket.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self {
            config,
            state: State::Hello,
            agreed: None,
            queue: None,
        }
    }

    /// Returns the first actions: none, because the server speaks first.
    #[must_use]
    pub fn start(&self) -> Actions<F> {
        Vec::new()
    }

    /// Handles a message and returns the actions.
    ///
    /// # Errors
    /// [`SessionError`] if the message is out of order, if the server uses another version, or if no memory was offered in
    /// time. The session is over.
    pub fn handle(&mut self, message: Message, files: Vec<F>) -> Result<Actions<F>, SessionError> {
        // After an error, this is the state.
        let state = std::mem::replace(&mut self.state, State::Over);
        message.check_descriptors(files.len())?;
        let (next, actions) = match (state, message) {
            (State::Over, message) => return Err(SessionError::Over(message.name())),
            (_, Message::Disconnect { reason, .. }) => {
                (State::Over, vec![Action::Disconnect(reason)])
            }
            (State::Hello, Message::Hello(hello)) => (State::Init, self.init(&hello)?),
            (State::Init | State::Memory, Message::Ack) => self.next_memory()?,
            (State::Connect, Message::Connected { interface }) => {
                let peer_interface = interface;
                (State::Connected, vec![Action::Connect { peer_interface }])
            }
            (State::Connected, Message::Ack) => (State::Connected, Vec::new()),
            (state, message) => {
                return Err(SessionError::OutOfOrder {
                    message: message.name(),
                    expected: match state {
                        State::Hello => "HELLO",
                        State::Init | State::Memory => "ACK",
                        State::Connect => "CONNECTED",
                        State::Connected | State::Over => "DISCONNECT",
                    },
                });
            }
        };
        self.state = next;
        Ok(actions)
    }

    fn init(&mut self, hello: &Hello) -> Result<Actions<F>, SessionError> {
        if !(hello.min_version..=hello.max_version).contains(&VERSION) {
            return Err(SessionError::version(hello.max_version));
        }
        let config = &self.config;
        // Highest indices become counts.
        let rings = |own: u16, highest: u16| own.min(highest.saturating_add(1));
        let agreed = Agreed {
            c2s_rings: rings(config.c2s_rings, hello.max_c2s_ring),
            s2c_rings: rings(config.s2c_rings, hello.max_s2c_ring),
            sizes: config
                .sizes
                .at_most(hello.max_log2_ring_size.min(MAX_LOG2_RING_SIZE)),
            // No client offers more.
            regions: usize::from(hello.max_region.min(255)).saturating_add(1),
        };
        self.agreed = Some(agreed);
        let init = Message::Init(Init {
            version: VERSION,
            id: config.id,
            mode: MODE_ETHERNET,
            secret: config.secret,
            name: config.program,
        });
        Ok(vec![
            Action::Allocate {
                c2s_rings: agreed.c2s_rings,
                s2c_rings: agreed.s2c_rings,
                sizes: agreed.sizes,
            },
            Action::Send(init, Vec::new()),
        ])
    }

    /// Provides the memory that [`Action::Allocate`] requested. Rings are in the order of their indices within each
    /// direction.
    ///
    /// # Errors
    /// [`SessionError::Offer`] if the memory does not match the request. The session is over.
    pub fn offer(&mut self, offer: Offer<F>) -> Result<(), SessionError> {
        let result = self.check_offer(&offer);
        if result.is_err() {
            self.state = State::Over;
            return result;
        }
        let messages = offer.regions.len().saturating_add(offer.rings.len());
        let mut queue = VecDeque::with_capacity(messages);
        for (index, (size, file)) in (0..).zip(offer.regions) {
            queue.push_back((Message::AddRegion { index, size }, file));
        }
        for (place, event) in offer.rings {
            let message = Message::AddRing {
                place,
                private_header_size: 0,
            };
            queue.push_back((message, event));
        }
        self.queue = Some(queue);
        Ok(())
    }

    fn check_offer(&self, offer: &Offer<F>) -> Result<(), SessionError> {
        let refused = |why| Err(SessionError::Offer(why));
        let Some(agreed) = self.agreed.filter(|_| self.state == State::Init) else {
            return refused("not requested");
        };
        if self.queue.is_some() {
            return refused("offered twice");
        }
        if offer.regions.is_empty() || offer.regions.len() > agreed.regions {
            return refused("more regions than the server accepts, or none");
        }
        let (mut c2s, mut s2c) = (0, 0);
        for (place, _) in &offer.rings {
            let next = match place.direction {
                Direction::ClientToServer => &mut c2s,
                Direction::ServerToClient => &mut s2c,
            };
            if place.index != *next || place.log2_size > agreed.sizes.of(place.direction) {
                return refused("a ring that was not requested");
            }
            *next = next.saturating_add(1);
            let region = offer.regions.get(usize::from(place.region));
            if !region.is_some_and(|(size, _)| is_within(place, *size)) {
                return refused("a ring outside its region");
            }
        }
        if (c2s, s2c) != (agreed.c2s_rings, agreed.s2c_rings) {
            return refused("more or fewer rings than requested");
        }
        Ok(())
    }

    /// Returns the next message about memory. Each waits for the acknowledgement of the previous one.
    fn next_memory(&mut self) -> Result<(State, Actions<F>), SessionError> {
        let queue = self.queue.as_mut();
        let queue = queue.ok_or(SessionError::Offer("none was provided in time"))?;
        if let Some((message, file)) = queue.pop_front() {
            return Ok((State::Memory, vec![Action::Send(message, vec![file])]));
        }
        let connect = Message::Connect {
            interface: self.config.interface,
        };
        Ok((State::Connect, vec![Action::Send(connect, Vec::new())]))
    }

    /// Returns true from CONNECTED to the end of the session.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected
    }
}
