// SPDX-License-Identifier: Apache-2.0
//! Life of the agent: it follows the resources, brings the node to what they request, and checks it at intervals.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use tokio::sync::{Notify, watch};

use super::api::Cluster;
use super::attachments;
use super::decide::{Selected, Step, decide, selected};
use super::ended_pods;
use super::export::{self, Exporter, Exports};
use super::machine::{Machine, MachineError};
use super::marker::Marker;
use super::rollout::{Turn, turn};
use super::status::{complete, groups, is_same, plain, rejections};
use super::switch::saved::SavedFiles;
use super::switch::{OwnObjects, Running, bring, start};
use super::urgent::{self, Urgent};
use crate::addresses::{self, Book};
use crate::connection::{AgentError, connect, ended};
use crate::devices::{self, DevicesConfig};
use crate::kubelet::{Kubelet, KubeletPaths};
use crate::resources::{
    DataPlane, DataPlaneReport, DataPlaneSpec, NodePartition, NodeReportSpec, PartitionReport,
    Phase, RejectedChange, now,
};

/// Interval of the checks. A thread that was moved is reported within 15 s.
const CHECK: Duration = Duration::from_secs(10);
/// Shortest pause between passes: changes in quick succession are handled together.
const PAUSE: Duration = Duration::from_secs(1);
/// Interval at which the labels of the node are read.
const LABELS: Duration = Duration::from_secs(60);
/// Interval at which the report of the node is read: others may have changed or deleted it.
const REPORT: Duration = Duration::from_secs(300);
/// Most states of each kind in the report. These are the bounds of the schema.
const STATES_MAX: usize = 16;
/// Pause before a change that failed is tried again.
const RETRY: Duration = Duration::from_secs(60);
/// File with the objects that the agent has added to the switch, below the root directory.
const MADE: &str = "run/quietwire/agent/data-plane.json";

/// Options of the agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Name of the node.
    pub node: String,
    /// File with the address and the credentials of the API server. Default: those of the pod, or `KUBECONFIG`.
    pub kubeconfig: Option<PathBuf>,
    /// Root directory of `/proc`, `/sys` and `/run` of the node.
    pub root: PathBuf,
    /// Control socket of the switch.
    pub control_socket: PathBuf,
    /// Files and sockets of kubelet.
    pub places: KubeletPaths,
    /// Resources of the device plugin. `None`: no device plugin.
    pub devices: Option<DevicesConfig>,
    /// Objects for schedulers and Node Feature Discovery.
    pub exports: Exports,
}

/// Runs the agent until `stop` becomes true. The partition stays applied then.
///
/// # Errors
/// [`AgentError`].
pub fn run(options: AgentOptions, stop: &Arc<AtomicBool>) -> Result<(), AgentError> {
    crate::runtime()?.block_on(serve(options, stop))
}

async fn serve(options: AgentOptions, stop: &Arc<AtomicBool>) -> Result<(), AgentError> {
    let client = connect(options.kubeconfig.as_deref()).await?;
    let ended = ended(stop);
    let config = options.devices.as_ref();
    let resources = config.map(|config| devices::resources(config, &options.root));
    let resources = resources.unwrap_or_default();
    let plugin = (!resources.is_empty()).then(|| {
        let (resources, places) = (resources.clone(), options.places.clone());
        tokio::spawn(devices::serve(resources, places, ended.clone()))
    });
    let exporting = (!options.exports.is_empty()).then(|| {
        let exporter = Exporter::new(client.clone(), options.node.clone(), options.exports);
        let (root, places) = (options.root.clone(), options.places.clone());
        tokio::spawn(export::serve(
            exporter,
            root,
            places,
            resources,
            ended.clone(),
        ))
    });
    let book = Book::new(client.clone(), options.node.clone());
    let socket = options.root.join(addresses::SOCKET.trim_start_matches('/'));
    let answering = tokio::spawn(addresses::serve(book.clone(), socket, ended.clone()));
    let root = options.root.clone();
    let releasing = tokio::spawn(ended_pods::serve(book, root, ended.clone()));
    let (root, restarted) = (options.root.clone(), Arc::new(Notify::new()));
    let collecting = attachments::serve(root, Arc::clone(&restarted), ended.clone());
    let collecting = tokio::spawn(collecting);
    let mut agent = Agent::new(Cluster::new(client, options.node.clone()), options);
    agent.follow(&restarted, ended).await;
    if let Err(error) = answering.await {
        tracing::error!("addresses: {error}");
    }
    if let Err(error) = collecting.await {
        tracing::error!("attachments of containers: {error}");
    }
    if let Err(error) = releasing.await {
        tracing::error!("addresses of ended pods: {error}");
    }
    if let Some(exporting) = exporting
        && let Err(error) = exporting.await
    {
        tracing::error!("node topology and features: {error}");
    }
    if let Some(plugin) = plugin
        && let Err(error) = plugin.await
    {
        tracing::error!("device plugin: {error}");
    }
    Ok(())
}

