// SPDX-License-Identifier: Apache-2.0
//! Options of earlier versions, refused with their new names.

use clap::Parser;
use clap::error::{ContextKind, ContextValue};

/// Old option and its new name.
const RENAMED: [(&str, &str); 2] = [
    ("--anew", "--reset"),
    ("--guest-deadline", "--guest-timeout"),
];

/// Parses the command line. Exits with a message if it is wrong.
pub(crate) fn parse<C: Parser>() -> C {
    C::try_parse().unwrap_or_else(|mut error| {
        if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
            && let Some((old, new)) = RENAMED.iter().find(|(old, _)| option == old)
        {
            let tip = format!("'{old}' is now '{new}'");
            error.insert(
                ContextKind::Suggested,
                ContextValue::StyledStrs(vec![tip.into()]),
            );
        }
        error.exit()
    })
}
