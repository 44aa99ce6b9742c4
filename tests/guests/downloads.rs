// SPDX-License-Identifier: Apache-2.0
//! Guests whose kernel drives virtio: TCP data in both directions, compared on both sides.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;
use tempfile::TempDir;

use crate::machine::{Boot, Guest, Setup};
use crate::rig::alone;
use crate::switches::{DEADLINE, Namespace, Switch, run};

/// Data that both sides send, so that the guest can compare: a line, repeated.
const LINE: &[u8] = b"quietwire\n";
/// Octets in each direction, unless a test sets another number.
const OCTETS: usize = 4 << 20;

const SCRIPT: &str = r"
mkdir /www
yes quietwire | head -c OCTETS >/www/data
httpd -p 80 -h /www
until wget -q -O /heard http://10.9.0.1:5000/; do sleep 0.1; done
cmp /heard /www/data && echo GUEST HEARD ALL
while :; do sleep 1000; done
";

fn printed(octets: usize) -> Vec<u8> {
    LINE.iter().copied().cycle().take(octets).collect()
}

/// Answers every request with all of the data, in a thread that ends with the process.
fn serve(namespace: &Namespace, octets: usize) {
    namespace
        .within(move || {
            let listener = TcpListener::bind(("10.9.0.1", 5000)).unwrap();
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
fn check_data_of_kernel(namespace: &Namespace, octets: usize) {
    let heard = namespace.within(|| {
        let mut stream = TcpStream::connect(("10.9.0.2", 80)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(b"GET /data HTTP/1.0\r\n\r\n").unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        heard
    });
    assert!(heard.join().unwrap().ends_with(&printed(octets)));
}

/// A guest that downloads and serves downloads.
pub(crate) struct Case<'case> {
    /// Must be unique to the test.
    pub(crate) name: &'case str,
    /// Guests one after the other: each uses the port whose last guest was killed.
    pub(crate) guests: usize,
    /// Octets in each direction.
    pub(crate) octets: usize,
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
        let script = SCRIPT.replace("OCTETS", &self.octets.to_string());
        let boot = Boot::make(directory.path(), &format!("{}{script}", self.script));
        let socket = directory.path().join("v.sock");
        let ports = [
            ("tap", "tap:t0".to_owned()),
            ("guest", format!("vhost:{}{}", socket.display(), self.port)),
        ];
        // An emulated guest needs the CPU. Behind an IOMMU, each frame waits for translations, which wake no thread.
        let idle = match self.port.contains("iommu=on") {
            true => "yield",
            false => "sleep",
        };
        let arguments = ["--bridge", "lan=tap,guest", "--idle", idle];
        let switch = Switch::start(&namespace, directory.path(), &ports, &arguments);
        namespace.ip(&["address", "add", "10.9.0.1/24", "dev", "t0"]);
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
            guest.shows("GUEST HEARD ALL");
            guest.shows(self.shows);
            check_data_of_kernel(&namespace, self.octets);
            self.check(&switch.port("guest"));
        }
        // The kernel counts segments dropped for a wrong checksum.
        let counters = run(namespace.command("cat").arg("/proc/net/snmp"));
        let tcp: Vec<&str> = counters
            .lines()
            .filter(|line| line.starts_with("Tcp:"))
            .collect();
        let place = tcp[0]
            .split(' ')
            .position(|name| name == "InCsumErrors")
            .unwrap();
        assert_eq!(tcp[1].split(' ').nth(place), Some("0"), "{counters}");
        assert_eq!(switch.end(), Some(0));
    }

    fn check(&self, port: &Value) {
        let features = port["guest"]["features"].as_array().unwrap();
        for feature in self.has {
            assert!(features.contains(&Value::from(*feature)), "{port}");
        }
        for feature in self.has_not {
            assert!(!features.contains(&Value::from(*feature)), "{port}");
        }
        if self.port.contains("tso=on") {
            // What the host's kernel sends reaches the guest whole.
            assert!(port["tx_tso_frames"].as_u64() > Some(50), "{port}");
            assert_eq!(port["segmented"], 0, "{port}");
        }
    }
}

/// A guest without special settings.
pub(crate) const PLAIN: Case<'_> = Case {
    name: "guest",
    guests: 1,
    octets: OCTETS,
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
fn a_guest_without_offloads_is_understood() {
    Case {
        name: "plain",
        port: "?checksum=off&mergeable=off",
        has_not: &["csum", "mrg-rxbuf", "gso", "host-tso4", "host-tso6"],
        ..PLAIN
    }
    .run();
}
