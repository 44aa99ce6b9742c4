// SPDX-License-Identifier: Apache-2.0
//! Network cards of a case with the driver that DPDK requires. The case's journal returns them to their former drivers.

use std::path::Path;

use quietwire_host::files::Disk;
use quietwire_host::vfio::{self, Iommu};

use super::{Lab, being_entered};
use crate::error::LabError;

impl Lab {
    /// Binds network cards and virtual functions of the begun case, by their PCI addresses, to `vfio-pci`. Those with a driver that DPDK
    /// supports keep it. Returns every change. All are undone with the case.
    ///
    /// # Errors
    /// [`LabError::Card`]; the whole case is undone then.
    pub fn bind_cards(
        &mut self,
        addresses: &[String],
        iommu: Iommu,
    ) -> Result<Vec<String>, LabError> {
        let bound = self.bind(addresses, iommu);
        self.leave_on_error(bound)
    }

    fn bind(&mut self, addresses: &[String], iommu: Iommu) -> Result<Vec<String>, LabError> {
        let journal = &mut being_entered(&mut self.running)?.journal;
        let changes = vfio::bind(&Disk, Path::new("/"), journal, addresses, iommu)?;
        if iommu == Iommu::Optional && !changes.is_empty() {
            tracing::warn!(
                "network cards are bound even without an IOMMU: {}",
                changes.join("; ")
            );
        }
        Ok(changes)
    }
}
