// SPDX-License-Identifier: Apache-2.0
//! The server's side of the control channel.

use super::action::{Action, Actions, Limits, SessionError, is_within};

use crate::message::{
    Direction, Hello, Init, MODE_ETHERNET, Message, Name, RingLocation, Secret, VERSION,
};

/// The first exchange on a server's socket, before the client has named one of the socket's interfaces.
#[derive(Debug)]
pub struct Greeting {
    hello: Hello,
}

impl Greeting {
    /// Returns a greeting from the program `name` that offers `limits`: those of the socket's interface with the highest
    /// ones.
    #[must_use]
    pub fn new(name: Name, limits: &Limits) -> Self {
        Self {
            hello: Hello {
                name,
                min_version: VERSION,
                max_version: VERSION,
                // Counts become the highest indices.
                max_region: limits.regions.saturating_sub(1),
                max_s2c_ring: limits.s2c_rings.saturating_sub(1),
                max_c2s_ring: limits.c2s_rings.saturating_sub(1),
                max_log2_ring_size: limits.log2_ring_size,
            },
        }
    }

    /// Returns the first actions.
    #[must_use]
    pub fn start<F>(&self) -> Actions<F> {
        vec![Action::Send(Message::Hello(self.hello), Vec::new())]
    }

    /// Handles the client's first message and returns the client's request. The interface's [`Server`] continues from there;
    /// if no interface has the number, the error is [`SessionError::UnknownInterface`].
    ///
    /// # Errors
    /// [`SessionError`] if the message is not INIT, or requests a version or a mode that is not supported.
    pub fn handle<F>(self, message: &Message, files: &[F]) -> Result<Init, SessionError> {
        message.check_descriptors(files.len())?;
        let Message::Init(init) = message else {
            return Err(SessionError::OutOfOrder {
                message: message.name(),
                expected: "INIT",
            });
        };
        if init.version != VERSION {
            return Err(SessionError::version(init.version));
        }
        if init.mode != MODE_ETHERNET {
            return Err(SessionError::Mode(init.mode));
        }
        Ok(*init)
    }
}

/// A server's configuration of an interface.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// The interface's number.
    pub id: u32,
    /// The interface's name, shown to the client.
    pub interface: Name,
    /// The secret that a client must present. Default: any client is accepted.
    pub secret: Option<Secret>,
    /// Limits of a client.
    pub limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Init,
    Memory,
    Connected,
    Over,
}

/// The server's session with one client, for one interface.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    state: State,
    /// Octets of each region: at most as many as `limits.regions`.
    regions: Vec<u64>,
    octets: u64,
    c2s_rings: u16,
    s2c_rings: u16,
}

