// SPDX-License-Identifier: Apache-2.0
//! Rules that continue, compared with the reference implementation.

use super::super::reference::continued;
use super::*;
use crate::connections::{CtState, MarkBits};

/// Returns rules of which some continue.
fn some_continue() -> impl Strategy<Value = Vec<Rule>> {
    let one = (rule(), prop::bool::weighted(0.5));
    let one = one.prop_map(|((vlan, asked, action), continues)| {
        let action = if continues { Action::Continue } else { action };
        (vlan, asked, action)
    });
    prop::collection::vec(one, 0..12)
}

fn port_rule((vlan, packet, action): &Rule) -> PortRule {
    PortRule {
        port: None,
        group: None,
        vlan: *vlan,
        packet: *packet,
        further: FurtherMatch::default(),
        sets: Vec::new(),
        ct_states: None,
        mark: None,
        label: None,
        action: *action,
        frames: Arc::default(),
    }
}

/// Returns statements for each rule, so that the rules that continue are noted.
fn noted(rules: &[Rule]) -> Vec<Option<Statements>> {
    let statements = Statements {
        dup: Some(1),
        ..Statements::default()
    };
    vec![Some(statements); rules.len()]
}

fn checked(
    table: RuleTable,
    (rules, counters): (&[Rule], &[Arc<RuleFrames>]),
    policy: (Action, MalformedAction),
    frames: &[(Vec<u8>, usize)],
) -> Result<(), TestCaseError> {
    let before: Vec<u64> = loads(counters);
    let port = PortRules::new(Arc::new(table), 0, None);
    let is_continuing = rules.iter().any(|rule| rule.2 == Action::Continue);
    prop_assert_eq!(port.continues(), is_continuing);
    let mut verdicts = [Verdict::Short; BURST_MAX];
    let mut all = Continued::default();
    let received: Vec<(&[u8], u32)> = frames
        .iter()
        .map(|(frame, held)| (&frame[..*held], frame.len() as u32))
        .collect();
    port.judge(received.iter().copied(), (&mut verdicts, Some(&mut all)));
    let mut counts = vec![0u64; rules.len()];
    for (number, (frame, held)) in frames.iter().enumerate() {
        let verdict = judge(rules, policy, (frame, *held));
        prop_assert_eq!(verdicts[number], verdict);
        let passed = continued(rules, policy, (frame, *held));
        prop_assert_eq!(all.of(number), &passed[..]);
        let decides = match verdict {
            Verdict::Rule(rule, _) => Some(rule),
            _ => None,
        };
        for rule in passed.into_iter().chain(decides) {
            counts[rule as usize] += 1;
        }
    }
    let has_any = (0..frames.len()).any(|number| !all.of(number).is_empty());
    prop_assert_eq!(all.has_any(), has_any);
    let after = loads(counters).into_iter().zip(before);
    let new: Vec<u64> = after.map(|(after, before)| after - before).collect();
    prop_assert_eq!(new, counts);
    Ok(())
}

