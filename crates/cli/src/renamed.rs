// SPDX-License-Identifier: Apache-2.0
//! Options and values of earlier versions, refused with their new names.

use clap::error::{ContextKind, ContextValue};

/// Old option or value, and its new name.
const RENAMED: [(&str, &str); 4] = [
    ("--anew", "--reset"),
    ("--guest-deadline", "--guest-timeout"),
    ("--lie", "--fault"),
    ("frame-loss-sweep", "loss-sweep"),
];

/// Returns the old name that an error is about, and its new name.
pub(crate) fn renamed(error: &clap::Error) -> Option<(&'static str, &'static str)> {
    let mut kinds = [ContextKind::InvalidArg, ContextKind::InvalidValue].into_iter();
    kinds.find_map(|kind| {
        let Some(ContextValue::String(given)) = error.get(kind) else {
            return None;
        };
        RENAMED.into_iter().find(|(old, _)| given == old)
    })
}
