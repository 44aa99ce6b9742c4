// SPDX-License-Identifier: Apache-2.0
//! `quietwire cluster`: the agent of a Kubernetes node, the controller of networks, the definitions of the custom resources, and a local
//! cluster for development.

mod local;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use quietwire_base::read_text;
use quietwire_cluster::admission::{WebhookError, WebhookOptions, run as run_webhook};
use quietwire_cluster::agent::{AgentError, AgentOptions, Exports, run as run_agent};
use quietwire_cluster::devices::DevicesConfig;
use quietwire_cluster::kubelet::KubeletPaths;
use quietwire_cluster::local::run_nodes;
use quietwire_cluster::networks::{ControllerOptions, run as run_controller};
use quietwire_cluster::resources;
use quietwire_switch::config::CONTROL_SOCKET_DEFAULT;

use crate::exit::{Usage, require_root, stop_on_signals};
use crate::text::print;

/// Connect this node to a Kubernetes cluster.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Print the definitions of the custom resources as YAML.
    Crds,
    Agent(AgentArgs),
    Controller(ControllerArgs),
    Webhook(WebhookArgs),
    Up(local::UpArgs),
    Down(local::DownArgs),
    Status(local::StatusArgs),
    Shell(local::ShellArgs),
    /// Run a local cluster; started by `cluster up`.
    #[command(hide = true)]
    Keep,
    /// Set up the namespaces of a local cluster; started by its process.
    #[command(hide = true)]
    Namespaces(local::NamespacesArgs),
    /// Keep simulated nodes alive; started in a local cluster.
    #[command(hide = true)]
    Nodes(NodesArgs),
}

/// Run the controller, which orders rollouts and maintains a NetworkAttachmentDefinition for each Network.
#[derive(Debug, Args)]
struct ControllerArgs {
    /// Address and credentials of the API server. Default: those of the pod, or KUBECONFIG.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Run the admission webhook, which adds requests for devices to pods that name a Network with a resource.
#[derive(Debug, Args)]
struct WebhookArgs {
    /// Address and credentials of the API server. Default: those of the pod, or KUBECONFIG.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Address and port of the HTTPS server.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:9443")]
    listen: SocketAddr,
    /// Certificate of the server (PEM).
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,
    /// Key of the certificate (PEM).
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

/// Run the agent of a node, which partitions the node as a NodePartition requests and configures the switch as a DataPlane requests. With
/// --devices it is also a device plugin of kubelet.
#[derive(Debug, Args)]
struct AgentArgs {
    /// Name of the node in Kubernetes.
    #[arg(long, value_name = "NAME")]
    node: String,
    /// Address and credentials of the API server. Default: those of the pod, or KUBECONFIG.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Control socket of the switch.
    #[arg(long, value_name = "SOCKET", default_value = CONTROL_SOCKET_DEFAULT)]
    control_socket: PathBuf,
    /// Configuration file of kubelet.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/lib/kubelet/config.yaml"
    )]
    kubelet_config: PathBuf,
    /// Root directory of kubelet, with its state and sockets.
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/kubelet")]
    kubelet_root: PathBuf,
    /// File with the resources of the device plugin (TOML). Default: no device plugin.
    #[arg(long, value_name = "FILE")]
    devices: Option<PathBuf>,
    /// Show CPUs of NUMA nodes to schedulers as a NodeResourceTopology.
    #[arg(long)]
    node_resource_topology: bool,
    /// Show features of the machine to Node Feature Discovery as a NodeFeature.
    #[arg(long)]
    node_feature: bool,
}

#[derive(Debug, Args)]
struct NodesArgs {
    /// Number of nodes.
    #[arg(long, value_name = "N", hide = true)]
    count: u16,
    /// Address and credentials of the API server.
    #[arg(long, value_name = "FILE", hide = true)]
    kubeconfig: PathBuf,
}

pub(crate) fn run(args: &ClusterArgs) -> Result<()> {
    match &args.command {
        ClusterCommand::Crds => print(
            resources::to_yaml()
                .context("cannot print the definitions")?
                .trim_end(),
        ),
        ClusterCommand::Agent(args) => agent(args),
        ClusterCommand::Controller(args) => controller(args),
        ClusterCommand::Webhook(args) => webhook(args),
        ClusterCommand::Up(args) => local::up(args),
        ClusterCommand::Down(args) => local::down(args),
        ClusterCommand::Status(args) => local::status(args),
        ClusterCommand::Shell(args) => local::shell(args),
        ClusterCommand::Keep => local::keep(),
        ClusterCommand::Namespaces(args) => local::namespaces(args),
        ClusterCommand::Nodes(args) => nodes(args),
    }
}

