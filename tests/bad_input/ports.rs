// SPDX-License-Identifier: Apache-2.0
//! Invalid ports, CPUs and sockets.

use std::fs;

use crate::workspace::{Ended, Workspace};
use crate::{BAD_INPUT, NULLS};

#[test]
fn a_wrong_uri_of_each_kind_is_named() {
    let workspace = Workspace::unchanged();
    for (uri, part) in [
        ("", "no scheme"),
        ("nothing", "no scheme"),
        ("tcp:1", "unknown scheme 'tcp'"),
        ("memif:x?role=server", "absolute"),
        ("memif:/x", "requires role=server or role=client"),
        ("memif:/x?role=boss", "'boss'"),
        ("memif:/x?role=server&id=-1", "not '-1'"),
        ("memif:/x?role=server&colour=1", "'colour=1'"),
        ("vhost:x", "absolute"),
        ("vhost:/x?id=1", "vhost does not support id"),
        ("virtio-user:/x?role=x", "'x'"),
        ("virtio-user:/a,b", "must not contain"),
        ("af-xdp:", "not a name of a network interface"),
        ("af-xdp:eth0?role=server", "af-xdp does not support role"),
        ("af-packet:a/b", "'a/b'"),
        ("af-packet:sixteen-letters-", "'sixteen-letters-'"),
        ("tap:", "not a name of a network interface"),
        ("tap:a%d", "'a%d'"),
        ("veth:a/b", "'a/b'"),
        ("veth:sixteen-letters-", "'sixteen-letters-'"),
        ("veth:eleven-long", "requires peer=NAME"),
        ("veth:a?peer=a", "both ends of the pair have the name 'a'"),
        ("veth:a?mtu=9199", "68 to 9198, not '9199'"),
        ("pcap:", "requires rx=FILE"),
        ("pcap:/x", "are options"),
        ("vhost:/x?queues=0", "1 to 64, not '0'"),
        ("vhost:/x?checksum=maybe", "'maybe'"),
        (
            "memif:/x?role=server&packed=on",
            "memif does not support packed",
        ),
        ("null:x", "nothing after the colon"),
        ("pci:17", "'17' is not a PCI address"),
        ("pci:0000:17:00.9", "'0000:17:00.9'"),
    ] {
        let parts = [part, "use memif:/path?role=server|client"];
        workspace.refused(
            BAD_INPUT,
            workspace.generate(&["--rate", "1k", "--port", uri]),
            &parts,
        );
        let port = format!("a={uri}");
        let switch = workspace.switch(&[
            "--port",
            &port,
            "--port",
            "b=null:",
            "--cross-connect",
            "a,b",
        ]);
        workspace.refused(BAD_INPUT, switch, &parts);
    }
    workspace.refused(
        BAD_INPUT,
        workspace.switch(&["--port", "null:"]),
        &["NAME=URI"],
    );
}

#[test]
fn wrong_cpus_are_named() {
    let workspace = Workspace::unchanged();
    let switch = |options: &[&str]| workspace.switch(&[&NULLS, options].concat());
    for (options, parts) in [
        (
            &["--forwarding-cpus", "8000"] as &[&str],
            ["forwarding-cpus", "8000", "online"],
        ),
        (
            &["--service-cpus", "8000"],
            ["service-cpus", "8000", "online"],
        ),
        (
            &["--forwarding-cpus", "9999"],
            ["--forwarding-cpus", "9999", "8191"],
        ),
        (
            &["--forwarding-cpus", "x"],
            ["--forwarding-cpus", "'x'", "3,4,8-11"],
        ),
        (
            &["--forwarding-cpus", "2-1"],
            ["--forwarding-cpus", "2-1", "before it begins"],
        ),
        (
            &["--forwarding-cpus", "1", "--service-cpus", "1"],
            ["service-cpus", "CPU 1", "choose from"],
        ),
        (
            &["--forwarding-cpus", "1", "--control-cpus", "0x2"],
            ["control-cpus", "CPU 1", "choose from"],
        ),
    ] {
        workspace.refused(BAD_INPUT, switch(options), &parts);
    }
    let generate = |cpus| workspace.generate(&["--port", "null:", "--rate", "1k", "--cpus", cpus]);
    workspace.refused(
        BAD_INPUT,
        generate("8000"),
        &["--cpus: CPU 8000 is not online", "(online: "],
    );
    workspace.refused(BAD_INPUT, generate(""), &["--cpus is empty"]);
}

