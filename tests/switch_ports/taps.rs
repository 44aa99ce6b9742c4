// SPDX-License-Identifier: Apache-2.0
//! Taps: the kernel's network stack is the peer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::rig::{Carrier, DEADLINE, Namespace, Switch, lossless, ping, quietwire, until, within};

const OCTETS: usize = 4 << 20;

/// Returns octets that repeat with a prime period, so that a lost or duplicated frame shows.
fn pattern() -> Vec<u8> {
    (0..OCTETS).map(|index| (index % 251) as u8).collect()
}

/// A switch in each of two namespaces, each with a tap; `link` returns the URI of the connecting port for each end.
struct Two {
    ends: [Namespace; 2],
    switches: Vec<Switch>,
    _directories: [TempDir; 2],
}

const ADDRESSES: [&str; 2] = ["10.9.0.1", "10.9.0.2"];

impl Two {
    fn start(
        kind: &str,
        taps: [&str; 2],
        arguments: &[&str],
        link: impl Fn(&Path) -> [String; 2],
    ) -> Self {
        let ends = [
            Namespace::new(&format!("{kind}-a")),
            Namespace::new(&format!("{kind}-b")),
        ];
        let directories = [TempDir::new().unwrap(), TempDir::new().unwrap()];
        let links = link(directories[0].path());
        let mut switches = Vec::new();
        for (index, namespace) in ends.iter().enumerate() {
            let ports = [
                ("tap", taps[index].to_owned()),
                ("link", links[index].clone()),
            ];
            switches.push(Switch::start(
                namespace,
                directories[index].path(),
                &ports,
                &[&["--bridge", "lan=tap,link"], arguments].concat(),
            ));
            let address = format!("{}/24", ADDRESSES[index]);
            namespace.ip(&["address", "add", &address, "dev", "t0"]);
        }
        for switch in &switches {
            until("the link is up", || {
                (switch.port("link")["link_up"] == true).then_some(())
            });
        }
        Self {
            ends,
            switches,
            _directories: directories,
        }
    }

    /// Tests ARP and ICMP of the kernels.
    fn ping(&self) {
        ping(&self.ends[0], ADDRESSES[1]);
    }

    /// Tests a TCP connection of the kernels, with an echo.
    fn talk(&self) {
        let listener = self.ends[1].within(|| {
            let listener = TcpListener::bind((ADDRESSES[1], 5000)).unwrap();
            let (sent, received) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || {
                sent.send(()).unwrap();
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(DEADLINE)).unwrap();
                let mut heard = vec![0; OCTETS];
                stream.read_exact(&mut heard).unwrap();
                stream.write_all(&heard).unwrap();
            });
            received.recv().unwrap();
            thread
        });
        let echo = listener.join().unwrap();
        let heard = self.ends[0].within(|| {
            let mut stream = TcpStream::connect((ADDRESSES[1], 5000)).unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            stream.write_all(&pattern()).unwrap();
            let mut heard = vec![0; OCTETS];
            stream.read_exact(&mut heard).unwrap();
            heard
        });
        assert!(heard.join().unwrap() == pattern(), "octets were changed");
        echo.join().unwrap();
    }

    /// Tests a datagram of many fragments.
    fn fragments(&self) {
        let socket = self.ends[1]
            .within(|| UdpSocket::bind((ADDRESSES[1], 5001)).unwrap())
            .join()
            .unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        let sender = self.ends[0]
            .within(|| UdpSocket::bind((ADDRESSES[0], 0)).unwrap())
            .join()
            .unwrap();
        let printed = &pattern()[..20_000];
        let mut heard = vec![0; 65_536];
        let length = until("a datagram arrives whole", || {
            sender.send_to(printed, (ADDRESSES[1], 5001)).unwrap();
            socket.recv(&mut heard).ok()
        });
        assert!(&heard[..length] == printed, "octets were changed");
    }
}

/// URIs of a memif link.
fn memif(directory: &Path) -> [String; 2] {
    ["server", "client"].map(|role| format!("memif:{}/l.sock?role={role}", directory.display()))
}

/// Silence before frames arrive again, seconds. The environment variable sets another duration.
const SILENCE_S: u64 = 1;
const SILENCE: &str = "QUIETWIRE_SILENCE_SECONDS";

