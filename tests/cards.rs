// SPDX-License-Identifier: Apache-2.0
//! Tests of network cards: the real binary forwards in a guest between emulated cards with their real DPDK drivers, behind an emulated
//! IOMMU. Requires root and the emulator of `scripts/emulated-cards`. Emulation makes all rates meaningless, so none is measured.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "cards/flow_control.rs"]
mod flow_control;
#[path = "cards/functions.rs"]
mod functions;
#[path = "cards/guest.rs"]
mod guest;
#[path = "cards/monitor.rs"]
mod monitor;
#[path = "cards/offloads.rs"]
mod offloads;
#[path = "cards/queues.rs"]
mod queues;
#[path = "cards/split_path.rs"]
mod split_path;
#[path = "cards/study.rs"]
mod study;
#[path = "switch_ports/rig.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod switches;
#[path = "cards/wire.rs"]
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use guest::Model::{self, E1000e, Igb, Virtio, Vmxnet3};
use guest::{CardGuest, repeat_if_qemu_fails};
use wire::{FRAME_MIN, Frame, tagged, vlan_of};

const DEADLINE: Duration = Duration::from_secs(150);
/// Address of the metrics in the guest.
const METRICS: &str = "127.0.0.1:9475";

/// One guest at a time: emulated guests use all CPUs.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the mark at its end, so that threads which wait for it end also after a failed assertion.
struct EndOnDrop<'mark>(&'mark AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns frames of one flow, of several lengths up to the longest.
fn frames(count: u32, longest: usize) -> Vec<Vec<u8>> {
    let lengths = [FRAME_MIN, 61, 128, 594, longest];
    let frame = |sequence: u32| Frame {
        length: lengths[sequence as usize % lengths.len()],
        ..Frame::of(1, sequence)
    };
    (0..count)
        .map(|sequence| frame(sequence).octets())
        .collect()
}

/// Returns the ports of cards, named a, b, c and so on.
fn ports(guest: &CardGuest, options: &str) -> Vec<(&'static str, String)> {
    let names = ["a", "b", "c", "d", "e", "f"];
    names
        .into_iter()
        .zip(&guest.addresses)
        .map(|(name, address)| (name, format!("pci:{address}{options}")))
        .collect()
}

/// Checks that ports are in service with a link.
fn are_up(guest: &mut CardGuest, names: &[&str]) {
    for name in names {
        let port = guest.port(name);
        assert_eq!(port["state"], "up", "{port}");
    }
}