fn controller(args: &ControllerArgs) -> Result<()> {
    let stop = stop_on_signals("the definitions of networks stay")?;
    let options = ControllerOptions {
        kubeconfig: args.kubeconfig.clone(),
    };
    run_controller(&options, &stop).map_err(agent_error)
}

fn webhook(args: &WebhookArgs) -> Result<()> {
    let stop = stop_on_signals("")?;
    let options = WebhookOptions {
        kubeconfig: args.kubeconfig.clone(),
        listen: args.listen,
        certificate: args.certificate.clone(),
        key: args.key.clone(),
    };
    run_webhook(&options, &stop).map_err(|error| match error {
        WebhookError::Agent(error) => agent_error(error),
        error @ WebhookError::Certificate(_) => Usage(error.to_string()).into(),
        error @ WebhookError::Listen { .. } => error.into(),
    })
}

fn nodes(args: &NodesArgs) -> Result<()> {
    let stop = stop_on_signals("")?;
    run_nodes(&args.kubeconfig, args.count, &stop).map_err(agent_error)
}

fn agent(args: &AgentArgs) -> Result<()> {
    let devices = args.devices.as_deref().map(devices).transpose()?;
    require_root("changing settings of the node")?;
    let stop = stop_on_signals("the partition of the node stays applied")?;
    let options = AgentOptions {
        node: args.node.clone(),
        kubeconfig: args.kubeconfig.clone(),
        root: PathBuf::from("/"),
        control_socket: args.control_socket.clone(),
        places: KubeletPaths {
            configuration: args.kubelet_config.clone(),
            cpu_state: args.kubelet_root.join("cpu_manager_state"),
            memory_state: args.kubelet_root.join("memory_manager_state"),
            pod_resources: args.kubelet_root.join("pod-resources/kubelet.sock"),
            ..KubeletPaths::default()
        },
        devices,
        exports: Exports {
            topology: args.node_resource_topology,
            features: args.node_feature,
        },
    };
    run_agent(options, &stop).map_err(agent_error)
}

/// Returns the error with its exit code: a missing or invalid kubeconfig is bad input, also that of the environment.
fn agent_error(error: AgentError) -> anyhow::Error {
    match error {
        AgentError::Configuration(_) => Usage(error.to_string()).into(),
        error => error.into(),
    }
}

fn devices(path: &Path) -> Result<DevicesConfig> {
    let problem = |text: String| Usage(format!("{}: {text}", path.display()));
    let text = read_text(path).map_err(|error| problem(error.to_string()))?;
    Ok(DevicesConfig::parse(&text).map_err(problem)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::exit::{FAILED, code};

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        cluster: ClusterArgs,
    }

    #[test]
    fn a_wrong_kubeconfig_is_bad_input() {
        let wrong = AgentError::Configuration("/absent".to_owned());
        assert_eq!(code(&agent_error(wrong)), 2);
        let other = AgentError::Runtime(std::io::Error::other("no threads"));
        assert_eq!(code(&agent_error(other)), FAILED);
    }

    /// Returns the command that a file of the package starts.
    fn packaged(file: &str) -> ClusterCommand {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes");
        let text = fs::read_to_string(directory.join(file)).unwrap();
        let (_, after) = text.split_once("args:").unwrap();
        let items = after.lines().skip(1).map(str::trim);
        let arguments = items.map_while(|line| line.strip_prefix("- "));
        let arguments: Vec<&str> = arguments.collect();
        // The name of the command takes the place of that of the program.
        let Alone { cluster } = Alone::try_parse_from(arguments).unwrap();
        cluster.command
    }

    #[test]
    fn the_daemon_set_starts_the_agent_with_options_that_exist() {
        let ClusterCommand::Agent(agent) = packaged("base/agent.yaml") else {
            panic!("another command");
        };
        assert_eq!(agent.node, "$(NODE_NAME)");
        assert_eq!(
            agent.devices.as_deref(),
            Some(Path::new("/etc/quietwire/devices.toml"))
        );
    }

    #[test]
    fn the_deployment_starts_the_controller() {
        let command = packaged("base/controller.yaml");
        assert!(
            matches!(command, ClusterCommand::Controller(_)),
            "{command:?}"
        );
    }

    #[test]
    fn the_deployment_starts_the_webhook_with_the_files_of_the_secret() {
        let ClusterCommand::Webhook(webhook) = packaged("webhook/webhook.yaml") else {
            panic!("another command");
        };
        let directory = Path::new("/etc/quietwire-webhook");
        assert_eq!(webhook.certificate, directory.join("tls.crt"));
        assert_eq!(webhook.key, directory.join("tls.key"));
        assert_eq!(webhook.listen.port(), 9443);
    }
}
