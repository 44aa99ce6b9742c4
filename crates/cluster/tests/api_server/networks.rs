// SPDX-License-Identifier: Apache-2.0
//! The controller of networks, with the user and the rights of its Deployment.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::{Api, Client};
use quietwire_cluster::agent::AgentError;
use quietwire_cluster::networks::{ControllerOptions, run};
use serde_json::{Value, json};

use super::server::{Server, User, wait_for};
use super::{api, create, define, object};

/// Returns the definition that Multus installs, as far as the controller uses it.
fn attachments() -> CustomResourceDefinition {
    let schema = json!({
        "type": "object",
        "properties": { "spec": { "type": "object", "properties": { "config": { "type": "string" } } } },
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "network-attachment-definitions.k8s.cni.cncf.io" },
        "spec": {
            "group": "k8s.cni.cncf.io", "scope": "Namespaced",
            "names": {
                "plural": "network-attachment-definitions", "singular": "network-attachment-definition",
                "kind": "NetworkAttachmentDefinition",
            },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

/// Returns the network configuration of the definition of a network.
async fn configuration(attachments: &Api<DynamicObject>, name: &str) -> Option<Value> {
    let definition = attachments.get_opt(name).await.unwrap()?;
    let config = definition.data["spec"]["config"].as_str().unwrap();
    Some(serde_json::from_str(config).unwrap())
}

/// Gives the controller its rights.
pub(crate) async fn install_controller(admin: &Client) {
    create::<ClusterRole>(admin, "controller.yaml", "ClusterRole").await;
    create::<ClusterRoleBinding>(admin, "controller.yaml", "ClusterRoleBinding").await;
}

/// A running controller. It ends when the value is dropped.
pub(crate) struct RunningController {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), AgentError>>>,
}

impl RunningController {
    /// Starts a controller with a kubeconfig.
    pub(crate) fn with(kubeconfig: PathBuf) -> Self {
        let options = ControllerOptions {
            kubeconfig: Some(kubeconfig),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = thread::spawn(move || run(&options, &flag));
        Self {
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for RunningController {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

pub(crate) async fn a_network_has_a_definition_as_long_as_it_exists(
    server: &Server,
    admin: &Client,
) {
    define(admin, &attachments()).await;
    let controller = RunningController::with(server.kubeconfig_file(User::Controller));

    let resource = ApiResource {
        group: "k8s.cni.cncf.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "k8s.cni.cncf.io/v1".to_owned(),
        kind: "NetworkAttachmentDefinition".to_owned(),
        plural: "network-attachment-definitions".to_owned(),
    };
    let attachments = Api::namespaced_with(admin.clone(), "default", &resource);
    let networks = api(admin, "Network");
    let spec = json!({ "bridge": "lan", "vlan": 9, "ranges": [{ "subnet": "10.77.0.0/24" }] });
    let lan = object("Network", "lan", &spec);
    networks.create(&PostParams::default(), &lan).await.unwrap();
    let made = wait_for("the network has a definition", async || {
        configuration(&attachments, "lan").await
    })
    .await;
    assert_eq!(made["name"], "default.lan");
    assert_eq!(made["plugins"][0]["vlan"], 9);
    assert_eq!(made["plugins"][0]["ipam"]["network"], "default/lan");

    networks
        .delete("lan", &DeleteParams::default())
        .await
        .unwrap();
    wait_for("the definition is removed", async || {
        let left = configuration(&attachments, "lan").await;
        left.is_none().then_some(())
    })
    .await;
    controller.end();
}
