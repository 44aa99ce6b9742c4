// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: each accepts any octets and must end without a panic.

use std::sync::Arc;

use quietwire_memory::Mapping;

use crate::message::{
    Direction, Hello, Init, MESSAGE_LEN, Message, Name, Reason, RingLocation, Secret, VERSION,
};
use crate::ring::{
    Layout, MAX_FRAME, MAX_PIECES, PutResult, Received, Receiver, RingSizes, Sender, ring_octets,
};
use crate::session::{
    Action, Actions, Client, ClientConfig, Greeting, Limits, Offer, Server, ServerConfig,
    SessionError,
};

/// Reads numbers from the front of the input; zeros after its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | (u32::from(self.u16()) << 16)
    }

    /// Returns a number that is usually small, as sessions expect.
    fn small(&mut self) -> u16 {
        match self.u8() {
            255 => self.u16(),
            small => u16::from(small % 4),
        }
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

/// Checks the codec with arbitrary octets as a message of the control channel. Returns the message, if they are one.
pub fn fuzz_message(octets: &[u8]) -> Option<Message> {
    let mut parsed = None;
    for descriptors in 0..2 {
        let Ok(message) = Message::parse(octets, descriptors) else {
            continue;
        };
        let again = Message::parse(&message.encode(), descriptors);
        assert_eq!(again, Ok(message));
        parsed = again.ok();
    }
    parsed
}

/// Progress of the sessions of an input.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionDepth {
    /// Regions and rings of the server when it was connected; zeros if it never was.
    pub server: (usize, usize),
    /// The client was connected at any time.
    pub was_client_connected: bool,
}

impl SessionDepth {
    /// Returns true if the server was connected at any time. A connected server has a ring.
    #[must_use]
    pub fn was_server_connected(&self) -> bool {
        self.server.1 > 0
    }
}

/// Sends arbitrary messages in any order to sessions of both roles.
pub fn fuzz_session(octets: &[u8]) -> SessionDepth {
    let mut input = Input(octets);
    let limits = Limits {
        regions: input.small(),
        octets: u64::from(input.u16()) << 4,
        c2s_rings: input.small(),
        s2c_rings: input.small(),
        log2_ring_size: input.u8() % 15,
    };
    let mut server = ServerRun::new(limits);
    let mut client = ClientRun::new(&mut input);
    while !input.is_over() {
        let choice = input.u8();
        let is_server = choice % 2 == 0;
        // Most messages are valid; otherwise no session would get far.
        let message = match choice {
            240.. => any_message(&mut input),
            _ if is_server => server.likely_message(&mut input),
            _ => client.likely_message(&mut input),
        };
        let files = match input.u8() {
            255 => usize::from(input.u8()),
            _ => message.descriptors(),
        };
        if is_server {
            server.handle(message, vec![0; files]);
        } else {
            client.handle(message, vec![0; files]);
        }
    }
    SessionDepth {
        server: server.connected_with,
        was_client_connected: client.was_connected,
    }
}

fn any_message(input: &mut Input<'_>) -> Message {
    match input.u8() % 12 {
        0 | 1 => Message::Ack,
        2 => Message::Hello(Hello {
            name: Name::truncated("fuzz"),
            min_version: VERSION,
            max_version: VERSION.wrapping_add(input.small()),
            max_region: input.small(),
            max_s2c_ring: input.small(),
            max_c2s_ring: input.small(),
            max_log2_ring_size: input.u8(),
        }),
        3 => Message::Init(Init {
            version: VERSION ^ (input.small() / 3),
            id: 0,
            mode: u8::from(input.u8() == 255),
            secret: Secret::default(),
            name: Name::default(),
        }),
        4 | 5 => Message::AddRegion {
            index: input.small(),
            size: u64::from(input.u32() % 0x2_0000) + 1,
        },
        6..=8 => Message::AddRing {
            place: RingLocation {
                direction: match input.u8() % 2 {
                    0 => Direction::ClientToServer,
                    _ => Direction::ServerToClient,
                },
                index: input.small(),
                region: input.small(),
                offset: u32::from(input.u16()) << 3,
                log2_size: input.u8() % 15,
            },
            private_header_size: input.small() / 3,
        },
        9 => Message::Connect {
            interface: Name::default(),
        },
        10 => Message::Connected {
            interface: Name::default(),
        },
        _ => {
            // Arbitrary 128 octets.
            let mut octets = [0; MESSAGE_LEN];
            octets.fill_with(|| input.u8());
            let goodbye = Message::Disconnect {
                code: 0,
                reason: Reason::default(),
            };
            (0..2)
                .find_map(|files| Message::parse(&octets, files).ok())
                .unwrap_or(goodbye)
        }
    }
}

