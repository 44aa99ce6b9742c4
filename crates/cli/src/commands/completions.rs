// SPDX-License-Identifier: Apache-2.0
//! `quietwire completions`: shell completions, generated from the command-line definition.

use anyhow::Result;
use clap::{Args, ValueEnum};
use clap_complete::aot::{Shell, generate};

use crate::text::print;

/// Print the completions of a shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell that reads the completions.
    #[arg(value_enum)]
    shell: ShellArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ShellArg {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// fish.
    Fish,
}

/// Prints the completions of all visible commands and options.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn run(args: &CompletionsArgs, mut command: clap::Command) -> Result<()> {
    let shell = match args.shell {
        ShellArg::Bash => Shell::Bash,
        ShellArg::Zsh => Shell::Zsh,
        ShellArg::Fish => Shell::Fish,
    };
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    generate(shell, &mut command, name, &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}
