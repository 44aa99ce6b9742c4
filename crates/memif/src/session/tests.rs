// SPDX-License-Identifier: Apache-2.0
use crate::message::Init;
use crate::message::Name;
use crate::message::RingLocation;
use crate::message::Secret;
use proptest::prelude::*;

use super::*;
use crate::message::{Direction, MODE_ETHERNET, RING_ALIGNMENT, VERSION};
use crate::ring::{Layout, RingSizes};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn limits() -> Limits {
    Limits {
        c2s_rings: 2,
        s2c_rings: 2,
        log2_ring_size: 10,
        ..Limits::default()
    }
}

fn init() -> Init {
    Init {
        version: VERSION,
        id: 7,
        mode: MODE_ETHERNET,
        secret: Secret::new(b"secret").unwrap(),
        name: name("client"),
    }
}

fn server_with(limits: Limits) -> Server {
    Server::new(ServerConfig {
        id: 7,
        interface: name("server0"),
        secret: Secret::new(b"secret"),
        limits,
    })
}

/// Returns a server that waits for memory.
fn server() -> Server {
    let mut server = server_with(limits());
    let actions = server.start::<u32>(&init()).unwrap();
    assert_eq!(actions, [Action::Send(Message::Ack, vec![])]);
    server
}

fn place(direction: Direction, index: u16) -> RingLocation {
    RingLocation {
        direction,
        index,
        region: 0,
        offset: 0,
        log2_size: 4,
    }
}

fn add_ring(place: RingLocation) -> Message {
    Message::AddRing {
        place,
        private_header_size: 0,
    }
}

fn region(index: u16, size: u64) -> Message {
    Message::AddRegion { index, size }
}

const C2S: Direction = Direction::ClientToServer;
const S2C: Direction = Direction::ServerToClient;
const CONNECT: Message = Message::Connect {
    interface: Name::NONE,
};

/// Carries messages in both directions until neither side has one; returns all other actions of each side.
fn talk(
    greeting: Greeting,
    mut server: Server,
    client: &mut Client<u32>,
    buffer_size: u32,
) -> (Actions<u32>, Actions<u32>) {
    let mut greeting = Some(greeting);
    let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
    let mut to_client: Vec<Action<u32>> = greeting.as_ref().unwrap().start();
    assert!(client.start().is_empty());
    while !to_client.is_empty() {
        let mut to_server = Vec::new();
        for action in to_client.drain(..) {
            let Action::Send(message, files) = action else {
                at_server.push(action);
                continue;
            };
            for action in client.handle(message, files).unwrap() {
                if let Action::Allocate {
                    c2s_rings,
                    s2c_rings,
                    sizes,
                } = action
                {
                    let layout = Layout::new(c2s_rings, s2c_rings, sizes, buffer_size).unwrap();
                    let rings = (100..)
                        .zip(layout.places())
                        .map(|(event, place)| (place, event));
                    let offer = Offer {
                        regions: vec![(layout.region_size() as u64, 50)],
                        rings: rings.collect(),
                    };
                    client.offer(offer).unwrap();
                }
                to_server.push(action);
            }
        }
        for action in to_server {
            let Action::Send(message, files) = action else {
                at_client.push(action);
                continue;
            };
            let octets = message.encode();
            let message = Message::parse(&octets, files.len()).unwrap();
            to_client.extend(match greeting.take() {
                Some(greeting) => {
                    let init = greeting.handle(&message, &files).unwrap();
                    server.start(&init).unwrap()
                }
                None => server.handle(message, files).unwrap(),
            });
        }
    }
    assert!(server.is_connected() && client.is_connected());
    (at_server, at_client)
}

fn client(c2s_rings: u16, s2c_rings: u16, log2_ring_size: u8) -> Client<u32> {
    Client::new(ClientConfig {
        id: 7,
        secret: Secret::new(b"secret").unwrap(),
        program: name("client"),
        interface: name("client0"),
        c2s_rings,
        s2c_rings,
        sizes: RingSizes::both(log2_ring_size),
    })
}

