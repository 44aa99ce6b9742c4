// SPDX-License-Identifier: Apache-2.0
//! An API server with etcd on 127.0.0.1, which ends with the test.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

/// Time for the start of the API server, and for everything else that the tests wait for.
const DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);

/// User of the agents, as in packaging/kubernetes/base.
const AGENT: &str = "system:serviceaccount:quietwire:quietwire-agent";
/// Attribute of the user that names the node of a pod's token.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// A user of the API server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum User<'a> {
    /// May do everything.
    Admin,
    /// The agent of a node.
    Agent(&'a str),
    /// The controller of networks.
    Controller,
    /// The admission webhook.
    Webhook,
}

/// Waits until `attempt` returns a value.
///
/// # Panics
/// It does not within the deadline.
pub(crate) async fn wait_for<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = attempt().await {
                return found;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    match tokio::time::timeout(DEADLINE, found).await {
        Ok(found) => found,
        Err(_) => panic!("not within {DEADLINE:?}: {what}"),
    }
}

/// A program that ends with the test, also if the test is killed.
struct Program(Child);

impl Program {
    fn start(program: &Path, arguments: &[String], log: &Path) -> Self {
        let log = fs::File::create(log).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a port that no program listens on.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Returns a path that `make test-cluster` sets.
fn given(variable: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) => path.into(),
        None => panic!("{variable} is not set (use make test-cluster)"),
    }
}

/// An API server with etcd.
pub(crate) struct Server {
    // The API server ends before etcd.
    api_server: Option<Program>,
    _etcd: Program,
    arguments: Vec<String>,
    directory: tempfile::TempDir,
    port: u16,
}

impl Server {
    /// Starts both programs, and waits until the API server replies and has made the namespace `default`.
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("tokens.csv"), "admin,admin,1,system:masters\n").unwrap();
        let client_url = format!("http://127.0.0.1:{}", free_port());
        let peer_url = format!("http://127.0.0.1:{}", free_port());
        let etcd = [
            format!("--data-dir={}", at("etcd").display()),
            format!("--listen-client-urls={client_url}"),
            format!("--advertise-client-urls={client_url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=default={peer_url}"),
        ];
        let etcd = Program::start(&given("QUIETWIRE_ETCD"), &etcd, &at("etcd.log"));
        let port = free_port();
        let key = given("QUIETWIRE_API_SERVER_KEY");
        let arguments = vec![
            format!("--etcd-servers={client_url}"),
            "--bind-address=127.0.0.1".to_owned(),
            // The API server announces it, and nothing connects to it.
            "--advertise-address=192.0.2.1".to_owned(),
            format!("--secure-port={port}"),
            // The API server makes its own certificate in this directory.
            format!("--cert-dir={}", at("certificates").display()),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", key.display()),
            format!("--service-account-signing-key-file={}", key.display()),
            format!("--token-auth-file={}", at("tokens.csv").display()),
            "--authorization-mode=RBAC".to_owned(),
        ];
        let mut server = Self {
            api_server: None,
            _etcd: etcd,
            arguments,
            directory,
            port,
        };
        server.restart().await;
        server
    }

    /// Kills the API server if it runs, starts it, and waits until it replies. Its objects are in etcd.
    pub(crate) async fn restart(&mut self) {
        // Its port is free afterwards.
        drop(self.api_server.take());
        let log = self.directory.path().join("api-server.log");
        let program = given("QUIETWIRE_API_SERVER");
        self.api_server = Some(Program::start(&program, &self.arguments, &log));
        self.wait().await;
    }

    async fn wait(&self) {
        let namespaces: Api<Namespace> = Api::all(self.client(User::Admin).await);
        let ready = async {
            while namespaces.get("default").await.is_err() {
                tokio::time::sleep(POLL).await;
            }
        };
        let ready = tokio::time::timeout(DEADLINE, ready).await;
        assert!(
            ready.is_ok(),
            "the API server does not reply: {}\n{}",
            self.log("api-server.log"),
            self.log("etcd.log")
        );
    }

    /// Returns the last lines of a log.
    fn log(&self, name: &str) -> String {
        let text = fs::read(self.directory.path().join(name)).unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Returns a kubeconfig. The administrator acts as the other users, as tokens of their pods would.
    fn kubeconfig(&self, user: User<'_>) -> Value {
        let mut token = json!({ "token": "admin" });
        match user {
            User::Admin => {}
            User::Agent(node) => {
                token["as"] = AGENT.into();
                token["as-user-extra"] = json!({ NODE_NAME: [node] });
            }
            User::Controller => {
                token["as"] = "system:serviceaccount:quietwire:quietwire-controller".into();
            }
            User::Webhook => {
                token["as"] = "system:serviceaccount:quietwire:quietwire-webhook".into();
            }
        }
        // The server has made its certificate itself.
        let cluster = json!({
            "server": format!("https://127.0.0.1:{}", self.port), "insecure-skip-tls-verify": true,
        });
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{ "name": "it", "cluster": cluster }],
            "users": [{ "name": "it", "user": token }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
        })
    }

    /// Writes a kubeconfig and returns its path.
    pub(crate) fn kubeconfig_file(&self, user: User<'_>) -> PathBuf {
        let name = match user {
            User::Admin => "admin.yaml".to_owned(),
            User::Agent(node) => format!("agent-{node}.yaml"),
            User::Controller => "controller.yaml".to_owned(),
            User::Webhook => "webhook.yaml".to_owned(),
        };
        let path = self.directory.path().join(name);
        // JSON is YAML.
        fs::write(&path, self.kubeconfig(user).to_string()).unwrap();
        path
    }

    pub(crate) async fn client(&self, user: User<'_>) -> Client {
        let kubeconfig: Kubeconfig = serde_json::from_value(self.kubeconfig(user)).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        Client::try_from(config.unwrap()).unwrap()
    }
}
