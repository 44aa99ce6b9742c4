// SPDX-License-Identifier: Apache-2.0
//! Both ends against the kernel's TCP, through a tap in a network namespace of the test, and a path that loses, duplicates and reorders
//! frames from a seed. Requires root.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use quietwire_base::random::Random;
use quietwire_packet::MacAddress;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::client::Client;
use super::pattern::Sender;
use super::plan::Plan;
use super::request::{Contents, HEAD, Request};
use super::server::Server;
use super::wire::{Link, Packet};
use super::*;

/// Address of the kernel, and of the end under test.
#[derive(Clone, Copy)]
struct Ends {
    kernel: IpAddr,
    own: IpAddr,
}

const IPV4: Ends = Ends {
    kernel: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)),
    own: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)),
};
const IPV6: Ends = Ends {
    kernel: IpAddr::V6(Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 1)),
    own: IpAddr::V6(Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 2)),
};
const TAP: &str = "qwt0";
const KERNEL_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const OWN_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const LINK: Link = Link {
    source: OWN_MAC,
    destination: KERNEL_MAC,
};
const LIMIT: Duration = Duration::from_secs(180);
/// Delay of a frame that others overtake.
const HELD: Duration = Duration::from_millis(1);
const CHUNK: usize = 1 << 16;

/// Runs a test on a thread with a network namespace of its own.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("this test requires root: a network namespace");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    assert!(output.status.success(), "ip {arguments}: {output:?}");
}

/// One direction of a path with faults of 1 % each.
struct Direction {
    random: Random,
    held: Vec<(Instant, Vec<u8>)>,
}

impl Direction {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            held: Vec::new(),
        }
    }

    fn pass(&mut self, frame: &[u8], mut to: impl FnMut(&[u8])) {
        match self.random.below(100) {
            0 => {}
            1 => {
                to(frame);
                to(frame);
            }
            2 => self.held.push((Instant::now(), frame.to_vec())),
            _ => to(frame),
        }
    }

    fn release(&mut self, mut to: impl FnMut(&[u8])) {
        let held = std::mem::take(&mut self.held).into_iter();
        let (due, later): (Vec<_>, Vec<_>) = held.partition(|(since, _)| since.elapsed() >= HELD);
        self.held = later;
        due.iter().for_each(|(_, frame)| to(frame));
    }
}

/// The tap, and the path between it and the end.
struct Wire {
    tap: SyncDevice,
    to_kernel: Direction,
    from_kernel: Direction,
}

impl Wire {
    fn new(seed: u64, Ends { kernel, own }: Ends) -> Self {
        let tap = DeviceBuilder::new()
            .name(TAP)
            .layer(Layer::L2)
            .build_sync()
            .unwrap();
        tap.set_nonblocking(true).unwrap();
        ip(&format!("link set {TAP} address {KERNEL_MAC} mtu 1500 up"));
        // Without duplicate address detection, the address can be used at once.
        let prefix = if kernel.is_ipv4() { "24" } else { "64" };
        let nodad = if kernel.is_ipv4() { "" } else { " nodad" };
        ip(&format!("address add {kernel}/{prefix} dev {TAP}{nodad}"));
        ip(&format!(
            "neighbour replace {own} lladdr {OWN_MAC} nud permanent dev {TAP}"
        ));
        Self {
            tap,
            to_kernel: Direction::new(seed),
            from_kernel: Direction::new(seed + 1),
        }
    }

