// SPDX-License-Identifier: Apache-2.0
//! Life of the local cluster: its start, the supervision of its programs, and its end.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quietwire_base::durable::replace;
use quietwire_base::supervised::{Command, Streams, Supervised};
use quietwire_base::{Deadline, ProcessId, find_program};
use quietwire_host::CpuList;
use serde::{Deserialize, Serialize};

use super::configuration::{Daemon, Layout};
use super::enter::in_cluster;
use super::error::{LocalError, io_error};
use super::inside::READY;
use super::machine::{CONTAINERD, absent, hidden_by};
use super::programs::{Programs, VERSION};
use super::registry::{Claim, claim, make_mount_points, ready_nodes, release, remove_left};
use super::state::LocalState;
use super::{certificates, cgroups};

/// Time until the namespaces are set up.
const INSIDE: Duration = Duration::from_secs(30);
/// Time until a program replies. On a busy machine of two CPUs the API server takes half a minute.
const REPLY: Duration = Duration::from_secs(180);
/// Time until all nodes are Ready.
const NODES: Duration = Duration::from_secs(300);
/// Time for the import of an image.
const IMPORT: Duration = Duration::from_secs(120);
/// Time for one check.
const CHECK: Duration = Duration::from_secs(10);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(300);
/// Time that the first process in the namespaces, and with it all others, has to end.
const END: Duration = Duration::from_secs(20);

/// Options of a local cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalOptions {
    /// This program.
    pub quietwire: PathBuf,
    /// Directory of the programs, which scripts/build-cluster makes.
    pub programs: PathBuf,
    /// State directory.
    pub state_directory: PathBuf,
    /// CPUs that kubelet gives to no pod (`reservedSystemCPUs`).
    pub reserved_cpus: CpuList,
    /// Number of simulated nodes.
    pub simulated_nodes: u16,
    /// Archives of images in the OCI layout, for pods with `imagePullPolicy: Never`.
    pub images: Vec<PathBuf>,
}

/// A running local cluster. Dropping it removes everything.
#[derive(Debug)]
pub struct LocalCluster {
    options: LocalOptions,
    layout: Layout,
    state: LocalState,
    claim: Option<Claim>,
    /// The first process in the namespaces, and its input: it ends with it.
    first: Option<(Supervised, Option<ChildStdin>)>,
    programs: Vec<(String, Supervised)>,
}

