// SPDX-License-Identifier: Apache-2.0
//! MAC addresses of interfaces without a configured one.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use quietwire_packet::MacAddress;
use sha2::{Digest, Sha256};

/// Separates these hashes from other uses of the machine ID. A change of it changes all derived addresses.
const PURPOSE: &[u8] = b"quietwire interface address";

/// Returns the MAC address of an interface, derived from the machine ID, the control socket of the switch and the name of the interface:
/// unicast, locally administered, `02:` and the first 40 bits of a SHA-256 digest (FIPS 180-4). The address is the same after a restart, on
/// every compiler and in every later version.
///
/// A cryptographic hash, because the machine ID must not be recoverable from what is sent to networks (machine-id(5)). None of the inputs
/// contains an octet 0, which separates them.
pub(crate) fn derived_mac(machine_id: &str, control_socket: &Path, interface: &str) -> MacAddress {
    let mut hash = Sha256::new();
    hash.update(PURPOSE);
    for input in [
        machine_id.trim().as_bytes(),
        control_socket.as_os_str().as_bytes(),
        interface.as_bytes(),
    ] {
        hash.update([0]);
        hash.update(input);
    }
    let digest: [u8; 32] = hash.finalize().into();
    let [a, b, c, d, e, ..] = digest;
    MacAddress([0x02, a, b, c, d, e])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses made by another implementation of SHA-256 (Python's hashlib). A change of one of them changes the addresses of users.
    #[test]
    fn derived_addresses_are_those_of_the_specified_hash() {
        const MACHINE: &str = "0123456789abcdef0123456789abcdef";
        const SOCKET: &str = "/run/quietwire/switch.sock";
        for (machine, socket, interface, address) in [
            ("", "", "", "02:95:42:bf:25:31"),
            (MACHINE, SOCKET, "uplink", "02:3c:de:70:33:80"),
            (MACHINE, SOCKET, "uplink2", "02:bb:89:4c:2d:05"),
            (
                MACHINE,
                "/run/quietwire/other.sock",
                "uplink",
                "02:d2:2c:5f:ff:19",
            ),
            (
                "1123456789abcdef0123456789abcdef\n",
                SOCKET,
                "uplink",
                "02:52:17:61:12:bb",
            ),
        ] {
            let derived = derived_mac(machine, Path::new(socket), interface);
            assert_eq!(derived.to_string(), address);
            assert!(derived.is_local() && !derived.is_multicast());
        }
    }
}