    fn receive(&mut self, mut to: impl FnMut(&[u8])) {
        let mut frame = [0; 2048];
        for _ in 0..64 {
            match self.tap.recv(&mut frame) {
                Ok(length) => self.from_kernel.pass(&frame[..length], &mut to),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.from_kernel.release(to);
    }

    fn send(&mut self, packets: impl Iterator<Item = Packet>) {
        let tap = &self.tap;
        // A full queue of the kernel loses the frame, as a network does.
        let to = |frame: &[u8]| drop(tap.send(frame));
        for packet in packets {
            let mut frame = vec![0; usize::from(packet.length())];
            packet.write(&LINK, &mut frame);
            self.to_kernel.pass(&frame, to);
        }
        self.to_kernel.release(to);
    }
}

/// Returns the plan of a client or a server at the address of the end under test.
fn plan(load: &str, mix: &str, Ends { kernel, own }: Ends) -> Plan {
    let is_server = load.is_empty();
    let (client, server) = if is_server {
        (kernel, own)
    } else {
        (own, kernel)
    };
    let text = format!(
        "[connections]\n{load}\n[connections.client]\naddress = \"{client}\"\n[connections.server]\naddress = \"{server}\"\n{mix}"
    );
    Plan::new(&Connections::parse(&text, Path::new("c.toml")).unwrap())
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap()
}

/// Answers the requests of a connection until its end.
fn serve(mut stream: TcpStream, seed: u64) {
    let mut head = [0; HEAD as usize];
    stream.read_exact(&mut head).unwrap();
    let request = Request::read(seed, Sender::Client, &head).unwrap();
    let all = request.request * request.count;
    let contents = Contents::of_client(seed, &request);
    let answers = Contents::of_server(seed, request.number);
    let (mut received, mut sent) = (HEAD, 0);
    let mut chunk = vec![0; CHUNK];
    loop {
        while sent < received / request.request * request.answer {
            let left = received / request.request * request.answer - sent;
            let length = (left as usize).min(CHUNK);
            answers.fill(sent, &mut chunk[..length]);
            stream.write_all(&chunk[..length]).unwrap();
            sent += length as u32;
        }
        match stream.read(&mut chunk).unwrap() {
            0 => break,
            length => {
                assert!(contents.is(received, &chunk[..length]), "at {received}");
                received += length as u32;
            }
        }
    }
    assert_eq!(received, all);
}

/// Sends a request to a server and checks the answer.
fn ask(server: IpAddr, request: &Request, seed: u64) {
    let mut stream = TcpStream::connect((server, 80)).unwrap();
    let (contents, answers) = (
        Contents::of_client(seed, request),
        Contents::of_server(seed, request.number),
    );
    let mut chunk = vec![0; CHUNK];
    let mut sent = 0;
    while sent < request.request {
        let length = ((request.request - sent) as usize).min(CHUNK);
        contents.fill(sent, &mut chunk[..length]);
        stream.write_all(&chunk[..length]).unwrap();
        sent += length as u32;
    }
    let mut received = 0;
    while received < request.answer {
        let length = stream.read(&mut chunk).unwrap();
        assert!(length > 0, "closed after {received} octets");
        assert!(answers.is(received, &chunk[..length]), "at {received}");
        received += length as u32;
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut chunk).unwrap(), 0);
}

/// The client of the tester with a server of the kernel.
fn client_with_kernel(octets: u32, ends: Ends) {
    let mix = format!(
        "[[connections.mix]]\nname = \"a\"\nport = 8080\nrequest = {octets}\nanswer = {octets}\ntransactions = 2\n"
    );
    let plan = plan("concurrent = 1", &mix, ends);
    let seed = plan.seed;
    let mut wire = Wire::new(u64::from(octets), ends);
    let listener = TcpListener::bind((ends.kernel, 8080)).unwrap();
    let server = std::thread::spawn(move || serve(listener.accept().unwrap().0, seed));
    let mut client = Client::new(plan);
    let began = Instant::now();
    assert!(client.open(nanoseconds(began)));
    while client.open_count() > 0 {
        assert!(began.elapsed() < LIMIT, "{:?}", client.record());
        let now = nanoseconds(began);
        wire.receive(|frame| client.receive(frame, now));
        client.expire(now, 64);
        client.resume(now);
        wire.send(client.shared().outbox().drain(..));
        std::thread::yield_now();
    }
    assert_eq!(
        client.record().classes[0].completed,
        1,
        "{:?}",
        client.record()
    );
    assert_eq!(client.record().received_octets, 2 * u64::from(octets));
    server.join().unwrap();
}

/// The server of the tester with a client of the kernel.
fn server_with_kernel(octets: u32, ends: Ends) {
    let plan = plan("", "", ends);
    let seed = plan.seed;
    let mut wire = Wire::new(u64::from(octets) + 7, ends);
    let request = Request {
        number: 1,
        request: octets,
        answer: octets,
        count: 1,
        index: 0,
        address: match ends.kernel {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        },
        port: 1,
    };
    let client = std::thread::spawn(move || ask(ends.own, &request, seed));
    let mut server = Server::new(plan);
    let began = Instant::now();
    while server.record().completed == 0 {
        assert!(began.elapsed() < LIMIT, "{:?}", server.record());
        let now = nanoseconds(began);
        wire.receive(|frame| server.receive(frame, now));
        server.expire(now, 64);
        server.resume(now);
        wire.send(server.shared().outbox().drain(..));
        std::thread::yield_now();
    }
    client.join().unwrap();
    assert_eq!(server.record().received_octets, u64::from(octets));
    let observed = server.translations().report();
    // The client named another port.
    assert_eq!((observed.changed, observed.pool.len()), (1, 1));
}

#[test]
fn a_client_completes_transfers_with_a_server_of_the_kernel() {
    in_namespace(|| client_with_kernel(5_000_000, IPV4));
}

#[test]
fn a_server_completes_transfers_with_a_client_of_the_kernel() {
    in_namespace(|| server_with_kernel(10_000_000, IPV4));
}

#[test]
fn both_ends_complete_transfers_over_ipv6_with_the_kernel() {
    in_namespace(|| client_with_kernel(1_000_000, IPV6));
    in_namespace(|| server_with_kernel(1_000_000, IPV6));
}

#[test]
#[ignore = "needs a minute; make test-all runs it"]
fn a_client_completes_a_hundred_megabytes_with_a_server_of_the_kernel() {
    in_namespace(|| client_with_kernel(50_000_000, IPV4));
}

#[test]
#[ignore = "needs a minute; make test-all runs it"]
fn a_server_completes_a_hundred_megabytes_with_a_client_of_the_kernel() {
    in_namespace(|| server_with_kernel(100_000_000, IPV4));
}

#[test]
fn a_closed_port_refuses_on_both_sides() {
    in_namespace(|| {
        let mut wire = Wire::new(1, IPV4);
        // The kernel has no listener.
        let mut client = Client::new(plan("rate = 1.0", "", IPV4));
        let began = Instant::now();
        assert!(client.open(nanoseconds(began)));
        // And the tester has no connection at this port.
        let asking = std::thread::spawn(|| TcpStream::connect((IPV4.own, 9)).unwrap_err().kind());
        while client.open_count() > 0 || !asking.is_finished() {
            assert!(began.elapsed() < LIMIT);
            let now = nanoseconds(began);
            wire.receive(|frame| client.receive(frame, now));
            client.expire(now, 64);
            client.resume(now);
            wire.send(client.shared().outbox().drain(..));
            std::thread::yield_now();
        }
        let failed = client.record().failures.by_cause();
        assert_eq!(
            failed.into_iter().collect::<Vec<_>>(),
            [(FailureCause::Refused, 1)]
        );
        assert_eq!(asking.join().unwrap(), ErrorKind::ConnectionRefused);
    });
}
