// SPDX-License-Identifier: Apache-2.0
//! `quietwire doctor`: checks what quietwire needs on this machine, and the remedy of each failed check.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use quietwire_base::search_path;
use quietwire_host::doctor::{Check, State, examine, worst};

use crate::exit::MissingPrerequisite;
use crate::text::{fold_column, print, terminal_width};

/// Check what quietwire needs on this machine, and show the command that remedies each problem. Changes nothing.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print the checks as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let checks = examine(Path::new("/"), &search_path());
    if args.json {
        print(serde_json::to_string_pretty(&checks)?)?;
    } else {
        print(list(&checks, usize::from(terminal_width())))?;
    }
    if worst(&checks) == State::Missing {
        let missing: Vec<&str> = checks
            .iter()
            .filter(|check| check.state == State::Missing)
            .map(|check| check.name.as_str())
            .collect();
        return Err(MissingPrerequisite(format!(
            "missing: {} (see the remedies in the list)",
            missing.join(", ")
        ))
        .into());
    }
    Ok(())
}

/// Width of the columns of state and name; the finding follows.
const INDENT: usize = 25;

/// Lists one check per line. The remedy follows on a separate line that is not folded, so that a command can be copied.
fn list(checks: &[Check], width: usize) -> String {
    let mut lines = Vec::new();
    for check in checks {
        let state = match check.state {
            State::Ok => "ok",
            State::Unavailable => "n/a",
            State::Warning => "warn",
            State::Missing => "MISSING",
        };
        let line = format!("{state:<8}{:<17}{}", check.name, check.found);
        lines.push(fold_column(&line, width, INDENT));
        if let Some(remedy) = &check.remedy {
            lines.push(format!("{:INDENT$}-> {remedy}", ""));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighty_columns_are_enough() {
        let check = Check {
            name: "real-time-share".to_owned(),
            state: State::Warning,
            found: "a long sentence about what was seen ".repeat(5),
            remedy: Some("sysctl -w kernel.sched_rt_runtime_us=-1".to_owned()),
        };
        let text = list(&[check], 80);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.ends_with("-> sysctl -w kernel.sched_rt_runtime_us=-1"));
    }
}
