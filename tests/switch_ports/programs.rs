// SPDX-License-Identifier: Apache-2.0
//! Real programs behind NAT and a filter that accepts nothing from outside but answers, related packets and an FTP server: ping, traceroute,
//! HTTP, streams, FTP, DNS, TFTP and calls over UDP, and an attacker that forges segments with scapy.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::nat::{download, stream, web_server};
use crate::offloads::Net;
use crate::rig::{Namespace, Switch, quietwire, run, until, within};

const SCRIPT: &str = include_str!("programs.py");
const INSIDE: &str = "10.0.0.2";
const OUTSIDE: &str = "198.51.100.2";
const EXTERNAL: &str = "198.51.100.1";
/// Port of data connections of both FTP servers.
const DATA_PORT: &str = "50000";
const TIMEOUT: Duration = Duration::from_secs(20);

const CONFIG: &str = r#"
rule-default = "drop"

[connections]
helpers = ["ftp", "tftp"]

[[interface]]
name = "inside"
port = "left"
addresses = ["10.0.0.1/24"]

[[interface]]
name = "outside"
port = "right"
addresses = ["198.51.100.1/24"]

[[nat]]
name = "internet"
interface = "outside"

[[nat.publish]]
protocol = "tcp"
port = 21
to = "10.0.0.2:21"

[[nat.publish]]
protocol = "tcp"
port = 50000
to = "10.0.0.2:50000"

[[rule]]
name = "arp"
action = "accept"
ethertype = "arp"

[[rule]]
name = "answers"
action = "accept"
ct-state = "established,related"

[[rule]]
name = "out"
action = "accept"
port = "left"
ct-state = "new"

[[rule]]
name = "ftp"
action = "accept"
port = "right"
protocol = "tcp"
destination-port = "21"
ct-state = "new"
"#;

/// Servers that end with this value.
struct Servers(Child);

