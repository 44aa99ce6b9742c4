// SPDX-License-Identifier: Apache-2.0
//! A guest that gives the device I/O virtual addresses: its IOMMU has every frame's buffers mapped when the driver offers them, and
//! unmapped when they come back. The port learns of both by messages of QEMU's.

use crate::downloads::{Case, PLAIN};

/// Prints the kind of the card's domain (Linux, Documentation/ABI/testing/sysfs-kernel-iommu_groups).
const SHOW_DOMAIN: &str = r#"
echo "DOMAIN [$(cat /sys/class/net/eth0/device/../iommu_group/type)]"
"#;

#[test]
fn a_guest_behind_an_iommu_sends_and_receives() {
    Case {
        name: "iommu",
        // Each frame takes several messages between QEMU and the switch.
        octets: 2 << 20,
        port: "?iommu=on",
        // Only devices that ask for translations (ATS) hear of those that end.
        card: ",iommu_platform=on,ats=on,disable-legacy=on",
        // Strict: what is unmapped is invalidated at once, not with others later.
        kernel_options: "intel_iommu=on iommu.strict=1",
        arguments: &[
            "-device",
            "intel-iommu,intremap=off,device-iotlb=on,caching-mode=on",
        ],
        script: SHOW_DOMAIN,
        // Of translated domains, one with a flush queue would be 'DMA-FQ'.
        shows: "DOMAIN [DMA]",
        has: &["access-platform", "version-1"],
        ..PLAIN
    }
    .run();
}