const PAIRS: [(usize, usize); 3] = [(0, 1), (2, 3), (4, 5)];

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn cards_of_every_kind_forward_and_are_shown_with_their_links_and_counters() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, Igb, Igb, E1000e, Virtio, Vmxnet3]);
        // Without a driver, the plan has only cards with SR-IOV.
        let remedy = format!("dpdk-devbind.py --bind=vfio-pci {}", guest.addresses[0]);
        for command in ["quietwire doctor", "quietwire partition plan"] {
            let (_, text) = guest.try_run(&format!("{command} 2>&1"));
            assert!(
                text.contains("has no driver") && text.contains(&remedy),
                "{command}: {text}"
            );
        }
        guest.bind_all();
        cards_are_described(&mut guest);
        let connected = "--cross-connect a,b --cross-connect c,d --cross-connect e,f";
        // An argument of the driver of virtio: the speed that it reports.
        let mut uris = ports(&guest, "");
        uris[4].1.push_str("?devargs=speed=25000");
        guest.switch(&uris, &format!("{connected} --metrics {METRICS}"));
        for name in ["a", "b", "c", "d", "e", "f"] {
            guest.port_becomes(name, "up");
        }
        for (a, b) in PAIRS {
            for (from, to) in [(a, b), (b, a)] {
                guest.wires[from].carries(&guest.wires[to], &frames(100, 1514));
            }
        }
        let port = guest.port("a");
        assert_eq!(port["rx_frames"], 100, "{port}");
        assert_eq!(port["tx_frames"], 100, "{port}");
        assert_eq!(port["speed_mbps"], 1000, "{port}");
        // The driver's names: rte_eth_xstats_get of net_e1000_igb.
        assert_eq!(port["driver"]["rx_good_packets"], 100, "{port}");
        let port = guest.port("e");
        assert_eq!(port["speed_mbps"], 25_000, "{port}");
        // igb and virtio report changes by events, vmxnet3 by none.
        for (name, card) in [("a", 0), ("d", 3), ("e", 4), ("f", 5)] {
            let before = guest.port(name)["link_changes"].as_u64().unwrap();
            guest.monitor.set_link(card, false);
            guest.port_becomes(name, "down");
            link_has_changed(&mut guest, name, before + 1);
            guest.monitor.set_link(card, true);
            guest.port_becomes(name, "up");
            link_has_changed(&mut guest, name, before + 2);
        }
        let log = guest.log();
        for line in ["port 'a': the link is down", "port 'f': the link is up"] {
            assert!(log.contains(line), "{line}: {log}");
        }
        for (a, b) in PAIRS {
            guest.wires[a].carries(&guest.wires[b], &frames(20, 1514));
        }
        has_metrics_of_cards(&mut guest);
        // Larger frames pass once the configuration has them, threads can wait for interrupts of the card, and flow control can be set.
        guest.switch(
            &ports(&guest, "?flow-control=off")[..2],
            "--cross-connect a,b --frame-size-max 4000 --idle interrupt",
        );
        guest.port_becomes("a", "up");
        guest.port_becomes("b", "up");
        guest.wires[0].carries(&guest.wires[1], &frames(20, 3996));
        guest.stop_switch();
    });
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn tags_stay_in_the_frames_of_cards_of_every_kind() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, Igb, Igb, E1000e, Virtio, Vmxnet3]);
        guest.bind_all();
        let connected = "--cross-connect a,b --cross-connect c,d --cross-connect e,f";
        guest.switch(&ports(&guest, ""), connected);
        for name in ["a", "b", "c", "d", "e", "f"] {
            guest.port_becomes(name, "up");
        }
        // The longest of them has 1,518 octets with its tag.
        let in_vlan: Vec<Vec<u8>> = frames(20, 1514)
            .iter()
            .map(|frame| tagged(frame, 5))
            .collect();
        for (a, b) in PAIRS {
            for (from, to) in [(a, b), (b, a)] {
                guest.wires[from].carries(&guest.wires[to], &in_vlan);
            }
        }
        guest.stop_switch();
    });
}

/// Checks that metrics have the links and the statistics of drivers.
fn has_metrics_of_cards(guest: &mut CardGuest) {
    let port = guest.port("a");
    let metrics = guest.run(&format!("busybox wget -q -O - http://{METRICS}/metrics"));
    for line in [
        format!(
            "quietwire_switch_port_link_changes_total{{port=\"a\"}} {}\n",
            port["link_changes"]
        ),
        "quietwire_switch_port_driver_statistic{port=\"a\",name=\"rx_good_packets\"} ".to_owned(),
    ] {
        assert!(metrics.contains(&line), "no '{line}': {metrics}");
    }
}

/// Waits until the switch has counted this many changes of a link.
fn link_has_changed(guest: &mut CardGuest, port: &str, count: u64) {
    guest.port_until(port, |port| port["link_changes"] == count);
}

