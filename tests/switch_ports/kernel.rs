// SPDX-License-Identifier: Apache-2.0
//! The kernel beside the router: routing daemons in the switch's namespace run OSPF and BGP with another router over taps,
//! and the learned routes forward.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quietwire_base::testing::KillOnDrop;
use serde_json::Value;
use tempfile::TempDir;

use crate::bird::Bird;
use crate::rig::{Namespace, Switch, quietwire, run, until};

/// A host, the switch, and another router, each in a namespace; veth pairs between them.
struct Net {
    host: Namespace,
    switch: Namespace,
    router: Namespace,
}

impl Net {
    /// Creates the namespaces. `kind` must be unique to the test.
    fn new(kind: &str) -> Self {
        let named = |end: &str| Namespace::new(&format!("{kind}-{end}"));
        let net = Self {
            host: named("host"),
            switch: named("switch"),
            router: named("router"),
        };
        for (own, theirs, other) in [("h0", "h1", &net.host), ("r0", "r1", &net.router)] {
            net.switch.ip(&[
                "link",
                "add",
                own,
                "type",
                "veth",
                "peer",
                "name",
                theirs,
                "netns",
                other.name(),
            ]);
            // The kernel must not process frames there: all of them are the switch's.
            net.switch.ip(&[
                "link",
                "set",
                own,
                "arp",
                "off",
                "addrgenmode",
                "none",
                "up",
            ]);
            other.ip(&["link", "set", theirs, "up"]);
            other.ip(&["link", "set", "lo", "up"]);
        }
        net.switch.ip(&["link", "set", "lo", "up"]);
        net.host
            .ip(&["addr", "add", "198.51.100.2/24", "dev", "h1"]);
        net.host
            .ip(&["route", "add", "default", "via", "198.51.100.1"]);
        net.router.ip(&["addr", "add", "192.0.2.2/24", "dev", "r1"]);
        net.router.ip(&["addr", "add", "10.99.0.1/24", "dev", "lo"]);
        net
    }

    fn start(&self, directory: &Path) -> Switch {
        let ports = [
            ("h", "af-packet:h0".to_owned()),
            ("r", "af-packet:r0".to_owned()),
        ];
        let switch = Switch::start(&self.switch, directory, &ports, &[]);
        for arguments in [
            &["set", "vrf", "main", "--kernel-table", "254"][..],
            &[
                "add",
                "interface",
                "h-if",
                "--port",
                "h",
                "--address",
                "198.51.100.1/24",
                "--kernel",
                "qw-h",
            ],
            &[
                "add",
                "interface",
                "r-if",
                "--port",
                "r",
                "--address",
                "192.0.2.1/24",
                "--kernel",
                "qw-r",
            ],
        ] {
            change(&switch, arguments);
        }
        switch
    }
}

fn command(switch: &Switch, arguments: &[&str]) -> Command {
    let mut command = Command::new(quietwire());
    command.arg("switch").args(arguments);
    command.arg("--control-socket").arg(switch.control());
    command
}

fn change(switch: &Switch, arguments: &[&str]) {
    run(&mut command(switch, arguments));
}

/// Returns the active route to a prefix, as JSON.
fn route(switch: &Switch, prefix: &str) -> Option<Value> {
    let text = run(&mut command(
        switch,
        &["show", "routes", "--json", "--prefix", prefix],
    ));
    let report: Value = serde_json::from_str(&text).unwrap();
    let routes = report["routes"].as_array()?.iter();
    let mut active = routes.filter(|route| route["prefix"] == prefix && route["is_active"] == true);
    active.next().cloned()
}

fn ping(from: &Namespace, to: &str) -> bool {
    let mut ping = from.command("busybox");
    ping.args(["ping", "-c", "1", "-W", "1", to]);
    ping.stdout(Stdio::null()).stderr(Stdio::null());
    ping.status().unwrap().success()
}