#[test]
fn a_tap_wakes_threads_after_a_silence_that_costs_next_to_no_cpu_time() {
    let arguments = ["--idle", "interrupt"];
    let two = Two::start("silence", ["tap:t0", "tap:t0"], &arguments, memif);
    two.ping();
    let seconds = std::env::var(SILENCE).map_or(SILENCE_S, |text| text.parse().unwrap());
    let forwarding = || -> Vec<(i64, bool)> {
        let threads = two
            .switches
            .iter()
            .flat_map(|switch| switch.show("threads"));
        let threads = threads.filter(|thread| thread["role"] == "forwarding");
        let state = |thread: serde_json::Value| {
            let is_asleep = thread["is_asleep"].as_bool().unwrap();
            (thread["tid"].as_i64().unwrap(), is_asleep)
        };
        threads.map(state).collect()
    };
    let busy_ns = |(tid, _): &(i64, bool)| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    };
    let sum_ns = |threads: &[(i64, bool)]| threads.iter().map(busy_ns).sum::<u64>();
    let threads = forwarding();
    assert_eq!(threads.len(), 2, "{threads:?}");
    let (before, began) = (sum_ns(&threads), Instant::now());
    assert_eq!(within(Duration::from_secs(seconds), || None::<()>), None);
    let elapsed_ns = began.elapsed().as_nanos() as f64;
    let share = (sum_ns(&threads) - before) as f64 / threads.len() as f64 / elapsed_ns;
    println!(
        "{:.1} % of a CPU for each thread in {seconds} s of silence",
        share * 100.0
    );
    assert!(share < 0.3, "{share} of a CPU");
    until("all threads sleep", || {
        forwarding()
            .iter()
            .all(|(_, is_asleep)| *is_asleep)
            .then_some(())
    });
    two.ping();
    two.talk();
    two.fragments();
    // Another tap at run time.
    two.switches[0].change(&["add", "port", "more", "tap:t1", "--bridge", "lan"]);
    two.switches[0].until_up("more");
    two.ping();
    for switch in two.switches {
        assert_eq!(switch.end(), Some(0));
    }
}

#[test]
fn a_tap_joins_the_kernel_to_other_ports() {
    let two = Two::start("tap", ["tap:t0", "tap:t0"], &[], memif);
    two.ping();
    two.talk();
    two.fragments();
    for switch in &two.switches {
        let (tap, link) = (switch.port("tap"), switch.port("link"));
        // The kernel's large frames are cut for the link.
        assert!(tap["rx_octets"].as_u64() > Some(OCTETS as u64), "{tap}");
        assert!(link["segmented"].as_u64() > Some(50), "{link}");
        assert!(link["rx_frames"].as_u64() > Some(1000), "{link}");
        assert_eq!(tap["drops"]["short"], 0, "{tap}");
    }
    // The switch created the interface and removes it.
    let Two { ends, switches, .. } = two;
    assert!(ends[0].ip(&["link"]).contains("t0"));
    for switch in switches {
        assert_eq!(switch.end(), Some(0));
    }
    assert!(!ends[0].ip(&["link"]).contains("t0"));
}

#[test]
fn interfaces_that_vanish_cost_their_own_ports_only() {
    let namespace = Namespace::with_pairs("vanish");
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let ports = [
        ("tap", "tap:t0".to_owned()),
        ("packet", "af-packet:v0".to_owned()),
        ("xdp", "af-xdp:v2".to_owned()),
        ("a", format!("memif:{}?role=server", path("a.sock"))),
        ("b", format!("memif:{}?role=server", path("b.sock"))),
    ];
    let arguments = ["--bridge", "lan=tap,packet,xdp", "--cross-connect", "a,b"];
    let switch = Switch::start(&namespace, directory.path(), &ports, &arguments);
    for port in ["tap", "packet", "xdp"] {
        switch.until_up(port);
    }
    for interface in ["t0", "v1", "v3"] {
        namespace.ip(&["link", "delete", interface]);
    }
    for port in ["tap", "packet", "xdp"] {
        until("the loss of the interface is detected", || {
            (switch.port(port)["state"] == "down").then_some(())
        });
    }
    lossless("ports beside them", Carrier::SharedMemory, || {
        let mut command = namespace.command(quietwire());
        command.arg("generate");
        for name in ["a.sock", "b.sock"] {
            command.args(["--port", &format!("memif:{}?role=client", path(name))]);
        }
        command.args(["--rate", "2000", "--duration", "500ms", "--json"]);
        command.args(["--warm-up", "0s", "--drain", "500ms", "--direction", "both"]);
        command.args(["--memory-mib", "96", "--no-huge", "--isolation", "none"]);
        command
    });
    switch.change(&["del", "port", "tap"]);
    switch.change(&["add", "port", "tap", "tap:t0", "--bridge", "lan"]);
    switch.until_up("tap");
    assert_eq!(switch.end(), Some(0));
}

#[test]
fn signals_of_a_tap_do_not_disturb_who_waits_for_a_peer() {
    let namespace = Namespace::new("signals");
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let back = path("back");
    std::fs::create_dir(&back).unwrap();
    let socket = path("l.sock").display().to_string();
    let vhost = [("link", format!("vhost:{socket}"))];
    let peer = Switch::start(&namespace, &back, &vhost, &[]);
    // The kernel sends a few frames, and so signals, whenever an interface comes up.
    let ports = [
        ("tap", "tap:t0".to_owned()),
        ("link", format!("virtio-user:{socket}")),
    ];
    let switch = Switch::start(
        &namespace,
        directory.path(),
        &ports,
        &["--bridge", "lan=tap,link"],
    );
    for _ in 0..5 {
        switch.change(&["del", "port", "link"]);
        switch.change(&["add", "port", "link", &ports[1].1, "--bridge", "lan"]);
        until("the link is up", || {
            (switch.port("link")["state"] == "connected").then_some(())
        });
    }
    assert_eq!(switch.end(), Some(0));
    assert_eq!(peer.end(), Some(0));
}
