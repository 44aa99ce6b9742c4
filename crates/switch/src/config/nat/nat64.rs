// SPDX-License-Identifier: Apache-2.0
//! NAT64: `nat64 = { prefix = … }` of a `[[nat]]`.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use quietwire_tables::nat64::{MTU_MIN, Nat64Settings, Prefix64, Prefix64Error};
use serde::{Deserialize, Serialize};

use crate::config::layer3::{InterfacePlan, Layer3Plan, Urpf};

/// Maximum number of prefixes of clients.
const CLIENTS_MAX: usize = 64;
/// Highest MTU of interfaces.
const MTU_MAX: u16 = 9198;

/// NAT64: IPv6 clients reach IPv4 hosts by addresses of a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Nat64Setting {
    /// The prefix of IPv4 hosts (RFC 6052).
    pub prefix: Ipv6Net,
    /// Prefixes of clients. Default: all hosts that reach the router.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Ipv6Net>,
    /// Clients reach private IPv4 addresses too. Default: false. Never with the well-known prefix.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private_servers: bool,
    /// Longest IPv6 packet made of an IPv4 packet that may be fragmented, octets. Default: 1280.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

impl Nat64Setting {
    /// Returns the settings of the tables; `None` for a prefix that the check refuses.
    pub(crate) fn tables(&self, clients_max: u32) -> Option<Nat64Settings> {
        Some(Nat64Settings {
            prefix: self.prefix64().ok()?,
            clients: self.clients.clone(),
            clients_max,
        })
    }

    /// Returns the prefix with the IPv4 addresses that clients may reach.
    ///
    /// # Errors
    /// [`Prefix64Error`].
    pub(crate) fn prefix64(&self) -> Result<Prefix64, Prefix64Error> {
        let prefix = Prefix64::new(self.prefix)?;
        Ok(match self.private_servers {
            true => prefix,
            false => prefix.without_private(),
        })
    }

    /// Returns the MTU for packets that may be fragmented.
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu.unwrap_or(MTU_MIN)
    }
}

fn ipv6_address_of(interface: &InterfacePlan) -> Option<Ipv6Addr> {
    let mut nets = interface.addresses.iter();
    nets.find_map(|net| match net.addr() {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    })
}

/// Returns the interface that translated IPv6 packets seem to come from, and whose address errors about them have: the first of the VRF
/// with an IPv6 address and without reverse path check.
pub(crate) fn inside_of<'plan>(
    outside: &InterfacePlan,
    layer3: &'plan Layer3Plan,
) -> Option<&'plan InterfacePlan> {
    let mut of_vrf = layer3.interfaces.iter();
    of_vrf.find(|one| {
        one.vrf == outside.vrf && matches!(one.urpf, Urpf::Off) && ipv6_address_of(one).is_some()
    })
}

/// Checks NAT64 at an outside interface.
pub(super) fn check(
    setting: &Nat64Setting,
    outside: &InterfacePlan,
    layer3: &Layer3Plan,
) -> Result<(), String> {
    let prefix = setting
        .prefix64()
        .map_err(|error| format!("nat64: {error}"))?;
    if setting.clients.len() > CLIENTS_MAX {
        return Err(format!("nat64: too many clients (maximum: {CLIENTS_MAX})"));
    }
    let mtu = setting.mtu();
    if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
        return Err(format!(
            "nat64: mtu is {mtu} (allowed: {MTU_MIN} to {MTU_MAX})"
        ));
    }
    let mut of_vrf = layer3.interfaces.iter();
    let in_prefix = of_vrf.find_map(|one| {
        let nets = one.addresses.iter().filter(|_| one.vrf == outside.vrf);
        let mut own = nets.filter_map(|net| match net {
            IpNet::V6(net) => Some(net.addr()),
            IpNet::V4(_) => None,
        });
        let address = own.find(|address| prefix.contains(address.to_bits()))?;
        Some((one, address))
    });
    if let Some((interface, address)) = in_prefix {
        return Err(format!(
            "nat64: address {address} of interface '{}' is in the prefix {prefix}, and would be translated (use another prefix)",
            interface.name
        ));
    }
    if !matches!(outside.urpf, Urpf::Off) {
        return Err(format!(
            "nat64: the reverse path check of interface '{}' drops translated packets (set its urpf to \"off\")",
            outside.name
        ));
    }
    match inside_of(outside, layer3) {
        Some(_) => Ok(()),
        None => Err(
            "nat64: no interface of the VRF has an IPv6 address and urpf = \"off\" (add the address of the clients' router to one)"
                .to_owned(),
        ),
    }
}

impl Nat64Setting {
    /// Returns true if an address of one prefix can be of the other.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.prefix.contains(&other.prefix) || other.prefix.contains(&self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::Path;

    use super::Nat64Setting;
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
addresses = ["2001:db8:1::1/64"]
[[interface]]
name = "outside"
port = "out"
addresses = ["198.51.100.1/24"]
[[nat]]
name = "internet"
interface = "outside"
"#;
    const NAT64: &str = "nat64 = { prefix = \"64:ff9b::/96\" }\n";

    fn plan(text: &str) -> Result<Plan, String> {
        let settings = Settings::parse(Path::new("switch.toml"), text);
        let settings = settings.map_err(|error| error.to_string())?;
        let plan = settings.plan(&"0-3".parse().unwrap());
        plan.map_err(|error| error.to_string())
    }

