// SPDX-License-Identifier: Apache-2.0
//! The admission webhook with its packaged configuration, and with the user and the rights of its Deployment.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use quietwire_base::Deadline;
use quietwire_base::supervised::Command;
use quietwire_cluster::admission::{WebhookOptions, run};
use serde_json::{Value, json};

use super::server::{Server, User, free_port, wait_for};
use super::{api, create, object, packaged};

const FILE: &str = "../webhook/webhook.yaml";
const CONFIGURATION: &str = "quietwire-webhook";
/// Time for openssl.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes a certificate of `localhost` that is its own authority. Returns it and its key.
fn certificate(directory: &Path) -> (PathBuf, PathBuf) {
    let path = |name: &str| directory.join(name);
    let files = (path("tls.crt"), path("tls.key"));
    fs::write(
        path("openssl.cnf"),
        "[req]\ndistinguished_name = dn\n[dn]\n",
    )
    .unwrap();
    let made = Command::new("openssl")
        .args(["req", "-config"])
        .arg(path("openssl.cnf"))
        .args(["-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj"])
        .args(["/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .arg("-out")
        .arg(&files.0)
        .arg("-keyout")
        .arg(&files.1)
        .run(Deadline::after(LIMIT));
    made.unwrap().into_result().unwrap();
    files
}

fn pod(name: &str, networks: Option<&str>) -> Pod {
    let annotations = networks.map(|it| json!({ "k8s.v1.cni.cncf.io/networks": it }));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "annotations": annotations },
        "spec": { "automountServiceAccountToken": false, "containers": [{ "name": "app", "image": "none" }] },
    });
    serde_json::from_value(pod).unwrap()
}

/// Returns the limits of the first container.
fn limits(pod: &Pod) -> Value {
    let pod = serde_json::to_value(pod).unwrap();
    pod["spec"]["containers"][0]["resources"]["limits"].clone()
}

/// Installs the packaged configuration with the address and the authority of the test.
async fn configure(admin: &Client, port: u16, authority: &Path) {
    let mut configuration: Value =
        packaged::<Value>(FILE, "MutatingWebhookConfiguration").remove(0);
    configuration["webhooks"][0]["clientConfig"] = json!({
        "url": format!("https://localhost:{port}/mutate"),
        "caBundle": STANDARD.encode(fs::read(authority).unwrap()),
    });
    let configuration: MutatingWebhookConfiguration =
        serde_json::from_value(configuration).unwrap();
    let all: Api<MutatingWebhookConfiguration> = Api::all(admin.clone());
    all.create(&PostParams::default(), &configuration)
        .await
        .unwrap();
}

pub(crate) async fn pods_request_the_resources_of_their_networks(server: &Server, admin: &Client) {
    create::<ClusterRole>(admin, FILE, "ClusterRole").await;
    create::<ClusterRoleBinding>(admin, FILE, "ClusterRoleBinding").await;
    // There is no controller that makes it, and the API server refuses pods without it.
    let account =
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    let account: ServiceAccount = serde_json::from_value(account).unwrap();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin.clone());
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();

    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(directory.path());
    let port = free_port();
    let options = WebhookOptions {
        kubeconfig: Some(server.kubeconfig_file(User::Webhook)),
        listen: SocketAddr::from(([127, 0, 0, 1], port)),
        certificate: certificate.clone(),
        key,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let webhook = thread::spawn(move || run(&options, &flag));
    configure(admin, port, &certificate).await;

    let spec = json!({ "bridge": "lan", "resource": "memif" });
    let networks = api(admin, "Network");
    let network = object("Network", "fast", &spec);
    networks
        .create(&PostParams::default(), &network)
        .await
        .unwrap();
    let pods: Api<Pod> = Api::default_namespaced(admin.clone());
    let try_out = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let twice = pod("twice", Some("fast, absent, fast"));
    // The API server learns of the configuration within seconds, and refuses pods until the webhook replies.
    let made = wait_for("the webhook adds requests", async || {
        let made = pods.create(&try_out, &twice).await.ok()?;
        (!limits(&made).is_null()).then_some(made)
    })
    .await;
    assert_eq!(limits(&made), json!({ "quietwire.io/memif": "2" }));
    let other = pods.create(&try_out, &pod("other", Some("absent"))).await;
    assert!(limits(&other.unwrap()).is_null());

    stop.store(true, Ordering::Relaxed);
    webhook.join().unwrap().unwrap();
    assert!(pods.create(&try_out, &twice).await.is_err());
    // Other pods do not depend on the webhook.
    pods.create(&try_out, &pod("plain", None)).await.unwrap();
    let all: Api<MutatingWebhookConfiguration> = Api::all(admin.clone());
    all.delete(CONFIGURATION, &DeleteParams::default())
        .await
        .unwrap();
    networks
        .delete("fast", &DeleteParams::default())
        .await
        .unwrap();
}