/// Checks that `doctor`, `host show` and `partition plan` name each card with its driver, node, group and root port.
fn cards_are_described(guest: &mut CardGuest) {
    for command in [
        "quietwire doctor",
        "quietwire host show",
        "quietwire partition plan",
    ] {
        let (_, text) = guest.try_run(&format!("{command} 2>&1"));
        let words: Vec<&str> = text.split_whitespace().collect();
        // The lists differ in the character behind the address.
        let text = words.join(" ").replace(": vfio-pci", " vfio-pci");
        let text = text.replace(", vfio-pci", " vfio-pci");
        for (card, address) in guest.addresses.iter().enumerate() {
            let place = text
                .find(&format!("{address} vfio-pci, node "))
                .unwrap_or_else(|| panic!("{command}: no {address}: {text}"));
            let root_port = format!("root port {}", CardGuest::root_port_of(card));
            let (facts, _) = text[place..]
                .split_once(&root_port)
                .unwrap_or_else(|| panic!("{command}: no {root_port}: {text}"));
            // Nothing about another card is in between.
            assert!(
                facts.contains("IOMMU group ") && facts.matches("vfio-pci").count() == 1,
                "{command}: {root_port}: {text}"
            );
        }
    }
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn no_emulated_card_counts_as_obeying_a_flow_rule() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, E1000e, Virtio, Vmxnet3]);
        guest.bind_all();
        let names = ["a", "b", "c", "d"];
        guest.switch(
            &ports(&guest, ""),
            "--cross-connect a,b --cross-connect c,d",
        );
        for name in names {
            guest.port_becomes(name, "up");
            let add = format!(
                "quietwire switch steer add rule-{name} --port {name} --to switch --queue 0 \
             --protocol udp --destination 192.0.2.1/32 --destination-port 7777 2>&1"
            );
            let (code, output) = guest.try_run(&add);
            if code != Some(0) {
                assert!(output.contains("the card refuses it"), "{name}: {output}");
            }
            let rule = rule_of(&mut guest, name);
            assert_eq!(rule.is_some(), code == Some(0), "{name}: {rule:?}");
        }
        // Frames that the rules match go on, and no card has counted one.
        guest.wires[0].carries(&guest.wires[1], &frames(20, 1514));
        guest.wires[1].carries(&guest.wires[0], &frames(20, 1514));
        guest.wires[2].carries(&guest.wires[3], &frames(20, 1514));
        guest.wires[3].carries(&guest.wires[2], &frames(20, 1514));
        for name in names {
            if let Some(rule) = rule_of(&mut guest, name) {
                assert_eq!(rule["card"], "accepted", "{name}: {rule}");
                guest.run(&format!("quietwire switch steer del rule-{name}"));
                assert_eq!(rule_of(&mut guest, name), None);
            }
        }
        // A queue that the port does not have is refused before the card is asked.
        let (code, output) = guest.try_run(
            "quietwire switch steer add x --port a --to switch --queue 9 --protocol udp 2>&1",
        );
        assert_ne!(code, Some(0), "{output}");
        assert!(output.contains("no such receive queue: 9"), "{output}");
        guest.stop_switch();
    });
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn frames_go_from_a_card_through_vhost_user_ports_to_another_card() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, E1000e]);
        guest.bind_all();
        let [first, second] = [0, 1].map(|card| format!("pci:{}", guest.addresses[card]));
        guest.switch(
            &[
                ("a", first),
                ("g", "vhost:/tmp/g.sock".to_owned()),
                ("h", "vhost:/tmp/h.sock".to_owned()),
                ("b", second),
            ],
            "--cross-connect a,g --cross-connect h,b",
        );
        // Another process has the driver's side, as the guest of a guest would boot for minutes.
        guest.run(
        "quietwire switch run --huge-pages never --memory-mib 128 --idle sleep --forwarding-cpus 0 \
         --control-socket /tmp/peer.sock --port x=virtio-user:/tmp/g.sock --port y=virtio-user:/tmp/h.sock \
         --cross-connect x,y >/tmp/peer.log 2>&1 </dev/null & echo $! >/tmp/peer.pid",
    );
        for (name, state) in [
            ("a", "up"),
            ("g", "connected"),
            ("h", "connected"),
            ("b", "up"),
        ] {
            guest.port_becomes(name, state);
        }
        guest.wires[0].carries(&guest.wires[1], &frames(100, 1514));
        guest.wires[1].carries(&guest.wires[0], &frames(100, 1514));
        guest.run("kill $(cat /tmp/peer.pid)");
        guest.port_becomes("g", "waiting");
        guest.stop_switch();
    });
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn rules_drop_their_frames_whether_or_not_the_card_obeys() {
    const BURSTS: usize = 5;
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, Igb]);
        guest.bind_all();
        guest.switch(&ports(&guest, "?hw-offload=on"), "--cross-connect a,b");
        guest.port_becomes("a", "up");
        guest.port_becomes("b", "up");
        guest.run("quietwire switch add rule flood --action drop --port a --protocol udp --destination-port 7777");
        let flood: Vec<Vec<u8>> = (0..4_000)
            .map(|sequence| Frame::of(1, sequence).octets())
            .collect();
        // The switch compares the frames of two seconds.
        let is_decided = (0..BURSTS).any(|_| {
            let carried = guest.wires[0].carry(&guest.wires[1], &flood, flood.len());
            assert_eq!(carried.frames.len(), 0);
            let log = guest.log();
            log.contains("rule 'flood' is not offloaded to the card: ")
                || log.contains("port 'a': its card drops frames of rule 'flood'")
        });
        assert!(is_decided, "{}", guest.log());
        let report = guest.run("quietwire switch show rules --json");
        let report: Value = serde_json::from_str(&report).unwrap();
        let frames_of_rule = report["rules"][0]["frames"].as_u64().unwrap();
        let sent = (BURSTS * flood.len()) as u64;
        assert!((1000..=sent).contains(&frames_of_rule), "{report}");
        guest.wires[1].carries(&guest.wires[0], &frames(20, 1514));
        // The former rule is neither in the switch nor on the card.
        guest.run("quietwire switch del rule flood");
        guest.wires[0].carries(&guest.wires[1], &frames(20, 1514));
        guest.stop_switch();
    });
}

