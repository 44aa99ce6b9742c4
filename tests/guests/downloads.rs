// SPDX-License-Identifier: Apache-2.0
//! Guests whose kernel drives virtio: TCP data in both directions, compared on both sides, and datagrams of UDP.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

use serde_json::Value;
use tempfile::TempDir;

use crate::machine::{Boot, Guest, Setup};
use crate::rig::alone;
use crate::switches::{DEADLINE, Namespace, Switch, run, until};

/// Data that both sides send, so that the guest can compare: a line, repeated.
const LINE: &[u8] = b"quietwire\n";
/// Octets in each direction, unless a test sets another number.
const OCTETS: usize = 4 << 20;

/// Octets that the guest gets in datagrams.
const SHORT: usize = 32 << 10;
/// Ports of the servers in the namespace.
const TCP_PORT: u16 = 5000;
const UDP_PORT: u16 = 6900;

/// Ends with the guest if data differ. The counters are those of TCP, and of UDP over IPv4.
const SCRIPT: &str = r#"
mkdir /www
yes quietwire | head -c OCTETS >/www/data
httpd -p 80 -h /www
for server in SERVERS; do
    until wget -q -O /heard "http://$server:TCP_PORT/"; do sleep 0.1; done
    cmp /heard /www/data || exit 1
    until tftp -g -r data -l /short "$server" UDP_PORT; do sleep 0.1; done
    head -c SHORT /www/data | cmp /short - || exit 1
done
wrong=$(awk '/^(Tcp|Udp):/ {
    if ($1 in at) sum += $at[$1]; else for (i = 2; i <= NF; i++) if ($i == "InCsumErrors") at[$1] = i
} END { print sum + 0 }' /proc/net/snmp)
echo "GUEST HEARD ALL, WRONG CHECKSUMS: $wrong."
while :; do sleep 1000; done
"#;
const HEARD: &str = "GUEST HEARD ALL, WRONG CHECKSUMS: 0.";

/// Addresses of the guest and of the namespace.
struct Addresses {
    guest: &'static [&'static str],
    /// As in URLs, quoted for a shell.
    servers: &'static str,
}

/// The switch has a bridge.
const BRIDGED: Addresses = Addresses {
    guest: &["10.9.0.2"],
    servers: "10.9.0.1",
};

/// The switch has a router.
const ROUTED: Addresses = Addresses {
    guest: &["10.9.1.2", "2001:db8:9:1::2"],
    servers: "10.9.0.1 '[2001:db8:9::1]'",
};

/// Moves the guest into a network of its own. Its address is usable at once: during duplicate address detection (RFC 4862), the kernel
/// connects from `::1`, and the router drops that.
const BEHIND_ROUTER: &str = r"
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
ip address del 10.9.0.2/24 dev eth0
ip address add 10.9.1.2/24 dev eth0
ip -6 address add 2001:db8:9:1::2/64 dev eth0
ip route add default via 10.9.1.254
ip -6 route add default via 2001:db8:9:1::fe
";

fn printed(octets: usize) -> Vec<u8> {
    LINE.iter().copied().cycle().take(octets).collect()
}

/// Sends data in datagrams (TFTP, RFC 1350). Each waits for the acknowledgment of the last one.
fn send_datagrams(socket: &UdpSocket) {
    const READ: u8 = 1;
    const DATA: u8 = 3;
    const ACKNOWLEDGMENT: u8 = 4;
    const BLOCK: usize = 512;
    let data = printed(SHORT);
    let mut heard = [0; 1024];
    while let Ok((length, from)) = socket.recv_from(&mut heard) {
        let last = match heard[..length] {
            [0, READ, ..] => 0,
            [0, ACKNOWLEDGMENT, high, low] => u16::from_be_bytes([high, low]),
            _ => continue,
        };
        // The last block is shorter than the others, or empty.
        let Some(rest) = data.get(usize::from(last) * BLOCK..) else {
            continue;
        };
        let mut datagram = vec![0, DATA];
        datagram.extend((last + 1).to_be_bytes());
        datagram.extend(&rest[..rest.len().min(BLOCK)]);
        // The guest requests it again.
        let _ = socket.send_to(&datagram, from);
    }
}

/// Answers every request with all of the data, in threads that end with the process.
fn serve(namespace: &Namespace, octets: usize) {
    namespace
        .within(move || {
            let socket = UdpSocket::bind(("::", UDP_PORT)).unwrap();
            std::thread::spawn(move || send_datagrams(&socket));
            let listener = TcpListener::bind(("::", TCP_PORT)).unwrap();
            std::thread::spawn(move || {
                let printed = printed(octets);
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let mut request = [0; 1024];
                    let _ = stream.read(&mut request);
                    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {octets}\r\n\r\n");
                    // A killed guest closes the connection.
                    let _ = stream
                        .write_all(head.as_bytes())
                        .and_then(|()| stream.write_all(&printed));
                }
            });
        })
        .join()
        .unwrap();
}

