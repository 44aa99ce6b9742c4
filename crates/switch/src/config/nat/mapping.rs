// SPDX-License-Identifier: Apache-2.0
//! Mapping behaviour: `mapping` of a `[[nat]]`.

use std::fmt;
use std::str::FromStr;

use quietwire_tables::nat::MappingBehaviour;
use serde::{Deserialize, Serialize};

/// Mapping behaviour: what determines an external endpoint, beside the inside endpoint (RFC 4787, section 4.1; RFC 5382, section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MappingSetting {
    /// Nothing.
    #[default]
    EndpointIndependent,
    /// The remote address.
    AddressDependent,
    /// The remote address and port.
    AddressAndPortDependent,
}

impl MappingSetting {
    const ALL: [Self; 3] = [
        Self::EndpointIndependent,
        Self::AddressDependent,
        Self::AddressAndPortDependent,
    ];

    /// Returns its name in files and options.
    const fn name(self) -> &'static str {
        match self {
            Self::EndpointIndependent => "endpoint-independent",
            Self::AddressDependent => "address-dependent",
            Self::AddressAndPortDependent => "address-and-port-dependent",
        }
    }

    /// Returns the behaviour of the tables.
    pub(super) const fn behaviour(self) -> MappingBehaviour {
        match self {
            Self::EndpointIndependent => MappingBehaviour::EndpointIndependent,
            Self::AddressDependent => MappingBehaviour::AddressDependent,
            Self::AddressAndPortDependent => MappingBehaviour::AddressAndPortDependent,
        }
    }
}

impl fmt::Display for MappingSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MappingSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("'{text}' is not a mapping behaviour (use one of {names})")
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Plan, Settings};

    pub(in crate::config::nat) const FILE: &str = r#"
forwarding-cpus = "1"
service-cpus = "0"
control-cpus = "0"
[[port]]
name = "in"
uri = "null:"
[[port]]
name = "out"
uri = "null:"
[[interface]]
name = "inside"
port = "in"
addresses = ["10.0.0.1/24", "2001:db8:1::1/64"]
[[interface]]
name = "outside"
port = "out"
addresses = ["198.51.100.1/24", "2001:db8:f::1/64"]
[[nat]]
name = "internet"
interface = "outside"
"#;

    pub(in crate::config::nat) fn plan(keys: &str) -> Result<Plan, String> {
        let settings = Settings::parse(Path::new("switch.toml"), &format!("{FILE}{keys}"));
        let settings = settings.map_err(|error| error.to_string())?;
        let plan = settings.plan(&"0-3".parse().unwrap());
        plan.map_err(|error| error.to_string())
    }

    #[test]
    fn each_behaviour_is_read_and_written_again() {
        for setting in MappingSetting::ALL {
            assert_eq!(setting.to_string().parse::<MappingSetting>(), Ok(setting));
            let planned = plan(&format!("mapping = \"{setting}\"\n")).unwrap();
            assert_eq!(planned.nats[0].mapping, setting);
            let tables = planned.nats[0].tables(&planned.layer3.interfaces[1]);
            assert_eq!(tables.mapping, setting.behaviour());
            let text = planned.to_toml().unwrap();
            let is_default = setting == MappingSetting::default();
            assert_eq!(text.contains("mapping = "), !is_default, "{text}");
            let written = Settings::parse(Path::new("written.toml"), &text).unwrap();
            let again = written.plan(&"0-3".parse().unwrap()).unwrap();
            assert_eq!(again.nats, planned.nats);
        }
        let default = plan("").unwrap();
        let mapping = default.nats[0].mapping;
        assert_eq!(mapping, MappingSetting::EndpointIndependent);
        let error = "symmetric".parse::<MappingSetting>().unwrap_err();
        assert!(error.contains("use one of endpoint-independent"), "{error}");
    }

    #[test]
    fn what_requires_independent_mappings_is_refused_with_the_cure() {
        for (keys, printed) in [
            ("mapping = \"symmetric\"\n", "symmetric"),
            (
                "mapping = \"address-dependent\"\naddresses = [\"2001:db8:f::1\"]\n",
                "requires external addresses of IPv4 (use \"endpoint-independent\")",
            ),
            (
                "mapping = \"address-and-port-dependent\"\nnat64 = { prefix = \"64:ff9b::/96\" }\n",
                "mapping \"address-and-port-dependent\" excludes nat64",
            ),
        ] {
            let error = plan(keys).unwrap_err();
            assert!(error.contains(printed), "{error}");
        }
        let several = FILE.replace("forwarding-cpus = \"1\"", "forwarding-cpus = \"1-2\"");
        let keys = "mapping = \"address-dependent\"\nsources = [\"10.0.0.0/24\"]\n";
        let settings = Settings::parse(Path::new("switch.toml"), &format!("{several}{keys}"));
        assert!(settings.unwrap().plan(&"0-3".parse().unwrap()).is_ok());
    }
}
