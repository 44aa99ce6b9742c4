// SPDX-License-Identifier: Apache-2.0
//! NAT and NAT64 between hosts of the kernel: the left one is inside, and the right one has no route to it.

use std::fs::{self, File};
use std::process::{Child, Stdio};

use tempfile::TempDir;

use crate::offloads::Net;
use crate::rig::{Namespace, Switch, ping, run, until};

const INSIDE: &str = "10.0.0.2";
const OUTSIDE: &str = "198.51.100.2";
const EXTERNAL: &str = "198.51.100.1";

/// A server that ends with this value.
pub(crate) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a web server whose log has the addresses of its clients.
pub(crate) fn web_server(
    host: &Namespace,
    address: &str,
    directory: &TempDir,
    log: &str,
) -> Server {
    let mut server = host.command("python3");
    server.args(["-u", "-m", "http.server", "--bind", address, "--directory"]);
    server.arg(directory.path()).arg("8000");
    let log = File::create(directory.path().join(log)).unwrap();
    server.stdout(Stdio::null()).stderr(log);
    Server(server.spawn().unwrap())
}

/// Downloads a file until it arrives, and returns its octets.
pub(crate) fn download(host: &Namespace, url: &str) -> Vec<u8> {
    until("the file is downloaded", || {
        let mut curl = host.command("curl");
        curl.args(["--silent", "--fail", "--max-time", "20", url]);
        let output = curl.output().unwrap();
        output.status.success().then_some(output.stdout)
    })
}

/// Sends a stream from the left host to an address of the right one, with these arguments of iperf3, until both ends succeed.
pub(crate) fn stream(net: &Net, to: &str, arguments: &[&str]) {
    until("the stream ends", || {
        let mut server = net.right.command("iperf3");
        server.args(["--server", "--one-off"]).stdout(Stdio::null());
        let mut server = Server(server.spawn().unwrap());
        until("the server listens", || {
            let mut sockets = net.right.command("ss");
            let listed = run(sockets.args(["-Hltn", "sport", "=", ":5201"]));
            (!listed.trim().is_empty()).then_some(())
        });
        let mut client = net.left.command("iperf3");
        client.args(["--client", to]).args(arguments);
        let is_sent = client.output().unwrap().status.success();
        // The server of a stream that failed may wait for ever.
        (is_sent && server.0.wait().unwrap().success()).then_some(())
    });
}

#[test]
fn hosts_behind_an_address_load_pages_send_streams_and_publish_a_server() {
    let net = Net::without_cables("nat");
    let directory = TempDir::new().unwrap();
    let ports = [
        ("left", "qwnatl", &net.left),
        ("right", "qwnatr", &net.right),
    ]
    .map(|(port, near, host)| (port, format!("veth:{near}?netns={}", host.name())));
    let switch = Switch::start(&net.middle, directory.path(), &ports, &[]);
    for (name, port, address) in [
        ("inside", "left", "10.0.0.1/24"),
        ("outside", "right", "198.51.100.1/24"),
    ] {
        switch.change(&[
            "add",
            "interface",
            name,
            "--port",
            port,
            "--address",
            address,
        ]);
    }
    switch.change(&["add", "nat", "internet", "outside"]);
    switch.change(&["add", "publish", "internet", "tcp", "80", "10.0.0.2:8000"]);
    for (host, address) in [(&net.left, INSIDE), (&net.right, OUTSIDE)] {
        host.ip(&["addr", "add", &format!("{address}/24"), "dev", "eth0"]);
    }
    net.left.ip(&["route", "add", "default", "via", "10.0.0.1"]);
    let page: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    fs::write(directory.path().join("page"), &page).unwrap();

    ping(&net.left, OUTSIDE);
    let outside = web_server(&net.right, OUTSIDE, &directory, "outside.log");
    assert!(download(&net.left, "http://198.51.100.2:8000/page") == page);
    let log = fs::read_to_string(directory.path().join("outside.log")).unwrap();
    assert!(log.contains(EXTERNAL) && !log.contains(INSIDE), "{log}");
    // Published, from the outside and from the inside.
    let inside = web_server(&net.left, INSIDE, &directory, "inside.log");
    for host in [&net.right, &net.left] {
        assert!(download(host, "http://198.51.100.1/page") == page);
    }
    let log = fs::read_to_string(directory.path().join("inside.log")).unwrap();
    assert!(log.contains(OUTSIDE) && log.contains(EXTERNAL), "{log}");
    drop((outside, inside));
    // A stream each way, and datagrams.
    for more in [
        &["-n", "20M"][..],
        &["-n", "20M", "-R"],
        &["-u", "-b", "5M", "-n", "200K"],
    ] {
        stream(&net, OUTSIDE, more);
    }
    let nats = switch.show("nat");
    assert_eq!(nats[0]["refused"]["malformed"], 0, "{}", nats[0]);
    assert!(nats[0]["hairpinned"].as_u64() > Some(10), "{}", nats[0]);
    net.has_no_wrong_checksum();
    assert_eq!(switch.end(), Some(0));
}

#[test]
fn an_ipv6_host_pings_loads_pages_and_sends_streams_through_nat64() {
    // 198.51.100.2 in the prefix.
    const MAPPED: &str = "2001:db8:64::c633:6402";
    let net = Net::without_cables("nat64");
    let directory = TempDir::new().unwrap();
    let ports = [
        ("left", "qwsixl", &net.left),
        ("right", "qwsixr", &net.right),
    ]
    .map(|(port, near, host)| (port, format!("veth:{near}?netns={}", host.name())));
    let switch = Switch::start(&net.middle, directory.path(), &ports, &[]);
    // Packets of full size are too big for the outside, so the host has to reduce them.
    for (name, port, address, mtu) in [
        ("inside", "left", "2001:db8:1::1/64", "1500"),
        ("outside", "right", "198.51.100.1/24", "1400"),
    ] {
        switch.change(&[
            "add",
            "interface",
            name,
            "--port",
            port,
            "--address",
            address,
            "--mtu",
            mtu,
        ]);
    }
    switch.change(&[
        "add",
        "nat",
        "internet",
        "outside",
        "--nat64-prefix",
        "2001:db8:64::/96",
    ]);
    let inside = "2001:db8:1::2/64";
    net.left
        .ip(&["addr", "add", inside, "dev", "eth0", "nodad"]);
    net.left
        .ip(&["-6", "route", "add", "default", "via", "2001:db8:1::1"]);
    net.right
        .ip(&["addr", "add", "198.51.100.2/24", "dev", "eth0"]);
    let page: Vec<u8> = (0..1_000_000u32).map(|at| (at % 251) as u8).collect();
    fs::write(directory.path().join("page"), &page).unwrap();

    ping(&net.left, MAPPED);
    let outside = web_server(&net.right, OUTSIDE, &directory, "outside.log");
    assert!(download(&net.left, &format!("http://[{MAPPED}]:8000/page")) == page);
    let log = fs::read_to_string(directory.path().join("outside.log")).unwrap();
    assert!(log.contains(EXTERNAL), "{log}");
    drop(outside);
    stream(&net, MAPPED, &["-n", "5M"]);
    let nats = switch.show("nat");
    assert_eq!(nats[0]["refused"]["malformed"], 0, "{}", nats[0]);
    assert!(nats[0]["inbound"].as_u64() > Some(500), "{}", nats[0]);
    net.has_no_wrong_checksum();
    assert_eq!(switch.end(), Some(0));
}
