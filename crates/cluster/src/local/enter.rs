// SPDX-License-Identifier: Apache-2.0
//! Commands in the namespaces of the local cluster.

use std::convert::Infallible;
use std::ffi::CString;
use std::path::Path;

use nix::unistd::execvp;
use quietwire_base::ProcessId;
use quietwire_base::supervised::Command;

use super::error::{LocalError, io_error};
use super::programs::VERSION;
use super::state::LocalState;

/// Directories of the machine's programs.
const MACHINE: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Variables that would send requests for the node to a proxy.
const PROXIES: [&str; 6] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// Returns the words before a command that runs in the namespaces of a process (nsenter(1)). The command becomes a child of nsenter.
fn enter(inside: ProcessId) -> Vec<String> {
    let target = format!("--target={}", inside.pid);
    let words = [
        "nsenter",
        target.as_str(),
        "--mount",
        "--net",
        "--pid",
        "--ipc",
        "--",
    ];
    words.map(str::to_owned).to_vec()
}

/// Returns the variables of programs of the cluster.
fn variables(state: &LocalState) -> [String; 3] {
    let binaries = state.programs.join(format!("bin-{VERSION}"));
    [
        format!("PATH={}:{MACHINE}", binaries.display()),
        format!("KUBECONFIG={}", state.kubeconfig.display()),
        // Otherwise kubectl writes below the home directory, which is the machine's.
        "KUBECACHEDIR=/run/kubectl".to_owned(),
    ]
}

/// Returns a command in the namespaces, with the variables of the cluster and no others.
///
/// # Errors
/// [`LocalError::Down`]: the state names no process that lives.
pub(super) fn in_cluster(state: &LocalState, words: &[&str]) -> Result<Command, LocalError> {
    Ok(Command::of(&enter(living(state)?))
        .args(["env", "-i", "HOME=/run"])
        .args(variables(state))
        .args(words))
}

fn living(state: &LocalState) -> Result<ProcessId, LocalError> {
    let inside = state.inside.filter(|inside| inside.is_alive());
    inside.ok_or(LocalError::Down)
}

/// Replaces this process by a command in the namespaces of the local cluster. Its variables are those of this process, with `PATH` and
/// `KUBECONFIG` of the cluster and without proxies.
///
/// # Errors
/// [`LocalError::Down`], or an error of the operating system.
pub fn shell(directory: &Path, words: &[String]) -> Result<Infallible, LocalError> {
    let state = LocalState::read(directory)?.ok_or(LocalError::Down)?;
    let mut command = enter(living(&state)?);
    command.push("env".to_owned());
    for name in PROXIES {
        command.extend(["-u".to_owned(), name.to_owned()]);
    }
    command.extend(variables(&state));
    command.extend_from_slice(words);
    let nsenter = Path::new("nsenter");
    let command: Result<Vec<CString>, _> = command.into_iter().map(CString::new).collect();
    let command = command.map_err(|error| io_error(nsenter, "starting it")(error.into()))?;
    execvp(c"nsenter", &command).map_err(|error| io_error(nsenter, "starting it")(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_in_the_namespaces_with_the_variables_of_the_cluster() {
        let state = LocalState {
            inside: ProcessId::own(),
            programs: "/cache".into(),
            kubeconfig: "/run/x/admin.kubeconfig".into(),
            ..LocalState::default()
        };
        let line = in_cluster(&state, &["kubectl", "get", "nodes"])
            .unwrap()
            .line();
        let own = std::process::id();
        assert!(
            line.starts_with(&format!("nsenter --target={own} --mount")),
            "{line}"
        );
        assert!(line.contains(" PATH=/cache/bin-v1."), "{line}");
        assert!(line.ends_with("kubectl get nodes"), "{line}");
    }

    #[test]
    fn without_a_living_process_there_are_no_namespaces() {
        let state = LocalState::default();
        assert!(matches!(
            in_cluster(&state, &["true"]),
            Err(LocalError::Down)
        ));
    }
}
