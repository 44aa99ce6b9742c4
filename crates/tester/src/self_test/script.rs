// SPDX-License-Identifier: Apache-2.0
//! Scripts of the device: its faults, and the frames to which they apply.

use serde::{Deserialize, Serialize};

use quietwire_base::random::mix;

/// One kind of misbehaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The device drops frames.
    Loss,
    /// The device sends a copy of a frame a few frames later.
    Duplicate,
    /// The device sends a copy of a frame thousands of frames later.
    LateDuplicate,
    /// The device sends a frame after later ones.
    Reorder,
    /// The device flips one bit of a frame.
    Damage,
    /// The device sends a frame back to the port that sent it.
    Misdirect,
    /// The device holds every frame for the same time.
    Delay,
    /// The device forwards nothing in one direction for a while, and everything afterwards.
    Stall,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 8] = [
        Self::Loss,
        Self::Duplicate,
        Self::LateDuplicate,
        Self::Reorder,
        Self::Damage,
        Self::Misdirect,
        Self::Delay,
        Self::Stall,
    ];

    /// Returns the name of the fault in kebab case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Duplicate => "duplicate",
            Self::LateDuplicate => "late-duplicate",
            Self::Reorder => "reorder",
            Self::Damage => "damage",
            Self::Misdirect => "misdirect",
            Self::Delay => "delay",
            Self::Stall => "stall",
        }
    }
}

/// Action on a chosen frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Drop the frame.
    Lose,
    /// Forward the frame, and send a copy after `after` further frames of the same direction were received.
    Duplicate {
        /// Frames.
        after: u64,
    },
    /// Forward the frame after `after` further frames of the same direction were received.
    Reorder {
        /// Frames.
        after: u64,
    },
    /// Flip one bit. Every fourth time it is a bit of the last octet, otherwise any bit of the frame.
    Damage,
    /// Send the frame back to the port that sent it.
    Misdirect,
    /// Hold the frame, and all behind it, for `length_us` longer.
    Stall {
        /// Microseconds.
        length_us: u64,
    },
}

/// Selection of frames of one direction. Frames are numbered from 0 in the order in which the device receives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// Frame `offset`, and every `frames`-th frame after it.
    Every {
        /// Frames, at least 1.
        frames: u64,
        /// Number of the first one.
        offset: u64,
    },
    /// One of `frames` frames on average, drawn with the seed of the script.
    Drawn {
        /// Frames, at least 1.
        frames: u64,
    },
}

/// An action and the frames that it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The action.
    pub action: Action,
    /// The frames.
    pub choice: Choice,
}

/// Behaviour of the device in one trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Seed of all random choices.
    pub seed: u64,
    /// Time for which the device holds each frame, microseconds.
    pub delay_us: u64,
    /// Rules in order. The first rule that chooses a frame applies, and no other.
    pub rules: Vec<Rule>,
}

/// Distance of an early copy from its original, frames.
const SOON: u64 = 3;
/// Distance of a late copy from its original, frames.
const LATE: u64 = 2_500;
/// Distance of a reordered frame from its place, frames.
const REORDERED_BY: u64 = 5;
/// Delay of every frame, microseconds.
const DELAY_US: u64 = 1_000;
/// Length of a stall, microseconds.
const STALL_US: u64 = 2_000;

impl Script {
    /// Returns the script of these faults. The numbers of frames between faults are primes, so that the neighbours of each fault vary.
    #[must_use]
    pub fn of(faults: &[Fault], seed: u64) -> Self {
        let every = |frames, offset| Choice::Every { frames, offset };
        let mut script = Self {
            seed,
            ..Self::default()
        };
        for fault in faults {
            let (action, choice) = match fault {
                Fault::Delay => {
                    script.delay_us = DELAY_US;
                    continue;
                }
                Fault::Loss => (Action::Lose, every(101, 7)),
                Fault::Duplicate => (Action::Duplicate { after: SOON }, every(103, 11)),
                Fault::LateDuplicate => (Action::Duplicate { after: LATE }, every(107, 13)),
                Fault::Reorder => {
                    let action = Action::Reorder {
                        after: REORDERED_BY,
                    };
                    (action, Choice::Drawn { frames: 109 })
                }
                Fault::Damage => (Action::Damage, Choice::Drawn { frames: 113 }),
                Fault::Misdirect => (Action::Misdirect, every(127, 17)),
                Fault::Stall => {
                    let action = Action::Stall {
                        length_us: STALL_US,
                    };
                    (action, every(200_003, 1_009))
                }
            };
            script.rules.push(Rule { action, choice });
        }
        script
    }
}

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    state: u64,
}

