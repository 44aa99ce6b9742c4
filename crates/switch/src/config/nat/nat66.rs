// SPDX-License-Identifier: Apache-2.0
//! NAT66: a `[[nat]]` with external addresses of IPv6.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use quietwire_tables::nat::Forward;
use quietwire_tables::nat66::Nat66Settings;

use super::{MAX_HOSTS, NatSetting};
use crate::config::layer3::InterfacePlan;

fn ipv6_of(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(address),
    }
}

/// Returns true for an address that can be an external one.
pub(super) fn is_unicast(address: Ipv6Addr) -> bool {
    !address.is_multicast()
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_unicast_link_local()
        && address.to_ipv4_mapped().is_none()
}

impl NatSetting {
    /// Returns true if IPv6 packets are translated to other ones.
    pub(crate) fn is_ipv6(&self) -> bool {
        self.addresses.first().is_some_and(IpAddr::is_ipv6)
    }

    /// Returns true if mappings have inside hosts of IPv6, those of NAT66 or NAT64.
    pub(crate) fn has_ipv6_hosts(&self) -> bool {
        self.is_ipv6() || self.nat64.is_some()
    }

    /// Returns the settings of NAT66, beside those of [`Self::tables`]; `None` for NAT of IPv4.
    pub(crate) fn nat66(&self) -> Option<Nat66Settings> {
        let externals = self.addresses.iter().copied().filter_map(ipv6_of);
        self.is_ipv6().then(|| Nat66Settings {
            externals: externals.collect(),
            hosts_max: self.max_hosts.unwrap_or(MAX_HOSTS),
        })
    }

    /// Returns the static forwards to IPv6 hosts, in ascending order.
    pub(crate) fn ipv6_forwards(&self) -> Vec<Forward<SocketAddrV6>> {
        let first = self.addresses.first().copied();
        let publish = self.publish.iter().filter_map(|one| {
            let SocketAddr::V6(internal) = one.to else {
                return None;
            };
            let address = ipv6_of(one.address.or(first)?)?;
            Some(Forward {
                protocol: one.protocol.of_mappings(),
                external: SocketAddrV6::new(address, one.port, 0, 0),
                internal,
            })
        });
        let mut forwards: Vec<_> = publish.collect();
        forwards.sort_unstable();
        forwards
    }
}

/// Checks that all addresses of an instance are of one version of IP, and that IPv6 has no key of IPv4.
pub(super) fn check_versions(setting: &NatSetting) -> Result<(), String> {
    let is_ipv6 = setting.is_ipv6();
    let publish = setting.publish.iter();
    let published = publish.flat_map(|one| one.address.into_iter().chain([one.to.ip()]));
    let mut all = setting.addresses.iter().copied().chain(published);
    let mut sources = setting.sources.iter().map(|net| net.addr());
    let is_other = |address: &IpAddr| address.is_ipv6() != is_ipv6;
    if let Some(other) = all.find(is_other).or_else(|| sources.find(is_other)) {
        let version = if is_ipv6 { "IPv6" } else { "IPv4" };
        return Err(format!(
            "{other} is not an address of {version}, as the external addresses are (use one NAT for each version of IP)"
        ));
    }
    if is_ipv6 && setting.nat64.is_some() {
        return Err("nat64 requires external addresses of IPv4 (use another NAT)".to_owned());
    }
    if is_ipv6 && !setting.one_to_one.is_empty() {
        return Err(
            "one-to-one translates IPv4 hosts (use prefix-translation of the interface)".to_owned(),
        );
    }
    Ok(())
}

