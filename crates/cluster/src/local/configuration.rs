// SPDX-License-Identifier: Apache-2.0
//! Configuration files and arguments of the programs of the local cluster: functions of its directories only.

use std::path::{Path, PathBuf};

use quietwire_host::CpuList;
use serde_json::{Value, json};

use super::cgroups;
use super::machine::{CONTAINERD, KUBELET_ROOT, POD_LOGS};
use super::programs::Programs;
use super::{ADDRESS, NODE};

/// Users of the API server that have a kubeconfig, by the names of their certificates.
pub(super) const USERS: [&str; 4] = ["admin", "kubelet", "controller-manager", "scheduler"];
/// Addresses of services and of pods.
const SERVICES: &str = "10.96.0.0/16";
const PODS: &str = "10.244.0.0/24";
const ETCD: &str = "https://127.0.0.1:2379";
const ETCD_PEER: &str = "http://127.0.0.1:2380";
/// Name of the image of pods' sandboxes.
const PAUSE: &str = "localhost/pause:1";

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Daemon {
    /// Name of the program, of its log, and of its line in the status.
    pub(super) name: &'static str,
    /// Path of the program.
    pub(super) program: PathBuf,
    /// Its arguments.
    pub(super) arguments: Vec<String>,
}

/// Directories of a local cluster.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    state: PathBuf,
    programs: Programs,
    /// CPUs that kubelet gives to no pod.
    reserved_cpus: CpuList,
}

impl Layout {
    pub(super) fn new(state: &Path, programs: Programs, reserved_cpus: CpuList) -> Self {
        Self {
            state: state.to_owned(),
            programs,
            reserved_cpus,
        }
    }

    pub(super) fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Returns the directory of keys and certificates.
    pub(super) fn certificates(&self) -> PathBuf {
        self.state.join("pki")
    }

    /// Returns the directory of configuration files.
    pub(super) fn configurations(&self) -> PathBuf {
        self.state.join("etc")
    }

    /// Returns the directory of CNI network configurations.
    pub(super) fn networks(&self) -> PathBuf {
        self.state.join("net.d")
    }

    /// Returns the directory of CNI plugins beside those of Debian.
    pub(super) fn own_plugins(&self) -> PathBuf {
        self.state.join("cni")
    }