#[test]
fn a_client_and_a_server_agree() {
    let greeting = Greeting::new(name("server"), &limits());
    let mut client = client(2, 1, 9);
    let (at_server, at_client) = talk(greeting, server_with(limits()), &mut client, 2048);
    let layout = Layout::new(2, 1, RingSizes::both(9), 2048).unwrap();
    let mut expected = vec![Action::MapRegion {
        index: 0,
        size: layout.region_size() as u64,
        file: 50,
    }];
    expected.extend(
        (100..)
            .zip(layout.places())
            .map(|(event, place)| Action::AddRing { place, event }),
    );
    expected.push(Action::Connect {
        peer_interface: name("client0"),
    });
    assert_eq!(at_server, expected);
    let allocate = Action::Allocate {
        c2s_rings: 2,
        s2c_rings: 1,
        sizes: RingSizes::both(9),
    };
    let connect = Action::Connect {
        peer_interface: name("server0"),
    };
    assert_eq!(at_client, [allocate, connect]);
}

#[test]
fn the_directions_have_sizes_of_their_own() {
    let greeting = Greeting::new(name("server"), &limits());
    let sizes = RingSizes { c2s: 4, s2c: 9 };
    let mut client = Client::new(ClientConfig {
        id: 7,
        secret: Secret::new(b"secret").unwrap(),
        sizes,
        ..ClientConfig::default()
    });
    let (at_server, at_client) = talk(greeting, server_with(limits()), &mut client, 64);
    let allocate = Action::Allocate {
        c2s_rings: 1,
        s2c_rings: 1,
        sizes,
    };
    assert_eq!(at_client[0], allocate);
    let rings = at_server.iter().filter_map(|action| match action {
        Action::AddRing { place, .. } => Some((place.direction, place.log2_size)),
        _ => None,
    });
    let expected = [
        (Direction::ClientToServer, 4),
        (Direction::ServerToClient, 9),
    ];
    assert_eq!(rings.collect::<Vec<_>>(), expected);
}

#[test]
fn a_client_asks_for_no_more_than_its_server_grants() {
    let greeting = Greeting::new(name("server"), &limits());
    let mut client = client(9, 9, 14);
    let (_, at_client) = talk(greeting, server_with(limits()), &mut client, 64);
    let allocate = Action::Allocate {
        c2s_rings: 2,
        s2c_rings: 2,
        sizes: RingSizes::both(10),
    };
    assert_eq!(at_client[0], allocate);
}

#[test]
fn a_greeting_takes_nothing_but_an_init_that_fits() {
    let greeting = || Greeting::new(name("server"), &limits());
    let mut wrong = init();
    wrong.version = 0x0100;
    let error = greeting().handle::<u32>(&Message::Init(wrong), &[]);
    let version = SessionError::Version { major: 1, minor: 0 };
    assert_eq!(error, Err(version));
    let mut wrong = init();
    wrong.mode = 1;
    let error = greeting().handle::<u32>(&Message::Init(wrong), &[]);
    assert_eq!(error, Err(SessionError::Mode(1)));
    assert!(greeting().handle::<u32>(&Message::Ack, &[]).is_err());
    assert!(greeting().handle(&Message::Init(init()), &[1]).is_err());
    let taken = greeting().handle::<u32>(&Message::Init(init()), &[]);
    assert_eq!(taken, Ok(init()));
}

#[test]
fn a_server_takes_its_own_interface_and_secret_only() {
    let mut other = init();
    other.id = 8;
    let error = server_with(limits()).start::<u32>(&other).unwrap_err();
    assert_eq!(error, SessionError::UnknownInterface(8));
    for secret in [&b""[..], b"Secret", b"secret2", b"secre"] {
        let mut wrong = init();
        wrong.secret = Secret::new(secret).unwrap();
        let mut server = server_with(limits());
        let error = server.start::<u32>(&wrong).unwrap_err();
        assert_eq!(error, SessionError::WrongSecret(7));
        assert!(server.start::<u32>(&init()).is_err(), "a second attempt");
    }
    // A server without a secret accepts any.
    let config = ServerConfig {
        id: 7,
        ..ServerConfig::default()
    };
    assert!(Server::new(config).start::<u32>(&init()).is_ok());
}

