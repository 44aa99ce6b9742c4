// SPDX-License-Identifier: Apache-2.0
//! Rules that compare or set labels of connections.

use super::super::names::NameFlows;
use super::{Dropped, PortRules, Verdict, Verdicts, set_state, state_of};
use crate::classifier::{Field, Key};
use crate::connections::{CtState, LabelBits, Tracked};

impl PortRules {
    /// Returns true if some rule compares labels. Such rules match no frame but by [`Self::judge_labelled`].
    #[inline(always)]
    #[must_use]
    pub fn has_labels(&self) -> bool {
        self.table.compiled.labels.len() > 0
    }

    /// As [`Self::judge_tracked`], or [`Self::judge_named`] with the earlier packets of connections, for frames whose connections have
    /// these labels.
    pub fn judge_labelled<'frame>(
        &self,
        frames: impl Iterator<Item = (&'frame [u8], u32)>,
        (tracked, labels): (&[Tracked], &[u128]),
        flows: Option<&mut NameFlows>,
        verdicts: &mut Verdicts,
    ) -> Dropped {
        let compiled = &*self.table.compiled;
        let mut named = flows.zip(compiled.names.as_ref());
        let set = |key: &mut Key, number: usize, frame: &[u8]| {
            let state = state_of(tracked, number);
            set_state(key, state);
            let label = labels.get(number).copied().unwrap_or(0);
            key.set(Field::METADATA, compiled.labels.marks_of(label));
            if let Some((flows, names)) = &mut named {
                let restarts =
                    matches!(state, CtState::New | CtState::Related | CtState::Untracked);
                let marks = flows.marks(names, key, frame, restarts);
                key.set(Field::METADATA, marks);
            }
        };
        self.judge_all(frames, set, verdicts)
    }

    /// Returns true if some rule sets labels.
    #[inline(always)]
    #[must_use]
    pub fn sets_labels(&self) -> bool {
        self.table.sets_labels
    }

    /// Returns the bits that the rule that decided on a frame sets in the label of its connection.
    #[must_use]
    pub fn label(&self, verdict: Verdict) -> Option<LabelBits> {
        self.statements(verdict)?.label
    }
}
