// SPDX-License-Identifier: Apache-2.0
//! Addresses of a `Network`, which the agent of the node gives.

use std::net::IpAddr;

use quietwire_packet::MacAddress;

use super::config::{Attachment, OfAgent};
use super::environment::{Command, Environment};
use super::reply::{CniError, CniResult, ErrorCode, Ip};
use crate::addresses::{AskError, Holder, Request, ask};

/// Asks the agent for addresses: the requested ones, or one of each family. `configuration` is the name of the network configuration.
/// Returns the addresses and the reserved MAC address.
///
/// # Errors
/// [`ErrorCode::InvalidEnvironment`]: the runtime does not name the pod. [`ErrorCode::TryAgain`], [`ErrorCode::InvalidConfig`].
pub(super) fn add(
    of_agent: &OfAgent,
    configuration: &str,
    environment: &Environment,
    requested: Vec<IpAddr>,
) -> Result<(CniResult, Option<MacAddress>), CniError> {
    let request = Request::Add {
        network: of_agent.network.clone(),
        holder: holder(configuration, environment)?,
        requested,
    };
    let given = ask(&of_agent.socket, &request).map_err(|error| failed(&error))?;
    let mac = given
        .mac
        .as_deref()
        .map(str::parse::<MacAddress>)
        .transpose();
    let mac = mac.map_err(|_| {
        let what = "the reserved MAC address of the network cannot be read";
        CniError::new(ErrorCode::InvalidConfig, what)
    })?;
    let ips = given.ips.into_iter().map(|(address, gateway)| Ip {
        address,
        gateway,
        interface: None,
    });
    let result = CniResult {
        ips: ips.collect(),
        routes: of_agent.routes.clone(),
        ..CniResult::default()
    };
    Ok((result, mac))
}

/// Sends another command than ADD. DEL succeeds while the agent or the API server is away: the addresses are removed with the pod then.
///
/// # Errors
/// As [`add`].
pub(super) fn other(
    of_agent: &OfAgent,
    configuration: &str,
    environment: &Environment,
    command: Command,
    valid: &[Attachment],
) -> Result<(), CniError> {
    let network = of_agent.network.clone();
    let request = match command {
        Command::Del => Request::Del {
            network,
            container: environment.container_id.clone(),
            interface: environment.interface.clone(),
        },
        Command::Gc => {
            let pair = |it: &Attachment| (it.container_id.clone(), it.ifname.clone());
            Request::Gc {
                network,
                configuration: configuration.to_owned(),
                valid: valid.iter().map(pair).collect(),
            }
        }
        Command::Status => Request::Status { network },
        Command::Add | Command::Check | Command::Version => return Ok(()),
    };
    match ask(&of_agent.socket, &request) {
        Ok(_) => Ok(()),
        Err(error) if command == Command::Del && error.is_temporary() => {
            tracing::warn!("addresses are released with the pod: {error}");
            Ok(())
        }
        Err(error) if command == Command::Status => {
            Err(CniError::new(ErrorCode::NotAvailable, error.to_string()))
        }
        Err(error) => Err(failed(&error)),
    }
}

fn failed(error: &AskError) -> CniError {
    let code = match error.is_temporary() {
        true => ErrorCode::TryAgain,
        false => ErrorCode::InvalidConfig,
    };
    CniError::new(code, error.to_string())
}

/// Returns the pod that the runtime names in `CNI_ARGS`.
fn holder(configuration: &str, environment: &Environment) -> Result<Holder, CniError> {
    let argument = |name: &str| {
        let value = environment.arguments.get(name);
        let value = value.filter(|value| !value.is_empty()).cloned();
        value.ok_or_else(|| {
            let what =
                format!("CNI_ARGS: {name} is absent (only pods have addresses of a Network)");
            CniError::new(ErrorCode::InvalidEnvironment, what)
        })
    };
    Ok(Holder {
        namespace: argument("K8S_POD_NAMESPACE")?,
        pod: argument("K8S_POD_NAME")?,
        uid: argument("K8S_POD_UID")?,
        container: environment.container_id.clone(),
        interface: environment.interface.clone(),
        configuration: configuration.to_owned(),
    })
}
