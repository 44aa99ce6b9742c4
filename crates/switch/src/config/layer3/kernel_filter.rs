// SPDX-License-Identifier: Apache-2.0
//! Validation of kernel filters.

use super::Layer3Plan;
use crate::config::EtherType;
use crate::config::kernel_filter::KernelFilterSetting;
use crate::config::location::Located;
use crate::error::SwitchError;
use quietwire_tables::route::FILTER_RULES_MAX;

const ARP: u16 = 0x0806;

/// Plans kernel filters. Requires planned VRFs and interfaces.
///
/// # Errors
/// [`SwitchError::Config`] for a filter that cannot match, or that would match packets the switch requires itself.
pub(super) fn plan(
    settings: &[Located<KernelFilterSetting>],
    layer3: &Layer3Plan,
) -> Result<Vec<KernelFilterSetting>, SwitchError> {
    let mut rules: Vec<KernelFilterSetting> = Vec::new();
    for Located { value, location } in settings {
        let name = &value.name;
        let wrong = |what: String| location.wrong(format!("kernel filter '{name}': {what}"));
        if name.is_empty() {
            return Err(location.wrong("the kernel filter has no name"));
        }
        if rules.iter().any(|rule| rule.name == *name) {
            return Err(location.wrong(format!(
                "duplicate kernel filter '{name}' (use unique names)"
            )));
        }
        if rules.len() == FILTER_RULES_MAX {
            return Err(location.wrong(format!(
                "too many kernel filters (maximum: {FILTER_RULES_MAX})"
            )));
        }
        check_packet(value).map_err(wrong)?;
        check_position(value, layer3).map_err(wrong)?;
        rules.push(value.clone());
    }
    Ok(rules)
}

/// Checks the packet fields.
fn check_packet(rule: &KernelFilterSetting) -> Result<(), String> {
    if rule.packet.is_empty() {
        return Err(
            "it would match every packet (set an ethertype, a protocol or a prefix)".to_owned(),
        );
    }
    if rule.packet.ethertype == Some(EtherType(ARP)) {
        return Err(
            "the switch handles ARP itself (no filter is necessary: the kernel receives the replies to its own requests)"
                .to_owned(),
        );
    }
    rule.packet.check()
}

/// Checks the interface and the VRF.
fn check_position(rule: &KernelFilterSetting, layer3: &Layer3Plan) -> Result<(), String> {
    if let Some(name) = &rule.interface {
        let interface = layer3.interfaces.iter().find(|one| one.name == *name);
        let interface = interface.ok_or_else(|| format!("no such interface: '{name}'"))?;
        if interface.kernel.is_none() {
            return Err(format!(
                "interface '{name}' has no kernel tap (set kernel = \"NAME\")"
            ));
        }
    }
    match &rule.vrf {
        Some(name) if !layer3.vrfs.contains(name) => Err(format!("no such VRF: '{name}'")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Attachment, InterfacePlan, Urpf};
    use super::*;
    use crate::config::Location;

    fn layer3() -> Layer3Plan {
        let interface = |name: &str, kernel: Option<&str>| InterfacePlan {
            name: name.to_owned(),
            on: Attachment::Port(0),
            vlan: None,
            addresses: Vec::new(),
            vrf: 0,
            mac: None,
            mtu: 1500,
            urpf: Urpf::Off,
            prefix_translation: None,
            kernel: kernel.map(str::to_owned),
        };
        Layer3Plan {
            vrfs: vec!["main".to_owned()],
            interfaces: vec![interface("a", Some("qw-a")), interface("b", None)],
            ..Layer3Plan::default()
        }
    }

    fn planned(rules: &[&str]) -> Result<Vec<KernelFilterSetting>, String> {
        let located = |text: &&str| {
            Ok(Located {
                value: toml::from_str(text).map_err(|error| error.to_string())?,
                location: Location::Request,
            })
        };
        let rules: Vec<_> = rules.iter().map(located).collect::<Result<_, String>>()?;
        plan(&rules, &layer3()).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_are_written_as_they_are_read() {
        for text in [
            "name = \"bgp\"\ninterface = \"a\"\nprotocol = \"tcp\"\ndestination-port = \"179\"\n",
            "name = \"lldp\"\nvrf = \"main\"\nethertype = \"lldp\"\n",
            "name = \"x\"\nethertype = \"0x8847\"\n",
            "name = \"y\"\nprotocol = \"250\"\nsource = \"10.0.0.0/8\"\n",
            "name = \"z\"\nethertype = \"ipv6\"\nprotocol = \"udp\"\nsource-port = \"5000-5010\"\n",
        ] {
            let rules = planned(&[text]).unwrap();
            assert_eq!(toml::to_string(&rules[0]).unwrap(), text);
        }
    }

    #[test]
    fn invalid_rules_are_refused() {
        for (rules, printed) in [
            (&["name = \"\""][..], "no name"),
            (&["name = \"x\""], "would match every packet"),
            (&["name = \"x\"\nethertype = \"0x0806\""], "ARP"),
            (
                &["name = \"x\"\nethertype = \"0x0005\""],
                "not an ethertype",
            ),
            (&["name = \"x\"\nprotocol = \"256\""], "not an IP protocol"),
            (
                &["name = \"x\"\nprotocol = \"ospf\"\nsource-port = \"1\""],
                "ports require protocol",
            ),
            (
                &["name = \"x\"\nsource-port = \"1\""],
                "ports require protocol",
            ),
            (
                &["name = \"x\"\nprotocol = \"tcp\"\nsource-port = \"2-1\""],
                "not a port or a range",
            ),
            (
                &["name = \"x\"\nprotocol = \"tcp\"\nethertype = \"lldp\""],
                "no IP",
            ),
            (
                &["name = \"x\"\nethertype = \"ipv6\"\nsource = \"10.0.0.0/8\""],
                "does not match ethertype ipv6",
            ),
            (
                &["name = \"x\"\nsource = \"10.0.0.0/8\"\ndestination = \"::/0\""],
                "different IP versions",
            ),
            (
                &["name = \"x\"\ninterface = \"c\"\nprotocol = \"tcp\""],
                "no such interface: 'c'",
            ),
            (
                &["name = \"x\"\ninterface = \"b\"\nprotocol = \"tcp\""],
                "no kernel tap",
            ),
            (
                &["name = \"x\"\nvrf = \"blue\"\nprotocol = \"tcp\""],
                "no such VRF",
            ),
            (
                &[
                    "name = \"x\"\nprotocol = \"tcp\"",
                    "name = \"x\"\nprotocol = \"udp\"",
                ],
                "duplicate kernel filter",
            ),
        ] {
            let error = planned(rules).unwrap_err();
            assert!(error.contains(printed), "{rules:?}: {error}");
        }
        let many: Vec<String> = (0..=FILTER_RULES_MAX)
            .map(|n| format!("name = \"{n}\"\nprotocol = \"tcp\""))
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(planned(&many[1..]).unwrap().len(), FILTER_RULES_MAX);
        assert!(
            planned(&many)
                .unwrap_err()
                .contains("too many kernel filters (maximum: 64)")
        );
    }
}
