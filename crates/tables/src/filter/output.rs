// SPDX-License-Identifier: Apache-2.0
//! Rules for frames that leave: the same table as that of received frames, distinguished by one bit of the key. The number of the port has a
//! second half, which is that of the port that received the frame. A frame that leaves has the state, mark and label of its connection as a
//! class, which was computed when it was received.

use quietwire_base::BURST_MAX;

use super::action::Action;
use super::counters::keys_of;
use super::ct_states::{STATES, state_bit};
use super::further::mark_output;
use super::rules::PortRules;
use super::tally::Tally;
use super::verdict::{Judged, Verdict};
use crate::classifier::{Field, NO_RULE};
use crate::connections::CtState;

/// Returns a class without bits that none of the conditions has, and with a state.
#[inline(always)]
const fn valid(class: u32, conditions: u32) -> u32 {
    let class = class & (STATES | conditions);
    match class & STATES {
        0 => class | state_bit(CtState::Untracked),
        _ => class,
    }
}

impl PortRules {
    /// Judges a burst that leaves by the port, and counts. `from` is the port that received it, if any did. Frames without a rule are accepted,
    /// with the verdict [`Verdict::Short`]. Returns the number of dropped frames. Rules see frames without connections.
    pub fn judge_output<'frame, 'out>(
        &self,
        frames: impl Iterator<Item = (&'frame [u8], u32)>,
        from: Option<u16>,
        out: impl Into<Judged<'out>>,
    ) -> usize {
        self.judge_classified(frames.zip(std::iter::repeat(0)), from, out)
    }

    /// As [`Self::judge_output`], for frames with these classes ([`Self::class_of`]). A frame of class 0 has no connection.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    #[inline]
    pub fn judge_classified<'frame, 'out>(
        &self,
        frames: impl Iterator<Item = ((&'frame [u8], u32), u32)>,
        from: Option<u16>,
        out: impl Into<Judged<'out>>,
    ) -> usize {
        let Judged {
            verdicts,
            continued,
            counters,
        } = out.into();
        let conditions = self.conditions();
        let mut local = None;
        let (keys, mut own) = keys_of(counters, &mut local);
        let mut count = 0;
        for (((octets, length), class), key) in frames.zip(keys.iter_mut()) {
            self.write_key(octets, length, key);
            mark_output(key, from);
            key.set(Field::METADATA, valid(class, conditions));
            count += 1;
        }
        let keys = keys.get_mut(..count).unwrap_or_default();
        let mut found = [NO_RULE; BURST_MAX];
        self.look_up(keys, &mut found);
        self.pass_output(keys, &found, (continued, own.as_deref_mut()));
        let mut dropped = 0;
        let mut tally = Tally::new(own);
        for (verdict, rule) in verdicts.iter_mut().zip(&found).take(count) {
            *verdict = match self.count_in(&mut tally, *rule) {
                Some(action) => Verdict::Rule(*rule, action),
                None => Verdict::Short,
            };
            dropped += usize::from(matches!(verdict, Verdict::Rule(_, Action::Drop)));
        }
        self.count_all(&tally);
        dropped
    }

    /// Returns the number of the rule that decides on a packet that leaves by the port, as [`Self::find`] does.
    #[must_use]
    pub fn find_output(&self, packet: &super::DescribedPacket, from: Option<u16>) -> Option<u32> {
        let mut key = self.described_key(packet);
        mark_output(&mut key, from);
        let mut found = [NO_RULE];
        self.look_up(&mut [key], &mut found);
        let [found] = found;
        (found != NO_RULE).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::{
        CtStates, DescribedPacket, Element, Fallback, FurtherMatch, MalformedAction, OutMatch,
        PacketMatch, PortRule, Protocol, RuleFrames, RuleTable, SetField,
    };
    use super::*;
    use crate::connections::{LabelBits, MarkBits};
    use crate::port_mask::PortMask;

    fn rule(port: Option<u16>, further: FurtherMatch, action: Action) -> PortRule {
        PortRule {
            port,
            group: None,
            vlan: None,
            packet: PacketMatch::default(),
            further,
            sets: Vec::new(),
            ct_states: None,
            mark: None,
            label: None,
            action,
            frames: Arc::default(),
        }
    }

    fn out(from: Option<u16>) -> FurtherMatch {
        FurtherMatch {
            out: Some(OutMatch { from }),
            ..FurtherMatch::default()
        }
    }

    fn mask(ports: &[u16]) -> PortMask {
        ports.iter().copied().collect()
    }

    fn frame() -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([
            8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame.extend([0, 9, 0, 53, 0, 8, 0, 0]);
        frame
    }

    #[test]
    fn received_frames_and_those_that_leave_have_rules_of_their_own() {
        let rules = [
            rule(Some(1), out(Some(0)), Action::Drop),
            rule(Some(1), FurtherMatch::default(), Action::Drop),
            rule(Some(2), out(None), Action::Drop),
            rule(None, out(Some(5)), Action::Accept),
            rule(None, out(Some(u16::MAX)), Action::Drop),
            rule(None, FurtherMatch::default(), Action::Accept),
        ];
        let counters: Vec<_> = rules.iter().map(|rule| Arc::clone(&rule.frames)).collect();
        let fallback = Fallback {
            default: Action::Drop,
            malformed: MalformedAction::Drop,
            ..Fallback::default()
        };
        let table = Arc::new(RuleTable::new(rules, fallback));
        let frame = frame();
        let packet: DescribedPacket = serde_json::from_str(
            r#"{"source":"10.0.0.1","destination":"10.0.0.2","protocol":"udp","source-port":9,"destination-port":53}"#,
        )
        .unwrap();
        let leaves = |port, from| {
            let rules = PortRules::new(Arc::clone(&table), port, None);
            let mut verdicts = [Verdict::Default(Action::Drop); BURST_MAX];
            let burst = [(&frame[..], frame.len() as u32); 2];
            let dropped = rules.judge_output(burst.iter().copied(), from, &mut verdicts);
            assert_eq!(verdicts[0], verdicts[1]);
            let found = match verdicts[0] {
                Verdict::Rule(rule, action) => {
                    assert_eq!(dropped, if action == Action::Drop { 2 } else { 0 });
                    Some(rule)
                }
                other => {
                    assert_eq!((other, dropped), (Verdict::Short, 0));
                    None
                }
            };
            assert_eq!(rules.find_output(&packet, from), found);
            found
        };
        assert_eq!(leaves(1, Some(0)), Some(0));
        assert_eq!(leaves(1, Some(5)), Some(3));
        assert_eq!(leaves(1, Some(6)), None);
        assert_eq!(leaves(1, None), None);
        assert_eq!(leaves(2, None), Some(2));
        // Frames of the service thread, and a number that no port has, are those of no port.
        assert_eq!((leaves(0, None), leaves(0, Some(256))), (None, None));
        assert_eq!(leaves(255, Some(5)), Some(3));
        assert_eq!(leaves(255, Some(255)), None);
        assert_eq!(counters[0].get(), 2);
        let received = |port| {
            let rules = PortRules::new(Arc::clone(&table), port, None);
            let mut verdicts = [Verdict::Short; BURST_MAX];
            rules.judge(
                [(&frame[..], frame.len() as u32)].iter().copied(),
                &mut verdicts,
            );
            verdicts[0]
        };
        assert_eq!(received(1), Verdict::Rule(1, Action::Drop));
        assert_eq!(received(2), Verdict::Rule(5, Action::Accept));
    }

    #[test]
    fn a_rule_of_several_ports_is_one_rule() {
        let ports = |ports: &[u16]| FurtherMatch {
            ports: mask(ports),
            ..FurtherMatch::default()
        };
        let rules = [
            rule(None, ports(&[1, 3]), Action::Drop),
            rule(Some(2), FurtherMatch::default(), Action::Drop),
            rule(None, ports(&[0, 31, 32, 64, 255]), Action::Accept),
        ];
        let table = Arc::new(RuleTable::new(rules, Fallback::default()));
        let frame = frame();
        let found: Vec<Option<u32>> = [0, 1, 2, 3, 4, 31, 32, 64, 65, 255]
            .into_iter()
            .map(|port| {
                let rules = PortRules::new(Arc::clone(&table), port, None);
                let mut verdicts = [Verdict::Short; BURST_MAX];
                rules.judge(
                    [(&frame[..], frame.len() as u32)].iter().copied(),
                    &mut verdicts,
                );
                match verdicts[0] {
                    Verdict::Rule(rule, _) => Some(rule),
                    _ => None,
                }
            })
            .collect();
        let of_few = [Some(2), Some(0), Some(1), Some(0), None];
        let of_many = [Some(2), Some(2), Some(2), None, Some(2)];
        assert_eq!(found, [of_few, of_many].concat());
    }

    #[test]
    fn a_rule_of_several_ports_that_received_frames_is_one_rule() {
        let further = |ports: &[u16], from_ports: &[u16]| FurtherMatch {
            ports: mask(ports),
            from_ports: mask(from_ports),
            ..out(None)
        };
        let rules = [
            rule(None, further(&[1], &[2, 3]), Action::Drop),
            rule(None, further(&[], &[0, 200]), Action::Drop),
            rule(Some(2), further(&[], &[3]), Action::Continue),
        ];
        let counted = Arc::clone(&rules[2].frames);
        let table = Arc::new(RuleTable::new(rules, Fallback::default()));
        let frame = frame();
        let leaves = |port, from| {
            let rules = PortRules::new(Arc::clone(&table), port, None);
            let mut verdicts = [Verdict::Short; BURST_MAX];
            let burst = [(&frame[..], frame.len() as u32)];
            rules.judge_output(burst.iter().copied(), from, &mut verdicts);
            match verdicts[0] {
                Verdict::Rule(rule, _) => Some(rule),
                _ => None,
            }
        };
        let found = [1, 2].map(|port| [0, 1, 2, 3].map(|from| leaves(port, Some(from))));
        let of_1 = [Some(1), None, Some(0), Some(0)];
        assert_eq!(found, [of_1, [Some(1), None, None, None]]);
        assert_eq!(leaves(1, Some(200)), Some(1));
        assert_eq!(leaves(1, Some(201)), None);
        assert_eq!(leaves(1, None), None);
        assert_eq!(counted.get(), 1);
    }

    #[test]
    fn sets_are_compared_on_the_way_out_too() {
        let mut one = rule(None, out(Some(3)), Action::Drop);
        one.sets = vec![(SetField::Source, 0)];
        let set: Vec<Element> = vec!["10.0.0.0/24".parse().unwrap()];
        let table = RuleTable::with_sets([one], &[set], Fallback::default());
        let rules = PortRules::new(Arc::new(table), 1, None);
        let frame = frame();
        let mut verdicts = [Verdict::Short; BURST_MAX];
        let burst = [(&frame[..], frame.len() as u32)];
        let mut dropped = |from| rules.judge_output(burst.iter().copied(), from, &mut verdicts);
        assert_eq!((dropped(Some(3)), dropped(Some(2))), (1, 0));
    }

    /// A rule on frames in one direction, as its conditions.
    #[derive(Clone, Debug)]
    struct Plain {
        is_out: bool,
        port: Option<u16>,
        from: Option<u16>,
        states: Option<CtStates>,
        mark: Option<MarkBits>,
        label: Option<LabelBits>,
    }

    impl Plain {
        fn compiled(&self) -> PortRule {
            let further = match self.is_out {
                true => out(self.from),
                false => FurtherMatch::default(),
            };
            PortRule {
                ct_states: self.states,
                mark: self.mark,
                label: self.label,
                ..rule(self.port, further, Action::Drop)
            }
        }

        /// The meaning of a rule, condition by condition.
        fn matches(&self, frame: &Leaving) -> bool {
            self.is_out
                && self.port.is_none_or(|port| port == frame.port)
                && self.from.is_none_or(|port| Some(port) == frame.from)
                && self.states.is_none_or(|all| all.contains(frame.state))
                && self.mark.is_none_or(|bits| bits.matches(frame.mark))
                && self.label.is_none_or(|bits| bits.matches(frame.label))
        }
    }

    /// A frame that leaves.
    #[derive(Clone, Debug)]
    struct Leaving {
        port: u16,
        from: Option<u16>,
        state: CtState,
        mark: u32,
        label: u128,
    }

    fn states() -> impl Strategy<Value = CtStates> {
        let names = prop::sample::subsequence(CtState::ALL.to_vec(), 1..=CtState::ALL.len());
        names.prop_map(|states| {
            let names: Vec<&str> = states.into_iter().map(CtState::name).collect();
            names.join(",").parse().unwrap()
        })
    }

    fn plain() -> impl Strategy<Value = Plain> {
        let bits = || (0..4u32, 1..4u32);
        (
            prop::bool::weighted(0.8),
            prop::option::of(0..3u16),
            prop::option::of(prop::sample::select(vec![0, 1, 2, u16::MAX])),
            prop::option::of(states()),
            prop::option::of(bits()),
            prop::option::of(bits()),
        )
            .prop_map(|(is_out, port, from, states, mark, label)| Plain {
                is_out,
                port,
                from: from.filter(|_| is_out),
                states,
                mark: mark.and_then(|(value, mask)| MarkBits::new(value & mask, mask)),
                label: label.and_then(|(value, mask)| {
                    LabelBits::new(u128::from(value & mask), u128::from(mask))
                }),
            })
    }

    fn leaving() -> impl Strategy<Value = Leaving> {
        (
            0..3u16,
            prop::option::of(0..4u16),
            prop::sample::select(CtState::ALL.to_vec()),
            0..4u32,
            0..4u128,
        )
            .prop_map(|(port, from, state, mark, label)| Leaving {
                port,
                from,
                state,
                mark,
                label,
            })
    }

    proptest! {
        /// Compared with a search of the rules one by one.
        #[test]
        fn the_first_rule_that_matches_a_frame_that_leaves_decides(
            rules in prop::collection::vec(plain(), 1..16),
            frames in prop::collection::vec(leaving(), 1..16),
            garbage in any::<u32>(),
        ) {
            // Without rules for them, frames that leave are not judged.
            prop_assume!(rules.iter().any(|rule| rule.is_out));
            let compiled = rules.iter().map(Plain::compiled);
            let table = Arc::new(RuleTable::new(compiled, Fallback::default()));
            let octets = frame();
            for frame in &frames {
                let port = PortRules::new(Arc::clone(&table), frame.port, None);
                let class = port.class_of(frame.state, (frame.mark, frame.label));
                let burst = std::iter::once(((&octets[..], octets.len() as u32), class));
                let mut verdicts = [Verdict::Default(Action::Accept); BURST_MAX];
                let dropped = port.judge_classified(burst, frame.from, &mut verdicts);
                let found = rules.iter().position(|rule| rule.matches(frame));
                let expected = match found {
                    Some(rule) => Verdict::Rule(rule as u32, Action::Drop),
                    None => Verdict::Short,
                };
                prop_assert_eq!(verdicts[0], expected, "{:?}", frame);
                prop_assert_eq!(dropped, usize::from(found.is_some()));
                // Bits that no condition has change nothing.
                let conditions = STATES | port.conditions();
                let burst = std::iter::once((
                    (&octets[..], octets.len() as u32),
                    class | garbage & !conditions,
                ));
                port.judge_classified(burst, frame.from, &mut verdicts);
                prop_assert_eq!(verdicts[0], expected, "{:?}", frame);
                // A described packet has the same rule.
                let text = format!(
                    r#"{{"source":"10.0.0.1","destination":"10.0.0.2","protocol":"udp","source-port":9,"destination-port":53,"ct-state":"{}","ct-mark":"{}","ct-label":"{}"}}"#,
                    frame.state.name(), frame.mark, frame.label
                );
                let packet: DescribedPacket = serde_json::from_str(&text).unwrap();
                let described = port.find_output(&packet, frame.from);
                prop_assert_eq!(described, found.map(|rule| rule as u32));
            }
        }
    }

    #[test]
    fn frames_that_leave_are_counted_by_rule() {
        let counters: [Arc<RuleFrames>; 2] = Default::default();
        let of = |protocol: u8, counter: &Arc<RuleFrames>| PortRule {
            packet: PacketMatch {
                protocol: Some(Protocol(protocol)),
                ..PacketMatch::default()
            },
            frames: Arc::clone(counter),
            ..rule(None, out(None), Action::Drop)
        };
        let rules = [of(6, &counters[0]), of(17, &counters[1])];
        let table = Arc::new(RuleTable::new(rules, Fallback::default()));
        let port = PortRules::new(table, 1, None);
        // The header of the TCP segment is not complete.
        let frames = [17, 6, 1, 17, 17].map(|protocol| {
            let mut frame = frame();
            frame[23] = protocol;
            frame
        });
        let burst = frames.iter().map(|frame| (&frame[..], frame.len() as u32));
        let mut verdicts = [Verdict::Default(Action::Accept); BURST_MAX];
        assert_eq!(port.judge_output(burst, None, &mut verdicts), 4);
        let decided = [Some(1), Some(0), None, Some(1), Some(1)];
        let decided = decided
            .map(|rule| rule.map_or(Verdict::Short, |rule| Verdict::Rule(rule, Action::Drop)));
        assert_eq!(verdicts[..5], decided);
        let counts = counters.each_ref().map(|one| one.get());
        assert_eq!(counts, [1, 3]);
    }

    #[test]
    fn a_frame_without_a_class_is_untracked() {
        let of = |states: &str| PortRule {
            ct_states: states.parse().ok(),
            ..rule(None, out(None), Action::Drop)
        };
        let rules = [of("new,established,related,invalid"), of("untracked")];
        let table = Arc::new(RuleTable::new(rules, Fallback::default()));
        let port = PortRules::new(table, 1, None);
        let frame = frame();
        let mut verdicts = [Verdict::Short; BURST_MAX];
        let burst = [(&frame[..], frame.len() as u32)];
        port.judge_output(burst.iter().copied(), None, &mut verdicts);
        assert_eq!(verdicts[0], Verdict::Rule(1, Action::Drop));
    }
}
