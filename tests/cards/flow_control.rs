// SPDX-License-Identifier: Apache-2.0
//! Flow control that ports set on their cards. Emulated cards negotiate it with a link partner that obeys and sends PAUSE frames.

use crate::guest::Model::{E1000e, Igb, Virtio, Vmxnet3};
use crate::guest::{CardGuest, repeat_if_qemu_fails};
use crate::{frames, ports};

/// Deletes the first two ports, and adds them again with options of their URIs. Waits until they have a link, and returns what their drivers
/// report then.
fn opened_again(guest: &mut CardGuest, options: &str) -> [String; 2] {
    let uris = ports(guest, options);
    for (name, uri) in &uris[..2] {
        guest.run(&format!(
            "quietwire switch del port {name} && quietwire switch add port {name} '{uri}'"
        ));
    }
    guest.run("quietwire switch add cross-connect a b");
    ["a", "b"].map(|name| mode_of(guest, name))
}

/// Returns the flow control of a port with a link.
fn mode_of(guest: &mut CardGuest, name: &str) -> String {
    let port = guest.port_becomes(name, "up");
    let mode = port["flow_control"].as_str();
    mode.unwrap_or_else(|| panic!("no flow control: {port}"))
        .to_owned()
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn ports_set_the_flow_control_of_their_cards() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, E1000e, Virtio, Vmxnet3]);
        guest.bind_all();
        guest.switch(
            &ports(&guest, ""),
            "--cross-connect a,b --cross-connect c,d",
        );
        let by_default = ["a", "b"].map(|name| mode_of(&mut guest, name));
        assert!(
            by_default.iter().all(|mode| mode != "off"),
            "{by_default:?}"
        );
        for mode in ["off", "rx", "on"] {
            let reported = opened_again(&mut guest, &format!("?flow-control={mode}"));
            assert_eq!(reported, [mode; 2]);
            let shown = guest.run("quietwire switch show ports");
            for name in ["a", "b"] {
                let line = format!("{name}: flow control {mode}");
                assert!(shown.contains(&line), "no '{line}': {shown}");
            }
            guest.wires[0].carries(&guest.wires[1], &frames(20, 1514));
            guest.wires[1].carries(&guest.wires[0], &frames(20, 1514));
        }
        // The next port without the option has the default of the driver again.
        opened_again(&mut guest, "?flow-control=off");
        assert_eq!(opened_again(&mut guest, ""), by_default);
        let log = guest.log();
        assert!(!log.contains("cannot restore flow control"), "{log}");
        // Drivers without flow control refuse it, which costs no other port.
        for (card, name) in [(2, "c"), (3, "d")] {
            let port = guest.port_becomes(name, "up");
            assert!(port.get("flow_control").is_none(), "{port}");
            let uri = format!("pci:{}?flow-control=off", guest.addresses[card]);
            let (code, output) = guest.try_run(&format!(
                "quietwire switch del port {name} && quietwire switch add port {name} '{uri}' 2>&1"
            ));
            assert_ne!(code, Some(0), "{name}: {output}");
            assert!(output.contains("setting flow control"), "{name}: {output}");
        }
        guest.wires[0].carries(&guest.wires[1], &frames(20, 1514));
        guest.stop_switch();
    });
}
