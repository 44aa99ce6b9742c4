// SPDX-License-Identifier: Apache-2.0
//! Devices that do not support `[application]`.

use quietwire_lab::topology::LinkKind;

use super::super::limits::{Checked, fault};
use super::super::locate::At::{Index, Key};
use super::super::study_file::StudyFile;

/// Checks that applications can use the ports of every device.
pub(super) fn application(file: &StudyFile) -> Checked {
    if file.application.is_none() {
        return Ok(());
    }
    for (index, case) in file.cases.iter().enumerate() {
        // Reported by another check.
        let Ok(graph) = file.device_of(case).graph() else {
            continue;
        };
        let is_outer =
            |link: &&quietwire_lab::topology::Link| link.ends.iter().any(|end| end.element == 0);
        let mut outer = graph.links.iter().filter(is_outer);
        if !outer.all(|link| link.kind == LinkKind::Veth) {
            return fault(
                &[Key("case"), Index(index)],
                "[application] requires kernel interfaces, and the device of this case has none on its outer links (set link = \"veth\")",
            );
        }
    }
    Ok(())
}