/// Returns the report of the steering rule of a port, if it has one.
fn rule_of(guest: &mut CardGuest, port: &str) -> Option<Value> {
    let ports = guest.show("steer");
    let report = ports.into_iter().find(|report| report["port"] == port)?;
    report["rules"].get(0).cloned()
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn an_unplugged_card_costs_its_own_port_alone() {
    repeat_if_qemu_fails(unplug_under_traffic);
}

/// Boots a guest with four cards, and starts a switch that forwards between the first two and between the last two.
fn two_pairs(cards: &[Model; 4]) -> CardGuest {
    let mut guest = CardGuest::boot(cards);
    guest.bind_all();
    guest.switch(
        &ports(&guest, ""),
        "--cross-connect a,b --cross-connect c,d",
    );
    for name in ["a", "b", "c", "d"] {
        guest.port_becomes(name, "up");
    }
    guest.wires[0].carries(&guest.wires[1], &frames(20, 1514));
    guest
}

fn unplug_under_traffic() {
    let mut guest = two_pairs(&[Igb, Igb, Igb, E1000e]);
    // Frames arrive at the card until it is removed. The other two cards lose none meanwhile.
    let wires = std::mem::take(&mut guest.wires);
    let is_over = AtomicBool::new(false);
    let port = std::thread::scope(|scope| {
        let _over = EndOnDrop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                wires[0].carry(&wires[1], &frames(100, 1514), 16);
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                wires[2].carries(&wires[3], &frames(100, 1514));
            }
        });
        guest.port_until("a", |port| port["rx_frames"].as_u64() > Some(200));
        guest.monitor.unplug(0);
        guest.port_becomes("a", "removed")
    });
    guest.wires = wires;
    assert_eq!(port["link_up"], false, "{port}");
    assert!(port["rx_frames"].as_u64() > Some(200), "{port}");
    guest.card_is_gone(0);
    are_up(&mut guest, &["b", "c", "d"]);
    guest.wires[2].carries(&guest.wires[3], &frames(100, 1514));
    guest.wires[3].carries(&guest.wires[2], &frames(100, 1514));
    let log = guest.log();
    let named = log
        .lines()
        .filter(|line| line.contains("ERROR"))
        .collect::<Vec<_>>();
    assert!(
        named.len() == 1 && named[0].contains("port 'a'") && named[0].contains("was removed"),
        "{log}"
    );
    // Another program takes a card away.
    let taken = guest.addresses[3].clone();
    guest.run(&format!(
        "echo {taken} >/sys/bus/pci/drivers/vfio-pci/unbind"
    ));
    guest.port_becomes("d", "removed");
    are_up(&mut guest, &["c"]);
    // Other changes go on, and a removed port is not opened again until it was deleted.
    guest.run("quietwire switch add port x null:");
    let port = guest.port("a");
    assert_eq!(port["state"], "removed", "{port}");
    guest.run("quietwire switch del port x");
    guest.stop_switch();
}

