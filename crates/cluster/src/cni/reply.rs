// SPDX-License-Identifier: Apache-2.0
//! Results and errors of the plugin (CNI specification, section 5).

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use quietwire_base::Fault;
use quietwire_switch::SwitchError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::version::NEWEST;

/// Result of ADD.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CniResult {
    /// Version of the specification, as in the network configuration.
    pub cni_version: String,
    /// Interfaces that the plugins created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// IP addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<Ip>,
    /// Routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// DNS settings, as the IPAM plugin or the configuration gave them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<Value>,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its MTU, octets. From version 1.1.0 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Path of its network namespace, if it is in a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Path of the socket of a memif or vhost-user port. From version 1.1.0 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_path: Option<String>,
    /// PCI address of a device. From version 1.1.0 on.
    #[serde(rename = "pciID", skip_serializing_if = "Option::is_none")]
    pub pci_id: Option<String>,
}

/// An IP address with its prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ip {
    /// The address, with the length of its prefix.
    pub address: IpNet,
    /// Gateway of its subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Index of its interface in [`CniResult::interfaces`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Destination.
    pub dst: IpNet,
    /// Next hop. Default: the gateway of an address of the same family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Metric. From version 1.1.0 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Routing table. From version 1.1.0 on. Default: main.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
}

/// Error codes of the specification, and those of this plugin from 100 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// The version of the specification is not supported.
    IncompatibleVersion = 1,
    /// The configuration has a field that the plugin does not support.
    UnsupportedField = 2,
    /// The container does not exist.
    UnknownContainer = 3,
    /// An environment variable is absent or invalid.
    InvalidEnvironment = 4,
    /// Input or output failed.
    Io = 5,
    /// The configuration is not JSON.
    Decode = 6,
    /// The configuration is invalid.
    InvalidConfig = 7,
    /// A temporary condition: the runtime tries again later.
    TryAgain = 11,
    /// The plugin cannot serve ADD now.
    NotAvailable = 50,
    /// The switch refused the change.
    Refused = 100,
    /// CHECK found an attachment that is not as ADD made it.
    Changed = 101,
}

/// An error of the plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct CniError {
    version: String,
    code: u64,
    message: String,
    details: Option<String>,
}

impl CniError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            version: NEWEST.to_owned(),
            code: code as u64,
            message: message.into(),
            details: None,
        }
    }

    pub(super) fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = Some(details.into());
        self
    }

    pub(super) fn of_version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Returns the error that another plugin printed, if it is one.
    pub(super) fn of_plugin(text: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Printed {
            code: u64,
            msg: String,
            details: Option<String>,
        }
        let printed: Printed = serde_json::from_str(text).ok()?;
        Some(Self {
            version: NEWEST.to_owned(),
            code: printed.code,
            message: printed.msg,
            details: printed.details.filter(|details| !details.is_empty()),
        })
    }

    /// Returns the error code.
    #[must_use]
    pub fn code(&self) -> u64 {
        self.code
    }

    /// Returns the error as the specification has it.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut error = json!({
            "cniVersion": self.version,
            "code": self.code,
            "msg": self.message,
        });
        if let (Some(details), Some(error)) = (&self.details, error.as_object_mut()) {
            error.insert("details".to_owned(), json!(details));
        }
        error.to_string()
    }
}

impl fmt::Display for CniError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        match &self.details {
            Some(details) => write!(formatter, ": {details}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CniError {}

impl From<SwitchError> for CniError {
    fn from(error: SwitchError) -> Self {
        let code = match (&error, error.fault()) {
            // The runtime tries again when the switch runs.
            (SwitchError::ControlSocket { .. }, Fault::BadInput) => ErrorCode::TryAgain,
            (SwitchError::Answer { .. }, Fault::BadInput) => ErrorCode::Refused,
            _ => ErrorCode::Io,
        };
        Self::new(code, error.to_string())
    }
}
