// SPDX-License-Identifier: Apache-2.0
//! Life of the device plugin: a server for each resource, its registration with kubelet, again after each restart of kubelet, and the
//! collection of devices that no container has any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use quietwire_base::durable::remove_if_exists;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Endpoint, Server};

use super::device::Device;
use super::plugin::{Plugin, options};
use super::resource::Resource;
use crate::kubelet::messages::RegisterRequest;
use crate::kubelet::services::device_plugin::device_plugin_server::DevicePluginServer;
use crate::kubelet::services::registration::registration_client::RegistrationClient;
use crate::kubelet::{KubeletPaths, pod_cpus};

/// Version of the interface.
const VERSION: &str = "v1beta1";
/// Socket of kubelet's registration service.
const KUBELET: &str = "kubelet.sock";
/// Time for a reply of kubelet.
const REPLY: Duration = Duration::from_secs(10);
/// Interval at which the plugin checks its sockets: kubelet removes them when it starts.
const LOOK: Duration = Duration::from_secs(1);
/// Interval at which the plugin checks its devices, and collects those that no container has.
const COLLECT: Duration = Duration::from_secs(10);

/// Returns the identity of a socket: a new socket at the same path has a different one.
fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let file = fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
}

/// A running server of a resource.
struct Serving {
    task: JoinHandle<()>,
    /// Its socket.
    own: Option<(u64, u64, i64, i64)>,
    /// Socket of the kubelet with which it is registered.
    kubelet: Option<(u64, u64, i64, i64)>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One resource with its devices and its server.
struct ServedResource {
    resource: Resource,
    devices: watch::Sender<Vec<Device>>,
    serving: Option<Serving>,
    /// The last error, which is reported once.
    reported: Option<String>,
}

/// Serves the resources until `stop` becomes true. Errors of kubelet and the switch are logged, and tried again.
pub async fn serve(
    resources: Vec<Resource>,
    places: KubeletPaths,
    mut stop: watch::Receiver<bool>,
) {
    let mut all: Vec<ServedResource> = resources.into_iter().map(ServedResource::new).collect();
    let mut looked_at: Option<Instant> = None;
    while !*stop.borrow() {
        if looked_at.is_none_or(|at| at.elapsed() >= COLLECT) {
            for plugged in &mut all {
                plugged.report_devices().await;
            }
            collect(&all, &places).await;
            looked_at = Some(Instant::now());
        }
        for plugged in &mut all {
            plugged.keep_registered(&places.device_plugins).await;
        }
        // An error means that the sender is gone, so that no stop can follow.
        if let Ok(Err(_)) = tokio::time::timeout(LOOK, stop.changed()).await {
            break;
        }
    }
    for plugged in &mut all {
        plugged.serving = None;
        let socket = places.device_plugins.join(plugged.resource.endpoint());
        if let Err(error) = remove_if_exists(&socket) {
            tracing::warn!("removing {}: {error}", socket.display());
        }
    }
}

impl ServedResource {
    fn new(resource: Resource) -> Self {
        Self {
            resource,
            devices: watch::channel(Vec::new()).0,
            serving: None,
            reported: None,
        }
    }

    /// Reads the devices, and reports them to kubelet if they have changed.
    async fn report_devices(&mut self) {
        let resource = self.resource.clone();
        match tokio::task::spawn_blocking(move || resource.devices()).await {
            Ok(devices) => {
                self.devices.send_if_modified(|reported| {
                    let is_new = *reported != devices;
                    *reported = devices;
                    is_new
                });
            }
            Err(error) => tracing::error!("devices of {}: {error}", self.resource.name()),
        }
    }

    /// Starts and registers the server, unless it runs and is registered with the running kubelet.
    async fn keep_registered(&mut self, directory: &Path) {
        let own = directory.join(self.resource.endpoint());
        let kubelet = identity(&directory.join(KUBELET));
        let is_current = self.serving.as_ref().is_some_and(|serving| {
            serving.own.is_some()
                && serving.own == identity(&own)
                && serving.kubelet == kubelet
                && !serving.task.is_finished()
        });
        if is_current || kubelet.is_none() {
            return;
        }
        self.serving = None;
        match self.start(directory, &own).await {
            Ok(task) => {
                let name = self.resource.name();
                tracing::info!("{name} is registered with kubelet");
                self.reported = None;
                self.serving = Some(Serving {
                    task,
                    own: identity(&own),
                    kubelet,
                });
            }
            Err(error) => {
                if self.reported.as_ref() != Some(&error) {
                    tracing::warn!("{}: {error}", self.resource.name());
                    self.reported = Some(error);
                }
            }
        }
    }

    async fn start(&self, directory: &Path, own: &Path) -> Result<JoinHandle<()>, String> {
        let at = |error: io::Error| format!("{}: {error}", own.display());
        remove_if_exists(own).map_err(at)?;
        let listener = UnixListener::bind(own).map_err(at)?;
        let plugin = Plugin {
            resource: self.resource.clone(),
            devices: self.devices.subscribe(),
        };
        let serving = Server::builder()
            .add_service(DevicePluginServer::new(plugin))
            .serve_with_incoming(UnixListenerStream::new(listener));
        let name = self.resource.name();
        let task = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::warn!("{name}: {error}");
            }
        });
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: self.resource.endpoint(),
            resource_name: self.resource.name(),
            options: Some(options()),
        };
        match register(&directory.join(KUBELET), request).await {
            Ok(()) => Ok(task),
            Err(error) => {
                task.abort();
                Err(error)
            }
        }
    }
}

/// Registers a resource with kubelet.
async fn register(socket: &Path, request: RegisterRequest) -> Result<(), String> {
    let failed = |cause: String| format!("registration at {}: {cause}", socket.display());
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))
        .map_err(|error| failed(error.to_string()))?;
    let call = async {
        let channel = endpoint
            .connect()
            .await
            .map_err(|error| error.to_string())?;
        let mut client = RegistrationClient::new(channel);
        let reply = client.register(request).await;
        reply.map_err(|status| format!("{}: {}", status.code(), status.message()))
    };
    match tokio::time::timeout(REPLY, call).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(cause)) => Err(failed(cause)),
        Err(_) => Err(failed(format!("no reply within {REPLY:?}"))),
    }
}

/// Collects the devices that no container has any more. Without a reply of kubelet nothing is collected.
async fn collect(all: &[ServedResource], places: &KubeletPaths) {
    // Before the list: kubelet may allocate devices meanwhile.
    let listed = Instant::now();
    let pods = match pod_cpus(&places.pod_resources, REPLY).await {
        Ok(pods) => pods,
        Err(error) => {
            tracing::debug!("{error}");
            return;
        }
    };
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (resource, device) in pods.into_iter().flat_map(|pod| pod.devices) {
        used.entry(resource).or_default().insert(device);
    }
    for plugged in all {
        let resource = plugged.resource.clone();
        let name = resource.name();
        let of_one = used.remove(&name).unwrap_or_default();
        let work = move || resource.collect(&of_one, listed);
        match tokio::task::spawn_blocking(work).await {
            Ok(collected) => {
                for device in collected.closed {
                    tracing::info!("{name}: device {device} is free: no container has it any more");
                }
                if let Some(error) = collected.error {
                    tracing::warn!("{name}: {error}");
                }
            }
            Err(error) => tracing::error!("{name}: {error}"),
        }
    }
}
