// SPDX-License-Identifier: Apache-2.0
//! Life of the summaries: follows partitions, data planes and reports, and writes each summary that has changed. Several controllers write
//! the same.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;

use super::compute::{Nodes, of_data_plane, of_partition};
use crate::controller_status::write_status;
use crate::follow::{bounded, follow};
use crate::problem::Problem;
use crate::resources::{DataPlane, NodePartition, NodeReport};

/// Shortest pause between passes: the reports of many nodes are summarised together.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause after a pass that failed.
const RETRY: Duration = Duration::from_secs(5);
/// Interval of passes without changes: nodes and labels may have changed.
const IDLE: Duration = Duration::from_secs(30);
/// Longest age of the list of nodes.
const NODES: Duration = Duration::from_secs(10);

/// Writes summaries until `ended` becomes true. The last ones stay.
pub(crate) async fn serve(client: Client, mut ended: watch::Receiver<bool>) {
    let (known, mut partitions) = watch::channel(None::<Vec<NodePartition>>);
    let following_partitions = tokio::spawn(follow(Api::all(client.clone()), known));
    let (known, mut planes) = watch::channel(None::<Vec<DataPlane>>);
    let following_planes = tokio::spawn(follow(Api::all(client.clone()), known));
    let (known, mut reports) = watch::channel(None::<Vec<NodeReport>>);
    let following_reports = tokio::spawn(follow(Api::all(client.clone()), known));
    let mut summaries = Summaries::new(client);
    let mut problem = Problem::default();
    while !*ended.borrow() {
        let all_partitions = partitions.borrow_and_update().clone();
        let all_planes = planes.borrow_and_update().clone();
        let all_reports = reports.borrow_and_update().clone();
        let mut pause = IDLE;
        // Without the reports, the counts would be wrong.
        if let Some(all_reports) = all_reports {
            let all_partitions = all_partitions.unwrap_or_default();
            let all_planes = all_planes.unwrap_or_default();
            let done = summaries.pass(&all_partitions, &all_planes, &all_reports);
            if problem.note("summaries of nodes", done.await) {
                pause = RETRY;
            }
        }
        tokio::select! {
            _ = ended.changed() => break,
            changed = partitions.changed() => if changed.is_err() { break },
            changed = planes.changed() => if changed.is_err() { break },
            changed = reports.changed() => if changed.is_err() { break },
            () = tokio::time::sleep(pause) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
    following_partitions.abort();
    following_planes.abort();
    following_reports.abort();
}

/// Writes summaries.
pub(crate) struct Summaries {
    client: Client,
    /// The nodes, and the time at which they were listed.
    nodes: Option<(Instant, Nodes)>,
}

impl Summaries {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            nodes: None,
        }
    }

    /// Writes the summaries that have changed.
    ///
    /// # Errors
    /// That of the first request that failed. Others than the failed summary are written.
    pub(crate) async fn pass(
        &mut self,
        partitions: &[NodePartition],
        planes: &[DataPlane],
        reports: &[NodeReport],
    ) -> kube::Result<()> {
        if partitions.is_empty() && planes.is_empty() {
            return Ok(());
        }
        self.list_nodes().await?;
        let Some((_, nodes)) = &self.nodes else {
            return Ok(());
        };
        let mut done: kube::Result<()> = Ok(());
        for partition in partitions {
            let status = of_partition(partition, nodes, reports);
            if partition.status.as_ref() != Some(&status) {
                let all = Api::all(self.client.clone());
                let written = write_status(&all, partition, &json!(status)).await;
                done = done.and(written);
            }
        }
        for plane in planes {
            let status = of_data_plane(plane, nodes, reports);
            if plane.status.as_ref() != Some(&status) {
                let all = Api::all(self.client.clone());
                let written = write_status(&all, plane, &json!(status)).await;
                done = done.and(written);
            }
        }
        done
    }

    /// Lists the labels of all nodes, unless that was done just before (verb `list` of `nodes`).
    async fn list_nodes(&mut self) -> kube::Result<()> {
        if let Some((at, _)) = &self.nodes
            && at.elapsed() < NODES
        {
            return Ok(());
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let list = bounded(nodes.list_metadata(&ListParams::default())).await?;
        let nodes = list.items.iter();
        let nodes = nodes.map(|node| (node.name_any(), node.labels().clone()));
        self.nodes = Some((Instant::now(), nodes.collect()));
        Ok(())
    }
}
