// SPDX-License-Identifier: Apache-2.0
//! Options that several commands of `partition` take.

use quietwire_host::files::Disk;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use quietwire_host::apply::STATE_DIRECTORY;
use quietwire_host::apply::Target;
use quietwire_host::inventory::Inventory;
use quietwire_host::partition::{Plan, Wishes, plan};
use quietwire_host::recording::Root;

use crate::commands::host::open;
use crate::exit::Usage;

/// A machine whose files are read, and where its state is kept.
pub(super) struct OpenMachine {
    pub(super) root: Root,
    pub(super) state_directory: PathBuf,
}

/// Which machine.
#[derive(Debug, Args)]
pub(super) struct MachineArgs {
    /// Where /proc, /sys and /etc of the machine are; to be looked at, it may be a recording as well.
    #[arg(long, value_name = "DIRECTORY|FILE.tar.zst", default_value = "/")]
    pub(super) root: PathBuf,
    /// Where the journal of changes is kept [default: /run/quietwire/partition below the root]
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) state_directory: Option<PathBuf>,
}

impl MachineArgs {
    /// The machine to look at: a recording is unpacked.
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

    /// The machine to change, or whose state is asked for: a recording has none.
    pub(super) fn open_directory(&self) -> Result<OpenMachine> {
        if self.root.is_file() {
            let text = format!(
                "{} is a recording, which can be looked at (plan, verify, apply --dry-run) and not be changed",
                self.root.display()
            );
            return Err(Usage(text).into());
        }
        self.open()
    }

    /// Whether it is the machine that runs.
    pub(super) fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }
}

/// Where the plan comes from.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// What is wished: the plan is made from it and the machine.
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    pub(super) config: Option<PathBuf>,
    /// A plan as JSON that was made before.
    #[arg(long, value_name = "FILE")]
    pub(super) plan: Option<PathBuf>,
}

impl PlanArgs {
    /// The plan that was named; none when none was.
    pub(super) fn read(&self, root: &Path) -> Result<Option<Plan>> {
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|error| Usage(format!("{}: {error}", path.display())))
        };
        if let Some(path) = &self.plan {
            let plan = serde_json::from_str(&read(path)?);
            let plan = plan.map_err(|error| Usage(format!("{}: {error}", path.display())))?;
            return Ok(Some(plan));
        }
        let Some(path) = &self.config else {
            return Ok(None);
        };
        let wishes = Wishes::parse(&read(path)?)
            .map_err(|error| Usage(format!("{}: {error}", path.display())))?;
        let made = plan(&Inventory::read(root), &wishes);
        let made = made.map_err(|error| Usage(error.to_string()));
        made.map(Some)
            .with_context(|| format!("{} cannot be had on this machine", path.display()))
    }
}

impl OpenMachine {
    pub(super) fn target(&self) -> Target<'static> {
        Target {
            files: &Disk,
            root: self.root.path().to_owned(),
            state_directory: self.state_directory.clone(),
        }
    }
}
