// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::config::Location;

fn interface(text: &str) -> Located<InterfaceSetting> {
    Located {
        value: toml::from_str(text).unwrap(),
        location: Location::Request,
    }
}

fn planned(interfaces: &[&str]) -> Result<Layer3Plan, String> {
    let vrf = Located {
        value: VrfSetting {
            name: "blue".to_owned(),
            kernel_table: None,
        },
        location: Location::Request,
    };
    let interfaces: Vec<_> = interfaces.iter().map(|text| interface(text)).collect();
    let places = AttachmentPoints {
        ports: &["a", "b"],
        bridges: &BTreeSet::from(["lan"]),
    };
    plan(&[vrf], &interfaces, &[], &places).map_err(|error| error.to_string())
}

#[test]
fn interfaces_are_on_ports_vlans_and_bridges() {
    let plan = planned(&[
        "name='a0'\nport='a'\naddresses=['192.0.2.1/24','2001:db8::1/64']",
        "name='a10'\nport='a'\nvlan=10\nvrf='blue'\naddresses=['192.0.2.1/31']\nmtu=9000\nurpf='strict'",
        "name='lan0'\nbridge='lan'\nmac='02:00:00:00:00:07'",
    ])
    .unwrap();
    assert_eq!(plan.vrfs, ["main", "blue"]);
    let [a0, a10, lan0] = plan.interfaces.as_slice() else {
        panic!();
    };
    assert_eq!((&a0.on, a0.vrf, a0.mtu), (&Attachment::Port(0), 0, 1500));
    assert_eq!(
        (a10.vlan.map(VlanId::get), a10.vrf, a10.urpf),
        (Some(10), 1, Urpf::Strict)
    );
    assert_eq!(lan0.on, Attachment::Bridge("lan".to_owned()));
}

#[test]
fn invalid_layer3_settings_are_reported() {
    for (interfaces, part) in [
        (&["name='x'"][..], "set either port or bridge"),
        (
            &["name='x'\nport='a'\nbridge='lan'"],
            "set either port or bridge",
        ),
        (&["name='x'\nport='c'"], "no such port: 'c'"),
        (
            &[
                "name='x'\nport='a'\nkernel='t'",
                "name='y'\nport='b'\nkernel='t'",
            ],
            "use the same kernel tap 't'",
        ),
        (&["name='x'\nbridge='wan'"], "no such bridge: 'wan'"),
        (&["name='x'\nport='a'\nvrf='red'"], "no such VRF: 'red'"),
        (&["name='x'\nport='a'\nmtu=67"], "allowed: 68 to 9198"),
        (
            &["name='x'\nport='a'\nmtu=1000\naddresses=['2001:db8::1/64']"],
            "1280",
        ),
        (
            &["name='x'\nport='a'\nmac='03:00:00:00:00:01'"],
            "not a unicast MAC address",
        ),
        (
            &["name='x'\nport='a'\naddresses=['192.0.2.0/24']"],
            "192.0.2.0/24 is not a valid interface address",
        ),
        (
            &["name='x'\nport='a'\naddresses=['192.0.2.255/24']"],
            "is not a valid interface address",
        ),
        (
            &["name='x'\nport='a'\naddresses=['127.0.0.1/8']"],
            "is not a valid interface address",
        ),
        (
            &["name='x'\nport='a'\naddresses=['ff02::1/64']"],
            "is not a valid interface address",
        ),
        (
            &["name='x'\nport='a'", "name='x'\nport='b'"],
            "duplicate interface 'x'",
        ),
        (
            &["name='x'\nport='a'", "name='y'\nport='a'"],
            "are in the same VLAN",
        ),
        (
            &[
                "name='x'\nport='a'\naddresses=['192.0.2.1/24']",
                "name='y'\nport='b'\naddresses=['192.0.2.1/25']",
            ],
            "is also configured on interface 'x'",
        ),
    ] {
        let error = planned(interfaces).unwrap_err();
        assert!(error.contains(part), "{interfaces:?}: {error}");
        assert!(error.starts_with("the request: "), "{error}");
    }
}

