// SPDX-License-Identifier: Apache-2.0
//! `quietwire doctor`: what the machine has and lacks, and which command mends it.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use quietwire_host::doctor::{Check, State, examine, worst};

use crate::exit::Lacking;

/// What this machine has and lacks for quietwire, and the command that mends each lack. Changes nothing.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print the checks as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let checks = examine(
        Path::new("/"),
        &std::env::var_os("PATH").unwrap_or_default(),
    );
    if args.json {
        println!("{}", serde_json::to_string_pretty(&checks)?);
    } else {
        println!("{}", table(&checks));
    }
    if worst(&checks) == State::Missing {
        let missing: Vec<&str> = checks
            .iter()
            .filter(|check| check.state == State::Missing)
            .map(|check| check.name.as_str())
            .collect();
        return Err(Lacking(format!(
            "missing: {}; the table says what mends it",
            missing.join(", ")
        ))
        .into());
    }
    Ok(())
}

fn table(checks: &[Check]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["", "check", "seen", "what mends it"]);
    for check in checks {
        let mark = match check.state {
            State::Ok => "ok",
            State::Unavailable => "n/a",
            State::Warning => "warn",
            State::Missing => "MISSING",
        };
        table.add_row([
            mark,
            &check.name,
            &check.seen,
            check.mend.as_deref().unwrap_or(""),
        ]);
    }
    table
}