/// The agent of a node.
pub(super) struct Agent {
    cluster: Cluster,
    node: String,
    places: KubeletPaths,
    machine: Arc<Mutex<Machine>>,
    switch: Running,
    control_socket: PathBuf,
    made: PathBuf,
    saved: SavedFiles,
    /// Metadata of the node, and the time at which it was read.
    metadata: Option<(Instant, ObjectMeta)>,
    /// The report of the node as the API server has it, and the time at which it was read.
    report: Option<(Instant, NodeReportSpec)>,
    /// Generation of a change that failed, and the time of this attempt.
    retry: Option<(Marker, Instant, PartitionReport)>,
}

impl Agent {
    pub(super) fn new(cluster: Cluster, options: AgentOptions) -> Self {
        Self {
            cluster,
            node: options.node,
            places: options.places,
            machine: Arc::new(Mutex::new(Machine::new(&options.root))),
            switch: Running::new(&options.control_socket),
            control_socket: options.control_socket,
            made: options.root.join(MADE),
            saved: SavedFiles::below(&options.root),
            metadata: None,
            report: None,
            retry: None,
        }
    }

    /// Follows the resources and the starts of the switch until `ended` becomes true. Notifies `restarted` when a switch that was started again
    /// has the objects of its data plane.
    async fn follow(&mut self, restarted: &Notify, mut ended: watch::Receiver<bool>) {
        let (known, mut partitions) = watch::channel(None::<Vec<NodePartition>>);
        let following_partitions = tokio::spawn(self.cluster.clone().follow(known));
        let (known, mut planes) = watch::channel(None::<Vec<DataPlane>>);
        let following_planes = tokio::spawn(self.cluster.clone().follow(known));
        let socket = self.control_socket.clone();
        let (known, mut starts) = watch::channel(start::identity(&socket));
        let following_starts = tokio::spawn(start::follow(socket, start::INTERVAL, known));
        let mut served = starts.borrow().clone();
        'passes: while !*ended.borrow() {
            let current = partitions.borrow_and_update().clone();
            // Without a list nothing is changed: the API server may be away.
            if let Some(current) = &current
                && let Err(error) = self.pass(current).await
            {
                tracing::warn!("{error}");
            }
            // With the states of the node after the pass.
            let handled = self.urgent_partitions(current.as_deref());
            let started = starts.borrow_and_update().clone();
            let current = planes.borrow_and_update().clone();
            let handled_planes = current.as_deref().map(urgent::of_planes);
            if let Some(current) = current
                && let Err(error) = self.pass_data_planes(&current).await
            {
                tracing::warn!("{error}");
            }
            if started != served {
                served = started;
                restarted.notify_one();
            }
            let checked = Instant::now();
            loop {
                tokio::select! {
                    _ = ended.changed() => break 'passes,
                    changed = partitions.changed() => {
                        if changed.is_err() {
                            break 'passes;
                        }
                        if self.urgent_partitions(partitions.borrow().as_deref()) != handled {
                            break;
                        }
                    }
                    changed = planes.changed() => {
                        if changed.is_err() {
                            break 'passes;
                        }
                        if planes.borrow().as_deref().map(urgent::of_planes) != handled_planes {
                            break;
                        }
                    }
                    changed = starts.changed() => {
                        if changed.is_err() {
                            break 'passes;
                        }
                        break;
                    }
                    () = tokio::time::sleep(CHECK.saturating_sub(checked.elapsed())) => break,
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        following_partitions.abort();
        following_planes.abort();
        following_starts.abort();
    }

    /// Returns the parts of partitions whose change is urgent for the node. `None` without a list.
    fn urgent_partitions(&self, partitions: Option<&[NodePartition]>) -> Option<Vec<Urgent>> {
        partitions.map(|partitions| urgent::of_partitions(partitions, &self.known()))
    }

    /// Runs a function that reads or changes the machine, outside of the thread of the runtime.
    async fn on_machine<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Machine) -> Result<T, MachineError> + Send + 'static,
    ) -> Result<T, PassError> {
        let machine = Arc::clone(&self.machine);
        let work = move || work(&mut machine.lock().unwrap_or_else(PoisonError::into_inner));
        let done = tokio::task::spawn_blocking(work).await;
        Ok(done.map_err(|error| PassError::Task(error.to_string()))??)
    }