#[test]
fn a_server_refuses_what_is_out_of_order_or_out_of_bounds() {
    let good = region(0, 4096);
    let size = 4096 - 128 - 256;
    let ring = |place: RingLocation| vec![(good, 1), (add_ring(place), 1)];
    let c2s = place(C2S, 0);
    let conversations: Vec<Vec<(Message, usize)>> = vec![
        vec![(Message::Init(init()), 0)],
        vec![(Message::Ack, 0)],
        vec![(CONNECT, 0)],
        vec![(good, 1), (CONNECT, 0)],
        vec![(good, 0)],
        vec![(good, 2)],
        vec![(region(1, 4096), 1)],
        vec![(region(u16::MAX, 4096), 1)],
        vec![(good, 1), (good, 1)],
        vec![(region(0, (256 << 20) + 1), 1)],
        vec![(region(0, u64::MAX), 1)],
        vec![(region(0, 256 << 20), 1), (region(1, 1), 1)],
        vec![(add_ring(c2s), 1)],
        ring(RingLocation { index: 1, ..c2s }),
        ring(RingLocation { region: 1, ..c2s }),
        ring(RingLocation {
            offset: size + RING_ALIGNMENT,
            ..c2s
        }),
        ring(RingLocation {
            offset: u32::MAX - 7,
            ..c2s
        }),
        ring(RingLocation {
            log2_size: 8,
            ..c2s
        }),
        ring(RingLocation {
            log2_size: 11,
            ..c2s
        }),
        vec![(good, 1), (add_ring(c2s), 0)],
        vec![(good, 1), (add_ring(c2s), 1), (add_ring(c2s), 1)],
        vec![
            (good, 1),
            (
                Message::AddRing {
                    place: c2s,
                    private_header_size: 8,
                },
                1,
            ),
        ],
        vec![
            (good, 1),
            (add_ring(c2s), 1),
            (add_ring(place(C2S, 1)), 1),
            (add_ring(place(C2S, 2)), 1),
        ],
        vec![(good, 1), (add_ring(c2s), 1), (CONNECT, 0), (CONNECT, 0)],
        vec![
            (good, 1),
            (add_ring(c2s), 1),
            (CONNECT, 0),
            (region(1, 1), 1),
        ],
        vec![
            (good, 1),
            (add_ring(c2s), 1),
            (CONNECT, 0),
            (add_ring(place(S2C, 0)), 1),
        ],
    ];
    for conversation in conversations {
        let mut server = server();
        let (last, before) = conversation.split_last().unwrap();
        for (message, files) in before {
            server.handle(*message, vec![0; *files]).unwrap();
        }
        let result = server.handle(last.0, vec![0; last.1]);
        let error = result.expect_err(&format!("{conversation:?}"));
        assert!(!error.to_string().is_empty());
        // The session remains over.
        let again = server.handle(good, vec![0]);
        assert!(
            matches!(again, Err(SessionError::Over(_))),
            "{conversation:?}"
        );
    }
}

#[test]
fn a_server_holds_a_bounded_number_of_regions() {
    let mut server = server();
    for index in 0..8 {
        assert!(server.handle(region(index, 4096), vec![0]).is_ok());
    }
    let error = server.handle(region(8, 4096), vec![0]).unwrap_err();
    assert!(matches!(error, SessionError::TooMany { limit: 8, .. }));
    assert_eq!(server.counts(), (8, 0, 0));
}

#[test]
fn a_ring_may_end_where_its_region_ends() {
    let mut server = server();
    let ring = RingLocation {
        offset: 4096 - 128 - 256,
        ..place(S2C, 0)
    };
    server.handle(region(0, 4096), vec![1]).unwrap();
    assert!(server.handle(add_ring(ring), vec![2]).is_ok());
    let actions = server.handle::<u32>(CONNECT, vec![]).unwrap();
    assert_eq!(actions.len(), 2);
    assert!(matches!(actions[0], Action::Connect { .. }));
    assert_eq!(server.handle::<u32>(Message::Ack, vec![]), Ok(vec![]));
    let goodbye = goodbye("enough");
    let actions = server.handle::<u32>(goodbye, vec![]).unwrap();
    assert_eq!(actions, [Action::Disconnect(Reason::truncated("enough"))]);
    assert!(!server.is_connected());
    assert!(server.handle::<u32>(Message::Ack, vec![]).is_err());
}

