// SPDX-License-Identifier: Apache-2.0
//! Rules that compare or set marks and labels of connections.

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

    /// Returns the bits that the rule that decided on a frame sets in the mark and in the label of its connection.
    #[must_use]
    pub fn ct_values(&self, verdict: Verdict) -> CtMatch {
        let statements = self.statements(verdict);
        statements.map_or((None, None), |one| (one.mark, one.label))
    }
}
