// SPDX-License-Identifier: Apache-2.0
//! `quietwire cluster up`, `down`, `status` and `shell`: the local cluster. A background process, the keeper, supervises its programs.

use std::io::{Write as _, stdin};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use quietwire_base::Fault;
use quietwire_base::supervised::{Command, Streams};
use quietwire_cluster::local::{
    self, LocalCluster, LocalError, LocalOptions, NODE, NODES_MAX, STATE_DIRECTORY, StatusReport,
};
use quietwire_host::CpuList;

use crate::exit::{
    CheckFailed, MissingPrerequisite, Usage, on_signals, require_root, stop_on_signals,
};
use crate::text::print;

/// Start a Kubernetes cluster of one node on this machine, for development. It runs until `cluster down`.
#[derive(Debug, Args)]
pub(super) struct UpArgs {
    /// Run the cluster on this machine, in namespaces of its own.
    #[arg(long)]
    local: bool,
    /// Number of simulated nodes beside the node, 0 to 5000.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=i64::from(NODES_MAX)))]
    simulated_nodes: u16,
    /// CPUs that kubelet reserves (reservedSystemCPUs).
    #[arg(long, value_name = "CPUS", default_value = "0")]
    reserved_cpus: CpuList,
    /// Image for pods with imagePullPolicy Never, an archive in the OCI layout. Can be repeated.
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
    /// Directory of scripts/build-cluster. Default: ~/.cache/quietwire/kubernetes
    #[arg(long, value_name = "DIRECTORY")]
    programs: Option<PathBuf>,
    /// State directory of the cluster.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
}

/// Stop the local cluster and remove everything that it made.
#[derive(Debug, Args)]
pub(super) struct DownArgs {
    /// State directory of the cluster.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
}

/// Show whether the local cluster is ready. Exit code 1 if not.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// State directory of the cluster.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
    /// Print the status as JSON.
    #[arg(long)]
    json: bool,
}