#[test]
fn the_kernel_has_the_addresses_and_its_routes_forward() {
    let net = Net::new("kr");
    let directory = TempDir::new().unwrap();
    let switch = net.start(directory.path());
    // The kernel answers at the router's own address.
    until("the router's kernel answers", || {
        ping(&net.host, "198.51.100.1").then_some(())
    });
    let counted = |name: &str| switch.stats()["router"][name].as_u64().unwrap();
    assert!(counted("to_kernel") > 0);
    // Its routes are imported: added, replaced, multipath, removed.
    let ip = |arguments: &[&str]| net.switch.ip(&[&["route"], arguments].concat());
    ip(&["add", "10.99.0.0/24", "via", "192.0.2.2", "dev", "qw-r"]);
    let via = until("the route is imported", || route(&switch, "10.99.0.0/24"));
    assert_eq!(via["source"], "kernel");
    assert_eq!(via["via"][0]["address"], "192.0.2.2");
    net.router
        .ip(&["route", "add", "198.51.100.0/24", "via", "192.0.2.1"]);
    until("the other side answers", || {
        ping(&net.host, "10.99.0.1").then_some(())
    });
    ip(&["replace", "blackhole", "10.99.0.0/24"]);
    until("the route drops packets", || {
        (route(&switch, "10.99.0.0/24")?["kind"] == "blackhole").then_some(())
    });
    ip(&["del", "blackhole", "10.99.0.0/24"]);
    until("the route is removed", || {
        route(&switch, "10.99.0.0/24").is_none().then_some(())
    });
    ip(&[
        "add",
        "10.98.0.0/16",
        "nexthop",
        "via",
        "192.0.2.2",
        "dev",
        "qw-r",
        "weight",
        "3",
        "nexthop",
        "via",
        "198.51.100.2",
        "dev",
        "qw-h",
    ]);
    let two = until("both next hops are imported", || {
        route(&switch, "10.98.0.0/16")
    });
    let weights: Vec<&Value> = two["via"]
        .as_array()
        .unwrap()
        .iter()
        .map(|via| &via["weight"])
        .collect();
    assert_eq!(weights.len(), 2);
    assert!(weights.contains(&&Value::from(3)), "{two}");
    // Many at once, compared with the final state of the kernel.
    let batch: String = (0..2000)
        .map(|n| {
            format!(
                "route add 10.{}.{}.0/24 via 192.0.2.2 dev qw-r\n",
                100 + n / 250,
                n % 250
            )
        })
        .chain(
            (0..2000)
                .step_by(3)
                .map(|n| format!("route del 10.{}.{}.0/24\n", 100 + n / 250, n % 250)),
        )
        .collect();
    let file = directory.path().join("batch");
    fs::write(&file, batch).unwrap();
    net.switch.ip(&["-batch", file.to_str().unwrap()]);
    let kernels: usize = net
        .switch
        .ip(&["route", "show"])
        .lines()
        .filter(|line| line.starts_with("10.1"))
        .count();
    assert_eq!(kernels, 2000 - 667);
    until("all routes are imported", || {
        let text = run(&mut command(
            &switch,
            &["show", "routes", "--json", "--limit", "100000"],
        ));
        let report: Value = serde_json::from_str(&text).unwrap();
        let routes = report["routes"].as_array()?.iter();
        let ours = routes
            .filter(|route| route["prefix"].as_str().unwrap().starts_with("10.1"))
            .count();
        (ours == kernels).then_some(())
    });
    // A link that goes down removes its routes without a message.
    net.switch.ip(&["link", "set", "qw-r", "down"]);
    until("its routes are removed", || {
        route(&switch, "10.101.1.0/24").is_none().then_some(())
    });
    until("a tap that is down refuses a packet", || {
        ping(&net.router, "192.0.2.1");
        (counted("kernel_refused") > 0).then_some(())
    });
    change(&switch, &["set", "vrf", "main"]);
    until("no route is imported any more", || {
        route(&switch, "10.98.0.0/16").is_none().then_some(())
    });
    change(&switch, &["del", "interface", "h-if"]);
    until("the tap is removed", || {
        (!net.switch.ip(&["link"]).contains("qw-h")).then_some(())
    });
    assert_eq!(switch.end(), Some(0));
    assert!(!net.switch.ip(&["link"]).contains("qw-r"));
}

/// Returns the neighbour of an interface with an address, as JSON.
fn neighbour(switch: &Switch, interface: &str, address: &str) -> Option<Value> {
    let all = switch.show("neighbours");
    all.into_iter()
        .find(|one| one["interface"] == interface && one["address"] == address)
}

