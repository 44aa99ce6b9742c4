// SPDX-License-Identifier: Apache-2.0
//! `quietwire manual`: manual pages, made from the description of the command line.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::text::say;

/// Write the manual pages, one for each command, into a directory.
#[derive(Debug, Args)]
pub(crate) struct ManualArgs {
    /// Where to write them, such as /usr/local/share/man/man1. Made if missing.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Writes a page in the format of man(7) for `command` and each of its visible subcommands: `quietwire-switch-run.1`.
///
/// # Errors
/// A directory that cannot be made or written to.
pub(crate) fn run(args: &ManualArgs, command: clap::Command) -> Result<()> {
    let directory = args.directory.display();
    std::fs::create_dir_all(&args.directory)
        .with_context(|| format!("{directory}: the directory could not be made"))?;
    clap_mangen::generate_to(command, &args.directory)
        .with_context(|| format!("{directory}: the manual pages could not be written"))?;
    say(format!(
        "manual pages: {directory}; `man {directory}/quietwire.1` shows the first"
    ));
    Ok(())
}
