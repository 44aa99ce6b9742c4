// SPDX-License-Identifier: Apache-2.0
//! Parameters in environment variables (CNI specification, section 2).

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::reply::{CniError, ErrorCode};

/// Environment variable with the command.
pub const COMMAND: &str = "CNI_COMMAND";

/// Looks up an environment variable.
pub type Variables<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Longest name of a kernel interface, octets (linux/if.h, `IFNAMSIZ` without the final zero).
pub(super) const INTERFACE_MAX: usize = 15;
/// Longest container ID, octets. The specification has no limit.
const CONTAINER_MAX: usize = 256;

/// A command of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Adds a container to the network, or applies modifications.
    Add,
    /// Removes a container from the network.
    Del,
    /// Checks that the container's network is as ADD made it.
    Check,
    /// Removes attachments that are not valid any more.
    Gc,
    /// Checks that the plugin can serve ADD.
    Status,
    /// Lists the supported versions.
    Version,
}

impl Command {
    const ALL: [Self; 6] = [
        Self::Add,
        Self::Del,
        Self::Check,
        Self::Gc,
        Self::Status,
        Self::Version,
    ];

    /// Returns the name in the environment.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    fn has_container(self) -> bool {
        matches!(self, Self::Add | Self::Del | Self::Check)
    }
}

/// Parameters of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The command.
    pub command: Command,
    /// ID of the container; empty for commands without one.
    pub container_id: String,
    /// Path of the container's network namespace. DEL may have none.
    pub netns: Option<String>,
    /// Name of the interface in the container; empty for commands without a container.
    pub interface: String,
    /// Directories of plugins.
    pub path: Vec<PathBuf>,
    /// Extra arguments.
    pub arguments: BTreeMap<String, String>,
}

impl Environment {
    /// Reads the parameters.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidEnvironment`], with the variable.
    pub fn read(variables: &Variables<'_>) -> Result<Self, CniError> {
        let name = required(variables, COMMAND)?;
        let command = Command::ALL.into_iter().find(|it| it.name() == name);
        let command = command.ok_or_else(|| {
            let names = Command::ALL.map(Command::name).join(", ");
            invalid(COMMAND, &format!("'{name}' is not one of {names}"))
        })?;
        let mut environment = Self {
            command,
            container_id: String::new(),
            netns: None,
            interface: String::new(),
            path: paths(variables),
            arguments: arguments(variables)?,
        };
        if command.has_container() {
            environment.container_id = required(variables, "CNI_CONTAINERID")?;
            check_container(&environment.container_id)?;
            environment.interface = required(variables, "CNI_IFNAME")?;
            check_interface(&environment.interface)?;
            environment.netns = variables("CNI_NETNS").filter(|path| !path.is_empty());
            check_namespace(command, environment.netns.as_deref())?;
        }
        Ok(environment)
    }
}

fn required(variables: &Variables<'_>, name: &str) -> Result<String, CniError> {
    let value = variables(name).filter(|value| !value.is_empty());
    value.ok_or_else(|| invalid(name, "is required but absent or empty"))
}

fn invalid(name: &str, what: &str) -> CniError {
    CniError::new(ErrorCode::InvalidEnvironment, format!("{name}: {what}"))
}

fn paths(variables: &Variables<'_>) -> Vec<PathBuf> {
    let value = variables("CNI_PATH").unwrap_or_default();
    let paths = value.split(':').map(PathBuf::from);
    paths.filter(|path| path.is_absolute()).collect()
}

/// Checks a container ID: a letter or digit, then letters, digits, underscores, dots and hyphens.
fn check_container(id: &str) -> Result<(), CniError> {
    let mut octets = id.bytes();
    let begins = octets.next().is_some_and(|it| it.is_ascii_alphanumeric());
    let goes_on = octets.all(|it| it.is_ascii_alphanumeric() || b"_.-".contains(&it));
    if begins && goes_on && id.len() <= CONTAINER_MAX {
        return Ok(());
    }
    Err(invalid(
        "CNI_CONTAINERID",
        "must begin with a letter or digit, and have at most 256 letters, digits, '_', '.' and '-'",
    ))
}

fn check_interface(name: &str) -> Result<(), CniError> {
    let is_text = name.bytes().all(|it| it.is_ascii_graphic());
    let has_separator = name.bytes().any(|it| b"/:?&=".contains(&it));
    if is_text && !has_separator && name.len() <= INTERFACE_MAX && name != "." && name != ".." {
        return Ok(());
    }
    Err(invalid(
        "CNI_IFNAME",
        &format!(
            "'{name}' is not the name of an interface (1 to 15 characters without '/', ':', '?', '&', '=' and spaces)"
        ),
    ))
}

fn check_namespace(command: Command, path: Option<&str>) -> Result<(), CniError> {
    let Some(path) = path else {
        return match command {
            Command::Del => Ok(()),
            _ => Err(invalid("CNI_NETNS", "is required but absent or empty")),
        };
    };
    let is_sound = path.starts_with('/') && !path.bytes().any(|it| b"?&=".contains(&it));
    if is_sound {
        return Ok(());
    }
    let what = format!("'{path}' is not an absolute path without '?', '&' and '='");
    Err(invalid("CNI_NETNS", &what))
}

/// Reads `CNI_ARGS`: pairs of key and value, separated by semicolons.
fn arguments(variables: &Variables<'_>) -> Result<BTreeMap<String, String>, CniError> {
    let text = variables("CNI_ARGS").unwrap_or_default();
    let pairs = text.split(';').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| invalid("CNI_ARGS", &format!("'{pair}' has no '='")))?;
        Ok((key.to_owned(), value.to_owned()))
    });
    pairs.collect()
}
