// SPDX-License-Identifier: Apache-2.0
//! Tables of quietwire's router in a configuration file.

use quietwire_packet::MacAddress;
use quietwire_switch::config::layer3::{
    InterfaceSetting, NeighbourSetting, RouteSetting, ViaSetting,
};
use serde::Serialize;

use crate::guest::agent::protocol::Routing;

/// The tables of a router with an interface `i0`, `i1` and so on at each of the ports `p0`, `p1` and so on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RouterTables {
    pub(crate) interface: Vec<InterfaceSetting>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) route: Vec<RouteSetting>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) neighbour: Vec<NeighbourSetting>,
}

fn interface(port: usize) -> String {
    format!("i{port}")
}

impl RouterTables {
    /// Creates the tables. `mac_of` returns the MAC address of the interface at a port; the switch chooses it if it is `None`.
    pub(crate) fn of(routing: &Routing, mac_of: impl Fn(usize) -> Option<MacAddress>) -> Self {
        let interfaces = routing.addresses.iter();
        let interfaces = interfaces.map(|(port, addresses)| InterfaceSetting {
            name: interface(*port),
            port: Some(format!("p{port}")),
            bridge: None,
            vlan: None,
            addresses: addresses.clone(),
            vrf: None,
            mac: mac_of(*port),
            mtu: None,
            urpf: None,
            prefix_translation: None,
            kernel: None,
        });
        let routes = routing.routes.iter().map(|(prefix, gateway)| RouteSetting {
            prefix: *prefix,
            vrf: None,
            kind: None,
            via: vec![ViaSetting {
                address: Some(*gateway),
                interface: None,
                weight: None,
                onlink: false,
            }],
        });
        let neighbours = routing.neighbours.iter();
        let neighbours = neighbours.map(|(port, address, mac)| NeighbourSetting {
            interface: interface(*port),
            address: *address,
            mac: *mac,
        });
        Self {
            interface: interfaces.collect(),
            route: routes.collect(),
            neighbour: neighbours.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use quietwire_switch::config::Settings;

    use super::*;

    #[test]
    fn the_switch_accepts_the_generated_tables() {
        let address = |text: &str| text.parse().unwrap();
        let routing = Routing {
            addresses: [
                (0, vec!["10.0.0.1/24".parse().unwrap()]),
                (1, vec!["2001:db8::1/64".parse().unwrap()]),
            ]
            .into(),
            routes: vec![("10.9.0.0/16".parse().unwrap(), address("10.0.0.9"))],
            neighbours: vec![(
                0,
                address("10.0.0.9"),
                MacAddress::from_u64(0x0200_0000_0009),
            )],
        };
        let mac = MacAddress::from_u64(0x0200_0000_0001);
        let tables = RouterTables::of(&routing, |port| (port == 0).then_some(mac));
        let text = toml::to_string(&tables).unwrap();
        let read = Settings::parse(Path::new("routes.toml"), &text).unwrap();
        let interfaces = read.interfaces.unwrap();
        let interfaces: Vec<_> = interfaces.into_iter().map(|one| one.value).collect();
        assert_eq!(interfaces, tables.interface);
        assert_eq!([interfaces[0].mac, interfaces[1].mac], [Some(mac), None]);
        assert_eq!(interfaces[1].port.as_deref(), Some("p1"));
        let routes = read.routes.unwrap();
        assert_eq!(routes[0].value, tables.route[0]);
        let neighbours = read.neighbours.unwrap();
        assert_eq!(neighbours[0].value, tables.neighbour[0]);
        assert_eq!(neighbours[0].value.interface, "i0");
    }
}