impl Servers {
    fn start(host: &Namespace, address: &str) -> Self {
        let mut command = host.command("python3");
        command.args(["-c", SCRIPT, "serve", address, DATA_PORT]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        printed.read_line(&mut line).unwrap();
        let servers = Self(child);
        assert_eq!(line.trim(), "ready");
        servers
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a client until it succeeds, and returns what it prints.
fn client(host: &Namespace, arguments: &[&str]) -> String {
    until("the client succeeds", || {
        let mut command = host.command("python3");
        let output = command.args(["-c", SCRIPT]).args(arguments).output();
        let output = output.unwrap();
        let printed = || String::from_utf8(output.stdout).unwrap();
        output.status.success().then(printed)
    })
}

/// Returns the number of invalid packets.
fn invalid(switch: &Switch) -> u64 {
    let mut command = Command::new(quietwire());
    command.args(["switch", "show", "connections", "--json"]);
    command.arg("--control-socket").arg(switch.control());
    let report: Value = serde_json::from_str(&run(&mut command)).unwrap();
    let reasons = report["counters"]["invalid"].as_object().unwrap();
    reasons.values().filter_map(Value::as_u64).sum()
}

/// Sends some octets and receives them at the other end.
fn carry(from: &mut TcpStream, to: &mut TcpStream, octets: &[u8]) {
    from.write_all(octets).unwrap();
    let mut received = vec![0; octets.len()];
    to.read_exact(&mut received).unwrap();
    assert_eq!(received, octets);
}

fn start(net: &Net, directory: &TempDir) -> Switch {
    let ports = [
        ("left", "qwprol", &net.left),
        ("right", "qwpror", &net.right),
    ]
    .map(|(port, near, host)| (port, format!("veth:{near}?netns={}", host.name())));
    let file = directory.path().join("switch.toml");
    fs::write(&file, CONFIG).unwrap();
    let arguments = ["--config", file.to_str().unwrap()];
    let switch = Switch::start(&net.middle, directory.path(), &ports, &arguments);
    for (host, address) in [(&net.left, INSIDE), (&net.right, OUTSIDE)] {
        host.ip(&["addr", "add", &format!("{address}/24"), "dev", "eth0"]);
    }
    net.left.ip(&["route", "add", "default", "via", "10.0.0.1"]);
    switch
}

#[test]
fn programs_pass_nat_and_filter_and_forged_segments_do_not() {
    let net = Net::without_cables("programs");
    let directory = TempDir::new().unwrap();
    let switch = start(&net, &directory);
    let outside = Servers::start(&net.right, OUTSIDE);
    let inside = Servers::start(&net.left, INSIDE);

    until("the host answers", || {
        let mut ping = net.left.command("busybox");
        let output = ping.args(["ping", "-c", "1", "-W", "2", OUTSIDE]).output();
        output.unwrap().status.success().then_some(())
    });
    // Errors of this router and of the host behind it, about probes with external addresses.
    until("the route is traced", || {
        let mut trace = net.left.command("busybox");
        let printed = run(trace.args(["traceroute", "-n", "-q", "1", "-m", "3", OUTSIDE]));
        let hops = printed.lines().skip(1).map(|line| {
            let mut words = line.split_whitespace();
            words.nth(1).unwrap_or_default().to_owned()
        });
        let hops: Vec<String> = hops.collect();
        (hops == ["10.0.0.1", OUTSIDE]).then_some(())
    });

    // Pages and streams, each way.
    let pages = TempDir::new().unwrap();
    let page: Vec<u8> = (0..1_000_000u32).map(|at| (at % 251) as u8).collect();
    fs::write(pages.path().join("page"), &page).unwrap();
    let web = web_server(&net.right, OUTSIDE, &pages, "web.log");
    assert!(download(&net.left, "http://198.51.100.2:8000/page") == page);
    drop(web);
    for more in [
        &["-n", "5M"][..],
        &["-n", "5M", "-R"],
        &["-u", "-b", "5M", "-n", "200K"],
    ] {
        stream(&net, OUTSIDE, more);
    }

    // From inside, and to the published server from outside, whose data connection is related.
    assert_eq!(client(&net.left, &["ftp", OUTSIDE]), "page\n");
    assert_eq!(client(&net.right, &["ftp", EXTERNAL]), "page\n");
    let answers: String = (0..5).map(|at| format!("{at} 192.0.2.7\n")).collect();
    assert_eq!(client(&net.left, &["dns", OUTSIDE]), answers);
    let call = client(&net.left, &["call", OUTSIDE]);
    assert_eq!(call, "200\nINVITE\nBYE\n");
    let page = directory.path().join("page");
    until("the file is transferred", || {
        let mut tftp = net.left.command("busybox");
        tftp.args(["tftp", "-g", "-r", "page", "-l"]).arg(&page);
        let output = tftp.arg(OUTSIDE).output().unwrap();
        output.status.success().then_some(())
    });
    let expected: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    assert!(fs::read(&page).unwrap() == expected);

    // From outside, nothing else begins: the data port without an announcement, though a server listens.
    let listener = net.left.within(|| TcpListener::bind("10.0.0.2:50000"));
    let listener = listener.join().unwrap().unwrap();
    let refused = net.right.within(|| {
        let address = "198.51.100.1:50000".parse().unwrap();
        TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_err()
    });
    assert!(refused.join().unwrap());
    drop(listener);

    // A connection that forged segments neither close nor change.
    let (sender, listening) = mpsc::channel();
    let accepted = net.right.within(move || {
        let listener = TcpListener::bind("198.51.100.2:7000").unwrap();
        sender.send(()).unwrap();
        listener.accept().unwrap()
    });
    listening.recv_timeout(TIMEOUT).unwrap();
    let connected = net.left.within(|| TcpStream::connect("198.51.100.2:7000"));
    let mut left = connected.join().unwrap().unwrap();
    let (mut right, from) = accepted.join().unwrap();
    assert_eq!(from.ip().to_string(), EXTERNAL);
    for stream in [&left, &right] {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    }
    carry(&mut left, &mut right, b"question");
    carry(&mut right, &mut left, b"answer");
    let before = invalid(&switch);
    let python = std::env::var("QUIETWIRE_PYTHON")
        .expect("QUIETWIRE_PYTHON must name a Python with scapy (`make test` installs one)");
    let port = from.port().to_string();
    let mut forge = net.right.command(&python);
    forge.args(["-c", SCRIPT, "forge", OUTSIDE, "7000", EXTERNAL, &port]);
    // The kernel drops frames if the machine is busy.
    until("the switch has judged all", || {
        assert_eq!(run(&mut forge), "sent\n");
        within(Duration::from_secs(5), || {
            (invalid(&switch) >= before + 6).then_some(())
        })
    });
    carry(&mut left, &mut right, b"another question");
    carry(&mut right, &mut left, b"another answer");

    let nats = switch.show("nat");
    assert_eq!(nats[0]["refused"]["malformed"], 0, "{}", nats[0]);
    net.has_no_wrong_checksum();
    drop((outside, inside));
    assert_eq!(switch.end(), Some(0));
}