/// MAC address of the virtual function in the tests.
const FUNCTION_MAC: &str = "02:00:00:00:00:0a";

/// Returns frames to the virtual function of the tests.
fn frames_to_function() -> Vec<Vec<u8>> {
    frames_to([2, 0, 0, 0, 0, 0x0a])
}

fn frames_to(destination: [u8; 6]) -> Vec<Vec<u8>> {
    let frame = |sequence| {
        Frame {
            destination,
            ..Frame::of(1, sequence)
        }
        .octets()
    };
    (0..20).map(frame).collect()
}

/// Gives a card to the kernel's driver, which creates functions. Returns the interface of the card and the address of the first function.
fn create_functions(guest: &mut CardGuest, card: usize) -> (String, String) {
    let device = format!("/sys/bus/pci/devices/{}", guest.addresses[card]);
    guest.run("modprobe igb");
    let interface = guest.until(&format!("ls {device}/net")).trim().to_owned();
    guest.run(&format!(
        "/usr/sbin/ip link set {interface} up && echo 2 >{device}/sriov_numvfs"
    ));
    let function = guest.run(&format!("basename $(readlink {device}/virtfn0)"));
    (interface, function.trim().to_owned())
}

/// Creates functions of a card, and binds the first of them to `vfio-pci`. Returns the interface of the card and the address of the
/// function.
fn with_function(guest: &mut CardGuest, card: usize) -> (String, String) {
    let (interface, function) = create_functions(guest, card);
    guest.bind(std::slice::from_ref(&function));
    (interface, function)
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn each_kind_of_card_can_be_unplugged() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Vmxnet3, E1000e, Virtio, Igb, Igb, Igb]);
        guest.bind_all();
        guest.switch(
            &ports(&guest, ""),
            "--cross-connect a,d --cross-connect b,c --cross-connect e,f",
        );
        for name in ["a", "b", "c", "d", "e", "f"] {
            guest.port_becomes(name, "up");
        }
        guest.wires[4].carries(&guest.wires[5], &frames(20, 1514));
        for (card, name) in ["a", "b", "c"].into_iter().enumerate() {
            eprintln!("unplugging the card of port '{name}'");
            guest.port_becomes(name, "up");
            guest.monitor.unplug(card);
            guest.port_becomes(name, "removed");
            guest.card_is_gone(card);
            are_up(&mut guest, &["d", "e", "f"]);
            guest.wires[4].carries(&guest.wires[5], &frames(20, 1514));
        }
        guest.stop_switch();
    });
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn functions_of_two_cards_forward_to_each_other_until_they_are_deleted() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, Igb, Igb, Igb]);
        let others = guest.addresses[2..].to_vec();
        guest.bind(&others);
        let (_, first) = with_function(&mut guest, 0);
        let (_, second) = with_function(&mut guest, 1);
        // A function receives frames to its own address only.
        let uri =
            |function: &String, mac: &str| format!("pci:{function}?mac={mac}&spoof-check=off");
        guest.switch(
            &[
                ("a", uri(&first, FUNCTION_MAC)),
                ("b", uri(&second, "02:00:00:00:00:0b")),
                ("c", format!("pci:{}", others[0])),
                ("d", format!("pci:{}", others[1])),
            ],
            "--cross-connect a,b --cross-connect c,d",
        );
        for name in ["a", "b", "c", "d"] {
            guest.port_becomes(name, "up");
        }
        guest.wires[0].carries(&guest.wires[1], &frames_to_function());
        guest.wires[1].carries(&guest.wires[0], &frames_to([2, 0, 0, 0, 0, 0x0b]));
        // The kernel waits here until the switch has given up the function.
        let device = format!("/sys/bus/pci/devices/{}", guest.addresses[0]);
        guest.run(&format!("echo 0 >{device}/sriov_numvfs"));
        guest.port_becomes("a", "removed");
        guest.wires[2].carries(&guest.wires[3], &frames(20, 1514));
        are_up(&mut guest, &["b"]);
        guest.stop_switch();
    });
}

