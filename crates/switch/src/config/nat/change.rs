// SPDX-License-Identifier: Apache-2.0
//! Run-time changes of NAT.

use std::net::{IpAddr, Ipv4Addr};

use super::{NatSetting, PublishProtocol, PublishSetting, first_ipv4};
use crate::config::edit::{absent, from_request, remove, wrong};
use crate::config::settings::Settings;
use crate::error::SwitchError;

impl Settings {
    pub(in crate::config) fn add_nat(&mut self, nat: NatSetting) {
        self.nats.get_or_insert_default().push(from_request(nat));
    }

    pub(in crate::config) fn del_nat(&mut self, name: &str) -> Result<(), SwitchError> {
        let nats = self.nats.get_or_insert_default();
        remove(nats, "NAT", name, |nat| &nat.name)
    }

    fn nat(&mut self, name: &str) -> Result<&mut NatSetting, SwitchError> {
        let mut nats = self.nats.get_or_insert_default().iter_mut();
        let nat = nats.find(|one| one.value.name == name);
        nat.map(|one| &mut one.value)
            .ok_or_else(|| absent("NAT", name))
    }

    /// Adds an external address behind those of a NAT, which keeps its mappings.
    pub(in crate::config) fn add_nat_address(
        &mut self,
        name: &str,
        address: IpAddr,
    ) -> Result<(), SwitchError> {
        let first = self.default_address(name)?;
        let nat = self.nat(name)?;
        if nat.is_ipv6() != address.is_ipv6() {
            let version = if nat.is_ipv6() { "IPv6" } else { "IPv4" };
            let what = format!(
                "{address} cannot be added: all addresses of the NAT are of {version} (use such an address, or another NAT)"
            );
            return Err(wrong(&format!("nat '{name}'"), what));
        }
        if nat.addresses.is_empty() {
            nat.addresses.extend(first.map(IpAddr::V4));
        }
        nat.addresses.push(address);
        Ok(())
    }

    /// Returns the first IPv4 address of the outside interface of a NAT.
    fn default_address(&mut self, name: &str) -> Result<Option<Ipv4Addr>, SwitchError> {
        let outside = self.nat(name)?.interface.clone();
        let mut interfaces = self.interfaces.iter().flatten();
        let interface = interfaces.find(|one| one.value.name == outside);
        Ok(interface.and_then(|one| first_ipv4(&one.value.addresses)))
    }

    pub(in crate::config) fn add_publish(
        &mut self,
        nat: &str,
        publish: PublishSetting,
    ) -> Result<(), SwitchError> {
        self.nat(nat)?.publish.push(publish);
        Ok(())
    }

    pub(in crate::config) fn del_publish(
        &mut self,
        nat: &str,
        protocol: PublishProtocol,
        port: u16,
        address: Option<IpAddr>,
    ) -> Result<(), SwitchError> {
        let publish = &mut self.nat(nat)?.publish;
        let before = publish.len();
        publish.retain(|one| (one.protocol, one.port, one.address) != (protocol, port, address));
        if publish.len() == before {
            let what =
                format!("{protocol} port {port} is not published (see `switch show config`)");
            return Err(wrong(&format!("nat '{nat}'"), what));
        }
        Ok(())
    }
}