    #[test]
    fn all_keys_lead_to_settings_of_the_tables_and_are_written_again() {
        let keys = "nat64 = { prefix = \"2001:db8:64::/96\", clients = [\"2001:db8:1::/48\"], private-servers = true, mtu = 1500 }\n";
        let planned = plan(&format!("{FILE}{keys}")).unwrap();
        let nat64 = planned.nats[0].nat64.as_ref().unwrap();
        let tables = nat64.tables(7).unwrap();
        assert_eq!(tables.prefix.to_string(), "2001:db8:64::/96");
        assert_eq!((tables.clients.len(), tables.clients_max), (1, 7));
        assert_eq!(nat64.mtu(), 1500);
        assert!(nat64.private_servers);
        let private = |address: &str| address.parse::<Ipv4Addr>().unwrap().to_bits();
        for address in ["10.0.0.1", "192.168.1.1"].map(private) {
            assert!(tables.prefix.ipv6_of(address).is_some());
            let without = Nat64Setting {
                private_servers: false,
                ..nat64.clone()
            };
            let tables = without.tables(7).unwrap();
            assert_eq!(tables.prefix.ipv6_of(address), None);
        }
        let again = plan(&planned.to_toml().unwrap()).unwrap();
        assert_eq!(again.nats, planned.nats);
        let planned = plan(&format!("{FILE}{NAT64}")).unwrap();
        let nat64 = planned.nats[0].nat64.as_ref().unwrap();
        assert_eq!((nat64.mtu(), nat64.clients.len()), (1280, 0));
        assert!(!nat64.private_servers);
        let several = FILE.replace("= \"1\"", "= \"1-2\"");
        let sources = "sources = [\"10.0.0.0/24\"]\n";
        assert!(plan(&format!("{several}{NAT64}{sources}")).is_ok());
        let interfaces = &planned.layer3.interfaces;
        let inside = super::inside_of(&interfaces[1], &planned.layer3).unwrap();
        assert_eq!(inside.name, "inside");
    }

    #[test]
    fn invalid_nat64_settings_are_refused_with_the_cure() {
        let with = |from: &str, to: &str| format!("{FILE}{NAT64}").replace(from, to);
        for (text, printed) in [
            (with("/96", "/95"), "use /32, /40, /48, /56, /64 or /96"),
            (with("64:ff9b::/96", "10.0.0.0/8"), "invalid"),
            (
                with("\" }", "\", mtu = 1279 }"),
                "mtu is 1279 (allowed: 1280 to 9198)",
            ),
            (with("\" }", "\", colour = 1 }"), "colour"),
            (
                with("64:ff9b::/96", "2001:db8::/32"),
                "address 2001:db8:1::1 of interface 'inside' is in the prefix",
            ),
            (
                with(
                    "\"198.51.100.1/24\"]",
                    "\"198.51.100.1/24\"]\nurpf = \"loose\"",
                ),
                "set its urpf to \"off\"",
            ),
            (
                with(
                    "\"2001:db8:1::1/64\"]",
                    "\"2001:db8:1::1/64\"]\nurpf = \"strict\"",
                ),
                "no interface of the VRF has an IPv6 address",
            ),
            (
                with("2001:db8:1::1/64", "10.0.0.1/24"),
                "no interface of the VRF has an IPv6 address",
            ),
            (
                format!("{FILE}{NAT64}[connections]\n"),
                "connection tracking does not follow nat64",
            ),
            (
                format!(
                    "{FILE}[[nat.one-to-one]]\ninside = \"240.0.0.1\"\noutside = \"203.0.113.9\"\n"
                ),
                "which has no hosts",
            ),
        ] {
            let error = plan(&text).unwrap_err();
            assert!(error.contains(printed), "{error}");
        }
    }

    #[test]
    fn a_standby_shares_an_instance_without_connection_tracking() {
        let role = "[replication]\nrole = \"active\"\nlisten = \"127.0.0.1:9476\"\n";
        let file = format!("{FILE}{NAT64}{role}");
        let planned = plan(&file).unwrap();
        assert!(planned.nats[0].has_ipv6_hosts() && !planned.nats[0].is_ipv6());
        assert!(planned.connections.is_none() && planned.replication().is_some());
        let again = plan(&planned.to_toml().unwrap()).unwrap();
        assert_eq!(again.replication, planned.replication);
        for (more, printed) in [
            ("refresh = 0\n", "refresh of 0 s is out of range"),
            ("[connections]\n", "use [connections.replication]"),
        ] {
            let error = plan(&format!("{file}{more}")).unwrap_err();
            assert!(error.starts_with("replication: "), "{error}");
            assert!(error.contains(printed), "{error}");
        }
    }

    #[test]
    fn prefixes_of_one_vrf_do_not_overlap() {
        let other = |prefix: &str| {
            let port = "[[port]]\nname = \"more\"\nuri = \"null:\"\n";
            let interface = "[[interface]]\nname = \"third\"\nport = \"more\"\naddresses = [\"203.0.113.1/24\"]\n";
            let nat = "[[nat]]\nname = \"other\"\ninterface = \"third\"\n";
            plan(&format!(
                "{FILE}{NAT64}{port}{interface}{nat}nat64 = {{ prefix = \"{prefix}\" }}\n"
            ))
        };
        let error = other("64:ff9b::/64").unwrap_err();
        assert!(
            error.contains("nat 'internet' has a prefix that overlaps"),
            "{error}"
        );
        assert!(other("2001:db8:64::/96").is_ok());
    }
}
