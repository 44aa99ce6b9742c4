// SPDX-License-Identifier: Apache-2.0
//! Rules that compare or set marks and labels of connections.

use super::super::ct_states::state_bit;
use super::super::ct_values::CtMatch;
use super::super::names::NameFlows;
use super::{Dropped, Judged, PortRules, Verdict, set_state, state_of};
use crate::classifier::{Field, Key};
use crate::connections::{CtState, Tracked};

impl PortRules {
    /// Returns true if some rule compares marks or labels. Such rules match no frame but by [`Self::judge_marked`].
    #[inline(always)]
    #[must_use]
    pub fn has_ct_values(&self) -> bool {
        self.table.compiled.values.len() > 0
    }

    /// Returns true if some rule compares labels.
    #[must_use]
    pub fn has_labels(&self) -> bool {
        self.table.compiled.values.has_labels()
    }

    /// As [`Self::judge_tracked`], or [`Self::judge_named`] with the earlier packets of connections, for frames whose connections have
    /// the marks of these results and these labels.
    pub fn judge_marked<'frame, 'out>(
        &self,
        frames: impl Iterator<Item = (&'frame [u8], u32)>,
        (tracked, labels): (&[Tracked], &[u128]),
        flows: Option<&mut NameFlows>,
        out: impl Into<Judged<'out>>,
    ) -> Dropped {
        let compiled = &*self.table.compiled;
        let mut named = flows.zip(compiled.names.as_ref());
        let set = |key: &mut Key, number: usize, frame: &[u8]| {
            let state = state_of(tracked, number);
            set_state(key, state);
            let mark = tracked.get(number).map_or(0, |one| one.mark);
            let label = labels.get(number).copied().unwrap_or(0);
            key.set(Field::METADATA, compiled.values.bits_of((mark, label)));
            if let Some((flows, names)) = &mut named {
                let restarts =
                    matches!(state, CtState::New | CtState::Related | CtState::Untracked);
                let marks = flows.marks(names, key, frame, restarts);
                key.set(Field::METADATA, marks);
            }
        };
        self.judge_all(frames, set, out.into())
    }

    /// Returns true if some rule sets marks or labels.
    #[inline(always)]
    #[must_use]
    pub fn sets_ct_values(&self) -> bool {
        self.table.sets_ct_values
    }

    /// Returns the mark and the label of the connection of a frame after the statements of the rule that decided on it, given those before.
    #[must_use]
    pub fn values_after(&self, tracked: &Tracked, label: u128, verdict: Verdict) -> (u32, u128) {
        let has_connection = tracked.connection.is_some() || tracked.is_first();
        if !self.table.sets_ct_values || !has_connection || !verdict.accepts() {
            return (tracked.mark, label);
        }
        let (mark_bits, label_bits) = self.ct_values(verdict);
        (
            mark_bits.map_or(tracked.mark, |bits| bits.set_in(tracked.mark)),
            label_bits.map_or(label, |bits| bits.set_in(label)),
        )
    }

    /// Returns the class of frames of connections with this state, mark and label, for [`Self::judge_classified`] of these rules.
    #[must_use]
    pub fn class_of(&self, state: CtState, values: (u32, u128)) -> u32 {
        state_bit(state) | self.table.compiled.values.bits_of(values)
    }

    /// Returns the bits that the rule that decided on a frame sets in the mark and in the label of its connection.
    #[must_use]
    pub fn ct_values(&self, verdict: Verdict) -> CtMatch {
        let statements = self.statements(verdict);
        statements.map_or((None, None), |one| (one.mark, one.label))
    }
}