    /// Brings the node one step nearer to the state that the resources request, and reports its state.
    pub(super) async fn pass(&mut self, partitions: &[NodePartition]) -> Result<(), PassError> {
        let labels = self.current_labels().await?;
        self.read_report().await?;
        let marker = self.on_machine(|machine| machine.marker()).await?;
        let Selected { owner, others } = selected(partitions, &labels, marker.as_ref());
        let uid = owner.and_then(|owner| owner.metadata.uid.clone());
        if let Some(marker) = marker.filter(|marker| Some(&marker.uid) != uid.as_ref()) {
            self.roll_back(&marker, partitions).await?;
        }
        let selecting = partitions.iter().filter(|it| it.spec.selects(&labels));
        let selecting: BTreeSet<String> = selecting.filter_map(|it| it.uid()).collect();
        let mut report = self.known();
        report.partitions.retain(|it| selecting.contains(&it.uid));
        self.write(report).await?;
        for other in others {
            let name = owner.map(kube::ResourceExt::name_any).unwrap_or_default();
            let text = format!(
                "NodePartition '{name}' and NodePartition '{}' both select node '{}'",
                other.name_any(),
                self.node
            );
            self.report(other, plain(Phase::Refused, text), "").await?;
        }
        let Some(owner) = owner else {
            return Ok(());
        };
        let key = &owner.spec.rollout.failure_domain;
        let domain = labels.get(key).cloned().unwrap_or_default();
        let status = self.advance(owner, &domain).await?;
        self.report(owner, status, &domain).await
    }

    /// Brings the switch to the state that the first resource by name requests for the node, and reports rejected changes.
    pub(super) async fn pass_data_planes(&mut self, planes: &[DataPlane]) -> Result<(), PassError> {
        let labels = self.current_labels().await?;
        self.read_report().await?;
        let mut selecting: Vec<&DataPlane> = planes
            .iter()
            .filter(|plane| plane.metadata.deletion_timestamp.is_none())
            .filter(|plane| plane.spec.selects(&labels))
            .collect();
        selecting.sort_by_key(|plane| plane.name_any());
        let mut selecting = selecting.into_iter();
        let owner = selecting.next();
        let spec = owner.map(|plane| plane.spec.clone());
        let rejected = self.bring(spec.unwrap_or_default()).await?;
        self.restore_saved().await?;
        let all = planes.iter().filter(|it| it.spec.selects(&labels));
        let all: BTreeSet<String> = all.filter_map(|it| it.uid()).collect();
        let mut report = self.known();
        report.data_planes.retain(|it| all.contains(&it.uid));
        self.write(report).await?;
        if let Some(owner) = owner {
            let version = self.version().await?;
            self.report_switch(owner, version.clone(), rejected).await?;
            for other in selecting {
                let message = format!("DataPlane '{}' selects the node as well", owner.name_any());
                let object = "switch".to_owned();
                let rejected = vec![RejectedChange { object, message }];
                self.report_switch(other, version.clone(), rejected).await?;
            }
        }
        Ok(())
    }

    /// Changes the switch, and notes what was made. A switch that does not reply is a rejected change.
    async fn bring(&self, spec: DataPlaneSpec) -> Result<Vec<RejectedChange>, PassError> {
        let (switch, path) = (self.switch.clone(), self.made.clone());
        let work = move || -> io::Result<Vec<RejectedChange>> {
            let before = OwnObjects::read(&path)?;
            if before.is_empty() && spec == DataPlaneSpec::default() {
                return Ok(Vec::new());
            }
            let (mut made, mut noted) = (before.clone(), before);
            let note = |now: &OwnObjects| -> io::Result<()> {
                now.write(&path)?;
                noted = now.clone();
                Ok(())
            };
            let rejected = bring(&switch, &spec, &mut made, note);
            if made != noted {
                made.write(&path)?;
            }
            Ok(rejected.unwrap_or_else(|message| {
                let object = "switch".to_owned();
                vec![RejectedChange { object, message }]
            }))
        };
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.map_err(|error| PassError::Task(error.to_string()))?;
        done.map_err(|error| PassError::Task(format!("{}: {error}", self.made.display())))
    }

