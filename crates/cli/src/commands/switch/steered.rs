// SPDX-License-Identifier: Apache-2.0
//! Table of steering rules.

use quietwire_switch::config::steer::SteerTo;
use quietwire_switch::report::{CardState, SteerReport, SteerRuleReport, SteeredBy};

use super::packet::condition_text;
use super::table::table;

/// Formats the rules, with their match as in the command that adds them.
pub(super) fn render(ports: &[SteerReport]) -> String {
    let mut table = table(["port", "rule", "frames", "to", "by", "hits"], 5);
    for port in ports {
        let by = port.by.name().to_owned();
        for rule in &port.rules {
            table.add_row([
                port.port.clone(),
                rule.name.clone(),
                conditions(rule),
                destination(rule),
                by.clone(),
                rule.frames.to_string(),
            ]);
        }
        // A card alone leaves all other frames to the switch, and does not count them.
        let (to, unmatched) = match port.by {
            SteeredBy::Card => (SteerTo::Switch, "-".to_owned()),
            SteeredBy::Xdp | SteeredBy::Software => (SteerTo::Kernel, port.unmatched.to_string()),
        };
        table.add_row([
            port.port.clone(),
            String::new(),
            "all others".to_owned(),
            to.name().to_owned(),
            by,
            unmatched,
        ]);
    }
    table.to_string()
}

/// Returns the destination of a rule, with what the card does.
fn destination(rule: &SteerRuleReport) -> String {
    let to = rule.to.name();
    let place = match (rule.queue, rule.virtual_function) {
        (Some(queue), _) => format!("{to}, queue {queue}"),
        (None, Some(number)) => format!("{to} {number}"),
        (None, None) => return to.to_owned(),
    };
    let state = rule.card.map_or("unknown", CardState::name);
    match rule.misplaced {
        0 => format!("{place} ({state})"),
        frames => format!("{place} ({state}: {frames} frames elsewhere)"),
    }
}

fn conditions(rule: &SteerRuleReport) -> String {
    let link = [
        ("source-mac", rule.source_mac.map(|mac| mac.to_string())),
        (
            "destination-mac",
            rule.destination_mac.map(|mac| mac.to_string()),
        ),
        ("vlan", rule.vlan.map(|vlan| vlan.get().to_string())),
    ];
    let link = link
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    match condition_text(link.chain(rule.packet.words())) {
        text if text.is_empty() => "all".to_owned(),
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use quietwire_packet::VlanId;

    use super::*;

    #[test]
    fn rules_are_shown_as_they_are_added() {
        let rule = |name: &str, vlan, protocol: Option<&str>| SteerRuleReport {
            name: name.to_owned(),
            to: SteerTo::Switch,
            queue: None,
            virtual_function: None,
            card: None,
            misplaced: 0,
            source_mac: None,
            destination_mac: None,
            vlan,
            packet: quietwire_switch::config::PacketMatch {
                protocol: protocol.map(|name| name.parse().unwrap()),
                ..Default::default()
            },
            frames: 12,
        };
        let on_card = SteerRuleReport {
            queue: Some(3),
            card: Some(CardState::Obeyed),
            ..rule("voice", None, Some("udp"))
        };
        let disobeyed = SteerRuleReport {
            to: SteerTo::VirtualFunction,
            virtual_function: Some(1),
            card: Some(CardState::Disobeyed),
            misplaced: 12,
            ..rule("guest", VlanId::new(9).ok(), None)
        };
        let shown = render(&[SteerReport {
            port: "wan".to_owned(),
            by: SteeredBy::Xdp,
            kernel_port: None,
            rules: vec![
                rule("dns", VlanId::new(7).ok(), Some("udp")),
                on_card,
                disobeyed,
                rule("rest", None, None),
            ],
            unmatched: 34,
        }]);
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        for expected in [
            "wan dns vlan 7, protocol udp switch xdp 12",
            "wan voice protocol udp switch, queue 3 (obeyed) xdp 12",
            "wan guest vlan 9 virtual-function 1 (disobeyed: 12 frames elsewhere) xdp 12",
            "wan rest all switch xdp 12",
            "wan all others kernel xdp 34",
        ] {
            let words: Vec<&str> = expected.split_whitespace().collect();
            assert!(lines.contains(&words), "{expected}: {shown}");
        }
    }
}