#[test]
fn vrfs_follow_tables_of_the_kernel() {
    let vrf = |name: &str, kernel_table| Located {
        value: VrfSetting {
            name: name.to_owned(),
            kernel_table,
        },
        location: Location::Request,
    };
    let places = AttachmentPoints {
        ports: &[],
        bridges: &BTreeSet::new(),
    };
    let planned = |vrfs: &[Located<VrfSetting>]| plan(vrfs, &[], &[], &places);
    let both = planned(&[vrf("blue", Some(100)), vrf("main", Some(254))]).unwrap();
    assert_eq!(both.vrfs, ["main", "blue"]);
    assert_eq!(both.kernel_tables, [Some(254), Some(100)]);
    for (vrfs, part) in [
        ([vrf("blue", Some(0)), vrf("red", None)], "has no routes"),
        (
            [vrf("blue", Some(7)), vrf("red", Some(7))],
            "the same kernel-table 7",
        ),
    ] {
        let error = planned(&vrfs).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn vrfs_and_interfaces_are_bounded() {
    let vrf = |number: usize| Located {
        value: VrfSetting {
            name: format!("v{number}"),
            kernel_table: None,
        },
        location: Location::Request,
    };
    // With the main VRF there is one more.
    let vrfs: Vec<_> = (0..1024).map(vrf).collect();
    let places = AttachmentPoints {
        ports: &["a", "b"],
        bridges: &BTreeSet::new(),
    };
    assert_eq!(
        plan(&vrfs[..1023], &[], &[], &places).unwrap().vrfs.len(),
        1024
    );
    let error = plan(&vrfs, &[], &[], &places).unwrap_err().to_string();
    assert!(error.contains("too many VRFs (maximum: 1024)"), "{error}");

    let texts: Vec<String> = (0..4097)
        .map(|number| {
            let port = if number < 4094 { "a" } else { "b" };
            let vlan = number % 4094 + 1;
            format!("name='i{number}'\nport='{port}'\nvlan={vlan}")
        })
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert_eq!(planned(&texts[..4096]).unwrap().interfaces.len(), 4096);
    let error = planned(&texts).unwrap_err();
    assert!(
        error.contains("too many interfaces (maximum: 4096)"),
        "{error}"
    );
}

#[test]
fn an_outside_interface_translates_prefixes() {
    let text = "name='a0'\nport='a'\naddresses=['2001:db8:f::1/64']\nprefix-translation={inside='fd01:203:405::/48',outside='2001:db8:1::/48'}";
    let plan = planned(&[text]).unwrap();
    let translation = plan.interfaces[0].prefix_translation.unwrap();
    assert_eq!(
        translation,
        "fd01:203:405::/48,2001:db8:1::/48".parse().unwrap()
    );
    let error = planned(&[&text.replace("2001:db8:f::1", "2001:db8:1::1")]).unwrap_err();
    assert!(error.contains("is in the outside prefix"), "{error}");
    // The tracker does not know the VRF of a packet.
    let with = |interface: &str, outside: &str| {
        let other = "addresses=['2001:db8:e::1/64']\nprefix-translation={inside='fd02::/48',outside='OUTSIDE'}";
        let other = format!("{interface}\n{}", other.replace("OUTSIDE", outside));
        planned(&[text, &other]).unwrap()
    };
    let (main, blue) = ("name='b0'\nport='b'", "name='b0'\nport='b'\nvrf='blue'");
    for (interface, outside) in [
        (main, "2001:db8:1::/48"),
        (blue, "2001:db8:2::/48"),
        (blue, "2001:db8::/40"),
    ] {
        assert!(with(interface, outside).check_tracking(true).is_ok());
    }
    for outside in ["2001:db8:1::/48", "2001:db8:1::/56"] {
        let plan = with(blue, outside);
        assert!(plan.check_tracking(false).is_ok());
        let error = plan.check_tracking(true).unwrap_err().to_string();
        let printed = "overlaps that of interface 'a0' of another VRF";
        assert!(error.contains(printed), "{error}");
    }
}
