// SPDX-License-Identifier: Apache-2.0
//! CPU roles of pinned switches.

use std::path::Path;

use quietwire_host::inventory::Inventory;
use quietwire_host::roles::Roles;

use super::options::UpOptions;
use crate::error::LabError;

/// Checks that this machine has the CPUs of pinned switches.
///
/// # Errors
/// [`LabError::Roles`] with the CPUs and their role.
pub(super) fn check(options: &UpOptions) -> Result<(), LabError> {
    let elements = options.graph.elements.iter().zip(&options.cpus.elements);
    for (element, cpus) in elements {
        let Some(settings) = element.settings.as_ref().filter(|one| one.is_pinned) else {
            continue;
        };
        let roles = Roles {
            forwarding: cpus.clone(),
            service: settings.service_cpus.clone(),
            control: settings.control_cpus.clone(),
        };
        roles.validate(&Inventory::read(Path::new("/")))?;
    }
    Ok(())
}