impl LocalCluster {
    /// Checks the requirements of a local cluster and changes nothing.
    ///
    /// # Errors
    /// [`LocalError::Missing`], [`LocalError::Hidden`].
    pub fn check(options: &LocalOptions) -> Result<(), LocalError> {
        let images = options.images.iter();
        for path in images.chain([&options.programs, &options.quietwire]) {
            if let Some(below) = hidden_by(path, &options.state_directory) {
                return Err(LocalError::Hidden {
                    path: path.clone(),
                    below,
                });
            }
        }
        Programs::find(&options.programs)?;
        let images = options.images.iter();
        for path in images.chain([&options.quietwire]) {
            if !path.is_file() {
                return Err(LocalError::Missing {
                    what: path.display().to_string(),
                    cure: "name an existing file".to_owned(),
                });
            }
        }
        let directories = [&options.programs, &options.state_directory];
        for path in directories {
            // It becomes a part of arguments and of JSON texts.
            if path.to_str().is_none() || !path.is_absolute() {
                return Err(LocalError::Missing {
                    what: format!("an absolute path in UTF-8 instead of {}", path.display()),
                    cure: "use another directory".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Starts a local cluster, and waits until its nodes are Ready. `stop` ends the start.
    ///
    /// # Errors
    /// [`LocalError`]. Everything is removed then.
    pub fn up(options: &LocalOptions, stop: &AtomicBool) -> Result<Self, LocalError> {
        Self::check(options)?;
        let programs = Programs::find(&options.programs)?;
        let directory = &options.state_directory;
        let claim = claim(directory, Path::new(cgroups::ROOT))?;
        let layout = Layout::new(directory, programs, options.reserved_cpus.clone());
        let state = LocalState {
            kubernetes: VERSION.to_owned(),
            keeper: ProcessId::own(),
            programs: options.programs.clone(),
            kubeconfig: layout.kubeconfig("admin"),
            logs: directory.join("log"),
            simulated_nodes: options.simulated_nodes,
            ..LocalState::default()
        };
        let mut cluster = Self {
            options: options.clone(),
            layout,
            state,
            claim: Some(claim),
            first: None,
            programs: Vec::new(),
        };
        // Dropping it after an error removes everything.
        cluster.start(stop)?;
        Ok(cluster)
    }

    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> &LocalState {
        &self.state
    }

    /// Returns the names of programs that have ended by themselves since the last call. The state lists them, too.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn look_for_ended(&mut self) -> Result<Vec<String>, LocalError> {
        let mut ended = Vec::new();
        for (name, program) in &mut self.programs {
            if program.has_ended() && !self.state.ended.contains(name) {
                ended.push(name.clone());
            }
        }
        if !ended.is_empty() {
            self.state.ended.extend(ended.iter().cloned());
            self.write()?;
        }
        Ok(ended)
    }

    /// Ends all programs and removes everything.
    ///
    /// # Errors
    /// [`LocalError::Left`], or an error of the operating system.
    pub fn down(mut self) -> Result<(), LocalError> {
        self.end()
    }

    fn start(&mut self, stop: &AtomicBool) -> Result<(), LocalError> {
        // Without it, the directory is not that of a cluster.
        self.write()?;
        self.write_files()?;
        let absent = absent();
        make_mount_points(&self.options.state_directory, &mut self.state, absent)?;
        cgroups::make(Path::new(cgroups::ROOT))?;
        self.start_first(stop)?;
        let (etcd, api_server, runtime) = (
            self.layout.etcd(),
            self.layout.api_server(),
            self.layout.runtime(),
        );
        self.run(&etcd)?;
        self.run(&api_server)?;
        self.run(&runtime)?;
        let socket = format!("{CONTAINERD}/containerd.sock");
        self.wait("containerd replies", REPLY, stop, |cluster| {
            cluster.succeeds(&["ctr", "--address", socket.as_str(), "version"])
        })?;
        self.import_images(&socket)?;
        self.wait("the API server is ready", REPLY, stop, |cluster| {
            cluster.succeeds(&["kubectl", "get", "--raw", "/readyz"])
        })?;
        let (controllers, scheduler, node) = (
            self.layout.controller_manager(),
            self.layout.scheduler(),
            self.layout.node(),
        );
        self.run(&controllers)?;
        self.run(&scheduler)?;
        self.run(&node)?;
        self.start_proxy()?;
        self.start_nodes()?;
        let wanted = usize::from(self.options.simulated_nodes).saturating_add(1);
        self.wait("all nodes are Ready", NODES, stop, |cluster| {
            let listed = cluster.ask(&["kubectl", "get", "nodes", "--no-headers"]);
            listed.is_some_and(|listed| ready_nodes(&listed) >= wanted)
        })?;
        // Without it, the API server refuses pods.
        self.wait("pods have a service account", REPLY, stop, |cluster| {
            cluster.succeeds(&["kubectl", "get", "serviceaccount", "default"])
        })?;
        self.state.is_ready = true;
        self.write()
    }

    fn write(&self) -> Result<(), LocalError> {
        self.state.write(&self.options.state_directory)
    }

    fn write_files(&self) -> Result<(), LocalError> {
        let layout = &self.layout;
        let directories = [
            layout.certificates(),
            layout.configurations(),
            layout.networks(),
            layout.own_plugins(),
            self.state.logs.clone(),
        ];
        for directory in directories {
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&directory)
                .map_err(io_error(&directory, "making it"))?;
        }
        certificates::make(&layout.certificates())?;
        for (path, text) in layout.files() {
            replace(&path, text.as_bytes(), 0o600).map_err(io_error(&path, "writing it"))?;
        }
        let plugin = layout.own_plugins().join("quietwire");
        symlink(&self.options.quietwire, &plugin).map_err(io_error(&plugin, "making the link"))
    }

    /// Starts the first process in new namespaces, and waits until it has set them up.
    fn start_first(&mut self, stop: &AtomicBool) -> Result<(), LocalError> {
        let directory = self.options.state_directory.clone();
        let mut first = Command::new("unshare")
            .args(["--mount", "--net", "--pid", "--ipc", "--fork"])
            .args(["--kill-child", "--propagation", "private", "--"])
            .arg(&self.options.quietwire)
            .args(["cluster", "namespaces", "--state-directory"])
            .arg(&directory)
            .with_parent()
            .start(Streams::Pipes)
            .map_err(io_error(Path::new("unshare"), "starting it"))?;
        let input = first.take_stdin();
        self.first = Some((first, input));
        let ready = directory.join(READY);
        self.wait("namespaces are set up", INSIDE, stop, |_| ready.exists())?;
        let text = fs::read_to_string(&ready).map_err(io_error(&ready, "reading it"))?;
        let number: Option<i32> = text.trim().parse().ok();
        self.state.inside = number.and_then(ProcessId::of);
        if self.state.inside.is_none() {
            return Err(self.first_ended());
        }
        self.write()
    }

    fn first_ended(&self) -> LocalError {
        let output = self.first.as_ref().map(|(first, _)| first.last_lines());
        LocalError::Ended {
            name: "the first process in the namespaces".to_owned(),
            output: output.unwrap_or_default(),
        }
    }

    /// Starts a program in the namespaces.
    fn run(&mut self, daemon: &Daemon) -> Result<(), LocalError> {
        tracing::info!("starting {}", daemon.name);
        let program = daemon.program.to_string_lossy();
        let mut words: Vec<&str> = vec![&*program];
        words.extend(daemon.arguments.iter().map(String::as_str));
        let log = self.state.logs.join(format!("{}.log", daemon.name));
        let started = in_cluster(&self.state, &words)?
            .start(Streams::Log(&log))
            .map_err(io_error(&daemon.program, "starting it"))?;
        self.programs.push((daemon.name.to_owned(), started));
        self.state.started.push(daemon.name.to_owned());
        self.write()
    }

    fn start_proxy(&mut self) -> Result<(), LocalError> {
        let proxy = self.layout.proxy();
        if find_program("iptables").is_none() || !proxy.program.exists() {
            tracing::warn!(
                "services have no addresses: kube-proxy or the program iptables is missing (apt-get install iptables)"
            );
            return Ok(());
        }
        self.run(&proxy)
    }

    fn start_nodes(&mut self) -> Result<(), LocalError> {
        if self.options.simulated_nodes == 0 {
            return Ok(());
        }
        let kubeconfig = self.state.kubeconfig.to_string_lossy().into_owned();
        let nodes = Daemon {
            name: "nodes",
            program: self.options.quietwire.clone(),
            arguments: vec![
                "cluster".to_owned(),
                "nodes".to_owned(),
                format!("--count={}", self.options.simulated_nodes),
                format!("--kubeconfig={kubeconfig}"),
            ],
        };
        self.run(&nodes)
    }

    fn import_images(&self, socket: &str) -> Result<(), LocalError> {
        let pause = self.layout.programs().pause();
        for image in [&pause].into_iter().chain(&self.options.images) {
            let path = image.to_string_lossy();
            let words = [
                "ctr",
                "--address",
                socket,
                "--namespace=k8s.io",
                "images",
                "import",
                &*path,
            ];
            let failed = |reason: String| LocalError::Failed {
                what: format!("importing {}", image.display()),
                reason,
            };
            let finished = in_cluster(&self.state, &words)?.run(Deadline::after(IMPORT));
            let finished = finished.map_err(|error| failed(error.to_string()))?;
            finished.into_result().map_err(failed)?;
        }
        Ok(())
    }

    /// Returns the output of a command in the namespaces; `None` if it fails.
    fn ask(&self, words: &[&str]) -> Option<String> {
        let command = in_cluster(&self.state, words).ok()?;
        let finished = command.run(Deadline::after(CHECK)).ok()?;
        finished.into_result().ok()
    }

    fn succeeds(&self, words: &[&str]) -> bool {
        self.ask(words).is_some()
    }

    /// Waits until a condition holds, no longer than `timeout`, and only while all programs run and no signal has arrived.
    fn wait(
        &mut self,
        what: &str,
        timeout: Duration,
        stop: &AtomicBool,
        holds: impl Fn(&Self) -> bool,
    ) -> Result<(), LocalError> {
        let outcome = Deadline::after(timeout).poll(PAUSE, || {
            if stop.load(Ordering::Relaxed) {
                return Some(Err(LocalError::Stopped));
            }
            if let Some(error) = self.ended() {
                return Some(Err(error));
            }
            holds(&*self).then_some(Ok(()))
        });
        outcome.unwrap_or_else(|| {
            Err(LocalError::Late {
                what: what.to_owned(),
                seconds: timeout.as_secs(),
                log: self.state.logs.clone(),
            })
        })
    }

    /// Returns the error of a program that has ended.
    fn ended(&mut self) -> Option<LocalError> {
        let is_over = |first: &mut (Supervised, Option<ChildStdin>)| first.0.has_ended();
        if self.first.as_mut().is_some_and(is_over) {
            return Some(self.first_ended());
        }
        let mut programs = self.programs.iter_mut();
        let (name, program) = programs.find_map(|(name, program)| {
            let is_over = program.has_ended();
            is_over.then_some((name, program))
        })?;
        Some(LocalError::Ended {
            name: name.clone(),
            output: program.last_lines(),
        })
    }

    /// Ends everything, once.
    fn end(&mut self) -> Result<(), LocalError> {
        let Some(claim) = self.claim.take() else {
            return Ok(());
        };
        let mut left = Vec::new();
        if let Some((mut first, input)) = self.first.take() {
            drop(input);
            // The kernel kills all processes in the namespace before the end of the first one.
            let ended = first.wait(Deadline::after(END)).map(drop);
            if let Err(error) = ended.and_then(|()| first.end(Duration::ZERO)) {
                left.push(format!("the first process in the namespaces: {error}"));
            }
        }
        for (name, mut program) in self.programs.drain(..) {
            if let Err(error) = program.end(END) {
                left.push(format!("{name}: {error}"));
            }
        }
        let directory = &self.options.state_directory;
        remove_left(directory, Path::new(cgroups::ROOT))?;
        if !left.is_empty() {
            return Err(LocalError::Left(left.join(", ")));
        }
        release(directory, claim)
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_reported_before_any_change() {
        let directory = tempfile::tempdir().unwrap();
        let options = LocalOptions {
            quietwire: "/proc/self/exe".into(),
            programs: directory.path().join("none"),
            state_directory: directory.path().join("state"),
            reserved_cpus: "0".parse().unwrap(),
            simulated_nodes: 0,
            images: Vec::new(),
        };
        let error = LocalCluster::up(&options, &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(&error, LocalError::Missing { .. }), "{error}");
        assert!(!options.state_directory.exists());
    }

    #[test]
    fn files_that_the_cluster_cannot_see_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let options = LocalOptions {
            quietwire: "/proc/self/exe".into(),
            programs: directory.path().to_owned(),
            state_directory: "/run/state".into(),
            reserved_cpus: "0".parse().unwrap(),
            simulated_nodes: 0,
            images: Vec::new(),
        };
        for (hidden, below) in [
            (
                LocalOptions {
                    programs: "/run/kubernetes".into(),
                    ..options.clone()
                },
                "/run",
            ),
            (
                LocalOptions {
                    quietwire: "/var/lib/cni/quietwire".into(),
                    ..options.clone()
                },
                "/var/lib/cni",
            ),
            (
                LocalOptions {
                    images: vec!["/var/log/image.tar".into()],
                    ..options.clone()
                },
                "/var/log",
            ),
        ] {
            let error = LocalCluster::check(&hidden).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, LocalError::Hidden { .. }), "{text}");
            assert!(text.contains(&format!("outside of {below})")), "{text}");
        }
        let state = Path::new("/run/state");
        assert_eq!(hidden_by(Path::new("/run/state/image.tar"), state), None);
        assert_eq!(hidden_by(Path::new("/runs/image.tar"), state), None);
        let error = LocalCluster::check(&options).unwrap_err();
        assert!(matches!(&error, LocalError::Missing { .. }), "{error}");
    }

    #[test]
    fn a_link_into_a_hidden_directory_is_hidden() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        // A directory of every machine.
        symlink("/run", &link).unwrap();
        let hidden = hidden_by(&link, Path::new("/run/state"));
        assert_eq!(hidden, Some("/run"));
    }
}
