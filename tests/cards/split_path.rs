// SPDX-License-Identifier: Apache-2.0
//! Frames of cards that the kernel and the switch share: by a tap for a card with a DPDK driver, and by an XDP program on the interface of a
//! card with the kernel's driver.

use crate::guest::Model::Igb;
use crate::guest::{CardGuest, repeat_if_qemu_fails};
use crate::{frames, frames_to, ports, rule_of};

/// Frames of a step.
const FRAMES: u32 = 20;
/// MAC address of the first card, to which frames for its kernel go.
const FIRST_CARD: [u8; 6] = [0x52, 0x54, 0, 0, 0, 0];

/// Adds a steering rule about UDP frames to a port.
fn steer(guest: &mut CardGuest, name: &str, port: &str, destination_port: u16, more: &str) {
    guest.run(&format!(
        "quietwire switch steer add {name} --port {port} --to switch --protocol udp \
         --destination-port {destination_port} {more}"
    ));
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn a_tap_gives_the_kernel_the_frames_of_a_card_that_no_rule_steers() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, Igb]);
        guest.bind_all();
        guest.run("modprobe tun");
        let mut ports = ports(&guest, "");
        ports.push(("k", "tap:kernel0".to_owned()));
        guest.switch(&ports, "--cross-connect a,b");
        for name in ["a", "b"] {
            guest.port_becomes(name, "up");
        }
        let received = |guest: &mut CardGuest| {
            let text = guest.run("cat /sys/class/net/kernel0/statistics/rx_packets");
            text.trim().parse::<u32>().unwrap()
        };
        // The frames have this destination port.
        steer(&mut guest, "steered", "a", 7777, "--kernel-port k");
        guest.wires[0].carries(&guest.wires[1], &frames(FRAMES, 1514));
        let rule = rule_of(&mut guest, "a").unwrap();
        assert_eq!(rule["frames"], FRAMES, "{rule}");
        assert_eq!(received(&mut guest), 0);
        // Without their rule, the kernel gets them.
        steer(&mut guest, "other", "a", 7778, "--kernel-port k");
        guest.run("quietwire switch steer del steered");
        let sent = frames(FRAMES, 1514);
        let carried = guest.wires[0].carry(&guest.wires[1], &sent, sent.len());
        assert_eq!(carried.frames.len(), 0);
        assert_eq!(received(&mut guest), FRAMES);
        guest.wires[1].carries(&guest.wires[0], &frames(FRAMES, 1514));
        guest.stop_switch();
    });
}

/// Waits until interfaces have a link: the driver loses it when an XDP program is attached or detached.
fn have_links(guest: &mut CardGuest, interfaces: &[String]) {
    for interface in interfaces {
        guest.until(&format!("grep -q 1 /sys/class/net/{interface}/carrier"));
    }
}

/// Checks whether each interface is in promiscuous mode.
fn are_promiscuous(guest: &mut CardGuest, interfaces: &[String], expected: bool) {
    for interface in interfaces {
        let shown = guest.run(&format!("/usr/sbin/ip -details link show {interface}"));
        let users = format!("promiscuity {} ", u8::from(expected));
        assert!(shown.contains(&users), "no '{users}': {shown}");
    }
}

