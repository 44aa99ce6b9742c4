// SPDX-License-Identifier: Apache-2.0
//! Connection tracking of a `DataPlane`. The keys are those of the section `[connections]` of the configuration file of the switch, in camel
//! case, and `zone` has the plural.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Protocol whose data announces further connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionHelper {
    /// FTP (RFC 959, RFC 2428), TCP port 21.
    Ftp,
    /// TFTP (RFC 1350), UDP port 69.
    Tftp,
}

/// Timeouts of connections by state, seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionTimeouts {
    /// TCP: one side has sent a SYN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub tcp_syn_sent: Option<u32>,
    /// TCP: both sides have sent a SYN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub tcp_syn_sent2: Option<u32>,
    /// TCP: one side has acknowledged the SYN of the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub tcp_syn_recv: Option<u32>,
    /// TCP: both sides have acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub tcp_established: Option<u32>,
    /// TCP: one side has sent a FIN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub tcp_fin_wait: Option<u32>,
    /// TCP: the other side has acknowledged the FIN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub tcp_close_wait: Option<u32>,
    /// TCP: both sides have sent a FIN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub tcp_last_ack: Option<u32>,
    /// TCP: both sides have acknowledged the FIN of the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub tcp_time_wait: Option<u32>,
    /// TCP: reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub tcp_close: Option<u32>,
    /// UDP: only one side has sent datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub udp_unreplied: Option<u32>,
    /// UDP: both sides have sent datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub udp_replied: Option<u32>,
    /// ICMP echo without a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub icmp_unreplied: Option<u32>,
    /// ICMP echo with replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub icmp_replied: Option<u32>,
    /// Another IP protocol: only one side has sent packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub other_unreplied: Option<u32>,
    /// Another IP protocol: both sides have sent packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub other_replied: Option<u32>,
}

/// Ports whose connections are apart from those of other ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionZone {
    /// Its name.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    pub name: String,
    /// Names of its ports, which need not exist.
    #[schemars(length(max = 256), inner(length(max = 63)))]
    pub ports: Vec<String>,
    /// Maximum number of its connections. Default: that of all connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_entries: Option<u32>,
}

/// Connection tracking.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.maxPerSource) || self.maxPerSource <= (has(self.maxEntries) ? self.maxEntries : 65536)",
        "message": "maxPerSource exceeds maxEntries, whose default is 65536"
    },
    {
        "rule": "!has(self.maxHalfOpen) || self.maxHalfOpen <= (has(self.maxEntries) ? self.maxEntries : 65536)",
        "message": "maxHalfOpen exceeds maxEntries, whose default is 65536"
    },
    {
        "rule": "!has(self.maxHalfOpenPerSource) || self.maxHalfOpenPerSource <= (has(self.maxEntries) ? self.maxEntries : 65536)",
        "message": "maxHalfOpenPerSource exceeds maxEntries, whose default is 65536"
    },
    {
        "rule": "!has(self.zones) || self.zones.all(z, !has(z.maxEntries) || z.maxEntries <= (has(self.maxEntries) ? self.maxEntries : 65536))",
        "message": "maxEntries of a zone exceeds that of all, whose default is 65536"
    }
]))]
pub struct ConnectionTracking {
    /// Whether the switch tracks connections. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Maximum number of connections. Default: 65536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 67_108_864))]
    pub max_entries: Option<u32>,
    /// Maximum number of connections of a source address. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_per_source: Option<u32>,
    /// Maximum number of half-open connections. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_half_open: Option<u32>,
    /// Maximum number of half-open connections of a source address. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_half_open_per_source: Option<u32>,
    /// Share of the time of a saturated forwarding CPU for frames that begin connections, percent. 100: no limit. Default: 33.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub new_share: Option<u32>,
    /// Whether connections have labels. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<bool>,
    /// Protocols whose data announces further connections. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub helpers: Vec<ConnectionHelper>,
    /// Timeouts of connections by state, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<ConnectionTimeouts>,
    /// Zones. Ports of no zone share a zone without name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub zones: Vec<ConnectionZone>,
}

impl ConnectionTracking {
    /// Returns whether the switch tracks connections.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }
}