/// A server's session, and the resources that its caller keeps for it.
struct ServerRun {
    greeting: Option<Greeting>,
    server: Server,
    limits: Limits,
    regions: Vec<u64>,
    rings: Vec<RingLocation>,
    has_session: bool,
    is_over: bool,
    /// Regions and rings when the session was connected.
    connected_with: (usize, usize),
}

impl ServerRun {
    fn new(limits: Limits) -> Self {
        let config = ServerConfig {
            limits,
            ..ServerConfig::default()
        };
        Self {
            greeting: Some(Greeting::new(Name::default(), &limits)),
            server: Server::new(config),
            limits,
            regions: Vec::new(),
            rings: Vec::new(),
            has_session: false,
            is_over: false,
            connected_with: (0, 0),
        }
    }

    fn handle(&mut self, message: Message, files: Vec<u32>) {
        let result = match self.greeting.take() {
            Some(greeting) => greeting
                .handle(&message, &files)
                .and_then(|init| self.server.start(&init)),
            // A failed greeting leaves no session.
            None if !self.has_session => return,
            None => self.server.handle(message, files),
        };
        let actions = match result {
            Ok(actions) => actions,
            Err(error) => {
                check_error(&error);
                self.is_over = true;
                return;
            }
        };
        self.has_session = true;
        // A session that is over returns only errors.
        assert!(!self.is_over);
        self.note(actions);
        let counts = self.server.counts();
        assert_eq!(counts.0, self.regions.len());
        assert_eq!(usize::from(counts.1 + counts.2), self.rings.len());
    }

    /// Returns a message that the server may accept.
    fn likely_message(&self, input: &mut Input<'_>) -> Message {
        if self.greeting.is_some() {
            return Message::Init(Init {
                version: VERSION,
                id: 0,
                mode: 0,
                secret: Secret::default(),
                name: Name::default(),
            });
        }
        let choice = input.u8() % 8;
        if self.server.is_connected() {
            return Message::Ack;
        }
        if self.regions.is_empty() || choice == 0 {
            return Message::AddRegion {
                index: self.regions.len() as u16,
                size: u64::from(input.u16()) + 1,
            };
        }
        let direction = match choice % 2 {
            0 => Direction::ClientToServer,
            _ => Direction::ServerToClient,
        };
        let rings = self.rings.iter();
        let index = rings.filter(|ring| ring.direction == direction).count() as u16;
        if choice < 6 {
            return Message::AddRing {
                place: RingLocation {
                    direction,
                    index,
                    region: input.small() % (self.regions.len() as u16),
                    offset: u32::from(input.u8()) << 3,
                    log2_size: input.u8() % 8,
                },
                private_header_size: 0,
            };
        }
        Message::Connect {
            interface: Name::default(),
        }
    }

    fn note(&mut self, actions: Actions<u32>) {
        for action in actions {
            match action {
                Action::MapRegion { index, size, .. } => {
                    assert_eq!(usize::from(index), self.regions.len());
                    self.regions.push(size);
                    assert!(self.regions.len() <= usize::from(self.limits.regions));
                    assert!(self.regions.iter().sum::<u64>() <= self.limits.octets);
                }
                Action::AddRing { place, .. } => {
                    let region = self.regions.get(usize::from(place.region));
                    let end = u64::from(place.offset) + ring_octets(place.log2_size);
                    assert!(region.is_some_and(|size| end <= *size));
                    assert!(place.log2_size <= self.limits.log2_ring_size);
                    self.rings.push(place);
                    let count = |direction| {
                        let rings = self.rings.iter();
                        rings.filter(|ring| ring.direction == direction).count()
                    };
                    let Limits {
                        c2s_rings,
                        s2c_rings,
                        ..
                    } = self.limits;
                    assert!(count(Direction::ClientToServer) <= usize::from(c2s_rings));
                    assert!(count(Direction::ServerToClient) <= usize::from(s2c_rings));
                }
                Action::Connect { .. } => {
                    assert!(!self.rings.is_empty());
                    self.connected_with = (self.regions.len(), self.rings.len());
                }
                Action::Disconnect(_) => self.is_over = true,
                Action::Send(message, files) => {
                    assert_eq!(message.descriptors(), files.len());
                }
                Action::Allocate { .. } => unreachable_for("a server"),
            }
        }
    }
}

/// A client's session.
struct ClientRun {
    client: Client<u32>,
    wanted: (u16, u16, RingSizes),
    is_offering: bool,
    sent: usize,
    /// The last message that was sent.
    last: Option<Message>,
    was_connected: bool,
}

