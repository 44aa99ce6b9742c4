// SPDX-License-Identifier: Apache-2.0
//! The node's machine: plans, applies, verifies and rolls back its partition.

use std::io;
use std::path::{Path, PathBuf};

use quietwire_host::apply::{self, ApplyError, Outcome, STATE_DIRECTORY, Target, applied_plan};
use quietwire_host::files::Disk;
use quietwire_host::inventory::Inventory;
use quietwire_host::partition::{PartitionRequest, Plan};
use quietwire_host::verify::{Check, Sample, Verdict, live_checks, static_checks};

use super::marker::Marker;
use crate::beside::{self, Refusal};
use crate::kubelet::Kubelet;

/// File with the owner of the partition, below the root directory.
const MARKER: &str = "run/quietwire/agent/partition.json";

/// Errors of the machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A partition was applied by other means.
    #[error(
        "a partition that no NodePartition made is applied on this node (undo it with `quietwire partition rollback`)"
    )]
    Foreign,
    /// Applying or rolling back failed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The file with the owner cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Marker {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
}

/// Result of applying a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// Changes that failed: place and reason.
    pub(super) failures: Vec<String>,
    /// Kernel command line parameters that require a reboot.
    pub(super) pending: Vec<String>,
}

/// The machine of a node.
#[derive(Debug)]
pub struct Machine {
    root: PathBuf,
    state_directory: PathBuf,
    marker: PathBuf,
    before: Option<Sample>,
}

impl Machine {
    /// Returns the machine whose `/proc`, `/sys` and `/run` are below `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            state_directory: root.join(STATE_DIRECTORY.trim_start_matches('/')),
            marker: root.join(MARKER),
            before: None,
        }
    }

    fn target(&self) -> Target<'static> {
        Target {
            files: &Disk,
            storage: &Disk,
            root: self.root.clone(),
            state_directory: self.state_directory.clone(),
        }
    }

    fn at_marker(&self) -> impl FnOnce(io::Error) -> MachineError {
        let path = self.marker.clone();
        move |cause| MachineError::Marker { path, cause }
    }

    /// Returns the owner of the applied partition.
    pub(super) fn marker(&self) -> Result<Option<Marker>, MachineError> {
        Marker::read(&self.marker).map_err(self.at_marker())
    }

    /// Returns the applied plan.
    pub(super) fn plan(&self) -> Result<Option<Plan>, MachineError> {
        Ok(applied_plan(&self.state_directory)?)
    }

    /// Plans a request beside kubelet. Changes nothing.
    pub(super) fn plan_beside(
        &self,
        request: &PartitionRequest,
        kubelet: &Kubelet,
        owner: &str,
    ) -> Result<Plan, Refusal> {
        beside::plan_beside(&Inventory::read(&self.root), request, kubelet, owner)
    }

    /// Checks that kubelet still keeps containers off the CPUs of a plan.
    pub(super) fn check_beside(
        &self,
        plan: &Plan,
        kubelet: &Kubelet,
        owner: &str,
    ) -> Result<(), Refusal> {
        beside::check_plan(&Inventory::read(&self.root), plan, kubelet, owner)
    }

    /// Applies a plan for an owner, and notes the checks that fail right afterwards.
    pub(super) fn apply(&mut self, owner: Marker, plan: &Plan) -> Result<Applied, MachineError> {
        if self.marker()?.is_none() && self.plan()?.is_some() {
            return Err(MachineError::Foreign);
        }
        let mut owner = Marker {
            is_complete: false,
            ..owner
        };
        owner.write(&self.marker).map_err(self.at_marker())?;
        let report = apply::apply(&self.target(), plan, None)?;
        let failed = report.applied.iter().filter_map(|applied| {
            let place = applied.difference.place.display();
            match &applied.outcome {
                Outcome::Failed { reason } => Some(format!("{place}: {reason}")),
                Outcome::Partly { what } => Some(format!("{place}: only {what}")),
                Outcome::Done | Outcome::Fixed { .. } => None,
            }
        });
        let mut failures: Vec<String> = failed.collect();
        if failures.is_empty() && report.failures() > 0 {
            failures.push("settings of an earlier plan could not be restored".to_owned());
        }
        if failures.is_empty() {
            self.before = None;
            let checks = static_checks(&self.root, plan);
            owner.baseline = failing(&checks)
                .map(|check| check.name.to_owned())
                .collect();
            owner.is_complete = true;
            owner.write(&self.marker).map_err(self.at_marker())?;
        }
        Ok(Applied {
            failures,
            pending: report.pending.into_iter().map(|it| it.parameter).collect(),
        })
    }

    /// Returns the kernel command line parameters of a plan that require a reboot.
    pub(super) fn pending(&self, plan: &Plan) -> Vec<String> {
        let pending = apply::pending(&self.target(), plan);
        pending.into_iter().map(|it| it.parameter).collect()
    }

    /// Returns the checks that fail: settings, and what ran where since the last call.
    pub(super) fn verify(&mut self, plan: &Plan) -> Vec<Check> {
        let after = Sample::take(&self.root, plan);
        let mut checks = static_checks(&self.root, plan);
        if let Some(before) = &self.before {
            checks.extend(live_checks(&self.root, plan, before, &after));
        }
        self.before = Some(after);
        failing(&checks).cloned().collect()
    }

    /// Rolls the partition back. Returns what could not be undone; the owner is kept then.
    pub(super) fn roll_back(&mut self) -> Result<Vec<String>, MachineError> {
        let undone = apply::roll_back(&self.target(), false)?;
        let left: Vec<String> = undone
            .into_iter()
            .filter(|(_, outcome)| outcome.is_left())
            .map(|(change, outcome)| format!("{change:?}: {outcome:?}"))
            .collect();
        self.before = None;
        if left.is_empty() {
            Marker::remove(&self.marker).map_err(self.at_marker())?;
        }
        Ok(left)
    }
}

fn failing(checks: &[Check]) -> impl Iterator<Item = &Check> {
    checks.iter().filter(|check| check.verdict == Verdict::Fail)
}