    /// Restores the saved state of a switch that was started again. The switch has its NATs and load balancers by then, but no ports of
    /// containers.
    async fn restore_saved(&self) -> Result<(), PassError> {
        let (socket, saved) = (self.control_socket.clone(), self.saved.clone());
        let done = tokio::task::spawn_blocking(move || saved.restore(&socket)).await;
        if let Err(error) = done.map_err(|error| PassError::Task(error.to_string()))? {
            tracing::warn!("saved state of the switch: {error}");
        }
        Ok(())
    }

    /// Returns the version of the switch. None if no switch replies.
    async fn version(&self) -> Result<Option<String>, PassError> {
        let switch = self.switch.clone();
        let done = tokio::task::spawn_blocking(move || switch.version()).await;
        let version = done.map_err(|error| PassError::Task(error.to_string()))?;
        Ok(version
            .inspect_err(|error| tracing::debug!("version of the switch: {error}"))
            .ok())
    }

    /// Reports the version of the switch and the rejected changes of a resource unless the report has them already.
    async fn report_switch(
        &mut self,
        plane: &DataPlane,
        switch_version: Option<String>,
        rejected: Vec<RejectedChange>,
    ) -> Result<(), PassError> {
        let rejected = rejections(&rejected);
        let (name, uid) = (plane.name_any(), plane.uid().unwrap_or_default());
        let generation = plane.metadata.generation.unwrap_or_default();
        let mut report = self.known();
        let reported = report.data_planes.iter().find(|it| it.uid == uid);
        if reported.is_some_and(|it| {
            it.rejected == rejected
                && it.switch_version == switch_version
                && it.observed_generation == generation
        }) {
            return Ok(());
        }
        for change in &rejected {
            tracing::warn!("DataPlane '{name}': {}: {}", change.object, change.message);
        }
        report.data_planes.retain(|it| it.data_plane != name);
        report.data_planes.push(DataPlaneReport {
            data_plane: name,
            uid,
            observed_generation: generation,
            last_transition_time: now(),
            switch_version,
            rejected,
        });
        report.data_planes.sort_by_key(|it| it.data_plane.clone());
        report.data_planes.truncate(STATES_MAX);
        self.write(report).await
    }

    /// Reads the report of the node, unless that was done within five minutes.
    async fn read_report(&mut self) -> Result<(), PassError> {
        let report = self.report.as_ref();
        if report.is_none_or(|(at, _)| at.elapsed() >= REPORT) {
            let report = self.cluster.reported().await?.unwrap_or_default();
            self.report = Some((Instant::now(), report));
        }
        Ok(())
    }

    /// Returns the report of the node as the API server has it.
    fn known(&self) -> NodeReportSpec {
        let report = self.report.as_ref();
        report.map_or_else(NodeReportSpec::default, |(_, report)| report.clone())
    }

    /// Writes the report of the node unless the API server has it already.
    async fn write(&mut self, report: NodeReportSpec) -> Result<(), PassError> {
        if report == self.known() {
            return Ok(());
        }
        let uid = self.current_node().await?.uid.unwrap_or_default();
        // If the reply is lost, the API server may have either report.
        self.report = None;
        self.cluster.report(&uid, &report).await?;
        self.report = Some((Instant::now(), report));
        Ok(())
    }

    /// Returns the labels of the node, at most a minute old.
    async fn current_labels(&mut self) -> Result<BTreeMap<String, String>, PassError> {
        Ok(self.current_node().await?.labels.unwrap_or_default())
    }

    /// Returns the metadata of the node, at most a minute old.
    async fn current_node(&mut self) -> Result<ObjectMeta, PassError> {
        if let Some((at, metadata)) = &self.metadata
            && at.elapsed() < LABELS
        {
            return Ok(metadata.clone());
        }
        let metadata = self.cluster.node().await?;
        self.metadata = Some((Instant::now(), metadata.clone()));
        Ok(metadata)
    }

