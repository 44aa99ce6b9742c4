// SPDX-License-Identifier: Apache-2.0
//! Options, values and commands of earlier versions, refused with their new names.

use clap::error::{ContextKind, ContextValue};

/// Old option or value, and its new name.
const RENAMED: [(&str, &str); 4] = [
    ("--anew", "--reset"),
    ("--guest-deadline", "--guest-timeout"),
    ("--lie", "--fault"),
    ("frame-loss-sweep", "loss-sweep"),
];
/// Command with subcommands, an old one of these, and its new name.
const RENAMED_COMMANDS: [(&str, &str, &str); 1] = [("switch steer", "remove", "del")];

/// Returns the old name that an error is about, and its new name.
pub(crate) fn renamed(error: &clap::Error) -> Option<(&'static str, &'static str)> {
    renamed_argument(error).or_else(|| renamed_command(error))
}

fn renamed_command(error: &clap::Error) -> Option<(&'static str, &'static str)> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    // The only place in which the error names the command.
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else {
        return None;
    };
    let usage = usage.to_string();
    let mut all = RENAMED_COMMANDS.into_iter();
    let (_, old, new) =
        all.find(|(parent, old, _)| given == old && usage.contains(&format!(" {parent} ")))?;
    Some((old, new))
}

fn renamed_argument(error: &clap::Error) -> Option<(&'static str, &'static str)> {
    let mut kinds = [ContextKind::InvalidArg, ContextKind::InvalidValue].into_iter();
    kinds.find_map(|kind| {
        let Some(ContextValue::String(given)) = error.get(kind) else {
            return None;
        };
        RENAMED.into_iter().find(|(old, _)| given == old)
    })
}
