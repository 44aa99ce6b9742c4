// SPDX-License-Identifier: Apache-2.0
//! Malformed frames at ports with rules as observed on the wire. `malformed.py` makes the frames with scapy.

use std::collections::BTreeSet;
use std::fs;

use quietwire_switch::config::rules::{Malformation, MalformedAction};
use quietwire_switch::report::{PortDrop, PortDrops, PortReport, RulesReport};

use crate::bench::{Bench, change, output, until};
use crate::rules::{counts, lines_of, octets_of};
use crate::watch::{steps, trace};

/// Rules that drop what the frames carry.
const RULES: &str = r#"
[[rule]]
name = "telnet"
action = "drop"
protocol = "tcp"
destination-port = "23"

[[rule]]
name = "seven"
action = "drop"
vlan = 7
"#;

struct Case {
    name: String,
    /// Kind of the malformation; empty for a well-formed frame.
    kind: String,
    /// Whether the rules alone let it in.
    passes: bool,
    frame: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let lines: Vec<(String, String, bool, String)> = lines_of("malformed.py");
    let read = |(name, kind, passes, hex): (String, String, bool, String)| Case {
        name,
        kind,
        passes,
        frame: octets_of(&hex),
    };
    lines.into_iter().map(read).collect()
}

fn drops(bench: &Bench, port: usize) -> PortDrops {
    bench.show::<Vec<PortReport>>("ports")[port].counts.drops
}

#[test]
fn malformed_frames_do_not_slip_past_rules_unless_they_are_matched() {
    let cases = cases();
    let bench = Bench::new(&["a", "b"], &["--cross-connect", "a,b"]);
    let file = bench.path("rules.toml");
    fs::write(&file, RULES).unwrap();
    let mut bench = bench.with(&["--rules", file.to_str().unwrap()]);
    bench.start_again();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let frames: Vec<Vec<u8>> = cases.iter().map(|case| case.frame.clone()).collect();
    let of = |passes: &dyn Fn(&Case) -> bool| -> Vec<Vec<u8>> {
        let passing = cases.iter().filter(|case| passes(case));
        passing.map(|case| case.frame.clone()).collect()
    };
    let malformed = cases.iter().filter(|case| !case.kind.is_empty()).count() as u64;
    let denied = |case: &&Case| case.kind.is_empty() && !case.passes;
    let denied = cases.iter().filter(denied).count() as u64;
    // Every kind, except the one that no memif port can receive with these sizes.
    let kinds: BTreeSet<&str> = cases.iter().map(|case| case.kind.as_str()).collect();
    for kind in Malformation::ALL {
        let is_sent = kinds.contains(kind.name());
        assert_eq!(is_sent, kind != Malformation::ScatteredHeaders, "{kind:?}");
    }

    // Default: drop. A trace names the kind of each.
    let sound = of(&|case| case.kind.is_empty() && case.passes);
    let count = frames.len().to_string();
    let events = trace(&bench, &["--count", &count, "--port", "a"], || {
        for burst in frames.chunks(8) {
            a.send(burst);
        }
    });
    assert_eq!(b.receive(sound.len()), sound);
    for (packet, case) in (1..).zip(&cases) {
        let (_, verdict) = steps(&events, packet)[1];
        let dropped = format!("dropped: malformed ({})", case.kind);
        assert_eq!(verdict == dropped, !case.kind.is_empty(), "{}", case.name);
    }
    let observed = drops(&bench, 0);
    assert_eq!(
        (
            observed[PortDrop::Malformed],
            observed[PortDrop::Denied],
            observed.sum()
        ),
        (malformed, denied, malformed + denied)
    );
    assert_eq!(counts(&bench)["(malformed)"], malformed);
    let table = output(&mut bench.show_command("rules"));
    assert!(table.contains("have malformed headers"), "{table}");
    // The other direction, which has the same rules.
    b.send(&frames);
    assert_eq!(a.receive(sound.len()), sound);
    until("all frames are filtered", || {
        (drops(&bench, 1)[PortDrop::Malformed] == malformed).then_some(())
    });

    // Matched: the rules decide by the headers in front of the malformation, so they miss most of these frames.
    change(&bench, &["set", "rules", "--malformed", "match"]);
    let passing = of(&|case| case.passes);
    assert!(passing.len() > sound.len() + 20, "{}", passing.len());
    a.send(&frames);
    assert_eq!(b.receive(passing.len()), passing);
    let report: RulesReport = bench.show("rules");
    assert_eq!(
        (report.malformed, report.malformed_frames),
        (MalformedAction::Match, 2 * malformed)
    );
    assert_eq!(drops(&bench, 0)[PortDrop::Malformed], malformed);

    // A file of rules has the option too; without it, the option stays.
    let set = || {
        change(&bench, &["set", "rules", "--file", file.to_str().unwrap()]);
        bench.show::<RulesReport>("rules").malformed
    };
    assert_eq!(set(), MalformedAction::Match);
    fs::write(&file, format!("rule-malformed = \"drop\"\n{RULES}")).unwrap();
    assert_eq!(set(), MalformedAction::Drop);
    a.send(&frames);
    assert_eq!(b.receive(sound.len()), sound);
}

#[test]
fn ports_without_rules_forward_malformed_frames() {
    let frames: Vec<Vec<u8>> = cases().into_iter().map(|case| case.frame).collect();
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    // The rules of another port do not concern this one.
    let rule = ["add", "rule", "x", "--action", "drop", "--port", "b"];
    change(&bench, &[&rule[..], &["--protocol", "tcp"]].concat());
    a.send(&frames);
    assert_eq!(b.receive(frames.len()), frames);
    assert_eq!(drops(&bench, 0).sum(), 0);
}
