// SPDX-License-Identifier: Apache-2.0
//! `[connections]`: the connections of the methods for stateful devices, in the words of the tester's descriptions.

use quietwire_tester::connections::Connections;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use toml::Value;

use super::limits::{Checked, fault};
use super::locate::At::Key;

/// Returns the value with the keys of descriptions: results have underscores, descriptions hyphens.
fn as_described(value: Value) -> Value {
    match value {
        Value::Table(table) => {
            let keys = table.into_iter();
            Value::Table(
                keys.map(|(key, value)| (key.replace('_', "-"), as_described(value)))
                    .collect(),
            )
        }
        Value::Array(values) => Value::Array(values.into_iter().map(as_described).collect()),
        other => other,
    }
}

/// Writes a section as study files have it.
#[allow(clippy::ref_option, reason = "serde passes a reference")]
pub(super) fn serialize<S: Serializer>(
    connections: &Option<Box<Connections>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let value = connections.as_deref().map(Value::try_from);
    let value = value.transpose().map_err(S::Error::custom)?;
    value.map(as_described).serialize(serializer)
}

/// Checks a section.
pub(super) fn check(connections: &Connections) -> Checked {
    for (key, is_given) in [
        ("rate", connections.rate.is_some()),
        ("concurrent", connections.concurrent.is_some()),
    ] {
        if is_given {
            return fault(
                &[Key("connections"), Key(key)],
                "the methods for connections set the load themselves (remove this key)",
            );
        }
    }
    match connections.first_fault() {
        None => Ok(()),
        Some(mut found) => {
            found.path.insert(0, Key("connections"));
            Err(found)
        }
    }
}