#[test]
fn a_client_refuses_what_is_out_of_order() {
    let Action::Send(hello, _) = Greeting::new(name("s"), &limits()).start::<u32>()[0].clone()
    else {
        panic!();
    };
    for wrong in [Message::Ack, CONNECT, Message::Init(init()), region(0, 1)] {
        let files = vec![0; wrong.descriptors()];
        assert!(client(1, 1, 4).handle(wrong, files).is_err());
    }
    let Message::Hello(mut old) = hello else {
        panic!();
    };
    old.min_version = 0x0100;
    old.max_version = 0x01ff;
    assert!(client(1, 1, 4).handle(Message::Hello(old), vec![]).is_err());
    // ACK before there is memory.
    let mut waiting = client(1, 1, 4);
    waiting.handle(hello, vec![]).unwrap();
    let error = waiting.handle(Message::Ack, vec![]).unwrap_err();
    assert!(matches!(error, SessionError::Offer(_)));
    // HELLO twice, CONNECTED early.
    for early in [
        hello,
        Message::Connected {
            interface: Name::NONE,
        },
    ] {
        let mut client = client(1, 1, 4);
        client.handle(hello, vec![]).unwrap();
        assert!(client.handle(early, vec![]).is_err());
    }
}

#[test]
fn a_client_checks_its_own_memory() {
    let layout = Layout::new(1, 1, RingSizes::both(4), 64).unwrap();
    let size = layout.region_size() as u64;
    let rings: Vec<(RingLocation, u32)> = layout.places().map(|place| (place, 0)).collect();
    let begun = || {
        let mut client = client(1, 1, 4);
        let hello = Greeting::new(name("s"), &limits()).start::<u32>();
        let Action::Send(hello, _) = &hello[0] else {
            panic!();
        };
        client.handle(*hello, vec![]).unwrap();
        client
    };
    let offer = |regions: &[u64], rings: &[(RingLocation, u32)]| Offer {
        regions: regions.iter().map(|size| (*size, 0)).collect(),
        rings: rings.to_vec(),
    };
    assert!(client(1, 1, 4).offer(offer(&[size], &rings)).is_err());
    assert!(begun().offer(offer(&[], &rings)).is_err());
    assert!(begun().offer(offer(&[size; 9], &rings)).is_err());
    assert!(begun().offer(offer(&[100], &rings)).is_err());
    assert!(begun().offer(offer(&[size], &rings[..1])).is_err());
    assert!(
        begun()
            .offer(offer(&[size], &[rings[0], rings[0]]))
            .is_err()
    );
    let mut good = begun();
    assert!(good.offer(offer(&[size], &rings)).is_ok());
    assert!(good.offer(offer(&[size], &rings)).is_err(), "twice");
}

#[test]
fn errors_tell_the_peer_why() {
    let Message::Disconnect { code, reason } = SessionError::WrongSecret(7).message() else {
        panic!();
    };
    assert_eq!(
        (code, reason.to_string()),
        (7, "interface 7: wrong secret".to_owned())
    );
}

proptest! {
    #[test]
    fn messages_in_any_order_leave_sessions_bounded(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
        crate::fuzz::fuzz_session(&octets);
    }
}

#[test]
fn arbitrary_messages_come_far_enough_to_show_something() {
    // A linear congruential generator (Knuth's MMIX) gives the octets.
    let mut state = 1_u64;
    let mut octet = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut connected = (0, 0);
    for _ in 0..1000 {
        let octets: Vec<u8> = (0..300).map(|_| octet()).collect();
        let depth = crate::fuzz::fuzz_session(&octets);
        connected.0 += u32::from(depth.was_server_connected());
        connected.1 += u32::from(depth.was_client_connected);
    }
    assert!(connected.0 > 20 && connected.1 > 20, "{connected:?}");
}
