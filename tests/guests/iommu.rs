// SPDX-License-Identifier: Apache-2.0
//! A guest that passes I/O virtual addresses to the device: its driver maps every frame's buffers in the IOMMU when it
//! offers them, and unmaps them when they return. QEMU reports both to the port by messages.

use crate::downloads::{Case, PLAIN};

/// Prints the kind of the card's domain (Linux, Documentation/ABI/testing/sysfs-kernel-iommu_groups).
const SHOW_DOMAIN: &str = r#"
echo "DOMAIN [$(cat /sys/class/net/eth0/device/../iommu_group/type)]"
"#;

#[test]
fn a_guest_behind_an_iommu_sends_and_receives() {
    run(1);
}

#[test]
#[ignore = "takes half a minute where guests are emulated; make test-labs runs it"]
fn guests_behind_an_iommu_send_and_receive_one_after_the_other() {
    run(2);
}

fn run(guests: usize) {
    Case {
        name: "iommu",
        guests,
        // Each frame requires several messages between QEMU and the switch.
        octets: 2 << 20,
        port: "?iommu=on",
        // Only devices that request translations (ATS) are notified of invalidations.
        card: ",iommu_platform=on,ats=on,disable-legacy=on",
        // Strict: unmapped buffers are invalidated immediately, not in batches.
        kernel_options: "intel_iommu=on iommu.strict=1",
        arguments: &[
            "-device",
            "intel-iommu,intremap=off,device-iotlb=on,caching-mode=on",
        ],
        script: SHOW_DOMAIN,
        // A translated domain with a flush queue would be 'DMA-FQ'.
        shows: "DOMAIN [DMA]",
        has: &["access-platform", "version-1"],
        ..PLAIN
    }
    .run();
}