/// Checks that the data of the guest's kernel arrive unchanged.
fn check_data_of_kernel(namespace: &Namespace, guest: &'static str, octets: usize) {
    let heard = namespace.within(move || {
        let mut stream = TcpStream::connect((guest, 80)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(b"GET /data HTTP/1.0\r\n\r\n").unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        heard
    });
    assert!(heard.join().unwrap().ends_with(&printed(octets)));
}

/// Checks that packets of several fragments pass.
fn check_fragments(namespace: &Namespace, guest: &str) {
    until("the guest answers to a long packet", || {
        let mut command = namespace.command("busybox");
        command.args(["ping", "-c", "1", "-s", "8000", "-W", "2", guest]);
        command.output().unwrap().status.success().then_some(())
    });
}

/// Gives the namespace and the router their addresses.
fn route(namespace: &Namespace, switch: &Switch) {
    for (port, v4, v6) in [
        ("host", "10.9.0.254/24", "2001:db8:9::fe/64"),
        ("guest", "10.9.1.254/24", "2001:db8:9:1::fe/64"),
    ] {
        let name = format!("to-{port}");
        let interface = ["add", "interface", &name, "--port", port];
        let addresses = ["--address", v4, "--address", v6];
        switch.change(&[&interface[..], &addresses].concat());
    }
    let own = ["address", "add", "2001:db8:9::1/64", "dev", "t0", "nodad"];
    namespace.ip(&own);
    for (network, gateway) in [
        ("10.9.1.0/24", "10.9.0.254"),
        ("2001:db8:9:1::/64", "2001:db8:9::fe"),
    ] {
        namespace.ip(&["route", "add", network, "via", gateway]);
    }
}

/// A guest that downloads and serves downloads.
pub(crate) struct Case<'case> {
    /// Must be unique to the test.
    pub(crate) name: &'case str,
    /// Guests one after the other: each uses the port whose last guest was killed.
    pub(crate) guests: usize,
    /// Octets in each direction.
    pub(crate) octets: usize,
    /// URI of the port whose peer is the interface `t0` of the namespace.
    pub(crate) host: &'case str,
    /// Has the switch route between the guest and the namespace, instead of bridging.
    pub(crate) is_routed: bool,
    /// Options of the switch's port.
    pub(crate) port: &'case str,
    /// See [`Setup`].
    pub(crate) card: &'case str,
    pub(crate) kernel_options: &'case str,
    pub(crate) arguments: &'case [&'case str],
    /// Runs in the guest first.
    pub(crate) script: &'case str,
    /// Text that the guest must show.
    pub(crate) shows: &'case str,
    /// Features that must be negotiated, and features that must not.
    pub(crate) has: &'case [&'case str],
    pub(crate) has_not: &'case [&'case str],
}