/// Run a command in the namespaces of the local cluster, with kubectl in PATH. Default: a shell.
#[derive(Debug, Args)]
pub(super) struct ShellArgs {
    /// State directory of the cluster.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
    /// Command with its arguments.
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct NamespacesArgs {
    /// State directory of the cluster.
    #[arg(long, value_name = "DIRECTORY", hide = true)]
    state_directory: PathBuf,
}

/// Time that the keeper has when the start is interrupted: to end a step, such as the import of an image (at most 120 s), and to remove
/// everything.
const UNDO_TIMEOUT: Duration = Duration::from_secs(180);
/// Polling interval of both processes.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Longest start: the sum of the limits of its steps.
const START_TIMEOUT: Duration = Duration::from_secs(1200);

/// Returns the error with the exit code of its fault.
fn local_error(error: LocalError) -> anyhow::Error {
    let text = error.to_string();
    match error.fault() {
        Fault::BadInput => Usage(text).into(),
        Fault::MissingPrerequisite => MissingPrerequisite(text).into(),
        Fault::Failed => error.into(),
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("path of {}", path.display()))
}

fn options(args: &UpArgs) -> Result<LocalOptions> {
    let programs = args.programs.clone();
    let images: Result<Vec<PathBuf>> = args.image.iter().map(|image| absolute(image)).collect();
    Ok(LocalOptions {
        quietwire: std::env::current_exe().context("path of this program")?,
        programs: absolute(&programs.unwrap_or_else(local::default_directory))?,
        state_directory: absolute(&args.state_directory)?,
        reserved_cpus: args.reserved_cpus.clone(),
        simulated_nodes: args.simulated_nodes,
        images: images?,
    })
}

pub(super) fn up(args: &UpArgs) -> Result<()> {
    if !args.local {
        bail!(Usage(
            "`quietwire cluster up` starts clusters on this machine only (add --local)".to_owned()
        ));
    }
    if args.reserved_cpus.is_empty() {
        bail!(Usage(
            "--reserved-cpus is empty (kubelet requires at least one CPU)".to_owned()
        ));
    }
    let options = options(args)?;
    require_root("namespaces of a cluster")?;
    LocalCluster::check(&options).map_err(local_error)?;
    let stop = stop_on_signals(
        "the process of the cluster may still be removing it (wait for that with `quietwire cluster down`)",
    )?;
    let mut keeper = Command::new(&options.quietwire)
        .args(["cluster", "keep"])
        .in_this_group()
        .start(Streams::Pipes)
        .context("cannot start the process of the cluster")?;
    keeper.set_timeout(UNDO_TIMEOUT);
    // It leads a session of its own and outlives this process. Dropped before, it removes everything.
    if let Some(mut stdin) = keeper.take_stdin() {
        stdin
            .write_all(&serde_json::to_vec(&options)?)
            .context("cannot send the options to the process of the cluster")?;
    }
    let began = std::time::Instant::now();
    loop {
        let is_late = began.elapsed() > START_TIMEOUT;
        if stop.load(Ordering::Relaxed) || is_late {
            // Dropping the keeper ends it.
            let text = if is_late {
                format!(
                    "the cluster did not start within {} s (end other work on this machine, then repeat the command)",
                    START_TIMEOUT.as_secs()
                )
            } else {
                "the start of the cluster was interrupted by a signal".to_owned()
            };
            bail!(CheckFailed(text));
        }
        if let Some(status) = keeper.exit().context("waiting for the cluster")? {
            let text = "the cluster did not start (reason above)".to_owned();
            match status.code() {
                Some(2) => bail!(Usage(text)),
                Some(3) => bail!(MissingPrerequisite(text)),
                _ => bail!(CheckFailed(text)),
            }
        }
        if local::is_ready(&options.state_directory, keeper.process()) {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    keeper.release();
    let seconds = began.elapsed().as_secs();
    print(format!(
        "the cluster is up after {seconds} s, node {NODE}, {} simulated nodes; `quietwire cluster shell kubectl get nodes` lists them, \
         `quietwire cluster down` stops it",
        options.simulated_nodes
    ))
}

/// Runs the keeper: reads the options from standard input, starts the cluster, and waits for a signal.
pub(super) fn keep() -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    on_signals(&stop)?;
    // The keeper must not receive SIGHUP and SIGINT of the terminal. setsid fails only if the process already leads a group.
    let _ = nix::unistd::setsid();
    let options: LocalOptions =
        serde_json::from_reader(stdin()).map_err(|error| Usage(error.to_string()))?;
    let mut cluster = LocalCluster::up(&options, &stop).map_err(local_error)?;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(POLL_INTERVAL);
        for name in cluster.look_for_ended().map_err(local_error)? {
            tracing::error!("{name} of the local cluster ended unexpectedly");
        }
    }
    cluster.down().map_err(local_error)
}

pub(super) fn down(args: &DownArgs) -> Result<()> {
    require_root("stopping a cluster")?;
    stop_on_signals("parts of the cluster may be left (repeat the command)")?;
    let was_there = local::take_down(&absolute(&args.state_directory)?).map_err(local_error)?;
    print(if was_there {
        "the cluster is down"
    } else {
        "no local cluster is up"
    })
}

pub(super) fn status(args: &StatusArgs) -> Result<()> {
    require_root("entering the namespaces of a cluster")?;
    let report = local::status(&args.state_directory).map_err(local_error)?;
    if args.json {
        print(serde_json::to_string_pretty(&report)?)?;
    } else {
        print(describe(&report))?;
    }
    if report.is_ready() {
        return Ok(());
    }
    bail!(CheckFailed(
        "the cluster is not ready (its logs are in the state directory)".to_owned()
    ))
}

fn describe(report: &StatusReport) -> String {
    let state = &report.state;
    let mut lines = vec![format!(
        "Kubernetes {}, API server: {}",
        state.kubernetes, report.api_server
    )];
    let nodes = usize::from(state.simulated_nodes).saturating_add(1);
    lines.push(format!("nodes Ready: {} of {nodes}", report.ready_nodes));
    for name in &state.started {
        let is_over = !report.is_running || state.ended.contains(name);
        let word = if is_over { "ended" } else { "running" };
        lines.push(format!("{name}: {word}"));
    }
    lines.push(format!("logs: {}", state.logs.display()));
    lines.join("\n")
}

pub(super) fn shell(args: &ShellArgs) -> Result<()> {
    require_root("entering the namespaces of a cluster")?;
    let command = match args.command.as_slice() {
        [] => vec!["bash".to_owned()],
        words => words.to_vec(),
    };
    match local::shell(&args.state_directory, &command).map_err(local_error)? {}
}

pub(super) fn namespaces(args: &NamespacesArgs) -> Result<()> {
    local::run_inside(&args.state_directory).map_err(local_error)
}

#[cfg(test)]
mod tests {
    use quietwire_cluster::local::LocalState;

    use super::*;
    use crate::exit::code;

    #[test]
    fn faults_become_exit_codes() {
        assert_eq!(code(&local_error(LocalError::Down)), 2);
        let missing = LocalError::Missing {
            what: "etcd".to_owned(),
            cure: "run scripts/build-cluster".to_owned(),
        };
        assert_eq!(code(&local_error(missing)), 3);
        assert_eq!(code(&local_error(LocalError::Stopped)), 1);
    }

    #[test]
    fn the_status_names_programs_that_ended() {
        let report = StatusReport {
            state: LocalState {
                kubernetes: "v1".to_owned(),
                started: vec!["etcd".to_owned(), "kubelet".to_owned()],
                ended: vec!["kubelet".to_owned()],
                simulated_nodes: 2,
                ..LocalState::default()
            },
            is_running: true,
            api_server: "ok".to_owned(),
            ready_nodes: 3,
        };
        let text = describe(&report);
        for line in ["nodes Ready: 3 of 3", "etcd: running", "kubelet: ended"] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!report.is_ready());
    }
}
