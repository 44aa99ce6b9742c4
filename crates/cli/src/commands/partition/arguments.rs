// SPDX-License-Identifier: Apache-2.0
//! Options common to several commands of `partition`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use quietwire_host::apply::{STATE_DIRECTORY, Target};
use quietwire_host::files::Disk;
use quietwire_host::inventory::Inventory;
use quietwire_host::partition::{Plan, plan};
use quietwire_host::recording::Root;

use crate::commands::host::open;
use crate::exit::Usage;
use crate::partition_files::{read_plan, read_request};

/// Root directory of a machine, and its state directory.
pub(super) struct OpenMachine {
    pub(super) root: Root,
    pub(super) state_directory: PathBuf,
}

/// Choice of the machine.
#[derive(Debug, Args)]
pub(super) struct MachineArgs {
    /// Root directory with /proc, /sys and /etc of the machine, or a recording for commands that only read.
    #[arg(long, value_name = "DIRECTORY|FILE.tar.zst", default_value = "/")]
    pub(super) root: PathBuf,
    /// Directory of the journal. [default: /run/quietwire/partition below the root]
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) state_directory: Option<PathBuf>,
}

impl MachineArgs {
    /// Opens the machine for reading. A recording is unpacked first.
    pub(super) fn open(&self) -> Result<OpenMachine> {
        let root = open(&self.root)?;
        let state_directory = self.state_directory.clone();
        let state_directory = state_directory
            .unwrap_or_else(|| root.path().join(STATE_DIRECTORY.trim_start_matches('/')));
        Ok(OpenMachine {
            root,
            state_directory,
        })
    }

    /// Opens the machine for changes and for its state. Refuses a recording, which has no state.
    pub(super) fn open_directory(&self) -> Result<OpenMachine> {
        if self.root.is_file() {
            let text = format!(
                "{} is a recording, which cannot be changed (use plan, verify or apply --dry-run)",
                self.root.display()
            );
            return Err(Usage(text).into());
        }
        self.open()
    }

    /// Returns true for the running machine.
    pub(super) fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }
}

/// Source of the plan.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// Partition request (TOML) from which the plan for this machine is made.
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    pub(super) config: Option<PathBuf>,
    /// Partition plan (JSON).
    #[arg(long, value_name = "FILE")]
    pub(super) plan: Option<PathBuf>,
}

impl PlanArgs {
    /// Returns the plan, or none if the options name no plan.
    pub(super) fn read(&self, root: &Path) -> Result<Option<Plan>> {
        if let Some(path) = &self.plan {
            return read_plan(path).map(Some);
        }
        let Some(path) = &self.config else {
            return Ok(None);
        };
        let made = plan(&Inventory::read(root), &read_request(path)?);
        let made = made.map_err(|error| Usage(error.to_string()));
        made.map(Some)
            .with_context(|| format!("{} is not feasible on this machine", path.display()))
    }
}

impl OpenMachine {
    pub(super) fn target(&self) -> Target<'static> {
        Target {
            files: &Disk,
            storage: &Disk,
            root: self.root.path().to_owned(),
            state_directory: self.state_directory.clone(),
        }
    }
}
