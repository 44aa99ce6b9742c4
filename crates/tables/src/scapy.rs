// SPDX-License-Identifier: Apache-2.0
//! Test helpers: packets built by scapy, and our packets parsed by scapy.

use std::process::Command;

/// Returns the output of a Python script. `QUIETWIRE_PYTHON` names the interpreter that has scapy (`make test` sets it). The script sees
/// `octets` under that name.
pub(crate) fn printed(script: &str, octets: &[u8]) -> String {
    let python = std::env::var("QUIETWIRE_PYTHON")
        .expect("QUIETWIRE_PYTHON must name a Python with scapy; `make test` installs one");
    let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    let prelude = "import sys\nfrom scapy.layers.l2 import *\nfrom scapy.layers.inet import *\n\
                   from scapy.layers.inet6 import *\noctets = bytes.fromhex(sys.argv[1])\n";
    let output = Command::new(python)
        .args(["-c", &format!("{prelude}{script}"), &hex])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the octets of a packet in scapy notation.
pub(crate) fn built(packet: &str) -> Vec<u8> {
    let hex = printed(&format!("print(bytes({packet}).hex())"), &[]);
    let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(octet).collect()
}
