// SPDX-License-Identifier: Apache-2.0
//! Segmentation and checksums that the switch leaves to cards, on a path between two kernels. One of them is also behind vhost-user.

use crate::guest::Model::Igb;
use crate::guest::{CardGuest, repeat_if_qemu_fails};

/// Octets of the file that a kernel sends through cards. Segments have at most 1,460 octets of data.
const FILE: u64 = 8 << 20;
/// Shows where frames between the two kernels stay: counters of ports, queues and interfaces, addresses, routes and neighbours.
const STATE_OF_PATH: &str = "( quietwire switch show ports --json; quietwire switch show queues; quietwire switch show stats; \
     [ ! -e /tmp/peer.sock ] || quietwire switch show ports --json --control-socket /tmp/peer.sock; \
     for namespace in '' '-n far'; do for subject in '-s link' address route neigh; do \
     echo \"ip $namespace $subject\"; /usr/sbin/ip $namespace $subject; done; done; busybox ps ) 2>&1";

/// Connections of the ports `near` and `a`, and of `b` and `far`.
const PAIRS: &str = "--cross-connect near,a --cross-connect b,far";
const BRIDGES: &str = "--bridge one=near,a --bridge two=b,far";
/// The router has interfaces on `b` and `far`.
const ROUTED: &str = "--cross-connect near,a";
/// The port `guest` is a `vhost` port, and the far kernel is behind its driver's side.
const VHOST_USER: &str = "--cross-connect near,a --cross-connect b,guest";

/// Starts the switch with these options of its cards, and the driver's side of its `vhost` port, if it has one. That side is another
/// process, because a nested guest would take minutes to boot.
fn start(guest: &mut CardGuest, options: &str, connected: &str) {
    let [near, far] = [0, 1].map(|card| format!("pci:{}?{options}", guest.addresses[card]));
    let has_guest = connected == VHOST_USER;
    let beyond = if has_guest {
        ("guest", "vhost:/tmp/guest.sock?tso=on")
    } else {
        ("far", "tap:far0?netns=far")
    };
    guest.switch(
        &[
            ("near", "tap:near0".to_owned()),
            ("a", near),
            ("b", far),
            (beyond.0, beyond.1.to_owned()),
        ],
        connected,
    );
    guest.port_becomes("a", "up");
    guest.port_becomes("b", "up");
    if has_guest {
        guest.run(
            "quietwire switch run --huge-pages never --memory-mib 192 --idle sleep --forwarding-cpus 0 \
             --control-socket /tmp/peer.sock --port 'driver=virtio-user:/tmp/guest.sock?tso=on' \
             --port 'far=tap:far0?netns=far' --cross-connect driver,far \
             >/tmp/peer.log 2>&1 </dev/null & echo $! >/tmp/peer.pid",
        );
        guest.port_becomes("guest", "connected");
        guest.until("/usr/sbin/ip -n far link show far0");
    }
}

/// Ends the switches.
fn stop(guest: &mut CardGuest, connected: &str) {
    if connected == VHOST_USER {
        guest.run("kill $(cat /tmp/peer.pid)");
        guest.until("[ ! -e /proc/$(cat /tmp/peer.pid) ]");
        let denied = guest.run("grep 'seccomp filters of ' /tmp/peer.log || true");
        assert_eq!(denied.trim(), "");
    }
    guest.stop_switch();
}

/// Gives the kernels their addresses, and the router, if there is one. Returns the address of the far kernel.
fn add_addresses(guest: &mut CardGuest, connected: &str) -> &'static str {
    guest.run("/usr/sbin/ip address add 192.0.2.1/24 dev near0");
    if connected != ROUTED {
        guest.run("/usr/sbin/ip -n far address add 192.0.2.2/24 dev far0");
        return "192.0.2.2";
    }
    guest.run(
        "quietwire switch add interface to-near --port b --address 192.0.2.254/24 && \
         quietwire switch add interface to-far --port far --address 198.51.100.254/24 && \
         /usr/sbin/ip route add 198.51.100.0/24 via 192.0.2.254 && \
         /usr/sbin/ip -n far address add 198.51.100.2/24 dev far0 && \
         /usr/sbin/ip -n far route add default via 198.51.100.254",
    );
    "198.51.100.2"
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn a_card_cuts_the_data_of_a_kernel_as_the_switch_does() {
    repeat_if_qemu_fails(|| {
        // A cable connects the two cards. Behind each is a kernel: that of the namespace `far` sends a file.
        let mut guest = CardGuest::boot_connected(&[Igb, Igb], &[(0, 1)]);
        guest.bind_all();
        guest.run(&format!(
            "modprobe tun && mkdir -p /tmp/www && /usr/sbin/ip netns add far && \
         head -c {FILE} /dev/urandom >/tmp/www/file"
        ));
        // The card cuts the data, or it computes the checksums of segments that the switch cuts, or neither.
        for (options, connected, is_cut_by_card) in [
            ("tso=on", PAIRS, true),
            ("tso=off", BRIDGES, false),
            ("tso=off&checksum=off", PAIRS, false),
            ("tso=on", BRIDGES, true),
            ("tso=on", ROUTED, true),
            ("tso=on", VHOST_USER, true),
        ] {
            start(&mut guest, options, connected);
            let server = add_addresses(&mut guest, connected);
            guest.run(&format!(
                "(/usr/sbin/ip netns exec far busybox httpd -f -p {server}:80 -h /tmp/www \
             </dev/null >/dev/null 2>&1 & echo $! >/tmp/httpd.pid)"
            ));
            let ping = format!("busybox ping -c 1 -W 2 {server} 2>&1");
            guest.until_or_report(&ping, STATE_OF_PATH);
            let fetch =
                format!("timeout 60 busybox wget -q -O /tmp/copy http://{server}/file 2>&1");
            guest.until_or_report(&fetch, STATE_OF_PATH);
            guest.run("cmp /tmp/www/file /tmp/copy && kill $(cat /tmp/httpd.pid)");
            let (sender, receiver) = (guest.port("b"), guest.port("a"));
            let cut_by_card = sender["tx_tso_frames"].as_u64().unwrap();
            let case = format!("{options}, {connected}");
            assert_eq!(cut_by_card > 0, is_cut_by_card, "{case}: {sender}");
            // The other card has received segments.
            let received = receiver["rx_frames"].as_u64().unwrap();
            assert!(received > FILE / 1460, "{case}: {receiver}");
            stop(&mut guest, connected);
        }
    });
}