    /// Returns the kubeconfig of a user.
    pub(super) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.configurations().join(format!("{user}.kubeconfig"))
    }

    fn certificate(&self, name: &str) -> String {
        text(&self.certificates().join(name))
    }

    /// Returns all configuration files with their contents.
    pub(super) fn files(&self) -> Vec<(PathBuf, String)> {
        let mut files: Vec<(PathBuf, String)> = USERS
            .iter()
            // JSON is YAML.
            .map(|user| (self.kubeconfig(user), self.user(user).to_string()))
            .collect();
        let directory = self.configurations();
        files.push((directory.join("kubelet.yaml"), self.kubelet().to_string()));
        files.push((directory.join("containerd.toml"), self.containerd()));
        files.push((
            self.networks().join("50-pods.conflist"),
            network().to_string(),
        ));
        files
    }

    fn user(&self, user: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "local",
            "contexts": [{ "name": "local", "context": { "cluster": "local", "user": user } }],
            "clusters": [{ "name": "local", "cluster": {
                "server": format!("https://{ADDRESS}:6443"), "certificate-authority": self.certificate("ca.crt"),
            } }],
            "users": [{ "name": user, "user": {
                "client-certificate": self.certificate(&format!("{user}.crt")),
                "client-key": self.certificate(&format!("{user}.key")),
            } }],
        })
    }

    /// Returns the configuration of kubelet (kubelet.config.k8s.io/v1beta1).
    fn kubelet(&self) -> Value {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "authentication": {
                "anonymous": { "enabled": false }, "webhook": { "enabled": true },
                "x509": { "clientCAFile": self.certificate("ca.crt") },
            },
            "authorization": { "mode": "Webhook" },
            "tlsCertFile": self.certificate("kubelet-server.crt"),
            "tlsPrivateKeyFile": self.certificate("kubelet-server.key"),
            "containerRuntimeEndpoint": format!("unix://{CONTAINERD}/containerd.sock"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", cgroups::NAME),
            "failCgroupV1": false,
            "failSwapOn": false,
            "reservedSystemCPUs": self.reserved_cpus.to_string(),
            "cpuManagerPolicy": "static",
            // Settings that the agent requires beside a partition.
            "cpuManagerPolicyOptions": { "strict-cpu-reservation": "true" },
            "topologyManagerPolicy": "single-numa-node",
            // The file of the machine may be a link into /run, which the cluster does not see.
            "resolvConf": "",
            "podLogsDir": POD_LOGS,
            // Its default is below /usr, which is the machine's.
            "volumePluginDir": volume_plugins(),
            "evictionHard": { "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
            // Images are imported, not downloaded: none may be removed.
            "imageGCHighThresholdPercent": 100,
        })
    }

    /// Returns the configuration of containerd, version 3 (containerd's docs/cri/config.md).
    fn containerd(&self) -> String {
        let plugins = [self.own_plugins(), self.programs.plugins()].map(|path| text(&path));
        let (networks, runc) = (text(&self.networks()), text(&self.programs.path("runc")));
        format!(
            r#"version = 3
root = "{CONTAINERD}/root"
state = "{CONTAINERD}/state"

[grpc]
address = "{CONTAINERD}/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
path = "{CONTAINERD}/opt"

[plugins."io.containerd.nri.v1.nri"]
disable = true

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
# Scores below that of containerd require CAP_SYS_RESOURCE, which virtual machines for builds may lack.
restrict_oom_score_adj = true
enable_cdi = true
cdi_spec_dirs = ["/run/cdi"]

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = {plugins:?}
conf_dir = {networks:?}

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = {runc:?}
SystemdCgroup = false
"#
        )
    }

    fn daemon(&self, name: &'static str, arguments: Vec<String>) -> Daemon {
        Daemon {
            name,
            program: self.programs.path(name),
            arguments,
        }
    }

    pub(super) fn etcd(&self) -> Daemon {
        let arguments = vec![
            "--data-dir=/run/etcd".to_owned(),
            format!("--listen-client-urls={ETCD}"),
            format!("--advertise-client-urls={ETCD}"),
            format!("--listen-peer-urls={ETCD_PEER}"),
            format!("--initial-advertise-peer-urls={ETCD_PEER}"),
            format!("--initial-cluster=default={ETCD_PEER}"),
            format!("--cert-file={}", self.certificate("etcd.crt")),
            format!("--key-file={}", self.certificate("etcd.key")),
            "--client-cert-auth".to_owned(),
            format!("--trusted-ca-file={}", self.certificate("ca.crt")),
            // Its data end with the cluster.
            "--unsafe-no-fsync".to_owned(),
        ];
        self.daemon("etcd", arguments)
    }

    pub(super) fn api_server(&self) -> Daemon {
        let (certificate, key) = ("api-server.crt", "api-server.key");
        let arguments = vec![
            format!("--etcd-servers={ETCD}"),
            format!("--etcd-cafile={}", self.certificate("ca.crt")),
            format!("--etcd-certfile={}", self.certificate(certificate)),
            format!("--etcd-keyfile={}", self.certificate(key)),
            format!("--bind-address={ADDRESS}"),
            format!("--advertise-address={ADDRESS}"),
            "--secure-port=6443".to_owned(),
            format!("--tls-cert-file={}", self.certificate(certificate)),
            format!("--tls-private-key-file={}", self.certificate(key)),
            format!("--client-ca-file={}", self.certificate("ca.crt")),
            format!("--service-cluster-ip-range={SERVICES}"),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!(
                "--service-account-key-file={}",
                self.certificate("service-accounts.pub")
            ),
            format!(
                "--service-account-signing-key-file={}",
                self.certificate("service-accounts.key")
            ),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--allow-privileged=true".to_owned(),
            format!(
                "--kubelet-certificate-authority={}",
                self.certificate("ca.crt")
            ),
            format!(
                "--kubelet-client-certificate={}",
                self.certificate("admin.crt")
            ),
            format!("--kubelet-client-key={}", self.certificate("admin.key")),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ];
        self.daemon("kube-apiserver", arguments)
    }

    pub(super) fn controller_manager(&self) -> Daemon {
        let arguments = vec![
            format!(
                "--kubeconfig={}",
                text(&self.kubeconfig("controller-manager"))
            ),
            format!("--root-ca-file={}", self.certificate("ca.crt")),
            format!(
                "--service-account-private-key-file={}",
                self.certificate("service-accounts.key")
            ),
            "--use-service-account-credentials=true".to_owned(),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--flex-volume-plugin-dir={}", volume_plugins()),
        ];
        self.daemon("kube-controller-manager", arguments)
    }

    pub(super) fn scheduler(&self) -> Daemon {
        let arguments = vec![
            format!("--kubeconfig={}", text(&self.kubeconfig("scheduler"))),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
        ];
        self.daemon("kube-scheduler", arguments)
    }

    pub(super) fn runtime(&self) -> Daemon {
        let configuration = self.configurations().join("containerd.toml");
        let arguments = vec!["--config".to_owned(), text(&configuration)];
        self.daemon("containerd", arguments)
    }

    pub(super) fn node(&self) -> Daemon {
        let configuration = self.configurations().join("kubelet.yaml");
        let arguments = vec![
            format!("--config={}", text(&configuration)),
            format!("--kubeconfig={}", text(&self.kubeconfig("kubelet"))),
            format!("--root-dir={KUBELET_ROOT}"),
            format!("--cert-dir={KUBELET_ROOT}/pki"),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={ADDRESS}"),
            "-v=2".to_owned(),
        ];
        self.daemon("kubelet", arguments)
    }

    /// Returns kube-proxy, which gives services their addresses. It requires iptables(8).
    pub(super) fn proxy(&self) -> Daemon {
        let arguments = vec![
            format!("--kubeconfig={}", text(&self.kubeconfig("admin"))),
            format!("--hostname-override={NODE}"),
            "--proxy-mode=iptables".to_owned(),
            format!("--cluster-cidr={PODS}"),
            // The limit of connections is that of the whole machine.
            "--conntrack-max-per-core=0".to_owned(),
            "--healthz-bind-address=127.0.0.1:10256".to_owned(),
            "--metrics-bind-address=127.0.0.1:10249".to_owned(),
        ];
        self.daemon("kube-proxy", arguments)
    }
}

