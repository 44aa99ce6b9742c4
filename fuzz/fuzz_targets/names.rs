// SPDX-License-Identifier: Apache-2.0
//! Any frames before rules on names, as a forwarding thread judges them: nothing panics, and every frame is dropped or accepted.
#![no_main]

use std::cell::RefCell;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use quietwire_tables::filter::{
    Action, Fallback, NameFlows, NameMatch, PacketMatch, PortRule, PortRules, Ports, Protocol,
    RuleTable, Verdict, Verdicts,
};

/// Frames of an input.
const FRAMES_MAX: usize = 64;
/// Rules: protocol, port, and the names as in a file.
const RULES: [(u8, u16, &str); 4] = [
    (6, 443, r#"{"tls-name":["*.example.org","a"]}"#),
    (
        6,
        80,
        r#"{"http-host":["*.example.org","a"],"name-fail":"open"}"#,
    ),
    (6, 53, r#"{"dns-name":["*.example.org","a"]}"#),
    (17, 53, r#"{"dns-name":["*.example.org","a"]}"#),
];

fn rule(protocol: u8, port: u16) -> PortRule {
    PortRule::new(
        PacketMatch {
            protocol: Some(Protocol(protocol)),
            destination_port: Some(Ports {
                first: port,
                last: port,
            }),
            ..PacketMatch::default()
        },
        Action::Accept,
    )
}

fn world() -> (PortRules, NameFlows) {
    let rules = RULES.map(|(protocol, port, _)| rule(protocol, port));
    let names = RULES.map(|(_, _, names)| -> NameMatch {
        serde_json::from_str(names).expect("names of a rule")
    });
    let fallback = Fallback {
        default: Action::Drop,
        ..Fallback::default()
    };
    let table = RuleTable::with_names(rules, &names, &[], fallback);
    let flows = NameFlows::new().expect("10 MiB");
    (PortRules::new(Arc::new(table), 0, None), flows)
}

thread_local! {
    static WORLD: RefCell<(PortRules, NameFlows)> = RefCell::new(world());
}

fuzz_target!(|frames: Vec<Vec<u8>>| {
    WORLD.with_borrow_mut(|(rules, flows)| {
        let mut verdicts: Verdicts = [Verdict::Short; 64];
        let burst = frames.iter().take(FRAMES_MAX);
        let burst = burst.map(|frame| (&frame[..], frame.len() as u32));
        let dropped = rules.judge_named(burst, &[], flows, &mut verdicts);
        let judged = verdicts.iter().take(frames.len());
        let accepted = judged.filter(|verdict| verdict.accepts()).count();
        assert_eq!(accepted + dropped.sum(), frames.len().min(FRAMES_MAX));
    });
});
