// SPDX-License-Identifier: Apache-2.0
//! Requests of the CNI plugin to the agent: one JSON document each way over a Unix socket, whose sender then closes its direction.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use quietwire_base::{BoundedStream, Deadline, connect_within};
use serde::{Deserialize, Serialize};

use crate::object_name::is_object_name;

/// Maximum length of a request and of a reply, octets.
pub(super) const LENGTH_MAX: usize = 256 * 1024;
/// Time for a request and its reply. The agent replies within a shorter time.
const REPLY: Duration = Duration::from_secs(60);

/// Namespace and name of a `Network`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct NetworkName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl FromStr for NetworkName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if is_object_name(namespace) && is_object_name(name) => {
                Ok(Self {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                })
            }
            _ => Err(format!("'{text}' is not NAMESPACE/NAME of a Network")),
        }
    }
}

impl TryFrom<String> for NetworkName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<NetworkName> for String {
    fn from(name: NetworkName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The interface of a pod that has addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Holder {
    /// Namespace of the pod.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) pod: String,
    /// Its UID.
    pub(crate) uid: String,
    /// ID of its sandbox container.
    pub(crate) container: String,
    /// Name of the interface.
    pub(crate) interface: String,
    /// Name of the network configuration of the runtime. Several may have addresses of one network.
    pub(crate) configuration: String,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "command")]
pub(crate) enum Request {
    /// Gives addresses.
    Add {
        network: NetworkName,
        holder: Holder,
        /// Requested addresses. Empty: one of each family.
        requested: Vec<IpAddr>,
    },
    /// Takes the addresses of an interface back.
    Del {
        network: NetworkName,
        container: String,
        interface: String,
    },
    /// Takes addresses of this node back that were given by a network configuration, and whose containers and interfaces are not listed.
    Gc {
        network: NetworkName,
        configuration: String,
        valid: Vec<(String, String)>,
    },
    /// Checks that the agent replies and that the network exists.
    Status { network: NetworkName },
}

/// Addresses of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct AssignedAddresses {
    /// Addresses with the length of their prefix, and their gateways.
    pub(crate) ips: Vec<(IpNet, Option<IpAddr>)>,
    /// Reserved MAC address.
    pub(crate) mac: Option<String>,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reply {
    Given(AssignedAddresses),
    Refused { is_temporary: bool, message: String },
}

/// Errors of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// No agent, or no reply.
    #[error("{}: {cause} (check that the agent of the node runs)", socket.display())]
    Unreachable {
        /// Its socket.
        socket: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// The agent refused the request.
    #[error("{message}")]
    Refused {
        /// Whether the same request may succeed later.
        is_temporary: bool,
        /// Message of the agent.
        message: String,
    },
}

impl AskError {
    /// Returns whether the same request may succeed later.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { is_temporary, .. } => *is_temporary,
        }
    }
}

/// Sends a request to the agent at a socket, and waits for its reply.
///
/// # Errors
/// [`AskError`].
pub(crate) fn ask(socket: &Path, request: &Request) -> Result<AssignedAddresses, AskError> {
    let reply = exchange(socket, request).map_err(|cause| AskError::Unreachable {
        socket: socket.to_owned(),
        cause,
    })?;
    match reply {
        Reply::Given(given) => Ok(given),
        Reply::Refused {
            is_temporary,
            message,
        } => Err(AskError::Refused {
            is_temporary,
            message,
        }),
    }
}

fn exchange(socket: &Path, request: &Request) -> io::Result<Reply> {
    let deadline = Deadline::after(REPLY);
    let stream = connect_within(socket, REPLY)?;
    let mut bounded = BoundedStream::new(&stream, REPLY, deadline);
    let text = serde_json::to_vec(request).map_err(io::Error::other)?;
    bounded.write_all(&text)?;
    stream.shutdown(Shutdown::Write)?;
    let mut reply = Vec::new();
    bounded.take(LENGTH_MAX as u64).read_to_end(&mut reply)?;
    serde_json::from_slice(&reply).map_err(io::Error::other)
}
