// SPDX-License-Identifier: Apache-2.0
//! Addresses of pods that have ended without DEL, for example because the node was started again. Kubernetes' garbage collector removes the
//! addresses of a pod only with the pod, and a pod that has ended may exist for days.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;

use crate::addresses::Book;
use crate::cni::{self, Recorded};
use crate::problem::Problem;
use crate::resources::Address;

/// Interval between two rounds. The record of an attachment is removed within 10 s after the end of its container, so that an address is free
/// within a minute.
const INTERVAL: Duration = Duration::from_secs(30);

/// Releases addresses of ended pods until `ended` becomes true. `root` is the root directory of the node. A problem is logged once, and tried
/// again.
pub(super) async fn serve(book: Book, root: PathBuf, mut ended: watch::Receiver<bool>) {
    let directory = root.join(cni::SOCKET_DIRECTORY.trim_start_matches('/'));
    let mut problem = Problem::default();
    while !*ended.borrow() {
        problem.note("addresses of ended pods", collect(&book, &directory).await);
        tokio::select! {
            _ = ended.changed() => break,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// Releases the addresses of pods that have ended, unless their attachments have a record in a directory: their interfaces may still exist.
/// Continues after a failure.
///
/// # Errors
/// The first problem.
async fn collect(book: &Book, directory: &Path) -> Result<(), String> {
    let all = book.of_pods().await.map_err(|error| error.to_string())?;
    if all.is_empty() {
        return Ok(());
    }
    // In the normal case, each address has a record, and no pod is asked for.
    let known = recorded(directory).await?;
    let left = all.into_iter().filter(|it| !is_attached(&known, it));
    let mut done = Ok(());
    for address in left {
        let released = release_if_ended(book, directory, &address).await;
        done = done.and(released);
    }
    done
}

/// Releases an address if its pod has ended.
async fn release_if_ended(book: &Book, directory: &Path, address: &Address) -> Result<(), String> {
    let ended = book.has_ended(address).await;
    if !ended.map_err(|error| error.to_string())? {
        return Ok(());
    }
    // ADD records an attachment after it has an address: the pod may have been attached and have ended since the first look.
    if is_attached(&recorded(directory).await?, address) {
        return Ok(());
    }
    let released = book.release(address).await;
    released.map_err(|error| error.to_string())?;
    let (spec, pod) = (&address.spec, &address.spec.pod);
    tracing::info!(
        "address {} of network '{}' is free: pod '{pod}' has ended without DEL",
        spec.address,
        spec.network
    );
    Ok(())
}

fn is_attached(recorded: &Recorded, address: &Address) -> bool {
    recorded.has(&address.spec.container, &address.spec.interface)
}

/// Reads the records of a directory, outside of the thread of the runtime.
async fn recorded(directory: &Path) -> Result<Recorded, String> {
    let directory = directory.to_owned();
    let read = tokio::task::spawn_blocking(move || Recorded::read(&directory)).await;
    let read = read.map_err(|error| error.to_string())?;
    read.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::addresses::tests::{assigned, pod, server};
    use crate::runtime;

    /// Returns the names of the pods that have addresses.
    fn holders(server: &crate::simulated::Simulated) -> BTreeSet<String> {
        let all = server.all("addresses");
        let name = |it: &serde_json::Value| it["spec"]["pod"].as_str().unwrap().to_owned();
        all.iter().map(name).collect()
    }

    #[test]
    fn addresses_of_ended_pods_are_released_and_those_of_others_stay() {
        let server = server(&serde_json::json!([{ "subnet": "10.66.0.0/24" }]));
        let empty = tempfile::tempdir().unwrap();
        let phases = [
            ("runs", "Running"),
            ("waits", "Pending"),
            ("lost", "Unknown"),
            ("done", "Succeeded"),
            ("failed", "Failed"),
        ];
        runtime().unwrap().block_on(async {
            let book = assigned(
                &server,
                &["runs", "waits", "lost", "done", "failed", "again", "gone"],
            )
            .await;
            for (name, phase) in phases {
                server.put("pods", &pod(name, &format!("uid-of-{name}"), phase));
            }
            // Another pod with the name of a former one. The garbage collector removes the addresses of that one.
            server.put("pods", &pod("again", "another", "Failed"));
            server.set_away(true);
            collect(&book, empty.path()).await.unwrap_err();
            server.set_away(false);
            collect(&book, empty.path()).await.unwrap();
            let left = ["again", "gone", "lost", "runs", "waits"];
            assert_eq!(holders(&server), left.map(str::to_owned).into());
        });
    }

    #[test]
    fn an_address_stays_while_its_attachment_has_a_record() {
        let server = server(&serde_json::json!([{ "subnet": "10.66.0.0/24" }]));
        let directory = tempfile::tempdir().unwrap();
        runtime().unwrap().block_on(async {
            let book = assigned(&server, &["done"]).await;
            server.put("pods", &pod("done", "uid-of-done", "Succeeded"));
            let record = Recorded::write(directory.path(), "apps.lan", "container-of-done", "net1");
            collect(&book, directory.path()).await.unwrap();
            assert_eq!(holders(&server).len(), 1);
            server.requests();
            std::fs::remove_file(record).unwrap();
            collect(&book, directory.path()).await.unwrap();
            assert!(holders(&server).is_empty());
            let requests: Vec<String> = server
                .requests()
                .into_iter()
                .map(|(verb, _)| verb)
                .collect();
            assert_eq!(requests, ["list", "get", "delete"]);
            // A node without addresses sends one more request, and then none.
            for count in [1, 0] {
                collect(&book, directory.path()).await.unwrap();
                assert_eq!(server.requests().len(), count);
            }
        });
    }
}
