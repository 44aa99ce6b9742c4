// SPDX-License-Identifier: Apache-2.0
//! Scope of the check for damage in received frames.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Octets of received frames that are checked for damage. A change in any other octet is not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamageCheck {
    /// All octets after the Ethernet header: the tester's plain IPv4 frames.
    AfterEthernetHeader,
    /// Addresses, UDP header and payload: the tester's plain IPv6 frames. No checksum covers the first 8 octets of an IPv6 header.
    Ipv6AddressesAndUdp,
    /// Octets that the checksums of described traffic cover.
    Checksums,
    /// The same, and every octet of the payload.
    ChecksumsAndPayload,
    /// The last octets of a frame of a capture.
    LastOctets,
}

impl fmt::Display for DamageCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AfterEthernetHeader => {
                "all octets after the Ethernet header, by the IPv4 header and UDP checksums"
            }
            Self::Ipv6AddressesAndUdp => {
                "IPv6 addresses, UDP header and payload, by the UDP checksum"
            }
            Self::Checksums => "octets covered by the IPv4 header, UDP and TCP checksums",
            Self::ChecksumsAndPayload => {
                "octets covered by the IPv4 header, UDP and TCP checksums, and the whole payload"
            }
            Self::LastOctets => "the last 26 octets of each frame",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Replay, Timing, Traffic};
    use crate::trial::{Directions, FrameSizes, IpVersion, Trial};

    fn check(ip: IpVersion, traffic: Option<Traffic>) -> DamageCheck {
        let trial = Trial {
            directions: Directions::OneWay,
            ip,
            traffic: traffic.map(Box::new),
            ..Trial::new(1000.0, 1.0, FrameSizes::Fixed(128))
        };
        trial.damage_check()
    }

    #[test]
    fn the_check_depends_on_the_frames_and_is_stored_by_name() {
        let integrity = Traffic {
            integrity: true,
            ..Traffic::default()
        };
        let replay = Traffic {
            replay: Some(Replay {
                file: "morning.pcap".to_owned(),
                timing: Timing::Rate,
                speed: None,
            }),
            ..Traffic::default()
        };
        let v4 = IpVersion::V4;
        for (found, name, words) in [
            (check(v4, None), "after-ethernet-header", "all octets"),
            (
                check(IpVersion::V6, None),
                "ipv6-addresses-and-udp",
                "IPv6 addresses",
            ),
            (
                check(v4, Some(Traffic::default())),
                "checksums",
                "TCP checksums",
            ),
            (
                check(v4, Some(integrity)),
                "checksums-and-payload",
                "whole payload",
            ),
            (check(v4, Some(replay)), "last-octets", "last 26 octets"),
        ] {
            assert_eq!(serde_json::to_value(found).unwrap(), name);
            assert!(found.to_string().contains(words), "{found}");
        }
    }
}