#[test]
fn the_kernels_neighbours_are_the_switchs() {
    let net = Net::new("kn");
    let directory = TempDir::new().unwrap();
    let switch = net.start(directory.path());
    let ip = |arguments: &[&str]| net.switch.ip(&[&["neigh"], arguments].concat());
    let set = |address: &str, mac: &str, dev: &str| {
        ip(&[
            "replace",
            address,
            "lladdr",
            mac,
            "dev",
            dev,
            "nud",
            "permanent",
        ]);
    };
    let reported = |address: &str, mac: &str| {
        until("the kernel's neighbour is imported", || {
            let one = neighbour(&switch, "r-if", address)?;
            (one["mac"] == mac && one["source"] == "kernel").then_some(one)
        })
    };
    // A neighbour that is added to the kernel, changed, and removed.
    set("192.0.2.77", "02:00:00:00:00:77", "qw-r");
    let one = reported("192.0.2.77", "02:00:00:00:00:77");
    assert_eq!(one["state"], "permanent");
    set("192.0.2.77", "02:00:00:00:00:78", "qw-r");
    reported("192.0.2.77", "02:00:00:00:00:78");
    ip(&["del", "192.0.2.77", "dev", "qw-r"]);
    until("the neighbour is removed", || {
        neighbour(&switch, "r-if", "192.0.2.77")
            .is_none()
            .then_some(())
    });
    // An operator's entry in the switch takes precedence until it is removed.
    let own = "02:00:00:00:00:01";
    change(&switch, &["add", "neighbour", "r-if", "192.0.2.78", own]);
    set("192.0.2.78", "02:00:00:00:00:79", "qw-r");
    set("192.0.2.79", "02:00:00:00:00:79", "qw-r");
    // Events arrive in order: once the second is applied, the first has been processed.
    reported("192.0.2.79", "02:00:00:00:00:79");
    let kept = neighbour(&switch, "r-if", "192.0.2.78").unwrap();
    assert_eq!(
        (&kept["mac"], &kept["source"]),
        (&own.into(), &"static".into())
    );
    let config = run(&mut command(&switch, &["show", "config"]));
    assert!(
        config.contains(own) && !config.contains("02:00:00:00:00:79"),
        "{config}"
    );
    change(&switch, &["del", "neighbour", "r-if", "192.0.2.78"]);
    reported("192.0.2.78", "02:00:00:00:00:79");
    // A neighbour that the kernel resolves by itself. The switch passes the answer on, and has sent no request.
    until("the kernel reaches the router", || {
        ping(&net.switch, "192.0.2.2").then_some(())
    });
    until("the resolved neighbour is imported", || {
        neighbour(&switch, "r-if", "192.0.2.2").filter(|one| one["mac"].is_string())
    });
    // All existing neighbours are requested when a tap is created: one on a tap that is created again.
    change(
        &switch,
        &[
            "set",
            "interface",
            "r-if",
            "--port",
            "r",
            "--address",
            "192.0.2.1/24",
        ],
    );
    until("the neighbour is removed with the tap", || {
        neighbour(&switch, "r-if", "192.0.2.79")
            .is_none()
            .then_some(())
    });
    assert_eq!(switch.end(), Some(0));
}

/// Returns the number of packets that the kernel filter with a name has matched.
fn matched(switch: &Switch, name: &str) -> Option<u64> {
    let all = switch.show("kernel-filters");
    all.iter().find(|rule| rule["name"] == name)?["frames"].as_u64()
}

/// A Python process in a namespace; it ends with this value.
struct Python(KillOnDrop);

impl Python {
    fn start(namespace: &Namespace, script: &str) -> Self {
        let mut command = namespace.command("python3");
        command.args(["-c", script]).stdout(Stdio::null());
        Self(KillOnDrop(command.spawn().unwrap()))
    }

    fn has_ended(&mut self) -> bool {
        let ended = self.0.try_wait().unwrap();
        assert!(ended.is_none_or(|status| status.success()), "{ended:?}");
        ended.is_some()
    }
}