impl Draws {
    /// Creates the sequence of a seed. Each `stream` yields different numbers.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        Self {
            state: mix(seed) ^ mix(stream.wrapping_add(1)),
        }
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(1);
        mix(self.state).checked_rem(end).unwrap_or(0)
    }
}

/// The frames that a rule chooses.
#[derive(Clone, Debug)]
struct ChosenFrames {
    action: Action,
    choice: Choice,
    draws: Draws,
    /// Number of the next chosen frame.
    next: u64,
}

impl ChosenFrames {
    fn new(rule: Rule, draws: Draws) -> Self {
        let mut pick = Self {
            action: rule.action,
            choice: rule.choice,
            draws,
            next: 0,
        };
        pick.next = match rule.choice {
            Choice::Every { offset, .. } => offset,
            Choice::Drawn { .. } => pick.step().saturating_sub(1),
        };
        pick
    }

    /// Returns the distance to the next chosen frame: at least 1.
    fn step(&mut self) -> u64 {
        match self.choice {
            Choice::Every { frames, .. } => frames.max(1),
            Choice::Drawn { frames } => {
                let range = frames.max(1).saturating_mul(2).saturating_sub(1);
                self.draws.below(range).saturating_add(1)
            }
        }
    }
}

/// The actions of a script for the frames of one direction, in order.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    picks: Vec<ChosenFrames>,
    index: u64,
    /// Number of the next frame that a rule chooses.
    soonest: u64,
}

impl Plan {
    /// Creates the plan of a direction.
    pub(super) fn new(script: &Script, direction: u64) -> Self {
        let pick = |(index, rule): (usize, &Rule)| {
            let stream = (index as u64).saturating_mul(2).saturating_add(direction);
            ChosenFrames::new(*rule, Draws::new(script.seed, stream))
        };
        let mut plan = Self {
            picks: script.rules.iter().enumerate().map(pick).collect(),
            index: 0,
            soonest: 0,
        };
        plan.look_ahead();
        plan
    }

    /// Returns the action for the next frame.
    #[inline(always)]
    pub(super) fn next_action(&mut self) -> Option<Action> {
        let index = self.index;
        self.index = index.saturating_add(1);
        if index < self.soonest {
            None
        } else {
            self.choose(index)
        }
    }

    #[cold]
    fn choose(&mut self, index: u64) -> Option<Action> {
        let mut chosen = None;
        for pick in &mut self.picks {
            if pick.next == index {
                pick.next = pick.next.saturating_add(pick.step());
                chosen = chosen.or(Some(pick.action));
            }
        }
        self.look_ahead();
        chosen
    }

    fn look_ahead(&mut self) {
        let next = self.picks.iter().map(|pick| pick.next);
        self.soonest = next.min().unwrap_or(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(script: &Script, direction: u64, frames: u64) -> Vec<(u64, Action)> {
        let mut plan = Plan::new(script, direction);
        (0..frames)
            .filter_map(|index| plan.next_action().map(|action| (index, action)))
            .collect()
    }

    #[test]
    fn every_nth_frame_is_chosen_from_its_offset_on() {
        let script = Script::of(&[Fault::Loss], 1);
        let expected: Vec<_> = [7, 108, 209].map(|index| (index, Action::Lose)).to_vec();
        assert_eq!(actions(&script, 0, 300), expected);
        assert_eq!(actions(&Script::default(), 0, 300), []);
    }

    #[test]
    fn drawn_frames_follow_from_the_seed_and_have_their_share() {
        let of = |seed, direction| actions(&Script::of(&[Fault::Damage], seed), direction, 113_000);
        assert_eq!(of(1, 0), of(1, 0));
        assert_ne!(of(1, 0), of(2, 0));
        assert_ne!(of(1, 0), of(1, 1));
        let count = of(1, 0).len();
        assert!((900..1100).contains(&count), "{count}");
    }

    #[test]
    fn of_two_rules_the_first_applies() {
        let rule = |action| Rule {
            action,
            choice: Choice::Every {
                frames: 1,
                offset: 2,
            },
        };
        let script = Script {
            rules: vec![rule(Action::Misdirect), rule(Action::Lose)],
            ..Script::default()
        };
        let misdirected = [2, 3].map(|index| (index, Action::Misdirect)).to_vec();
        assert_eq!(actions(&script, 0, 4), misdirected);
    }

    #[test]
    fn a_script_with_all_faults_has_them_all() {
        let script = Script::of(&Fault::ALL, 1);
        assert!(script.delay_us > 0);
        let observed = actions(&script, 0, 100_000);
        for rule in &script.rules {
            assert!(
                observed.iter().any(|(_, action)| *action == rule.action),
                "{rule:?}"
            );
        }
        let text = serde_json::to_vec(&script).unwrap();
        assert_eq!(serde_json::from_slice::<Script>(&text).unwrap(), script);
    }
}