impl Case<'_> {
    pub(crate) fn run(&self) {
        let _alone = alone();
        let namespace = Namespace::new(self.name);
        let directory = TempDir::new().unwrap();
        let (addresses, moved) = match self.is_routed {
            true => (ROUTED, BEHIND_ROUTER),
            false => (BRIDGED, ""),
        };
        let mut script = SCRIPT.replace("SERVERS", addresses.servers);
        for (name, value) in [
            ("OCTETS", self.octets.to_string()),
            ("SHORT", SHORT.to_string()),
            ("TCP_PORT", TCP_PORT.to_string()),
            ("UDP_PORT", UDP_PORT.to_string()),
        ] {
            script = script.replace(name, &value);
        }
        let script = format!("{moved}{}{script}", self.script);
        let boot = Boot::make(directory.path(), &script);
        let socket = directory.path().join("v.sock");
        let ports = [
            ("host", self.host.to_owned()),
            ("guest", format!("vhost:{}{}", socket.display(), self.port)),
        ];
        // An emulated guest needs the CPU. Behind an IOMMU, each frame waits for translations, which wake no thread.
        let idle = match self.port.contains("iommu=on") {
            true => "yield",
            false => "sleep",
        };
        let mut arguments = vec!["--idle", idle];
        if !self.is_routed {
            arguments.extend(["--bridge", "lan=host,guest"]);
        }
        let switch = Switch::start(&namespace, directory.path(), &ports, &arguments);
        namespace.ip(&["address", "add", "10.9.0.1/24", "dev", "t0"]);
        if self.is_routed {
            route(&namespace, &switch);
        }
        serve(&namespace, self.octets);
        for number in 0..self.guests {
            let mut guest = Guest::start(&Setup {
                boot: &boot,
                directory: directory.path(),
                name: &format!("guest{number}"),
                socket: &socket,
                card: self.card,
                kernel_options: self.kernel_options,
                arguments: self.arguments,
            });
            guest.shows(HEARD);
            guest.shows(self.shows);
            for address in addresses.guest {
                check_data_of_kernel(&namespace, address, self.octets);
                check_fragments(&namespace, address);
            }
            self.check(&switch);
        }
        // The kernel counts segments and datagrams dropped for a wrong checksum.
        let counters = run(namespace.command("cat").arg("/proc/net/snmp"));
        for protocol in ["Tcp:", "Udp:"] {
            let lines: Vec<&str> = counters
                .lines()
                .filter(|line| line.starts_with(protocol))
                .collect();
            let place = lines[0]
                .split(' ')
                .position(|name| name == "InCsumErrors")
                .unwrap();
            assert_eq!(lines[1].split(' ').nth(place), Some("0"), "{counters}");
        }
        assert_eq!(switch.end(), Some(0));
    }

    fn check(&self, switch: &Switch) {
        let port = switch.port("guest");
        let features = port["guest"]["features"].as_array().unwrap();
        for feature in self.has {
            assert!(features.contains(&Value::from(*feature)), "{port}");
        }
        for feature in self.has_not {
            assert!(!features.contains(&Value::from(*feature)), "{port}");
        }
        if self.port.contains("tso=on") {
            // What one kernel sends reaches the other whole.
            for port in switch.ports() {
                assert!(port["tx_tso_frames"].as_u64() > Some(50), "{port}");
                assert_eq!(port["segmented"], 0, "{port}");
            }
            if self.is_routed {
                assert_eq!(switch.stats()["router"]["segmented"], 0);
            }
        }
    }
}

/// A guest without special settings.
pub(crate) const PLAIN: Case<'_> = Case {
    name: "guest",
    guests: 1,
    octets: OCTETS,
    host: "tap:t0",
    is_routed: false,
    port: "",
    card: "",
    kernel_options: "",
    arguments: &[],
    script: "",
    shows: "",
    has: &["version-1"],
    has_not: &[],
};

#[test]
fn a_guest_that_leaves_checksums_to_the_host_is_understood() {
    Case {
        guests: 2,
        has: &["csum", "mrg-rxbuf", "version-1"],
        has_not: &["gso", "host-tso4", "host-tso6", "host-ecn", "host-ufo"],
        ..PLAIN
    }
    .run();
}

#[test]
#[ignore = "takes half a minute where guests are emulated; make test-labs runs it"]
fn a_guest_with_segmentation_and_a_namespace_exchange_large_frames() {
    Case {
        name: "guest-tso",
        guests: 2,
        octets: 4 * OCTETS,
        port: "?tso=on",
        has: &["csum", "host-tso4", "host-tso6", "guest-tso4", "guest-tso6"],
        has_not: &["host-ecn", "host-ufo"],
        ..PLAIN
    }
    .run();
}

#[test]
#[ignore = "takes half a minute where guests are emulated; make test-labs runs it"]
fn a_guest_with_segmentation_and_a_namespace_exchange_large_frames_through_the_router() {
    Case {
        name: "guest-rt",
        octets: 4 * OCTETS,
        is_routed: true,
        port: "?tso=on",
        has: &["csum", "host-tso4", "host-tso6", "guest-tso4", "guest-tso6"],
        has_not: &["host-ecn", "host-ufo"],
        ..PLAIN
    }
    .run();
}

#[test]
#[ignore = "takes half a minute where guests are emulated; make test-labs runs it"]
fn a_guest_with_segmentation_and_a_host_behind_a_pair_exchange_large_frames() {
    Case {
        name: "guest-pair",
        octets: 4 * OCTETS,
        host: "veth:near0?peer=t0",
        port: "?tso=on",
        has: &["csum", "host-tso4", "host-tso6", "guest-tso4", "guest-tso6"],
        has_not: &["host-ecn", "host-ufo"],
        ..PLAIN
    }
    .run();
}

#[test]
fn a_guest_without_offloads_is_understood() {
    Case {
        name: "plain",
        port: "?checksum=off&mergeable=off",
        has_not: &["csum", "mrg-rxbuf", "gso", "host-tso4", "host-tso6"],
        ..PLAIN
    }
    .run();
}