#[test]
fn rules_give_the_kernel_what_would_go_on() {
    const FAR: &str = "10.99.0.1:179";
    let net = Net::new("kf");
    let directory = TempDir::new().unwrap();
    let switch = net.start(directory.path());
    change(
        &switch,
        &["add", "route", "10.99.0.0/24", "--via", "192.0.2.2"],
    );
    net.router
        .ip(&["route", "add", "198.51.100.0/24", "via", "192.0.2.1"]);
    // The address belongs to the other router, and to the kernel beside the switch as well: the answer shows the path.
    net.switch.ip(&["addr", "add", "10.99.0.1/32", "dev", "lo"]);
    let answering = |namespace: &Namespace, answer: &'static [u8]| {
        let bound = namespace.within(|| TcpListener::bind(FAR).unwrap()).join();
        let listener = bound.unwrap();
        listener.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let reported = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !reported.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((mut stream, _)) => drop(stream.write_all(answer)),
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        (stop, thread)
    };
    let there = answering(&net.router, b"router");
    let here = answering(&net.switch, b"kernel");
    let asked = |from: &Namespace| -> Option<String> {
        let connect = || {
            let address: SocketAddr = FAR.parse().unwrap();
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
            let mut printed = String::new();
            stream.read_to_string(&mut printed).ok()?;
            Some(printed)
        };
        from.within(connect).join().unwrap()
    };
    let says = |who: &str| {
        until("the expected host answers", || {
            (asked(&net.host).as_deref() == Some(who)).then_some(())
        });
    };
    says("router");
    let rule = ["bgp", "--interface", "h-if", "--protocol", "tcp"];
    let add = [
        &["add", "kernel-filter"],
        &rule[..],
        &["--destination-port", "179"],
    ]
    .concat();
    change(&switch, &add);
    says("kernel");
    until("each packet of the connection is counted", || {
        (matched(&switch, "bgp") > Some(3)).then_some(())
    });
    // All other packets are still forwarded. The last packets of the connection may be counted late.
    let mut before = None;
    until("the connection has ended", || {
        let last = std::mem::replace(&mut before, matched(&switch, "bgp"));
        std::thread::sleep(Duration::from_millis(300));
        (last == before).then_some(())
    });
    until("pings are answered", || {
        ping(&net.host, "10.99.0.1").then_some(())
    });
    assert_eq!(matched(&switch, "bgp"), before);
    // Frames of a protocol that the switch does not support.
    change(
        &switch,
        &["add", "kernel-filter", "lldp", "--ethertype", "lldp"],
    );
    let mut heard = Python::start(
        &net.switch,
        "import socket\n\
         s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88cc))\n\
         s.bind(('qw-h', 0x88cc))\n\
         s.settimeout(60)\n\
         while s.recv(2048)[14:17] != b'\\x02\\x07\\x04': pass\n",
    );
    until("LLDP reaches the tap", || {
        let mut sent = Python::start(
            &net.host,
            "import socket\n\
             s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
             s.bind(('h1', 0))\n\
             s.send(bytes.fromhex('0180c200000e02000000000188cc020704') + bytes(43))\n",
        );
        until("it is sent", || sent.has_ended().then_some(()));
        heard.has_ended().then_some(())
    });
    assert!(matched(&switch, "lldp") >= Some(1));
    // The whole configuration is shown.
    let config = run(&mut command(&switch, &["show", "config"]));
    assert_eq!(config.matches("[[kernel-filter]]").count(), 2, "{config}");
    assert!(config.contains("destination-port = \"179\""), "{config}");
    let table = run(&mut command(&switch, &["show", "kernel-filters"]));
    assert!(
        table.contains("protocol tcp, destination-port 179"),
        "{table}"
    );
    // An invalid rule changes nothing, and a removed one has no effect any more.
    let mut wrong = command(&switch, &["add", "kernel-filter", "all"]);
    assert!(!wrong.output().unwrap().status.success());
    change(&switch, &["del", "kernel-filter", "bgp"]);
    says("router");
    assert_eq!(matched(&switch, "bgp"), None);
    // A rule for an interface is removed with it.
    change(&switch, &add);
    change(&switch, &["del", "interface", "h-if"]);
    assert_eq!(matched(&switch, "bgp"), None);
    for (stop, thread) in [there, here] {
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
    }
    assert_eq!(switch.end(), Some(0));
}

fn bird_config(id: &str, speaks: &str, stub: &str) -> String {
    format!(
        "router id {id};\nprotocol device {{ scan time 1; }}\n\
         protocol kernel {{ ipv4 {{ export all; }}; }}\n\
         protocol ospf v2 {{ ipv4 {{ import all; }}; area 0 {{\n\
         interface \"{speaks}\" {{ hello 1; dead 4; type ptp; }};\n\
         interface \"{stub}\" {{ stub; }};\n}}; }}\n"
    )
}

