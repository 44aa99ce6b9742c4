// SPDX-License-Identifier: Apache-2.0
//! Allocation of port blocks: `block-allocation` of a `[[nat]]`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Allocation of port blocks to hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockAllocation {
    /// Hosts get blocks when they need them.
    #[default]
    Dynamic,
    /// Each address of `sources` has one block, which is computed from it (RFC 7422).
    Deterministic,
}

impl BlockAllocation {
    const ALL: [Self; 2] = [Self::Dynamic, Self::Deterministic];

    /// Returns its name in files and options.
    const fn name(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Deterministic => "deterministic",
        }
    }
}

impl fmt::Display for BlockAllocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BlockAllocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("'{text}' is not an allocation of port blocks (use one of {names})")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::MAX_HOSTS;
    use super::super::mapping::tests::plan;
    use super::*;
    use crate::config::Settings;

    const KEYS: &str =
        "sources = [\"10.0.0.0/26\", \"10.0.1.0/26\"]\nports = \"2000-65535\"\nblock-size = 400\n";

    #[test]
    fn each_allocation_is_read_and_written_again() {
        for setting in BlockAllocation::ALL {
            assert_eq!(setting.to_string().parse::<BlockAllocation>(), Ok(setting));
            let planned = plan(&format!("{KEYS}block-allocation = \"{setting}\"\n")).unwrap();
            assert_eq!(planned.nats[0].block_allocation, setting);
            let tables = planned.nats[0].tables(&planned.layer3.interfaces[1]);
            let (pool, is_dynamic) = (&tables.pool, setting == BlockAllocation::Dynamic);
            assert_eq!(pool.deterministic.is_empty(), is_dynamic);
            let expected = if is_dynamic { (8, MAX_HOSTS) } else { (1, 128) };
            assert_eq!((pool.blocks_per_host, tables.hosts_max), expected);
            // 158 blocks.
            assert_eq!(
                (pool.hold_down.seconds, pool.hold_down.blocks_max),
                (120, 79)
            );
            let text = planned.to_toml().unwrap();
            assert_eq!(text.contains("block-allocation = "), !is_dynamic, "{text}");
            let written = Settings::parse(Path::new("written.toml"), &text).unwrap();
            let again = written.plan(&"0-3".parse().unwrap()).unwrap();
            assert_eq!(again.nats, planned.nats);
        }
        let error = "static".parse::<BlockAllocation>().unwrap_err();
        assert!(
            error.contains("use one of dynamic, deterministic"),
            "{error}"
        );
    }

    #[test]
    fn hold_downs_are_settings_of_the_tables() {
        let held = |keys: &str| {
            let planned = plan(keys).unwrap();
            let tables = planned.nats[0].tables(&planned.layer3.interfaces[1]);
            (
                tables.pool.hold_down.seconds,
                tables.pool.hold_down.blocks_max,
            )
        };
        assert_eq!(held(""), (120, 63));
        assert_eq!(held("hold-down = 0\n"), (0, 63));
        assert_eq!(held("hold-down = 7\nhold-down-blocks = 9\n"), (7, 9));
        let error = plan("hold-down = 2592001\n").unwrap_err();
        assert!(error.contains("hold-down is out of range"), "{error}");
    }
}