/// Returns number and settings of each virtual function that `ip link show` prints, without its MAC address: if none is set, the kernel's
/// driver draws another one at each reset.
fn function_settings(shown: &str) -> Vec<(&str, &str)> {
    let lines = shown.lines().map(str::trim);
    let functions = lines.filter(|line| line.starts_with("vf "));
    functions
        .filter_map(|line| {
            let (number, rest) = line.split_once(" link/ether ")?;
            Some((number.trim_end(), rest.split_once(' ')?.1))
        })
        .collect()
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn a_reset_of_the_physical_function_costs_the_ports_of_its_functions_alone() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, Igb, Igb, Igb]);
        let others = guest.addresses[1..].to_vec();
        guest.bind(&others);
        let (interface, function) = with_function(&mut guest, 0);
        let shown = format!("/usr/sbin/ip link show {interface}");
        let before = guest.run(&shown);
        let uri = format!("pci:{function}?mac={FUNCTION_MAC}");
        let pci = |address: &String| format!("pci:{address}");
        guest.switch(
            &[
                ("a", uri.clone()),
                ("b", pci(&others[0])),
                ("c", pci(&others[1])),
                ("d", pci(&others[2])),
            ],
            "--cross-connect a,b --cross-connect c,d",
        );
        for name in ["a", "b", "c", "d"] {
            guest.port_becomes(name, "up");
        }
        let to_function = frames_to_function();
        guest.wires[0].carries(&guest.wires[1], &to_function);
        // The kernel's driver resets the card when its interface is set down and up.
        guest.run(&format!(
            "/usr/sbin/ip link set {interface} down && /usr/sbin/ip link set {interface} up"
        ));
        guest.until(&format!("grep -q 1 /sys/class/net/{interface}/carrier"));
        guest.wires[2].carries(&guest.wires[3], &frames(100, 1514));
        guest.wires[3].carries(&guest.wires[2], &frames(100, 1514));
        are_up(&mut guest, &["b", "c", "d"]);
        // One message about the function at most: its driver reports the reset only if the card interrupts it.
        let log = guest.log();
        let resets = log.lines().filter(|line| line.contains(" was reset"));
        let resets: Vec<&str> = resets.collect();
        let is_of_function = resets.iter().all(|line| line.contains("port 'a'"));
        assert!(resets.len() <= 1 && is_of_function, "{log}");
        // The function works again once its driver was started again, with its settings.
        guest.run(&format!(
            "quietwire switch del port a && quietwire switch add port a '{uri}' && \
         quietwire switch add cross-connect a b"
        ));
        guest.port_becomes("a", "up");
        let made = guest.run(&shown);
        let line = made.lines().find(|line| line.contains("vf 0")).unwrap();
        assert!(line.contains(FUNCTION_MAC), "{made}");
        guest.wires[0].carries(&guest.wires[1], &to_function);
        guest.stop_switch();
        let after = guest.run(&shown);
        assert!(!after.contains(FUNCTION_MAC), "{after}");
        assert_eq!(function_settings(&after), function_settings(&before));
    });
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn a_card_that_another_driver_takes_costs_its_own_port_alone() {
    repeat_if_qemu_fails(|| {
        let mut guest = two_pairs(&[Igb, Igb, Igb, Igb]);
        let taken = guest.addresses[0].clone();
        let device = format!("/sys/bus/pci/devices/{taken}");
        // The kernel waits here until the switch has given up the card.
        guest.run(&format!(
        "modprobe igb && echo igb >{device}/driver_override && echo {taken} >{device}/driver/unbind && \
         echo {taken} >/sys/bus/pci/drivers_probe"
    ));
        guest.until(&format!("ls {device}/net"));
        guest.port_becomes("a", "removed");
        are_up(&mut guest, &["b", "c", "d"]);
        guest.wires[2].carries(&guest.wires[3], &frames(100, 1514));
        guest.wires[3].carries(&guest.wires[2], &frames(100, 1514));
        let log = guest.log();
        let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
        assert!(
            errors.len() == 1
                && errors[0].contains("port 'a'")
                && errors[0].contains("was removed"),
            "{log}"
        );
        // The kernel's driver gives the card back, and a new port has it again.
        guest.bind(std::slice::from_ref(&taken));
        guest.run(&format!(
            "quietwire switch del port a && quietwire switch add port a pci:{taken} && \
         quietwire switch add cross-connect a b"
        ));
        guest.port_becomes("a", "up");
        guest.wires[0].carries(&guest.wires[1], &frames(20, 1514));
        guest.stop_switch();
    });
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn virtual_functions_have_the_settings_of_their_ports_while_these_are_open() {
    const VLAN: u16 = 5;
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, Igb]);
        let other = guest.addresses[1].clone();
        guest.bind(std::slice::from_ref(&other));
        let (interface, function) = with_function(&mut guest, 0);
        // The driver accepts a rate only with a link.
        guest.until(&format!("grep -q 1 /sys/class/net/{interface}/carrier"));
        let shown = format!("/usr/sbin/ip link show {interface}");
        let before = guest.run(&shown);
        let uri = format!(
            "pci:{function}?mac={FUNCTION_MAC}&vlan={VLAN}&trust=on&spoof-check=off&max-tx-rate=500"
        );
        let ports = [("a", uri), ("b", format!("pci:{other}"))];
        guest.switch(&ports, "--cross-connect a,b");
        guest.port_becomes("a", "up");
        guest.port_becomes("b", "up");
        let made = guest.run(&shown);
        let line = made.lines().find(|line| line.contains("vf 0")).unwrap();
        for part in [
            FUNCTION_MAC,
            "vlan 5",
            "trust on",
            "spoof checking off",
            "max_tx_rate 500Mbps",
        ] {
            assert!(line.contains(part), "no '{part}': {made}");
        }
        // The card adds the tag to frames of the function, and accepts only frames with it.
        let to_function = frames_to_function();
        let in_vlan: Vec<Vec<u8>> = to_function
            .iter()
            .map(|frame| tagged(frame, VLAN))
            .collect();
        let carried = guest.wires[0].carry(&guest.wires[1], &in_vlan, 1);
        assert_eq!((carried.lost, &carried.frames), (0, &to_function));
        let carried = guest.wires[1].carry(&guest.wires[0], &frames(20, 1514), 1);
        assert_eq!(carried.lost, 0);
        let vlans: Vec<Option<u16>> = carried.frames.iter().map(|frame| vlan_of(frame)).collect();
        assert_eq!(vlans, vec![Some(VLAN); 20]);
        let outside = vec![tagged(&to_function[0], VLAN + 1)];
        assert_eq!(guest.wires[0].carry(&guest.wires[1], &outside, 1).lost, 1);
        guest.stop_switch();
        let after = guest.run(&shown);
        assert!(!after.contains(FUNCTION_MAC), "{after}");
        assert_eq!(function_settings(&after), function_settings(&before));
        // The settings of a killed switch stay until they are cleaned up.
        guest.switch(&ports, "--cross-connect a,b");
        guest.port_becomes("a", "up");
        guest.run("kill -9 $(cat /tmp/switch.pid)");
        guest.stop_switch();
        let left = guest.run(&shown);
        assert!(left.contains(FUNCTION_MAC), "{left}");
        let cleaned = guest.run("quietwire lab clean --state-directory /tmp/lab");
        assert!(cleaned.contains(&function), "{cleaned}");
        let after = guest.run(&shown);
        assert!(!after.contains(FUNCTION_MAC), "{after}");
        assert_eq!(function_settings(&after), function_settings(&before));
    });
}