fn volume_plugins() -> String {
    format!("{KUBELET_ROOT}/volume-plugins")
}

/// Returns the pods' network, a bridge of the kernel.
fn network() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "pods",
        "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
            "ipam": { "type": "host-local", "ranges": [[{ "subnet": PODS }]], "routes": [{ "dst": "0.0.0.0/0" }] },
        }],
    })
}

/// Returns a path as text. Paths of the cluster are UTF-8: `LocalCluster::up` has checked it.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let directory = tempfile::tempdir().unwrap();
        let programs = Programs::of_tests(directory.path());
        Layout::new(Path::new("/run/x"), programs, "0".parse().unwrap())
    }

    #[test]
    fn configurations_are_of_their_formats_and_name_existing_files() {
        let layout = layout();
        let files = layout.files();
        let find = |end: &str| {
            let mut of_name = files.iter().filter(|(path, _)| path.ends_with(end));
            of_name.next().unwrap().1.clone()
        };
        let containerd: toml::Table = find("containerd.toml").parse().unwrap();
        assert_eq!(containerd["version"].as_integer(), Some(3));
        let runtime = &containerd["plugins"]["io.containerd.cri.v1.runtime"];
        assert_eq!(runtime["cni"]["bin_dirs"][0].as_str(), Some("/run/x/cni"));
        assert_eq!(runtime["cni"]["conf_dir"].as_str(), Some("/run/x/net.d"));
        let kubelet: Value = serde_json::from_str(&find("kubelet.yaml")).unwrap();
        assert_eq!(kubelet["reservedSystemCPUs"], "0");
        assert_eq!(kubelet["cgroupRoot"], "/quietwire-cluster");
        for user in USERS {
            let text = find(&format!("{user}.kubeconfig"));
            let config: kube::config::Kubeconfig = serde_json::from_str(&text).unwrap();
            assert_eq!(config.current_context.as_deref(), Some("local"));
        }
    }

    #[test]
    fn only_the_node_and_the_loopback_address_are_listened_on() {
        let layout = layout();
        let daemons = [
            layout.etcd(),
            layout.api_server(),
            layout.controller_manager(),
            layout.scheduler(),
            layout.proxy(),
        ];
        for daemon in &daemons {
            let mut addresses = daemon.arguments.iter().filter(|argument| {
                argument.contains("bind-address=") || argument.starts_with("--listen-")
            });
            assert!(
                addresses
                    .all(|argument| argument.contains("127.0.0.1") || argument.contains(ADDRESS)),
                "{daemon:?}"
            );
        }
    }
}
