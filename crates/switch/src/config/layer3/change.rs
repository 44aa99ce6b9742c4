// SPDX-License-Identifier: Apache-2.0
//! Run-time changes of VRFs, router interfaces and kernel filters.

use super::{InterfaceSetting, VRF_MAIN, VrfSetting};
use crate::config::edit::{absent, from_request, remove, replace};
use crate::config::kernel_filter::KernelFilterSetting;
use crate::config::location::Located;
use crate::config::settings::Settings;
use crate::error::SwitchError;

impl Settings {
    pub(in crate::config) fn add_vrf(&mut self, vrf: VrfSetting) {
        self.vrfs.get_or_insert_default().push(from_request(vrf));
    }

    pub(in crate::config) fn del_vrf(&mut self, name: &str) -> Result<(), SwitchError> {
        let vrfs = self.vrfs.get_or_insert_default();
        remove(vrfs, "VRF", name, |vrf| &vrf.name)
    }

    pub(in crate::config) fn set_vrf(&mut self, value: VrfSetting) -> Result<(), SwitchError> {
        let vrfs = self.vrfs.get_or_insert_default();
        match vrfs.iter_mut().find(|one| one.value.name == value.name) {
            Some(vrf) => *vrf = from_request(value),
            // The main VRF exists even if the configuration does not name it.
            None if value.name == VRF_MAIN => vrfs.push(from_request(value)),
            None => return Err(absent("VRF", &value.name)),
        }
        Ok(())
    }

    pub(in crate::config) fn add_interface(&mut self, interface: InterfaceSetting) {
        self.interfaces
            .get_or_insert_default()
            .push(from_request(interface));
    }

    pub(in crate::config) fn set_interface(
        &mut self,
        interface: InterfaceSetting,
    ) -> Result<(), SwitchError> {
        let interfaces = self.interfaces.get_or_insert_default();
        replace(interfaces, "interface", interface, |one| &one.name)
    }

    pub(in crate::config) fn del_interface(&mut self, name: String) -> Result<(), SwitchError> {
        let interfaces = self.interfaces.get_or_insert_default();
        remove(interfaces, "interface", &name, |interface| &interface.name)?;
        self.forget_filters(&[name]);
        Ok(())
    }

    /// Removes the interfaces on a port.
    pub(in crate::config) fn forget_interfaces_of(&mut self, port: &str) {
        let interfaces = self.interfaces.get_or_insert_default();
        let is_on_port = |interface: &mut Located<InterfaceSetting>| {
            interface.value.port.as_deref() == Some(port)
        };
        let gone = interfaces.extract_if(.., is_on_port);
        let gone: Vec<String> = gone.map(|interface| interface.value.name).collect();
        self.forget_filters(&gone);
    }

    pub(in crate::config) fn add_kernel_filter(&mut self, filter: KernelFilterSetting) {
        self.kernel_filters
            .get_or_insert_default()
            .push(from_request(filter));
    }

    pub(in crate::config) fn del_kernel_filter(&mut self, name: &str) -> Result<(), SwitchError> {
        let filters = self.kernel_filters.get_or_insert_default();
        remove(filters, "kernel filter", name, |filter| &filter.name)
    }

    /// Removes the kernel filters of interfaces.
    fn forget_filters(&mut self, interfaces: &[String]) {
        if let Some(filters) = &mut self.kernel_filters {
            filters.retain(|filter| {
                let interface = filter.value.interface.as_ref();
                interface.is_none_or(|interface| !interfaces.contains(interface))
            });
        }
    }
}
