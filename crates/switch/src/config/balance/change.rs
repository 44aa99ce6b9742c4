// SPDX-License-Identifier: Apache-2.0
//! Run-time changes of load balancers.

use std::net::SocketAddr;

use super::{BackendSetting, LoadBalancerSetting};
use crate::config::edit::{absent, from_request, remove, wrong};
use crate::config::settings::Settings;
use crate::error::SwitchError;

impl Settings {
    pub(in crate::config) fn add_load_balancer(&mut self, setting: LoadBalancerSetting) {
        let all = self.load_balancers.get_or_insert_default();
        all.push(from_request(setting));
    }

    pub(in crate::config) fn del_load_balancer(&mut self, name: &str) -> Result<(), SwitchError> {
        let all = self.load_balancers.get_or_insert_default();
        remove(all, "load balancer", name, |one| &one.name)
    }

    fn backends_of(&mut self, name: &str) -> Result<&mut Vec<BackendSetting>, SwitchError> {
        let mut all = self.load_balancers.get_or_insert_default().iter_mut();
        let found = all.find(|one| one.value.name == name);
        found
            .map(|one| &mut one.value.backends)
            .ok_or_else(|| absent("load balancer", name))
    }

    pub(in crate::config) fn add_backend(
        &mut self,
        name: &str,
        backend: BackendSetting,
    ) -> Result<(), SwitchError> {
        self.backends_of(name)?.push(backend);
        Ok(())
    }

    /// Changes the weight and the state of a backend, if they are given.
    pub(in crate::config) fn set_backend(
        &mut self,
        name: &str,
        backend: BackendSetting,
    ) -> Result<(), SwitchError> {
        let mut all = self.backends_of(name)?.iter_mut();
        let found = all.find(|one| one.to == backend.to);
        let one = found.ok_or_else(|| no_backend(name, backend.to))?;
        one.weight = backend.weight.or(one.weight);
        one.state = backend.state.or(one.state);
        Ok(())
    }

    pub(in crate::config) fn del_backend(
        &mut self,
        name: &str,
        to: SocketAddr,
    ) -> Result<(), SwitchError> {
        let all = self.backends_of(name)?;
        let before = all.len();
        all.retain(|one| one.to != to);
        if all.len() == before {
            return Err(no_backend(name, to));
        }
        Ok(())
    }
}

fn no_backend(name: &str, to: SocketAddr) -> SwitchError {
    wrong(
        &format!("load-balancer '{name}'"),
        format!("no such backend: {to} (see `switch show load-balancers`)"),
    )
}