fn loads(counters: &[Arc<RuleFrames>]) -> Vec<u64> {
    counters.iter().map(|one| one.get()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rules_that_continue_match_as_in_the_reference(
        frames in prop::collection::vec(frame(), 1..BURST_MAX),
        rules in some_continue(),
        policy in policy(),
    ) {
        let compiled: Vec<PortRule> = rules.iter().map(port_rule).collect();
        let counters: Vec<_> = compiled.iter().map(|one| Arc::clone(&one.frames)).collect();
        let fallback = Fallback {
            default: policy.0,
            malformed: policy.1,
            ..Fallback::default()
        };
        prop_assert_eq!(PortRule::first_without_pass(&compiled), None);
        let table = RuleTable::new(compiled, fallback).with_statements(noted(&rules));
        checked(table, (&rules, &counters), policy, &frames)?;
    }

    #[test]
    fn rules_that_continue_stay_if_others_change(
        frames in prop::collection::vec(frame(), 1..16),
        (mut rules, new) in (some_continue(), some_continue()),
        (front, gone) in (0..6usize, 0..3usize),
        policy in policy(),
    ) {
        let fallback = Fallback {
            default: policy.0,
            malformed: policy.1,
            ..Fallback::default()
        };
        let mut compiled: Vec<PortRule> = rules.iter().map(port_rule).collect();
        let table = RuleTable::new(compiled.clone(), fallback.clone());
        let table = table.with_statements(noted(&rules));
        let front = front.min(rules.len());
        let end = (front + gone).min(rules.len());
        let back = rules.len() - end;
        let added: Vec<PortRule> = new.iter().map(port_rule).collect();
        let with_statements = added.iter().cloned().zip(noted(&new)).collect();
        let changed = table.with_changed((front, back), with_statements, fallback);
        drop(compiled.splice(front..end, added));
        drop(rules.splice(front..end, new));
        let counters: Vec<_> = compiled.iter().map(|one| Arc::clone(&one.frames)).collect();
        // Without a rule that decides, all rules are compiled instead.
        if let Some(changed) = changed {
            checked(changed, (&rules, &counters), policy, &frames)?;
        }
    }
}

#[test]
fn rules_beyond_the_passes_and_those_of_other_ports_do_not_match() {
    let counts = |port: u16, rules: Vec<PortRule>| {
        let counters: Vec<_> = rules.iter().map(|one| Arc::clone(&one.frames)).collect();
        let table = RuleTable::new(rules, Fallback::default());
        let port = PortRules::new(Arc::new(table), port, None);
        assert!(!port.continues(), "no rule has statements");
        let mut verdicts = [Verdict::Short; BURST_MAX];
        port.judge([(&[2; 60][..], 60)].into_iter(), &mut verdicts);
        assert_eq!(verdicts[0], Verdict::Default(Action::Accept));
        loads(&counters)
    };
    let continues = |port: Option<u16>, ports: &[u16]| PortRule {
        port,
        further: FurtherMatch {
            ports: ports.iter().copied().collect(),
            ..FurtherMatch::default()
        },
        ..port_rule(&(None, PacketMatch::default(), Action::Continue))
    };
    let many = vec![continues(None, &[]); PASSES_MAX + 1];
    assert_eq!(PortRule::first_without_pass(&many), Some(PASSES_MAX));
    // They share a counter.
    assert_eq!(counts(0, many)[0], PASSES_MAX as u64);
    let each = (0..CONTINUE_MAX as u16 + 1).map(|port| continues(Some(port), &[]));
    let each: Vec<PortRule> = each.collect();
    assert_eq!(PortRule::first_without_pass(&each), Some(CONTINUE_MAX));
    assert_eq!(PortRule::first_without_pass(&each[..CONTINUE_MAX]), None);
    // A port that does not exist needs no pass.
    let mut rules = vec![continues(Some(u16::MAX), &[]); PASSES_MAX];
    rules.extend([continues(None, &[1, 2]), continues(Some(2), &[])]);
    assert_eq!(counts(1, rules.clone())[PASSES_MAX..], [1, 0]);
    assert_eq!(counts(2, rules)[PASSES_MAX..], [2, 1]);
}

#[test]
fn rules_that_continue_apply_to_frames_that_leave() {
    let out = |action: Action, port: Option<u16>| PortRule {
        port,
        further: FurtherMatch {
            out: Some(OutMatch { from: None }),
            ..FurtherMatch::default()
        },
        ..port_rule(&(None, PacketMatch::default(), action))
    };
    let received = port_rule(&(None, PacketMatch::default(), Action::Continue));
    let rules = [
        out(Action::Continue, Some(1)),
        received,
        out(Action::Continue, None),
        out(Action::Drop, Some(1)),
        out(Action::Continue, None),
    ];
    let statements = Statements {
        mss: Some(MssLimit::Octets(1400)),
        ..Statements::default()
    };
    let table = RuleTable::new(rules, Fallback::default());
    let table = table.with_statements(vec![Some(statements), None, None, None, None]);
    let table = Arc::new(table);
    let leaves = |port: u16| {
        let port = PortRules::new(Arc::clone(&table), port, None);
        let mut verdicts = [Verdict::Default(Action::Drop); BURST_MAX];
        let mut all = Continued::default();
        let burst = [(&[2; 60][..], 60)].into_iter();
        port.judge_output(burst, Some(0), (&mut verdicts, Some(&mut all)));
        let first = all.of(0).first().copied().unwrap();
        let has_mss = port.statements_of(first).is_some();
        (verdicts[0], all.of(0).to_vec(), has_mss)
    };
    let dropped = Verdict::Rule(3, Action::Drop);
    assert_eq!(leaves(1), (dropped, vec![0, 2], true));
    assert_eq!(leaves(2), (Verdict::Short, vec![2, 4], false));
}

#[test]
fn rules_that_continue_compare_the_connections_of_frames_that_leave() {
    let out = |states: Option<&str>, mark: Option<u32>, action: Action| PortRule {
        further: FurtherMatch {
            out: Some(OutMatch { from: None }),
            ..FurtherMatch::default()
        },
        ct_states: states.map(|states| states.parse().unwrap()),
        mark: mark.and_then(|mark| MarkBits::new(mark, 7)),
        ..port_rule(&(None, PacketMatch::default(), action))
    };
    let rules = [
        out(Some("new"), None, Action::Continue),
        out(Some("established"), None, Action::Continue),
        out(None, Some(5), Action::Continue),
        out(Some("established"), Some(5), Action::Drop),
        out(None, None, Action::Continue),
    ];
    let statements = vec![Some(Statements::default()); rules.len()];
    let table = RuleTable::new(rules, Fallback::default()).with_statements(statements);
    let port = PortRules::new(Arc::new(table), 1, None);
    assert!(port.continues());
    let frames = [
        (CtState::New, 0),
        (CtState::Established, 0),
        (CtState::Established, 5),
        (CtState::Untracked, 4),
    ];
    let classes = frames.map(|(state, mark)| port.class_of(state, (mark, 0)));
    let burst = classes.map(|class| ((&[2; 60][..], 60), class));
    let mut verdicts = [Verdict::Default(Action::Drop); BURST_MAX];
    let mut all = Continued::default();
    let out = (&mut verdicts, Some(&mut all));
    let dropped = port.judge_classified(burst.into_iter(), Some(0), out);
    assert_eq!(dropped, 1);
    assert_eq!(verdicts[2], Verdict::Rule(3, Action::Drop));
    assert_eq!(verdicts[3], Verdict::Short);
    assert_eq!(all.of(0), [0, 4]);
    assert_eq!(all.of(1), [1, 4]);
    assert_eq!(all.of(2), [1, 2]);
    assert_eq!(all.of(3), [4]);
}
