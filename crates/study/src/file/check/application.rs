// SPDX-License-Identifier: Apache-2.0
//! Devices that `[application]` cannot be measured on.

use quietwire_lab::topology::LinkKind;

use super::super::limits::{Checked, fault};
use super::super::locate::At::{Index, Key};
use super::super::study_file::StudyFile;

/// Devices whose ports an application can have.
pub(super) fn application(file: &StudyFile) -> Checked {
    if file.application.is_none() {
        return Ok(());
    }
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
