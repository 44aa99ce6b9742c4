// SPDX-License-Identifier: Apache-2.0
//! Requests to the API server with a deadline, and resources that are kept current by a list and a watch.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::time::{Duration, Instant};

use kube::Resource;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_stream::StreamExt as _;

use crate::problem::Problem;
use crate::resources::{DataPlane, Network, NodePartition, NodeReport};

/// Time for the reply to a request.
const REQUEST: Duration = Duration::from_secs(20);
/// Time after which the API server ends a watch, seconds. Below its limit of 295 s for the client library.
const WATCH_S: u32 = 270;
/// Time after which a watch without events has ended without notice.
const SILENCE: Duration = Duration::from_secs(300);
/// A watch that ends earlier is followed by a pause, as after an error: a proxy that ends watches at once must not cause endless lists.
const SHORTEST: Duration = Duration::from_secs(30);
/// First and longest pause after an error.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A resource that is followed.
pub(crate) trait Followed:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + PartialEq + Send + Sync + 'static
{
}

impl Followed for NodePartition {}
impl Followed for DataPlane {}
impl Followed for NodeReport {}
impl Followed for Network {}

/// Sends a request, and waits 20 s for its reply.
///
/// # Errors
/// Those of the request. [`kube::Error::Service`]: there is no reply in time.
pub(crate) async fn bounded<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match tokio::time::timeout(REQUEST, request).await {
        Ok(reply) => reply,
        Err(_) => Err(silent(REQUEST)),
    }
}

fn silent(time: Duration) -> kube::Error {
    kube::Error::Service(format!("no reply within {time:?}").into())
}

/// Keeps all resources current in `known`, until its receivers are gone (verbs `list` and `watch`).
pub(crate) async fn follow<K: Followed>(api: Api<K>, known: watch::Sender<Option<Vec<K>>>) {
    let mut pause = PAUSE.0;
    let mut problem = Problem::default();
    while !known.is_closed() {
        let begun = Instant::now();
        let has_failed = problem.note(&K::plural(&()), follow_once(&api, &known).await);
        // The watch ended at its time.
        if !has_failed && begun.elapsed() >= SHORTEST {
            pause = PAUSE.0;
            continue;
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(PAUSE.1);
    }
}

/// Lists the resources, and watches them until the API server ends the watch.
///
/// # Errors
/// Those of the requests.
pub(crate) async fn follow_once<K: Followed>(
    api: &Api<K>,
    known: &watch::Sender<Option<Vec<K>>>,
) -> kube::Result<()> {
    let key = |resource: &K| (resource.namespace(), resource.name_any());
    let list = bounded(api.list(&ListParams::default())).await?;
    let version = list.metadata.resource_version.clone().unwrap_or_default();
    let mut all: BTreeMap<(Option<String>, String), K> = list
        .items
        .into_iter()
        .map(|resource| (key(&resource), resource))
        .collect();
    let publish = |all: &BTreeMap<(Option<String>, String), K>| {
        known.send_if_modified(|before| {
            let now: Vec<K> = all.values().cloned().collect();
            let is_new = before.as_ref() != Some(&now);
            *before = Some(now);
            is_new
        });
    };
    publish(&all);
    let parameters = WatchParams::default().timeout(WATCH_S);
    let mut events = pin!(bounded(api.watch(&parameters, &version)).await?);
    loop {
        let event = match tokio::time::timeout(SILENCE, events.next()).await {
            Ok(Some(event)) => event?,
            Ok(None) => return Ok(()),
            Err(_) => return Err(silent(SILENCE)),
        };
        match event {
            WatchEvent::Added(resource) | WatchEvent::Modified(resource) => {
                all.insert(key(&resource), resource);
            }
            WatchEvent::Deleted(resource) => {
                all.remove(&key(&resource));
            }
            WatchEvent::Bookmark(_) => {}
            // The version is too old: list again.
            WatchEvent::Error(_) => return Ok(()),
        }
        publish(&all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime;
    use crate::simulated::Simulated;

    /// Turns of all tasks: enough for hundreds of lists without pauses, and over long before the third pause.
    const TURNS: usize = 5000;

    #[test]
    fn watches_that_end_at_once_cause_few_lists() {
        let server = Simulated::default();
        let (known, networks) = watch::channel(None::<Vec<Network>>);
        runtime().unwrap().block_on(async {
            let following = tokio::spawn(follow(Api::<Network>::all(server.client()), known));
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            following.abort();
        });
        assert_eq!(*networks.borrow(), Some(Vec::new()));
        let requests = server.requests();
        let lists = requests.iter().filter(|(verb, _)| verb == "list").count();
        assert!((1..5).contains(&lists), "{lists} lists");
    }
}
