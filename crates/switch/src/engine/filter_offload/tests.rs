// SPDX-License-Identifier: Apache-2.0
//! A card drops exactly the frames that would end at a rule.

use std::net::{IpAddr, Ipv4Addr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const PORT: &str = "a";
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A filter rule.
#[derive(Clone, Debug)]
struct Model {
    action: &'static str,
    /// Last octet of the source network, and length of its prefix.
    source: Option<(u8, u8)>,
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
    vlan: Option<u16>,
    extra: Extra,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extra {
    None,
    Log,
    Dscp,
    OtherPort,
}

/// A packet from 10.0.0.0/24.
#[derive(Clone, Debug)]
struct Packet {
    source: u8,
    protocol: u8,
    port: u16,
    vlan: Option<u16>,
    is_expedited: bool,
}

impl Model {
    fn matches(&self, packet: &Packet) -> bool {
        let is_in = |(network, length): (u8, u8)| (network ^ packet.source) >> (32 - length) == 0;
        self.extra != Extra::OtherPort
            && (self.extra != Extra::Dscp || packet.is_expedited)
            && self.source.is_none_or(is_in)
            && self.protocol.is_none_or(|one| one == packet.protocol)
            && self
                .ports
                .is_none_or(|(first, last)| (first..=last).contains(&packet.port))
            && self.vlan.is_none_or(|vlan| packet.vlan == Some(vlan))
    }

    fn setting(&self) -> RuleSetting {
        let mut rule = json!({ "name": "rule", "action": self.action });
        if let Some((network, length)) = self.source {
            rule["source"] = json!(format!("10.0.0.{network}/{length}"));
        }
        if let Some(protocol) = self.protocol {
            rule["protocol"] = json!(if protocol == TCP { "tcp" } else { "udp" });
        }
        if let Some((first, last)) = self.ports {
            rule["destination-port"] = json!(format!("{first}-{last}"));
        }
        if let Some(vlan) = self.vlan {
            rule["vlan"] = json!(vlan);
        }
        match self.extra {
            Extra::None => {}
            Extra::Log => rule["log"] = json!(1),
            Extra::Dscp => rule["dscp"] = json!("ef"),
            Extra::OtherPort => rule["port"] = json!("b"),
        }
        serde_json::from_str(&rule.to_string()).unwrap()
    }
}

fn counted(models: &[Model]) -> Vec<CountedRule> {
    let counted = |model: &Model| (Arc::new(model.setting()), Arc::default());
    models.iter().map(counted).collect()
}

/// Compares a packet with the conditions of a flow rule.
fn is_dropped(frames: &SteerMatch, packet: &Packet) -> bool {
    let address = Ipv4Addr::new(10, 0, 0, packet.source).to_bits();
    let is_in = |(network, length): (IpAddr, u8)| match network {
        IpAddr::V4(network) => {
            let differing = network.to_bits() ^ address;
            differing.checked_shr(32 - u32::from(length)).unwrap_or(0) == 0
        }
        IpAddr::V6(_) => false,
    };
    frames.source.is_none_or(is_in)
        && frames.protocol.is_none_or(|one| one == packet.protocol)
        && frames
            .destination_ports
            .is_none_or(|(first, last)| (first..=last).contains(&packet.port))
        && frames.vlan.is_none_or(|vlan| packet.vlan == Some(vlan))
}

fn model() -> impl Strategy<Value = Model> {
    let action = prop_oneof![3 => Just("drop"), 1 => Just("accept"), 1 => Just("reject")];
    let source = (0..4_u8, 30..=32_u8)
        .prop_map(|(octet, length)| (octet & (0xff_u8 << (32 - length)), length));
    let ports = (1..5_u16, 1..5_u16).prop_map(|(one, other)| (one.min(other), one.max(other)));
    let transport = prop_oneof![
        1 => Just((None, None)),
        2 => (prop_oneof![Just(TCP), Just(UDP)], option::of(ports))
            .prop_map(|(protocol, ports)| (Some(protocol), ports)),
    ];
    let extra = prop_oneof![
        6 => Just(Extra::None),
        1 => Just(Extra::Log),
        1 => Just(Extra::Dscp),
        1 => Just(Extra::OtherPort),
    ];
    let vlan = option::weighted(0.3, 1..3_u16);
    (action, option::of(source), transport, vlan, extra).prop_map(
        |(action, source, (protocol, ports), vlan, extra)| Model {
            action,
            source,
            protocol,
            ports,
            vlan,
            extra,
        },
    )
}

fn packet() -> impl Strategy<Value = Packet> {
    let protocol = prop_oneof![Just(TCP), Just(UDP)];
    let vlan = option::of(1..3_u16);
    (0..4_u8, protocol, 1..5_u16, vlan, any::<bool>()).prop_map(
        |(source, protocol, port, vlan, is_expedited)| Packet {
            source,
            protocol,
            port,
            vlan,
            is_expedited,
        },
    )
}

proptest! {
    #[test]
    fn a_card_drops_the_frames_that_would_end_at_the_rule(
        models in vec(model(), 1..6),
        packets in vec(packet(), 32),
    ) {
        let rules = counted(&models);
        for (place, model) in models.iter().enumerate() {
            let Some(frames) = dropped_frames(&rules, place, PORT, None) else {
                continue;
            };
            prop_assert!(model.action == "drop" && model.extra == Extra::None);
            for packet in &packets {
                let decisive = models.iter().position(|model| model.matches(packet));
                prop_assert_eq!(is_dropped(&frames, packet), decisive == Some(place), "{:?}", packet);
            }
        }
    }
}

#[test]
fn plain_drop_rules_apart_from_earlier_ones_are_for_cards() {
    let plain = Model {
        action: "drop",
        source: Some((1, 32)),
        protocol: Some(UDP),
        ports: None,
        vlan: None,
        extra: Extra::None,
    };
    let with = |change: &dyn Fn(&mut Model)| {
        let mut model = plain.clone();
        change(&mut model);
        model
    };
    let accepted = with(&|model| model.action = "accept");
    let of_another = with(&|model| model.source = Some((2, 32)));
    for (rules, is_for_card) in [
        (vec![plain.clone()], true),
        (vec![of_another.clone(), plain.clone()], true),
        (vec![accepted.clone()], false),
        (vec![accepted.clone(), plain.clone()], false),
        (vec![accepted, of_another], true),
        (
            vec![with(&|model| model.extra = Extra::OtherPort), plain.clone()],
            true,
        ),
        (vec![with(&|model| model.extra = Extra::OtherPort)], false),
        (vec![with(&|model| model.extra = Extra::Log)], false),
        (vec![with(&|model| model.extra = Extra::Dscp)], false),
        (
            vec![with(&|model| {
                (model.source, model.protocol, model.vlan) = (None, None, Some(1));
            })],
            false,
        ),
    ] {
        let counted = counted(&rules);
        let found = dropped_frames(&counted, rules.len() - 1, PORT, None);
        assert_eq!(found.is_some(), is_for_card, "{rules:?}");
    }
}

#[test]
fn rules_with_most_new_frames_are_hottest() {
    assert_eq!(
        hottest(&[0, 500, 10, 7, 0], &[999, 3500, 1010, 7, 9000]),
        [4, 1, 2]
    );
    // After a change, the next look is the first one.
    assert_eq!(hottest(&[], &[5000]), Vec::<usize>::new());
}

#[test]
fn frames_of_the_card_are_those_of_the_rule() {
    let mut rule = OffloadedRule {
        place: 0,
        matched: SteerMatch::default(),
        frames: Arc::default(),
        dropped: 0,
    };
    rule.frames.add(100);
    for (dropped, frames) in [(7, 107), (7, 107), (20, 120), (0, 120), (3, 123)] {
        rule.count(dropped);
        assert_eq!(rule.frames.get(), frames, "{dropped}");
    }
}