#[test]
fn a_port_that_cannot_be_opened_is_named() {
    let workspace = Workspace::unchanged();
    fs::write(workspace.path("file"), "").unwrap();
    let path = |form: &str| form.replace("DIR", &workspace.text(""));
    // At once: each starts DPDK before it opens the port.
    let mut commands = Vec::new();
    for (uri, parts) in [
        (
            "memif:DIR/absent/x.sock?role=server",
            ["absent/x.sock", "create it"],
        ),
        ("vhost:DIR/absent/x.sock", ["absent/x.sock", "create it"]),
        (
            "virtio-user:DIR/absent/x.sock?role=server",
            ["absent/x.sock", "create it"],
        ),
        ("memif:DIR/x.sock?role=client", ["x.sock", "start the peer"]),
        ("virtio-user:DIR/x.sock", ["x.sock", "start the peer"]),
        (
            "memif:DIR/file?role=server",
            ["file exists and is not a socket", "use another"],
        ),
        (
            "af-xdp:lo?first-queue=4",
            ["requires 5 receive queues", "'lo' has 1"],
        ),
        ("af-xdp:quietwire-none", ["'quietwire-none'", "`ip link`"]),
        (
            "af-packet:quietwire-none",
            ["'quietwire-none'", "`ip link`"],
        ),
        ("tap:lo", ["'lo' exists and is not a tap", "use another"]),
        ("veth:lo", ["'lo' exists", "use another"]),
        ("veth:qwbad?peer=lo", ["'lo' exists", "peer=NAME"]),
        (
            "veth:qwbad?netns=quietwire-none",
            ["/run/netns/quietwire-none", "`ip netns add`"],
        ),
        (
            "veth:qwbad?netns=/dev/null",
            ["/dev/null", "not a network namespace"],
        ),
        (
            "veth:qwbad?mtu=9000",
            ["mtu=9000 requires frames of up to 9018", "frame-size-max"],
        ),
        (
            "tap:qwbad?mtu=9000",
            ["mtu=9000 requires frames of up to 9018", "frame-size-max"],
        ),
        ("pcap:?rx=DIR/x.pcap", ["x.pcap", "does not exist"]),
        ("pcap:?rx=DIR/file", ["file", "is not a pcap file"]),
        ("pcap:?tx=DIR/absent/x.pcap", ["absent/x.pcap", "create it"]),
        ("pci:0000:ff:1f.7", ["0000:ff:1f.7", "does not exist"]),
    ] {
        // No two commands make interfaces of one name.
        let number = commands.len();
        let own = |number: usize| path(uri).replace("qwbad", &format!("qwbad{number}"));
        let tester = workspace.generate(&["--rate", "1k", "--port", &own(number)]);
        let port = format!("a={}", own(number + 1));
        let switch = workspace.switch_at(
            &format!("{number}.sock"),
            &[
                "--port",
                &port,
                "--port",
                "b=null:",
                "--cross-connect",
                "a,b",
            ],
        );
        for (command, name) in [(tester, "port 'p0'"), (switch, "port 'a'")] {
            commands.push((command, [&parts[..], &[name]].concat()));
        }
    }
    workspace.refused_at_once(BAD_INPUT, commands);
    // The previous port is open by then, and must be closed.
    let first = path("a=memif:DIR/a.sock?role=server");
    let switch = workspace.switch(&[
        "--port",
        &first,
        "--port",
        "b=af-packet:quietwire-none",
        "--cross-connect",
        "a,b",
    ]);
    workspace.refused(BAD_INPUT, switch, &["port 'b'"]);
}

