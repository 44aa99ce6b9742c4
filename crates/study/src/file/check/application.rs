// SPDX-License-Identifier: Apache-2.0
//! What `[application]` may get wrong.

use quietwire_lab::topology::LinkKind;
use quietwire_tester::echo::{PAYLOAD_MAX, PAYLOAD_MIN};

use super::super::locate::At::{Index, Key};
use super::super::study_file::StudyFile;
use super::limits::{Checked, between, fault};

/// Longest run of either, seconds.
const DURATION_S_MAX: u32 = 3600;
/// Most connections: iperf3's own limit.
const STREAMS_MAX: u32 = 128;

/// Sound numbers, and devices whose ports an application can have.
pub(super) fn application(file: &StudyFile) -> Checked {
    let Some(plan) = &file.application else {
        return Ok(());
    };
    let at = |key| [Key("application"), Key(key)];
    between(plan.tcp_s, 1, DURATION_S_MAX, &at("tcp-s"))?;
    between(plan.echo_s, 1, DURATION_S_MAX, &at("echo-s"))?;
    between(u32::from(plan.streams), 1, STREAMS_MAX, &at("streams"))?;
    let payload = u32::from(plan.payload);
    between(
        payload,
        u32::from(PAYLOAD_MIN),
        u32::from(PAYLOAD_MAX),
        &at("payload"),
    )?;
    for (index, case) in file.cases.iter().enumerate() {
        // What makes no sense was told before.
        let Ok(graph) = file.device_of(case).graph() else {
            continue;
        };
        let is_outer =
            |link: &&quietwire_lab::topology::Link| link.ends.iter().any(|end| end.element == 0);
        let mut outer = graph.links.iter().filter(is_outer);
        if !outer.all(|link| link.kind == LinkKind::Veth) {
            return fault(
                &[Key("case"), Index(index)],
                "applications talk through interfaces of the kernel's, and this case's device has none on its outer links; choose link = \"veth\"",
            );
        }
    }
    Ok(())
}