/// Checks that `doctor` shows both texts about network cards: facts, or a problem and its remedy.
fn doctor_shows(guest: &mut CardGuest, texts: [String; 2]) {
    let (_, shown) = guest.try_run("quietwire doctor");
    let words: Vec<&str> = shown.split_whitespace().collect();
    let shown = words.join(" ");
    for text in texts {
        assert!(shown.contains(&text), "no '{text}': {shown}");
    }
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn the_kernel_and_the_switch_share_the_interface_of_a_card() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, Igb]);
        guest.run("modprobe igb");
        let mut interfaces = Vec::new();
        for address in guest.addresses.clone() {
            let interface = guest.until(&format!("ls /sys/bus/pci/devices/{address}/net"));
            interfaces.push(interface.trim().to_owned());
        }
        let (address, interface) = (guest.addresses[0].clone(), interfaces[0].clone());
        doctor_shows(
            &mut guest,
            [
                format!("{address} has its interface {interface} set down"),
                format!("ip link set {interface} up"),
            ],
        );
        for interface in &interfaces {
            guest.run(&format!("/usr/sbin/ip link set {interface} up"));
        }
        have_links(&mut guest, &interfaces);
        doctor_shows(
            &mut guest,
            [
                format!("{address}: {interface}, igb, of the kernel, node "),
                format!("link of {interface} up"),
            ],
        );
        // The kernel counts the frames of the test that it gets: they have this destination, and no socket.
        guest.run(&format!(
            "/usr/sbin/ip address add 192.0.2.1/24 dev {}",
            interfaces[0]
        ));
        let without_socket = |guest: &mut CardGuest| {
            let text = guest.run("busybox awk '/^Udp: [0-9]/ { print $3 }' /proc/net/snmp");
            text.trim().parse::<u32>().unwrap()
        };
        // The card may deliver a flow to any of its queues.
        let mut uris = Vec::new();
        for (name, interface) in ["a", "b"].into_iter().zip(&interfaces) {
            let queues = guest.run(&format!("ls -d /sys/class/net/{interface}/queues/rx-*"));
            let queues = queues.lines().count();
            uris.push((name, format!("af-xdp:{interface}?queues={queues}")));
        }
        are_promiscuous(&mut guest, &interfaces, false);
        guest.switch(&uris, "--cross-connect a,b");
        for name in ["a", "b"] {
            guest.port_becomes(name, "up");
            steer(&mut guest, &format!("steered-{name}"), name, 7777, "");
        }
        have_links(&mut guest, &interfaces);
        are_promiscuous(&mut guest, &interfaces, true);
        let sent = frames_to(FIRST_CARD);
        let before = without_socket(&mut guest);
        guest.wires[0].carries(&guest.wires[1], &sent);
        guest.wires[1].carries(&guest.wires[0], &sent);
        assert_eq!(without_socket(&mut guest), before);
        // This card's driver has no n-tuple rules. Nothing is changed then.
        let (code, output) = guest.try_run(
        "quietwire switch steer add voice --port a --to switch --queue 0 --protocol udp --destination-port 5060 2>&1",
    );
        assert_ne!(code, Some(0), "{output}");
        let reason = format!("flow rules of interface '{}'", interfaces[0]);
        assert!(output.contains(&reason), "{output}");
        let shown = guest.run("quietwire switch steer show");
        assert!(!shown.contains("voice"), "{shown}");
        // The rules stay when the link is lost and returns.
        let carrier = format!("/sys/class/net/{interface}/carrier");
        guest.monitor.set_link(0, false);
        guest.until(&format!("grep -q 0 {carrier}"));
        doctor_shows(
            &mut guest,
            [
                format!("{address} has no link at {interface}"),
                format!("`ethtool {interface}` shows the state"),
            ],
        );
        guest.monitor.set_link(0, true);
        guest.until(&format!("grep -q 1 {carrier}"));
        guest.wires[0].carries(&guest.wires[1], &sent);
        // Without its rule, the kernel gets a flow.
        steer(&mut guest, "other", "a", 7778, "");
        guest.run("quietwire switch steer del steered-a");
        let before = without_socket(&mut guest);
        let carried = guest.wires[0].carry(&guest.wires[1], &sent, sent.len());
        assert_eq!(carried.frames.len(), 0);
        assert_eq!(without_socket(&mut guest), before + FRAMES);
        // A killed switch leaves the interface to the kernel.
        guest.run("kill -9 $(cat /tmp/switch.pid)");
        guest.stop_switch();
        for interface in &interfaces {
            guest.until(&format!(
                "! /usr/sbin/ip -details link show {interface} | grep -q prog/xdp"
            ));
        }
        have_links(&mut guest, &interfaces);
        are_promiscuous(&mut guest, &interfaces, false);
        let before = without_socket(&mut guest);
        let carried = guest.wires[0].carry(&guest.wires[1], &sent, sent.len());
        assert_eq!(carried.frames.len(), 0);
        assert_eq!(without_socket(&mut guest), before + FRAMES);
    });
}