#[test]
fn ports_that_cannot_be_a_testers_are_refused() {
    let workspace = Workspace::unchanged();
    for (first, second, part) in [
        (
            "af-packet:lo",
            "af-packet:lo",
            "interface lo is given twice",
        ),
        ("af-packet:lo", "af-xdp:lo", "interface lo is given twice"),
        ("tap:t0", "tap:t0", "interface t0 is given twice"),
        ("veth:t0", "veth:t0?peer=t1", "interface t0 is given twice"),
        (
            "pci:0000:ff:1f.7",
            "pci:0000:ff:1f.7",
            "card 0000:ff:1f.7 is given twice",
        ),
    ] {
        let ports = ["--rate", "1k", "--port", first, "--port", second];
        workspace.refused(BAD_INPUT, workspace.generate(&ports), &[part]);
    }
    let calibrate = workspace.quietwire(&["tester", "calibrate", "--port", "null:"]);
    workspace.refused(BAD_INPUT, calibrate, &["null:", "connected to each other"]);
}

#[test]
fn an_unavailable_control_socket_is_reported() {
    let workspace = Workspace::unchanged();
    fs::write(workspace.path("file"), "").unwrap();
    let run = |socket: &str| {
        let mut command = workspace.quietwire(&["switch", "run", "--control-socket", socket]);
        command
            .args(NULLS)
            .args(["--memory-mib", "64", "--huge-pages", "never"]);
        command
    };
    workspace.refused(
        BAD_INPUT,
        run("absent/c.sock"),
        &["absent does not exist", "create it first"],
    );
    workspace.refused(
        BAD_INPUT,
        run("file"),
        &["/file", "not a socket", "use another path"],
    );
    let show =
        |socket| workspace.quietwire(&["switch", "show", "ports", "--control-socket", socket]);
    workspace.refused(
        BAD_INPUT,
        show("absent.sock"),
        &["absent.sock", "no switch is listening"],
    );
    // Relative to the working directory of the command.
    let mut switch = workspace.start(run("c.sock"));
    switch.until("the switch is up", || {
        workspace.run(show("c.sock")).code == Some(0)
    });
    switch.signal("TERM");
    assert_eq!(switch.ended().code, Some(0));
    assert!(!workspace.path("c.sock").exists());
}

#[test]
fn a_socket_of_a_living_switch_is_left_to_it() {
    let workspace = Workspace::unchanged();
    let port = format!("a=memif:{}?role=server", workspace.text("a.sock"));
    let ports = [
        "--port",
        &port,
        "--port",
        "b=null:",
        "--cross-connect",
        "a,b",
        "--idle",
        "yield",
    ];
    let mut living = workspace.start(workspace.switch(&ports));
    living.until("the switch is up", || {
        workspace.path("a.sock").exists() && workspace.path("control.sock").exists()
    });
    let log = living.printed();
    workspace.refused(BAD_INPUT, workspace.switch(&ports), &["control.sock"]);
    let mut other = workspace.quietwire(&["switch", "run", "--control-socket"]);
    other.arg(workspace.path("other.sock")).args(ports);
    other.args(["--huge-pages", "never", "--memory-mib", "64"]);
    workspace.refused(
        BAD_INPUT,
        other,
        &[
            "another process listens on",
            "a.sock",
            "stop it, or use another",
        ],
    );
    let uri = format!("memif:{}?role=server", workspace.text("a.sock"));
    workspace.refused(
        BAD_INPUT,
        workspace.generate(&["--rate", "1k", "--port", &uri]),
        &["another process listens on"],
    );
    living.until("it lives on", || workspace.path("control.sock").exists());
    living.signal("HUP");
    let Ended { code, printed } = living.ended();
    assert_eq!(code, Some(0), "{log}{printed}");
    assert!(!workspace.path("a.sock").exists() && !workspace.path("control.sock").exists());
}
