// SPDX-License-Identifier: Apache-2.0
//! Devices that the lab does not start (`switch = "other"`): the tester's ports, and the commands of the device's owner.

use std::time::Duration;

use quietwire_dpdk::PortUri;
use quietwire_lab::{DeviceCommand, ExternalDevice};

use super::study_file::{Case, StudyFile};
use super::{Device, Switch};

/// Time of a command without a configured one, seconds.
const TIMEOUT_S: f64 = 60.0;

/// Parses a port of the tester: a URI, or the PCI address of a network card.
///
/// # Errors
/// The reason, as a sentence.
pub(crate) fn port_uri(text: &str) -> Result<PortUri, String> {
    // No scheme consists of hexadecimal digits.
    let first = text.split(':').next().unwrap_or_default();
    let is_address = !first.is_empty() && first.chars().all(|c| c.is_ascii_hexdigit());
    let uri = match is_address {
        true => format!("pci:{text}"),
        false => text.to_owned(),
    };
    uri.parse::<PortUri>().map_err(|error| error.to_string())
}

impl StudyFile {
    /// Returns true if the lab does not start the device.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.device.switch == Switch::Other
    }

    /// Returns the PCI addresses of the tester's network cards.
    pub(crate) fn tester_cards(&self) -> Vec<String> {
        if !self.is_external() {
            return self.tester.ports.clone();
        }
        let uris = self.tester.ports.iter();
        uris.filter_map(|text| match port_uri(text) {
            Ok(PortUri::Pci { address, .. }) => Some(address),
            _ => None,
        })
        .collect()
    }

    /// Returns the commands that prepare and restore the device for a case. They find its name and its isolation in the environment.
    pub(crate) fn external_device(&self, case: &Case) -> ExternalDevice {
        let Device {
            prepare,
            prepare_timeout_s,
            restore,
            restore_timeout_s,
            ..
        } = &self.device;
        let command = |words: &[String], timeout_s: Option<f64>| {
            let isolation = case.isolation.as_deref().unwrap_or("none");
            let begin = [
                "env".to_owned(),
                format!("QUIETWIRE_CASE={}", case.name),
                format!("QUIETWIRE_ISOLATION={isolation}"),
            ];
            (!words.is_empty()).then(|| DeviceCommand {
                words: begin.into_iter().chain(words.iter().cloned()).collect(),
                // The check of the file has refused others.
                timeout: Duration::try_from_secs_f64(timeout_s.unwrap_or(TIMEOUT_S))
                    .unwrap_or_default(),
            })
        };
        ExternalDevice {
            prepare: command(prepare, *prepare_timeout_s),
            restore: command(restore, *restore_timeout_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_uri_or_the_address_of_a_card() {
        for (text, uri) in [
            ("0000:17:00.0", "pci:0000:17:00.0"),
            ("pci:0000:17:00.1", "pci:0000:17:00.1"),
            ("memif:/run/a.sock?role=client", "memif:/run/a.sock"),
            ("af-packet:eth0", "af-packet:eth0"),
        ] {
            let parsed = port_uri(text).unwrap();
            assert!(parsed.to_string().starts_with(uri), "{text}: {parsed}");
        }
        for text in ["", "eth0", "0000:17:00.9", "abc"] {
            let why = port_uri(text).unwrap_err();
            assert!(why.contains(text), "{why}");
        }
    }
}
