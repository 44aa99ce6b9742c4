// SPDX-License-Identifier: Apache-2.0
//! Filtering behaviour: `filtering` of a `[[nat]]`.

use std::fmt;
use std::str::FromStr;

use quietwire_tables::nat::FilteringBehaviour;
use serde::{Deserialize, Serialize};

/// Filtering behaviour of mappings that depend on no remote endpoint: which remote hosts reach them (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilteringSetting {
    /// All.
    #[default]
    EndpointIndependent,
    /// Those whose addresses the inside endpoint has sent packets to.
    AddressDependent,
}

impl FilteringSetting {
    const ALL: [Self; 2] = [Self::EndpointIndependent, Self::AddressDependent];

    /// Returns its name in files and options.
    const fn name(self) -> &'static str {
        match self {
            Self::EndpointIndependent => "endpoint-independent",
            Self::AddressDependent => "address-dependent",
        }
    }

    /// Returns the behaviour of the tables.
    pub(super) const fn behaviour(self) -> FilteringBehaviour {
        match self {
            Self::EndpointIndependent => FilteringBehaviour::EndpointIndependent,
            Self::AddressDependent => FilteringBehaviour::AddressDependent,
        }
    }
}

impl fmt::Display for FilteringSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FilteringSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("'{text}' is not a filtering behaviour (use one of {names})")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::mapping::tests::plan;
    use super::*;
    use crate::config::Settings;

    #[test]
    fn each_behaviour_is_read_and_written_again() {
        for setting in FilteringSetting::ALL {
            assert_eq!(setting.to_string().parse::<FilteringSetting>(), Ok(setting));
            let planned = plan(&format!("filtering = \"{setting}\"\n")).unwrap();
            assert_eq!(planned.nats[0].filtering, setting);
            let tables = planned.nats[0].tables(&planned.layer3.interfaces[1]);
            assert_eq!(tables.filtering, setting.behaviour());
            let text = planned.to_toml().unwrap();
            let is_default = setting == FilteringSetting::default();
            assert_eq!(text.contains("filtering = "), !is_default, "{text}");
            let written = Settings::parse(Path::new("written.toml"), &text).unwrap();
            let again = written.plan(&"0-3".parse().unwrap()).unwrap();
            assert_eq!(again.nats, planned.nats);
        }
        let error = "symmetric".parse::<FilteringSetting>().unwrap_err();
        assert!(error.contains("use one of endpoint-independent"), "{error}");
    }

    #[test]
    fn what_excludes_filtering_is_refused_with_the_cure() {
        for (keys, printed) in [
            ("", "mapping \"address-dependent\" excludes filtering"),
            (
                "addresses = [\"2001:db8:f::1\"]\n",
                "requires external addresses of IPv4",
            ),
            (
                "nat64 = { prefix = \"64:ff9b::/96\" }\n",
                "filtering \"address-dependent\" excludes nat64",
            ),
        ] {
            let mapping = match keys {
                "" => "mapping = \"address-dependent\"\n",
                _ => "",
            };
            let keys = format!("filtering = \"address-dependent\"\n{mapping}{keys}");
            let error = plan(&keys).unwrap_err();
            assert!(error.contains(printed), "{error}");
        }
        // A standby gets the remote addresses.
        for section in ["connections.replication", "replication"] {
            let role = format!("[{section}]\nrole = \"active\"\nlisten = \"127.0.0.1:9476\"\n");
            let planned = plan(&format!("filtering = \"address-dependent\"\n{role}"));
            assert!(planned.unwrap().replication().is_some(), "{section}");
        }
    }
}
