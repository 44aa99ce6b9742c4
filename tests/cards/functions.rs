// SPDX-License-Identifier: Apache-2.0
//! Virtual functions that ports create.

use crate::guest::Model::Igb;
use crate::guest::{CardGuest, repeat_if_qemu_fails};
use crate::{FUNCTION_MAC, create_functions, frames, frames_to_function};

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn ports_create_the_functions_of_their_card_and_delete_them() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, Igb]);
        let other = guest.addresses[1].clone();
        guest.bind(std::slice::from_ref(&other));
        // The addresses of functions are those that the kernel gives them.
        let (_, first) = create_functions(&mut guest, 0);
        let card = format!("/sys/bus/pci/devices/{}", guest.addresses[0]);
        let second = guest.run(&format!("basename $(readlink {card}/virtfn1)"));
        let second = second.trim().to_owned();
        guest.run(&format!("echo 0 >{card}/sriov_numvfs"));
        let count = |guest: &mut CardGuest| {
            let text = guest.run(&format!("cat {card}/sriov_numvfs"));
            text.trim().parse::<u32>().unwrap()
        };
        assert_eq!(count(&mut guest), 0);
        let uri = format!("pci:{first}?functions=2&mac={FUNCTION_MAC}&spoof-check=off");
        let ports = [("a", uri), ("b", format!("pci:{other}"))];
        guest.switch(&ports, "--cross-connect a,b");
        for name in ["a", "b"] {
            guest.port_becomes(name, "up");
        }
        assert_eq!(count(&mut guest), 2);
        guest.wires[0].carries(&guest.wires[1], &frames_to_function());
        guest.wires[1].carries(&guest.wires[0], &frames(20, 1514));
        // Another port has the other function. The functions stay until both ports are closed.
        guest.run(&format!(
            "quietwire switch add port c 'pci:{second}?functions=2'"
        ));
        guest.port_becomes("c", "up");
        guest.run("quietwire switch del port a");
        assert_eq!(count(&mut guest), 2);
        guest.run("quietwire switch del port c");
        guest.until(&format!("grep -qx 0 {card}/sriov_numvfs"));
        guest.stop_switch();
        // The next switch uses the functions of a killed one again. Otherwise, they stay until they are cleaned up.
        guest.switch(&ports, "--cross-connect a,b");
        guest.port_becomes("a", "up");
        guest.run("kill -9 $(cat /tmp/switch.pid)");
        guest.stop_switch();
        assert_eq!(count(&mut guest), 2);
        guest.switch(&ports, "--cross-connect a,b");
        for name in ["a", "b"] {
            guest.port_becomes(name, "up");
        }
        assert_eq!(count(&mut guest), 2);
        guest.wires[0].carries(&guest.wires[1], &frames_to_function());
        guest.run("kill -9 $(cat /tmp/switch.pid)");
        guest.stop_switch();
        let cleaned = guest.run("quietwire lab clean --state-directory /tmp/lab");
        assert!(cleaned.contains(&first), "{cleaned}");
        assert_eq!(count(&mut guest), 0);
    });
}
