// SPDX-License-Identifier: Apache-2.0
//! `quietwire manual`: manual pages, generated from the command-line definition.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::output::{make_directory, unwritable};
use crate::text::say;

/// Write the manual pages, one per command, to a directory.
#[derive(Debug, Args)]
pub(crate) struct ManualArgs {
    /// Output directory, such as /usr/local/share/man/man1. Created if missing.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Name of the directory in messages.
const PLACE: &str = "manual pages";

/// Writes a page in the format of man(7) for `command` and each of its visible subcommands: `quietwire-switch-run.1`.
///
/// # Errors
/// The directory cannot be created or written.
pub(crate) fn run(args: &ManualArgs, command: clap::Command) -> Result<()> {
    make_directory(PLACE, &args.directory)?;
    clap_mangen::generate_to(command, &args.directory)
        .map_err(|error| unwritable(PLACE, &args.directory, &error))?;
    let directory = args.directory.display();
    say(format!(
        "manual pages: {directory}; `man {directory}/quietwire.1` shows the first"
    ));
    Ok(())
}
