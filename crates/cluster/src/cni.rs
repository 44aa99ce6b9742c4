// SPDX-License-Identifier: Apache-2.0
//! CNI plugin (CNI specification, versions 1.0.0 and 1.1.0): attaches containers to a bridge of a running switch.
//!
//! A container runtime starts the plugin with a command in `CNI_COMMAND` and a network configuration on standard input. An attachment is one
//! port of the switch, whose name is computed from network, container and interface. An interface of the node is an attachment without a
//! switch: its alias has the state. A record of each attachment is a file, for GC and for the agent of the node.

// Input of a container runtime: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod config;
mod delegate;
pub(crate) mod device_info;
mod environment;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod fuzz;
mod host_device;
mod interface;
mod left;
mod of_agent;
pub(crate) mod pod_device;
mod port;
mod reattach;
mod record;
mod recorded;
mod reply;
mod round;
mod running;
#[cfg(test)]
mod tests;
mod verbs;
mod version;

use serde_json::json;

pub use config::{INPUT_MAX, NetworkConfig};
pub(crate) use config::{PortKind, SOCKET_DIRECTORY};
pub use environment::{COMMAND, Command, Environment, Variables};
pub(crate) use left::remove_left;
pub(crate) use reattach::attach_again;
pub(crate) use recorded::Recorded;
pub use reply::{CniError, CniResult, ErrorCode};
pub use running::{RunningSwitch, Switch, SwitchInterface, SwitchPort};
pub use version::VERSIONS;

use version::NEWEST;

/// Executes the command in the environment with a network configuration. Returns the text for standard output.
///
/// # Errors
/// [`CniError`], whose JSON is the text for standard output.
pub fn run(variables: &Variables<'_>, input: &str) -> Result<String, CniError> {
    let environment = Environment::read(variables)?;
    if environment.command == Command::Version {
        let versions = json!({ "cniVersion": NEWEST, "supportedVersions": VERSIONS });
        return Ok(versions.to_string());
    }
    let config = NetworkConfig::parse(input)?;
    let switch = RunningSwitch::new(&config.control_socket);
    verbs::execute(&environment, &config, input, &switch)
        .map_err(|error| error.of_version(&config.cni_version))
}
