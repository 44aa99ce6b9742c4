// SPDX-License-Identifier: Apache-2.0
//! For tests: packets that scapy builds, and what it reads in ours.

use std::process::Command;

/// What a script prints. The Python that has scapy is named by `QUIETWIRE_PYTHON` (`make test` does). `octets` are there for
/// it by that name.
pub(crate) fn said(script: &str, octets: &[u8]) -> String {
    let python = std::env::var("QUIETWIRE_PYTHON")
        .expect("QUIETWIRE_PYTHON has to name a Python with scapy; `make test` installs one");
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

/// The octets of a packet that is written as scapy has it.
pub(crate) fn built(packet: &str) -> Vec<u8> {
    let hex = said(&format!("print(bytes({packet}).hex())"), &[]);
    let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(octet).collect()
}
