// SPDX-License-Identifier: Apache-2.0
//! Switches whose ports are all the kernel's, and that receive nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use quietwire_host::proc::Thread;
use tempfile::TempDir;

use crate::rig::{Namespace, Switch, ping, run, until, within};

/// Duration of an interval of silence, and the time in which one must cost little: other programs may disturb one.
const INTERVAL: Duration = Duration::from_millis(1500);
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Share of a CPU, of all threads of the switch.
const SHARE_MAX: f64 = 0.01;

/// Hosts behind a tap and behind the far end of a pair, and the namespace of the switch.
const ADDRESSES: [&str; 2] = ["10.9.2.1", "10.9.2.2"];

/// Returns the run time of all threads of a switch.
fn run_time(switch: &Switch) -> Duration {
    let threads = switch.show("threads");
    let tids = threads.iter().map(|thread| thread["tid"].as_i64().unwrap());
    let run_ns = |tid: i64| {
        let thread = Thread::numbered(Path::new("/"), i32::try_from(tid).unwrap());
        thread.run_ns().unwrap()
    };
    Duration::from_nanos(tids.map(run_ns).sum())
}

/// Ends IPv6 in a namespace: after they come up, its interfaces would solicit routers for many seconds.
fn without_ipv6(namespace: &Namespace) {
    for scope in ["all", "default"] {
        let setting = format!("net.ipv6.conf.{scope}.disable_ipv6=1");
        run(namespace.command("sysctl").args(["-qw", &setting]));
    }
}

/// Checks that the switch costs next to no CPU time in an interval without frames.
fn costs_little(switch: &Switch, what: &str) {
    let began = Instant::now();
    let share = loop {
        let (before, from) = (run_time(switch), Instant::now());
        assert_eq!(within(INTERVAL, || None::<()>), None);
        let busy = run_time(switch).saturating_sub(before);
        let share = busy.as_secs_f64() / from.elapsed().as_secs_f64();
        println!("{what}: {:.2} % of a CPU", share * 100.0);
        if share < SHARE_MAX || began.elapsed() > SILENCE_MAX {
            break share;
        }
    };
    assert!(share < SHARE_MAX, "{what}: {share} of a CPU");
    until_asleep(switch);
}

fn until_asleep(switch: &Switch) {
    until("the forwarding threads sleep", || {
        let threads = switch.show("threads");
        let mut forwarding = threads.iter().filter(|one| one["role"] == "forwarding");
        forwarding
            .all(|thread| thread["is_asleep"] == true)
            .then_some(())
    });
}

/// Checks a switch between ports of the kernel of all kinds, whose threads wait in this way.
fn ports_of_the_kernel_cost_little(idle: &str) {
    let hosts = ["a", "b"].map(|host| Namespace::new(&format!("{idle}-{host}")));
    let middle = Namespace::with_pairs(idle);
    hosts.iter().chain([&middle]).for_each(without_ipv6);
    let directory = TempDir::new().unwrap();
    let ports = [
        ("tap", format!("tap:eth0?netns={}", hosts[0].name())),
        ("pair", format!("veth:qwpair?netns={}", hosts[1].name())),
        ("packet", "af-packet:v0".to_owned()),
        ("xdp", "af-xdp:v2".to_owned()),
    ];
    let arguments = ["--bridge", "lan=tap,pair,packet,xdp", "--idle", idle];
    let switch = Switch::start(&middle, directory.path(), &ports, &arguments);
    for (host, address) in hosts.iter().zip(ADDRESSES) {
        host.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"]);
    }
    // A request that is lost would cost two seconds.
    for (port, _) in &ports {
        switch.until_up(port);
    }
    ping(&hosts[0], ADDRESSES[1]);
    until_asleep(&switch);
    costs_little(&switch, idle);
    ping(&hosts[0], ADDRESSES[1]);
    // Frames to the other two ports wake threads too, and the reply arrives.
    for end in ["v1", "v3"] {
        until_asleep(&switch);
        middle.ip(&["address", "add", "10.9.2.3/24", "dev", end]);
        let probe = [
            "arping",
            "-f",
            "-c",
            "1",
            "-w",
            "1",
            "-I",
            end,
            ADDRESSES[0],
        ];
        until("a reply arrives", || {
            let output = middle.command("busybox").args(probe).output().unwrap();
            output.status.success().then_some(())
        });
        middle.ip(&["address", "delete", "10.9.2.3/24", "dev", end]);
    }
    assert_eq!(switch.end(), Some(0));
}

#[test]
fn ports_of_the_kernel_alone_cost_next_to_no_cpu_time_without_frames() {
    // At the same time: both wait, and the CPU time of each is its own.
    std::thread::scope(|scope| {
        for idle in ["interrupt", "sleep"] {
            scope.spawn(move || ports_of_the_kernel_cost_little(idle));
        }
    });
}

#[test]
fn a_router_between_ports_of_the_kernel_costs_next_to_no_cpu_time_without_frames() {
    let hosts = ["a", "b"].map(|host| Namespace::new(&format!("mute-{host}")));
    let middle = Namespace::new("mute");
    let directory = TempDir::new().unwrap();
    let ports = [
        ("tap", format!("tap:eth0?netns={}", hosts[0].name())),
        ("pair", format!("veth:qwpair?netns={}", hosts[1].name())),
    ];
    let switch = Switch::start(&middle, directory.path(), &ports, &["--idle", "interrupt"]);
    for (number, (port, host)) in ["tap", "pair"].into_iter().zip(&hosts).enumerate() {
        let address = |end: u8| format!("10.9.{}.{end}", 3 + number);
        let gateway = address(1);
        let with_length = format!("{gateway}/24");
        let name = format!("r{number}");
        let interface = ["add", "interface", &name, "--port", port];
        switch.change(&[&interface[..], &["--address", &with_length]].concat());
        let own = format!("{}/24", address(2));
        host.ip(&["address", "add", &own, "dev", "eth0"]);
        host.ip(&["route", "add", "default", "via", &gateway]);
    }
    ping(&hosts[0], "10.9.4.2");
    costs_little(&switch, "router");
    // ARP requests and packets to the router wake the service thread.
    hosts[1].ip(&["neighbour", "flush", "all"]);
    ping(&hosts[0], "10.9.4.2");
    ping(&hosts[0], "10.9.3.1");
    assert_eq!(switch.end(), Some(0));
}