#[test]
fn bird_learns_by_ospf_and_the_switch_forwards() {
    let net = Net::new("ko");
    let directory = TempDir::new().unwrap();
    let switch = net.start(directory.path());
    let _ours = Bird::start(
        &net.switch,
        directory.path(),
        "ours",
        &bird_config("192.0.2.1", "qw-r", "qw-h"),
    );
    let _theirs = Bird::start(
        &net.router,
        directory.path(),
        "theirs",
        &bird_config("192.0.2.2", "r1", "lo"),
    );
    let learned = until("OSPF brings the other side's network", || {
        route(&switch, "10.99.0.1/32").or_else(|| route(&switch, "10.99.0.0/24"))
    });
    assert_eq!(learned["source"], "kernel");
    assert_eq!(learned["via"][0]["interface"], "r-if");
    // In both directions: the other router has learned of the host's network too.
    until("the host reaches it", || {
        ping(&net.host, "10.99.0.1").then_some(())
    });
    assert_eq!(switch.end(), Some(0));
}

/// FRR's zebra and bgpd, with all their files in a directory, which belongs to their user; they end with this value.
struct Frr(Vec<Child>);

impl Frr {
    const PROGRAMS: &str = "/usr/lib/frr";

    fn start(namespace: &Namespace, directory: &Path, bgp: &str) -> Self {
        let user = nix::unistd::User::from_name("frr").unwrap().unwrap();
        fs::create_dir(directory).unwrap();
        nix::unistd::chown(directory, Some(user.uid), Some(user.gid)).unwrap();
        // Their user must be able to enter the directory.
        let above = directory.parent().unwrap();
        fs::set_permissions(above, fs::Permissions::from_mode(0o711)).unwrap();
        let mut all = Self(Vec::new());
        let zebra = directory.join("zebra.sock");
        for (program, config) in [("zebra", ""), ("bgpd", bgp)] {
            let path = |ending: &str| directory.join(format!("{program}.{ending}"));
            fs::write(path("conf"), config).unwrap();
            let place = Path::new(Self::PROGRAMS).join(program);
            let mut command = namespace.command(place.to_str().unwrap());
            command.arg("-f").arg(path("conf"));
            command.arg("-z").arg(&zebra).arg("-i").arg(path("pid"));
            command.arg("--vty_socket").arg(directory).args(["-P", "0"]);
            command
                .arg("--log")
                .arg(format!("file:{}", path("log").display()));
            command.stdout(Stdio::null()).stderr(Stdio::null());
            all.0.push(command.spawn().unwrap());
            until("zebra listens", || zebra.exists().then_some(()));
        }
        all
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        // bgpd first: it closes its connection to zebra.
        for child in self.0.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const FRR_BGP: &str = "router bgp 64512
 bgp router-id 192.0.2.1
 no bgp ebgp-requires-policy
 no bgp network import-check
 timers bgp 1 3
 neighbor 192.0.2.2 remote-as 64513
 neighbor 192.0.2.2 timers connect 1
 address-family ipv4 unicast
  network 198.51.100.0/24
 exit-address-family
";

const BIRD_BGP: &str = "router id 192.0.2.2;
protocol device { scan time 1; }
protocol kernel { ipv4 { export where source = RTS_BGP; }; }
protocol direct { ipv4; interface \"lo\"; }
protocol bgp {
  local 192.0.2.2 as 64513;
  neighbor 192.0.2.1 as 64512;
  hold time 3; connect delay time 1; connect retry time 1; error wait time 1, 2;
  ipv4 { import all; export where source = RTS_DEVICE; };
}
";

#[test]
fn frr_learns_by_bgp_and_the_switch_forwards() {
    let net = Net::new("kb");
    let directory = TempDir::new().unwrap();
    let switch = net.start(directory.path());
    let frr = directory.path().join("frr");
    let _ours = Frr::start(&net.switch, &frr, FRR_BGP);
    let theirs = Bird::start(&net.router, directory.path(), "theirs", BIRD_BGP);
    let learned = until("BGP brings the other side's network", || {
        route(&switch, "10.99.0.0/24")
    });
    assert_eq!(learned["source"], "kernel");
    assert_eq!(learned["via"][0]["interface"], "r-if");
    assert_eq!(learned["via"][0]["address"], "192.0.2.2");
    // In both directions: the other router has learned of the host's network too.
    until("the host reaches it", || {
        ping(&net.host, "10.99.0.1").then_some(())
    });
    let forwarded = || switch.stats()["router"]["forwarded"].as_u64().unwrap();
    let before = forwarded();
    until("packets pass through the switch", || {
        ping(&net.host, "10.99.0.1").then_some(())
    });
    assert!(forwarded() >= before + 2);
    // The other side is stopped, and its routes are removed.
    drop(theirs);
    until("the route is removed with the session", || {
        route(&switch, "10.99.0.0/24").is_none().then_some(())
    });
    assert_eq!(switch.end(), Some(0));
}