impl ClientRun {
    fn new(input: &mut Input<'_>) -> Self {
        let config = ClientConfig {
            c2s_rings: input.small() % 4,
            s2c_rings: input.small() % 4,
            sizes: RingSizes {
                c2s: input.u8() % 4,
                s2c: input.u8() % 4,
            },
            ..ClientConfig::default()
        };
        Self {
            wanted: (config.c2s_rings, config.s2c_rings, config.sizes),
            client: Client::new(config),
            is_offering: input.u8() != 255,
            sent: 0,
            last: None,
            was_connected: false,
        }
    }

    /// Returns a message that the client may accept.
    fn likely_message(&self, input: &mut Input<'_>) -> Message {
        match self.last {
            None => Message::Hello(Hello {
                name: Name::default(),
                min_version: 0,
                max_version: VERSION,
                max_region: input.small(),
                max_s2c_ring: input.small(),
                max_c2s_ring: input.small(),
                max_log2_ring_size: input.u8(),
            }),
            Some(Message::Connect { .. }) if !self.client.is_connected() => Message::Connected {
                interface: Name::default(),
            },
            Some(_) => Message::Ack,
        }
    }

    fn handle(&mut self, message: Message, files: Vec<u32>) {
        let actions = match self.client.handle(message, files) {
            Ok(actions) => actions,
            Err(error) => return check_error(&error),
        };
        for action in actions {
            match action {
                Action::Allocate {
                    c2s_rings,
                    s2c_rings,
                    sizes,
                } => {
                    assert!(c2s_rings <= self.wanted.0);
                    assert!(s2c_rings <= self.wanted.1);
                    assert!(sizes.c2s <= self.wanted.2.c2s && sizes.s2c <= self.wanted.2.s2c);
                    if self.is_offering {
                        self.offer(c2s_rings, s2c_rings, sizes);
                    }
                }
                Action::Send(message, files) => {
                    assert_eq!(message.descriptors(), files.len());
                    self.last = Some(message);
                    self.sent += files.len();
                    // One region, and the rings.
                    assert!(self.sent <= 1 + usize::from(self.wanted.0 + self.wanted.1));
                }
                Action::Connect { .. } => {
                    assert!(self.client.is_connected());
                    self.was_connected = true;
                }
                Action::Disconnect(_) => assert!(!self.client.is_connected()),
                Action::MapRegion { .. } | Action::AddRing { .. } => unreachable_for("a client"),
            }
        }
    }

    fn offer(&mut self, c2s_rings: u16, s2c_rings: u16, sizes: RingSizes) {
        let Some(layout) = Layout::new(c2s_rings, s2c_rings, sizes, 64) else {
            return;
        };
        let offer = Offer {
            regions: vec![(layout.region_size() as u64, 0)],
            rings: layout.places().map(|place| (place, 0)).collect(),
        };
        let result = self.client.offer(offer);
        assert_eq!(result, Ok(()));
    }
}

fn check_error(error: &SessionError) {
    let message = error.message();
    assert_eq!(Message::parse(&message.encode(), 0), Ok(message));
}

fn unreachable_for(role: &str) {
    assert!(role.is_empty(), "an action that {role} never returns");
}

/// Progress of the rings of an input.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingDepth {
    /// Slots of each ring.
    pub slots: usize,
    /// Received frames.
    pub frames: u64,
    /// Received frames of several pieces.
    pub chained: u64,
}

/// Runs all four ends of rings in memory that changes under them.
pub fn fuzz_ring(octets: &[u8]) -> RingDepth {
    let mut input = Input(octets);
    // Up to 128 slots: several times those that an end reads ahead.
    let Some(mut ends) = Ends::new(input.u8() % 8, u32::from(input.u8() % 150) + 1) else {
        return RingDepth::default();
    };
    while !input.is_over() {
        ends.step(&mut input);
    }
    ends.depth
}

struct Ends {
    mapping: Arc<Mapping>,
    layout: Layout,
    receivers: [Receiver; 2],
    senders: [Sender; 2],
    steps: u64,
    depth: RingDepth,
}

impl Ends {
    fn new(log2_size: u8, buffer_size: u32) -> Option<Self> {
        let layout = Layout::new(1, 1, RingSizes::both(log2_size), buffer_size)?;
        let (mapping, _) = Mapping::create("memif-fuzz", layout.region_size()).ok()?;
        let mapping = Arc::new(mapping);
        layout.write(&mapping).ok()?;
        let place = |direction| layout.place(direction, 0);
        let regions = [Arc::clone(&mapping)];
        Some(Self {
            receivers: [
                Receiver::server(&regions, &place(Direction::ClientToServer)?).ok()?,
                Receiver::client(&mapping, &layout, 0).ok()?,
            ],
            senders: [
                Sender::client(&mapping, &layout, 0).ok()?,
                Sender::server(&regions, &place(Direction::ServerToClient)?).ok()?,
            ],
            mapping,
            layout,
            steps: 0,
            depth: RingDepth {
                slots: 1 << log2_size,
                ..RingDepth::default()
            },
        })
    }

