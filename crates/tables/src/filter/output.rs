// SPDX-License-Identifier: Apache-2.0
//! Rules for frames that leave: the same table as that of received frames, distinguished by one bit of the key. The place of the states of
//! connections, which such frames do not have, holds the port that received the frame.

use quietwire_base::BURST_MAX;

use super::action::Action;
use super::further::place;
use super::rules::PortRules;
use super::verdict::{Judged, Verdict};
use crate::classifier::{Field, Key, NO_RULE};

/// Makes the key of a received frame that of one that leaves.
#[inline(always)]
fn mark_output(key: &mut Key, from: Option<u16>) {
    key.set(Field::IS_OUT, 1);
    key.set(Field::METADATA, place(from));
}

impl PortRules {
    /// Judges a burst that leaves by the port, and counts. `from` is the port that received it, if any did. Frames without a rule are accepted,
    /// with the verdict [`Verdict::Short`]. Returns the number of dropped frames.
    pub fn judge_output<'frame, 'out>(
        &self,
        frames: impl Iterator<Item = (&'frame [u8], u32)>,
        from: Option<u16>,
        out: impl Into<Judged<'out>>,
    ) -> usize {
        let Judged {
            verdicts,
            continued,
        } = out.into();
        let mut keys = [Key::EMPTY; BURST_MAX];
        let mut count = 0;
        for ((octets, _), key) in frames.zip(keys.iter_mut()) {
            *key = self.key_of(octets);
            mark_output(key, from);
            count += 1;
        }
        let keys = keys.get_mut(..count).unwrap_or_default();
        let mut found = [NO_RULE; BURST_MAX];
        self.look_up(keys, &mut found);
        self.pass_output(keys, &found, continued);
        let mut dropped = 0;
        for (verdict, rule) in verdicts.iter_mut().zip(found).take(count) {
            *verdict = match self.count_one(rule) {
                Some(action) => Verdict::Rule(rule, action),
                None => Verdict::Short,
            };
            dropped += usize::from(matches!(verdict, Verdict::Rule(_, Action::Drop)));
        }
        dropped
    }

    /// Returns the number of the rule that decides on a packet that leaves by the port, as [`Self::find`] does.
    #[must_use]
    pub fn find_output(&self, packet: &super::DescribedPacket, from: Option<u16>) -> Option<u32> {
        let mut key = self.described_key(packet);
        // The state of a connection is not compared.
        key.clear(Field::METADATA);
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
    use std::sync::atomic::Ordering;

    use super::super::{
        DescribedPacket, Element, Fallback, FurtherMatch, MalformedAction, OutMatch, PacketMatch,
        PortRule, RuleTable, SetField,
    };
    use super::*;

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
        assert_eq!(leaves(0, Some(127)), None);
        assert_eq!(counters[0].load(Ordering::Relaxed), 2);
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
        let ports = |ports| FurtherMatch {
            ports,
            ..FurtherMatch::default()
        };
        let rules = [
            rule(None, ports(0b1010), Action::Drop),
            rule(Some(2), FurtherMatch::default(), Action::Drop),
            rule(None, ports(1 << 31 | 1), Action::Accept),
        ];
        let table = Arc::new(RuleTable::new(rules, Fallback::default()));
        let frame = frame();
        let found: Vec<Option<u32>> = [0, 1, 2, 3, 4, 31]
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
        assert_eq!(found, [Some(2), Some(0), Some(1), Some(0), None, Some(2)]);
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
}
