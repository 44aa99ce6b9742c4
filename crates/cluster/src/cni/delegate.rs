// SPDX-License-Identifier: Apache-2.0
//! Calls of the IPAM plugin (CNI specification, section 4).

use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::supervised::{Command as Process, Finished};
use quietwire_base::{Deadline, find_program_in};

use super::environment::{COMMAND, Command, Environment};
use super::reply::{CniError, CniResult, ErrorCode};

/// Time that a call may take. DHCP clients may need some seconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the program of the plugin in `CNI_PATH`.
fn program(plugin: &str, environment: &Environment) -> Result<PathBuf, CniError> {
    let mut directories = environment.path.iter();
    let found = directories
        .find_map(|directory| find_program_in(Path::new("/"), directory.as_os_str(), plugin));
    found.ok_or_else(|| {
        let path = environment.path.iter();
        let path: Vec<_> = path.map(|it| it.display().to_string()).collect();
        CniError::new(
            ErrorCode::InvalidConfig,
            format!("IPAM plugin {plugin} not found"),
        )
        .with_details(format!("CNI_PATH is '{}'", path.join(":")))
    })
}

/// Calls the plugin with a command and the network configuration. The other variables are those of this process.
fn call(
    plugin: &str,
    environment: &Environment,
    command: Command,
    input: &str,
) -> Result<String, CniError> {
    let program = program(plugin, environment)?;
    let process = Process::new("env")
        .arg(format!("{}={}", COMMAND, command.name()))
        .arg(&program);
    let failed = |what: String| {
        let message = format!("IPAM plugin {plugin}: {} failed", command.name());
        CniError::new(ErrorCode::Io, message).with_details(what)
    };
    let finished = process
        .run_with_input(input.as_bytes(), Deadline::after(TIMEOUT))
        .map_err(|error| failed(error.to_string()))?;
    let is_successful = finished.status.is_some_and(|status| status.success());
    if is_successful {
        return Ok(String::from_utf8_lossy(&finished.stdout).into_owned());
    }
    Err(printed_error(&finished).unwrap_or_else(|| {
        let what = finished.into_result().err();
        failed(what.unwrap_or_default())
    }))
}

fn printed_error(finished: &Finished) -> Option<CniError> {
    CniError::of_plugin(&String::from_utf8_lossy(&finished.stdout))
}

/// Asks the plugin for addresses and routes.
///
/// # Errors
/// Those of the plugin; [`ErrorCode::Decode`] for a result that is none.
pub(super) fn add(
    plugin: &str,
    environment: &Environment,
    input: &str,
) -> Result<CniResult, CniError> {
    let printed = call(plugin, environment, Command::Add, input)?;
    serde_json::from_str(&printed).map_err(|error| {
        let message = format!("IPAM plugin {plugin}: its result cannot be read");
        CniError::new(ErrorCode::Decode, message).with_details(error.to_string())
    })
}

/// Calls the plugin for another command than ADD.
///
/// # Errors
/// Those of the plugin.
pub(super) fn other(
    plugin: &str,
    environment: &Environment,
    command: Command,
    input: &str,
) -> Result<(), CniError> {
    call(plugin, environment, command, input).map(drop)
}