    fn step(&mut self, input: &mut Input<'_>) {
        self.steps += 1;
        let operation = input.u8();
        let which = usize::from(operation >> 7);
        match operation % 8 {
            0 | 1 => self.receive(which, input.u8()),
            2 | 3 => self.send(which, input),
            4 => self.scribble(u64::from(input.u16()), input),
            // An index or the flags of a ring.
            5 => {
                let at = [4, 6, 6, 64][usize::from(operation >> 3) % 4];
                self.scribble(self.ring(which) + at, input);
            }
            // A descriptor.
            6 => {
                let at = self.ring(which) + 128 + 4 * u64::from(input.u8());
                self.scribble(at, input);
            }
            _ => {
                if let Some(receiver) = self.receivers.get_mut(which) {
                    receiver.mask_interrupts();
                    let _ = receiver.unmask_interrupts();
                }
            }
        }
        let errors = |count: u64| assert!(count <= self.steps * 256);
        self.receivers.iter().for_each(|end| errors(end.errors()));
        self.senders.iter().for_each(|end| errors(end.errors()));
    }

    fn ring(&self, which: usize) -> u64 {
        let direction = match which {
            0 => Direction::ClientToServer,
            _ => Direction::ServerToClient,
        };
        let place = self.layout.place(direction, 0);
        place.map_or(0, |place| place.offset.into())
    }

    fn scribble(&self, at: u64, input: &mut Input<'_>) {
        let octets = match input.u8() % 4 {
            // Small numbers are more likely to pass checks.
            0 => [input.u8() % 64, 0, 0, 0],
            _ => input.u32().to_le_bytes(),
        };
        let count = usize::from(input.u8() % 4) + 1;
        if let (Some(span), Some(octets)) = (self.mapping.span(at, count), octets.get(..count)) {
            span.copy_from(octets);
        }
    }

    fn receive(&mut self, which: usize, most: u8) {
        let Some(receiver) = self.receivers.get_mut(which) else {
            return;
        };
        let size = usize::from(receiver.size());
        let most = usize::from(most % 80);
        assert!(receiver.ready(most) <= size.min(most));
        let mut count = 0;
        if most % 2 == 0 {
            count = receiver.take_contiguous(most, |span| {
                assert!((1..=MAX_FRAME).contains(&span.len()));
                assert_eq!(span.copy_to(&mut [0; MAX_FRAME]), span.len());
            });
            assert!(count <= most.min(size));
            count += receiver.take_while(most - count, |span| span.len() % 2 == 0);
            assert!(count <= most.min(size));
        }
        while let Some(received) = receiver.next() {
            count += 1;
            assert!(count <= size);
            let Received::Frame(frame) = received else {
                continue;
            };
            let mut octets = [0; 256];
            let mut length = frame.first.len();
            let mut pieces = 1;
            frame.first.copy_to(&mut octets);
            for piece in frame.rest {
                assert!(!piece.is_empty());
                piece.copy_to(&mut octets);
                length += piece.len();
                pieces += 1;
            }
            assert!(pieces <= MAX_PIECES.min(size));
            assert_eq!(length, frame.length as usize);
            assert!((1..=MAX_FRAME).contains(&length));
            self.depth.frames += 1;
            self.depth.chained += u64::from(pieces > 1);
        }
        receiver.release();
    }

    fn send(&mut self, which: usize, input: &mut Input<'_>) {
        let Some(sender) = self.senders.get_mut(which) else {
            return;
        };
        let size = usize::from(sender.size());
        assert!(sender.space(64) <= size.min(64));
        let frame = [0x5a; 700];
        let mut count = 0;
        for _ in 0..input.u8() % 40 {
            let length = usize::from(input.u16() % 700);
            let Some(frame) = frame.get(..length) else {
                break;
            };
            let piece = usize::from(input.u8()) + 1;
            if piece > 200 {
                count += sender.fill_each(1, length, |buffer| {
                    assert!(buffer.octets.copy_from(frame) == length);
                    piece % 2 == 0
                });
                continue;
            }
            match sender.put(frame.chunks(piece)) {
                PutResult::Sent => count += 1,
                PutResult::Full => break,
                PutResult::Bad => (),
            }
        }
        assert!(count <= size * 40);
        let _ = sender.publish() || sender.settle();
    }
}