    /// Rolls back the partition of a resource that does not select the node any more.
    async fn roll_back(
        &mut self,
        marker: &Marker,
        partitions: &[NodePartition],
    ) -> Result<(), PassError> {
        let left = self.on_machine(Machine::roll_back).await?;
        if left.is_empty() {
            tracing::info!(
                "the partition of NodePartition '{}' is rolled back",
                marker.name
            );
            return Ok(());
        }
        let text = format!("rollback is incomplete: {}", left.join("; "));
        let mut partitions = partitions.iter();
        let former = partitions.find(|it| it.metadata.uid.as_ref() == Some(&marker.uid));
        if let Some(former) = former {
            self.report(former, plain(Phase::Failed, &text), "").await?;
        }
        Err(PassError::Left(text))
    }

    /// Makes the next step for the resource that the node follows, and returns the state.
    async fn advance(
        &mut self,
        partition: &NodePartition,
        domain: &str,
    ) -> Result<PartitionReport, PassError> {
        let kubelet = Kubelet::observe(&self.places).await;
        let resource = partition.clone();
        let step = self.on_machine(move |machine| {
            let kubelet = kubelet.as_ref().map_err(String::as_str);
            decide(machine, &resource, kubelet)
        });
        let (owner, plan) = match step.await? {
            Step::Report(status) => return Ok(status),
            Step::Apply { owner, plan } => (owner, plan),
        };
        if let Some((failed, at, status)) = &self.retry
            && *failed == owner
            && at.elapsed() < RETRY
        {
            return Ok(status.clone());
        }
        let planned = |message: String| PartitionReport {
            groups: groups(&plan),
            ..plain(Phase::Planned, message)
        };
        match turn(&self.node, domain, partition) {
            Turn::Now => {}
            Turn::Wait { node, domain } => {
                return Ok(planned(format!(
                    "waits for node '{node}' of domain '{domain}'"
                )));
            }
            Turn::Stopped { reason } => return Ok(planned(reason)),
        }
        self.apply(owner, *plan).await
    }

    async fn apply(
        &mut self,
        owner: Marker,
        plan: quietwire_host::partition::Plan,
    ) -> Result<PartitionReport, PassError> {
        tracing::info!(
            "applies generation {} of NodePartition '{}'",
            owner.generation,
            owner.name
        );
        let of_plan = groups(&plan);
        let marker = owner.clone();
        let work = move |machine: &mut Machine| {
            let applied = machine.apply(owner, &plan)?;
            let baseline = machine.marker()?.unwrap_or_default().baseline;
            let failing = machine.verify(&plan);
            let status =
                super::status::verified(&plan, &failing, &baseline, applied.pending.clone());
            Ok((applied, status))
        };
        let failures = match self.on_machine(work).await {
            Ok((applied, status)) if applied.failures.is_empty() => {
                self.retry = None;
                return Ok(status);
            }
            Ok((applied, _)) => applied.failures.join("; "),
            Err(error) => error.to_string(),
        };
        let status = PartitionReport {
            groups: of_plan,
            ..plain(Phase::Failed, &failures)
        };
        self.retry = Some((marker, Instant::now(), status.clone()));
        Ok(status)
    }

    /// Reports a state unless the report has it already.
    async fn report(
        &mut self,
        partition: &NodePartition,
        status: PartitionReport,
        domain: &str,
    ) -> Result<(), PassError> {
        let (name, uid) = (partition.name_any(), partition.uid().unwrap_or_default());
        let generation = partition.metadata.generation.unwrap_or_default();
        let status = PartitionReport {
            partition: name.clone(),
            uid,
            ..status
        };
        let mut report = self.known();
        let reported = report.partitions.iter().find(|it| it.uid == status.uid);
        let status = complete(status, domain, generation, reported);
        if reported.is_some_and(|reported| is_same(reported, &status)) {
            return Ok(());
        }
        tracing::info!(
            "NodePartition '{name}': {:?} {}",
            status.phase,
            status.message
        );
        report.partitions.retain(|it| it.partition != name);
        report.partitions.push(status);
        // The node follows one partition, and refuses the others.
        let place = |it: &PartitionReport| (it.phase == Phase::Refused, it.partition.clone());
        report.partitions.sort_by_key(place);
        report.partitions.truncate(STATES_MAX);
        self.write(report).await
    }
}

/// Errors of a pass. The next pass tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum PassError {
    /// A request to the API server failed.
    #[error("request to the API server: {0}")]
    Api(#[from] kube::Error),
    /// The machine cannot be read.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A thread of the agent panicked.
    #[error("thread of the agent: {0}")]
    Task(String),
    /// A rollback is incomplete.
    #[error("{0}")]
    Left(String),
}
