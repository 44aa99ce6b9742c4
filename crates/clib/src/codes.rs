// SPDX-License-Identifier: Apache-2.0
//! Numbers of states and reasons in the header. They are assigned by name, so that a new state or reason of the tables changes no number.

use quietwire_tables::connections::{CtState, InvalidReason, Refusal, State};
use quietwire_tables::filter::Malformation;

/// No reason.
pub(crate) const NONE: u8 = 0;
/// A state or reason that has no number in the header.
pub(crate) const OTHER: u8 = 255;

/// `enum qw_ct_state`, from 0 on.
pub(crate) const CT_STATES: [&str; 5] = ["new", "established", "related", "invalid", "untracked"];
/// `enum qw_connection_state`, from 0 on.
pub(crate) const CONNECTION_STATES: [&str; 15] = [
    "tcp_syn_sent",
    "tcp_syn_sent2",
    "tcp_syn_recv",
    "tcp_established",
    "tcp_fin_wait",
    "tcp_close_wait",
    "tcp_last_ack",
    "tcp_time_wait",
    "tcp_close",
    "udp_unreplied",
    "udp_replied",
    "icmp_unreplied",
    "icmp_replied",
    "other_unreplied",
    "other_replied",
];
/// `enum qw_invalid_reason`, from 1 on.
pub(crate) const INVALID_REASONS: [&str; 11] = [
    "malformed",
    "fragment",
    "same_endpoint",
    "flags",
    "no_connection",
    "state",
    "sequence",
    "acknowledgement",
    "syn",
    "icmp_type",
    "unrelated",
];
/// `enum qw_refusal`, from 1 on.
pub(crate) const REFUSALS: [&str; 4] = ["table_full", "zone_full", "no_zone", "conflict"];
/// `enum qw_malformation`, from 1 on.
pub(crate) const MALFORMATIONS: [&str; 19] = [
    "truncated-tag",
    "too-many-tags",
    "hidden-vlan",
    "snap",
    "truncated-header",
    "ip-version",
    "header-length",
    "packet-length",
    "options",
    "jumbogram",
    "truncated-extension",
    "too-many-extensions",
    "extension-order",
    "unknown-extension",
    "truncated-transport",
    "overlapping-fragment",
    "fragment-length",
    "fragment-end",
    "scattered-headers",
];

/// Numbers of the variants of the tables, by variant. They are computed once, because forwarding compares no names.
#[derive(Clone, Debug)]
pub(crate) struct Codes {
    ct_states: [u8; CtState::ALL.len()],
    states: [u8; State::ALL.len()],
    reasons: [u8; InvalidReason::ALL.len()],
    refusals: [u8; Refusal::ALL.len()],
    malformations: [u8; Malformation::ALL.len()],
}

/// Returns the number of each name: its place in the list, counted from `first` on.
fn numbers<const N: usize>(names: [&'static str; N], list: &[&str], first: u8) -> [u8; N] {
    names.map(|name| {
        let place = list.iter().position(|one| *one == name);
        let number = place.and_then(|place| u8::try_from(place).ok());
        number.map_or(OTHER, |number| number.saturating_add(first))
    })
}

#[expect(
    clippy::indexing_slicing,
    reason = "each list has a number for every variant"
)]
impl Codes {
    pub(crate) fn new() -> Self {
        Self {
            ct_states: numbers(CtState::ALL.map(CtState::name), &CT_STATES, 0),
            states: numbers(State::ALL.map(State::name), &CONNECTION_STATES, 0),
            reasons: numbers(
                InvalidReason::ALL.map(InvalidReason::name),
                &INVALID_REASONS,
                1,
            ),
            refusals: numbers(Refusal::ALL.map(Refusal::name), &REFUSALS, 1),
            malformations: numbers(Malformation::ALL.map(Malformation::name), &MALFORMATIONS, 1),
        }
    }

    pub(crate) const fn of_ct_state(&self, state: CtState) -> u8 {
        self.ct_states[state as usize]
    }

    pub(crate) const fn of_state(&self, state: State) -> u8 {
        self.states[state as usize]
    }

    pub(crate) fn of_reason(&self, reason: Option<InvalidReason>) -> u8 {
        reason.map_or(NONE, |reason| self.reasons[reason as usize])
    }

    pub(crate) const fn of_refusal(&self, refusal: Refusal) -> u8 {
        self.refusals[refusal as usize]
    }

    pub(crate) const fn of_malformation(&self, kind: Malformation) -> u8 {
        self.malformations[kind as usize]
    }
}

/// Returns the state of a number of the header.
pub(crate) fn state_of(number: usize) -> Option<State> {
    let name = CONNECTION_STATES.get(number)?;
    State::ALL.into_iter().find(|state| state.name() == *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../include/quietwire.h");

    /// Compares a list of names with the constants of the header that begin with this prefix.
    fn compare(prefix: &str, names: &[&str], first: usize) {
        for (number, name) in (first..).zip(names) {
            let name = name.replace('-', "_").to_uppercase();
            let line = format!("    {prefix}{name} = {number},");
            assert!(
                HEADER.lines().any(|one| one == line),
                "the header lacks '{line}'"
            );
        }
        let begin = format!("    {prefix}");
        let lines = HEADER.lines().filter(|line| line.starts_with(&begin));
        assert_eq!(lines.count(), names.len(), "constants {prefix}");
    }

    #[test]
    fn the_header_has_every_state_and_reason_with_its_number() {
        compare("QW_CT_", &CT_STATES, 0);
        compare("QW_STATE_", &CONNECTION_STATES, 0);
        compare("QW_INVALID_", &INVALID_REASONS, 1);
        compare("QW_REFUSED_", &REFUSALS, 1);
        compare("QW_MALFORMED_", &MALFORMATIONS, 1);
    }

    #[test]
    fn every_number_of_the_header_is_one_of_the_tables() {
        let codes = Codes::new();
        for (numbers, count, first) in [
            (&codes.ct_states[..], CT_STATES.len(), 0),
            (&codes.states[..], CONNECTION_STATES.len(), 0),
            (&codes.reasons[..], INVALID_REASONS.len(), 1),
            (&codes.refusals[..], REFUSALS.len(), 1),
            (&codes.malformations[..], MALFORMATIONS.len(), 1),
        ] {
            for number in first..first + count {
                let found = numbers.iter().filter(|one| usize::from(**one) == number);
                assert_eq!(found.count(), 1, "number {number} of {numbers:?}");
            }
        }
        for number in 0..CONNECTION_STATES.len() {
            let state = state_of(number).unwrap();
            assert_eq!(usize::from(codes.of_state(state)), number);
        }
        assert_eq!(state_of(CONNECTION_STATES.len()), None);
        assert_eq!(codes.of_reason(None), NONE);
    }

    #[test]
    fn a_name_without_a_number_is_another_one() {
        assert_eq!(numbers(["b", "c", "a"], &["a", "b"], 1), [2, OTHER, 1]);
    }
}
