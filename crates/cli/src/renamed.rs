// SPDX-License-Identifier: Apache-2.0
//! Options and values of earlier versions, refused with their new names.

use clap::Parser;
use clap::error::{ContextKind, ContextValue};

/// Old option or value, and its new name.
const RENAMED: [(&str, &str); 3] = [
    ("--anew", "--reset"),
    ("--guest-deadline", "--guest-timeout"),
    ("frame-loss-sweep", "loss-sweep"),
];

/// Parses the command line. Exits with a message if it is wrong.
pub(crate) fn parse<C: Parser>() -> C {
    C::try_parse().unwrap_or_else(|mut error| {
        if let Some((old, new)) = renamed(&error) {
            let tip = format!("'{old}' is now '{new}'");
            // clap may suggest another value.
            error.remove(ContextKind::SuggestedValue);
            error.insert(
                ContextKind::Suggested,
                ContextValue::StyledStrs(vec![tip.into()]),
            );
        }
        error.exit()
    })
}

/// Returns the old name that an error is about, and its new name.
fn renamed(error: &clap::Error) -> Option<(&'static str, &'static str)> {
    let mut kinds = [ContextKind::InvalidArg, ContextKind::InvalidValue].into_iter();
    kinds.find_map(|kind| {
        let Some(ContextValue::String(given)) = error.get(kind) else {
            return None;
        };
        RENAMED.into_iter().find(|(old, _)| given == old)
    })
}