/// Checks what an instance for IPv6 hosts requires beside its tables.
pub(super) fn check(setting: &NatSetting, interface: &InterfacePlan) -> Result<(), String> {
    if interface.prefix_translation.is_some() {
        return Err(format!(
            "interface '{}' has prefix-translation, which translates the same packets (remove one of them)",
            interface.name
        ));
    }
    let Some(nat66) = setting.nat66() else {
        return Ok(());
    };
    let checked = nat66.check(&setting.ipv6_forwards());
    checked.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::{Plan, Settings};

    const FILE: &str = r#"
forwarding-cpus = "1"
service-cpus = "0"
control-cpus = "0"
[[port]]
name = "in"
uri = "null:"
[[port]]
name = "out"
uri = "null:"
[[interface]]
name = "inside"
port = "in"
addresses = ["fd00:1::1/64", "10.0.0.1/24"]
[[interface]]
name = "outside"
port = "out"
addresses = ["2001:db8:f::1/64", "198.51.100.1/24"]
"#;
    const NAT: &str = r#"
[[nat]]
name = "ipv6"
interface = "outside"
addresses = ["2001:db8:f::1", "2001:db8:e::1"]
sources = ["fd00:1::/48"]
max-hosts = 7
[[nat.publish]]
protocol = "tcp"
port = 443
to = "[fd00:1::5]:8443"
[[nat.publish]]
protocol = "udp"
port = 53
to = "[fd00:1::6]:53"
address = "2001:db8:e::1"
"#;
    const NAT44: &str = "[[nat]]\nname = \"ipv4\"\ninterface = \"outside\"\n";

    fn plan(text: &str) -> Result<Plan, String> {
        let settings = Settings::parse(Path::new("switch.toml"), text);
        let settings = settings.map_err(|error| error.to_string())?;
        let plan = settings.plan(&"0-3".parse().unwrap());
        plan.map_err(|error| error.to_string())
    }

    #[test]
    fn all_keys_lead_to_settings_of_the_tables_and_are_written_again() {
        // Beside NAT of IPv4 at the same interface.
        let planned = plan(&format!("{FILE}{NAT}{NAT44}[connections]\n")).unwrap();
        let [ipv6, ipv4] = &planned.nats[..] else {
            panic!("{:?}", planned.nats);
        };
        assert!(ipv6.is_ipv6() && !ipv4.is_ipv6() && ipv4.nat66().is_none());
        let nat66 = ipv6.nat66().unwrap();
        assert_eq!((nat66.externals.len(), nat66.hosts_max), (2, 7));
        let tables = ipv6.tables(&planned.layer3.interfaces[1]);
        let pool: Vec<String> = tables
            .pool
            .addresses
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(pool, ["0.0.0.0", "0.0.0.1"]);
        assert!(tables.forwards.is_empty());
        let forwards = ipv6.ipv6_forwards();
        let texts: Vec<String> = forwards
            .iter()
            .map(|one| format!("{} {}", one.external, one.internal))
            .collect();
        assert_eq!(
            texts,
            [
                "[2001:db8:f::1]:443 [fd00:1::5]:8443",
                "[2001:db8:e::1]:53 [fd00:1::6]:53"
            ]
        );
        let again = plan(&planned.to_toml().unwrap()).unwrap();
        assert_eq!(again.nats, planned.nats);
    }

    #[test]
    fn several_cpus_and_a_standby_share_an_instance() {
        let role = "[connections.replication]\nrole = \"active\"\nlisten = \"127.0.0.1:9476\"\n";
        let several = FILE.replace("forwarding-cpus = \"1\"", "forwarding-cpus = \"1-2\"");
        let planned = plan(&format!("{several}{NAT}{role}")).unwrap();
        assert!(planned.nats[0].is_ipv6());
    }

    #[test]
    fn two_vrfs_have_one_external_address_without_connection_tracking() {
        let second = r#"
[[vrf]]
name = "second"
[[port]]
name = "out2"
uri = "null:"
[[interface]]
name = "outside2"
port = "out2"
vrf = "second"
addresses = ["2001:db8:9::1/64"]
[[nat]]
name = "other"
interface = "outside2"
addresses = ["ADDRESS"]
"#;
        let same = second.replace("ADDRESS", "2001:db8:e::1");
        assert_eq!(plan(&format!("{FILE}{NAT}{same}")).unwrap().nats.len(), 2);
        let error = plan(&format!("{FILE}{NAT}{same}[connections]\n")).unwrap_err();
        assert!(error.starts_with("nat 'other': "), "{error}");
        let printed = "nat 'ipv6' of another VRF has the external address 2001:db8:e::1 too";
        assert!(error.contains(printed), "{error}");
        let different = second.replace("ADDRESS", "2001:db8:d::1");
        assert!(plan(&format!("{FILE}{NAT}{different}[connections]\n")).is_ok());
    }

    #[test]
    fn invalid_nat66_settings_are_refused_with_the_cure() {
        let with = |from: &str, to: &str| {
            let text = format!("{FILE}{NAT}");
            assert!(text.contains(from));
            text.replace(from, to)
        };
        for (text, printed) in [
            (
                with("2001:db8:e::1", "198.51.100.1"),
                "198.51.100.1 is not an address of IPv6",
            ),
            (
                with("\"fd00:1::/48\"", "\"10.0.0.0/24\""),
                "10.0.0.0 is not an address of IPv6",
            ),
            (
                with("[fd00:1::5]:8443", "10.0.0.5:8443"),
                "10.0.0.5 is not an address of IPv6",
            ),
            (
                format!("{FILE}{NAT44}sources = [\"fd00:1::/48\"]\n"),
                "fd00:1:: is not an address of IPv4",
            ),
            (
                with("max-hosts = 7", "nat64 = { prefix = \"64:ff9b::/96\" }"),
                "nat64 requires external addresses of IPv4",
            ),
            (
                format!(
                    "{FILE}{NAT}[[nat.one-to-one]]\ninside = \"10.0.0.9\"\noutside = \"203.0.113.9\"\n"
                ),
                "use prefix-translation",
            ),
            (with("max-hosts", "colour"), "colour"),
            (
                with("addresses = [\"2001:db8:f::1/64\", ", "addresses = ["),
                "interface 'outside' has no IPv6 address",
            ),
            (
                with("2001:db8:e::1", "2001:db8:f::2"),
                "add 2001:db8:f::2/128 to the addresses of interface 'outside'",
            ),
            (
                with("2001:db8:e::1", "fd00:1::1"),
                "is an address of interface 'inside'",
            ),
            (
                with("2001:db8:e::1", "fe80::1"),
                "fe80::1 is not a unicast address",
            ),
            (
                with("2001:db8:e::1", "2001:db8:f::1"),
                "2001:db8:f::1 is listed twice",
            ),
            (
                with("address = \"2001:db8:e::1\"", "address = \"2001:db8:d::1\""),
                "not an external address of the pool",
            ),
            (
                with("[fd00:1::5]:8443", "[ff02::1]:8443"),
                "not a unicast address of a host",
            ),
            (
                with("[fd00:1::6]:53", "[fd00:2::6]:53"),
                "nat 'ipv6': published host fd00:2::6 is not in sources",
            ),
            (
                with("\"fd00:1::/48\"", "\"::/0\"").replace("cpus = \"1\"", "cpus = \"1-2\""),
                "(list them, without ::/0, or use one CPU in forwarding-cpus)",
            ),
            (
                with(
                    "\"198.51.100.1/24\"]\n",
                    "\"198.51.100.1/24\"]\nprefix-translation = { inside = \"fd00:1::/48\", outside = \"2001:db8:1::/48\" }\n",
                ),
                "remove one of them",
            ),
        ] {
            let error = plan(&text).unwrap_err();
            assert!(error.contains(printed), "{printed}: {error}");
        }
    }

    #[test]
    fn a_nat_gets_further_addresses_behind_its_own() {
        let text = format!("{FILE}{NAT}");
        let settings = Settings::parse(Path::new("switch.toml"), &text).unwrap();
        let with = |address: &str| {
            let change = format!(r#"{{"add-nat-address":{{"nat":"ipv6","address":"{address}"}}}}"#);
            settings
                .clone()
                .after(serde_json::from_str(&change).unwrap())
        };
        let nat66 = |settings: Settings| {
            let plan = settings.plan(&"0-3".parse().unwrap()).unwrap();
            plan.nats[0].nat66().unwrap()
        };
        let (first, second) = (
            nat66(settings.clone()),
            nat66(with("2001:db8:d::1").unwrap()),
        );
        assert!(second.extends(&first));
        assert_eq!(second.externals[2].to_string(), "2001:db8:d::1");
        let error = with("203.0.113.1").unwrap_err().to_string();
        assert!(error.contains("are of IPv6 ("), "{error}");
    }
}