impl Server {
    /// Returns a session for an interface without a client.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self {
            config,
            state: State::Init,
            regions: Vec::new(),
            octets: 0,
            c2s_rings: 0,
            s2c_rings: 0,
        }
    }

    /// Accepts the result of [`Greeting::handle`] and returns the first actions.
    ///
    /// # Errors
    /// [`SessionError`] if the client requests another interface or its secret is wrong, or if the session has begun.
    pub fn start<F>(&mut self, init: &Init) -> Result<Actions<F>, SessionError> {
        if std::mem::replace(&mut self.state, State::Over) != State::Init {
            return Err(SessionError::Over("INIT"));
        }
        if init.id != self.config.id {
            return Err(SessionError::UnknownInterface(init.id));
        }
        // Compared in constant time (see Secret).
        if self.config.secret.is_some_and(|own| own != init.secret) {
            return Err(SessionError::WrongSecret(init.id));
        }
        self.state = State::Memory;
        Ok(vec![ack()])
    }

    /// Handles a message and returns the actions.
    ///
    /// # Errors
    /// [`SessionError`] if the message is out of order, or requests more than the interface's limits. The session is over.
    pub fn handle<F>(
        &mut self,
        message: Message,
        files: Vec<F>,
    ) -> Result<Actions<F>, SessionError> {
        // After an error, this is the state.
        let state = std::mem::replace(&mut self.state, State::Over);
        message.check_descriptors(files.len())?;
        let file = files.into_iter().next();
        let actions = match (state, message, file) {
            (State::Over, message, _) => return Err(SessionError::Over(message.name())),
            (_, Message::Disconnect { reason, .. }, _) => {
                return Ok(vec![Action::Disconnect(reason)]);
            }
            (State::Memory, Message::AddRegion { index, size }, Some(file)) => {
                self.add_region(index, size)?;
                vec![Action::MapRegion { index, size, file }, ack()]
            }
            (
                State::Memory,
                Message::AddRing {
                    place,
                    private_header_size,
                },
                Some(event),
            ) => {
                self.add_ring(&place, private_header_size)?;
                vec![Action::AddRing { place, event }, ack()]
            }
            (State::Memory, Message::Connect { interface }, _) => {
                if self.c2s_rings == 0 && self.s2c_rings == 0 {
                    return Err(SessionError::NoRing);
                }
                self.state = State::Connected;
                let interface_here = self.config.interface;
                let answer = Message::Connected {
                    interface: interface_here,
                };
                let peer_interface = interface;
                return Ok(vec![
                    Action::Connect { peer_interface },
                    Action::Send(answer, Vec::new()),
                ]);
            }
            // Some clients acknowledge CONNECTED.
            (State::Connected, Message::Ack, _) => Vec::new(),
            (state, message, _) => {
                return Err(SessionError::OutOfOrder {
                    message: message.name(),
                    expected: match state {
                        State::Init => "INIT",
                        State::Memory => "ADD_REGION, ADD_RING or CONNECT",
                        State::Connected | State::Over => "DISCONNECT",
                    },
                });
            }
        };
        self.state = state;
        Ok(actions)
    }

    fn add_region(&mut self, index: u16, size: u64) -> Result<(), SessionError> {
        const MESSAGE: &str = "ADD_REGION";
        let Limits {
            regions, octets, ..
        } = self.config.limits;
        let expected = u16::try_from(self.regions.len()).unwrap_or(u16::MAX);
        next_index(MESSAGE, "regions", expected, index, regions)?;
        self.octets = self
            .octets
            .checked_add(size)
            .filter(|sum| *sum <= octets)
            .ok_or(SessionError::TooMuchMemory(octets))?;
        self.regions.push(size);
        Ok(())
    }

    fn add_ring(
        &mut self,
        place: &RingLocation,
        private_header_size: u16,
    ) -> Result<(), SessionError> {
        const MESSAGE: &str = "ADD_RING";
        let limits = &self.config.limits;
        let (rings, limit) = match place.direction {
            Direction::ClientToServer => (&mut self.c2s_rings, limits.c2s_rings),
            Direction::ServerToClient => (&mut self.s2c_rings, limits.s2c_rings),
        };
        next_index(MESSAGE, "rings", *rings, place.index, limit)?;
        if private_header_size != 0 {
            return Err(SessionError::PrivateHeader(private_header_size));
        }
        if place.log2_size > limits.log2_ring_size {
            return Err(SessionError::RingSize {
                found: place.log2_size,
                limit: limits.log2_ring_size,
            });
        }
        let region = self.regions.get(usize::from(place.region));
        if !region.is_some_and(|size| is_within(place, *size)) {
            return Err(SessionError::RingLocation(place.region));
        }
        *rings = rings.saturating_add(1);
        Ok(())
    }

    /// Returns true from CONNECT to the end of the session.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// Returns the numbers of regions, rings from client to server and rings from server to client that were added.
    #[must_use]
    pub fn counts(&self) -> (usize, u16, u16) {
        (self.regions.len(), self.c2s_rings, self.s2c_rings)
    }
}

fn next_index(
    message: &'static str,
    what: &'static str,
    expected: u16,
    found: u16,
    limit: u16,
) -> Result<(), SessionError> {
    if expected >= limit {
        return Err(SessionError::TooMany {
            message,
            what,
            limit,
        });
    }
    if found != expected {
        return Err(SessionError::Index {
            message,
            expected,
            found,
        });
    }
    Ok(())
}

fn ack<F>() -> Action<F> {
    Action::Send(Message::Ack, Vec::new())
}
