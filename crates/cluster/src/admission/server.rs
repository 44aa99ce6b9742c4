// SPDX-License-Identifier: Apache-2.0
//! HTTPS server of the webhook: `POST /mutate` for the API server, `GET /healthz` for probes. Clients are not authenticated: a reply contains
//! no more than the name of a network's resource.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::certificate::Files;
use super::review::{decide, parse, reply};
use crate::connection::{AgentError, connect, ended};

/// Most connections that are served at the same time, which hold 24 MiB of reviews at most. More wait for a place.
const CONNECTIONS_MAX: usize = 16;
/// Most connections of a peer address that are served at the same time. More wait for a place: an API server has one for each pod.
const CONNECTIONS_OF_PEER: usize = 8;
const _: () = assert!(2 * CONNECTIONS_OF_PEER <= CONNECTIONS_MAX);
/// Most connections with those that wait, of which only the sockets exist. More wait until they are accepted.
const ACCEPTED_MAX: usize = 256;
/// Most connections of a peer address with those that wait. More are closed at once.
const ACCEPTED_OF_PEER: usize = 128;
const _: () = assert!(2 * ACCEPTED_OF_PEER <= ACCEPTED_MAX);
/// Time for which a connection waits for a place. The API server waits 10 s for the webhook.
const PLACE: Duration = Duration::from_secs(5);
/// Most parsed reviews at the same time. Others wait for them as octets.
const REVIEWS_MAX: usize = 2;
/// Largest review, octets. It contains a pod, and etcd stores at most 1.5 MiB of it.
const BODY_MAX: usize = 3 << 19;
/// Buffer of a connection, octets.
const BUFFER: usize = 64 << 10;
/// Time of the TLS handshake, and time of the head of a request.
const HEAD: Duration = Duration::from_secs(3);
/// Time of the body of a request.
const BODY: Duration = Duration::from_secs(5);
/// Time of a connection, from its first octet to its last.
const CONNECTION: Duration = Duration::from_secs(20);
/// Time of open connections when the webhook ends. Every command ends within 5 s after a signal, by force after 4.5 s.
const DRAIN: Duration = Duration::from_secs(4);
/// Time for the API server to answer all requests about one pod. The API server waits 10 s for the webhook.
const DECISION: Duration = Duration::from_secs(8);
/// Interval at which the certificate is read again: Secrets change while they are mounted.
const RELOAD: Duration = Duration::from_secs(60);
/// Pause after an error of accept(2), such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Options of the webhook.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// File with the address and the credentials of the API server. Default: those of the pod, or `KUBECONFIG`.
    pub kubeconfig: Option<PathBuf>,
    /// Address and port.
    pub listen: SocketAddr,
    /// File of the certificate and of those between it and the authority (PEM).
    pub certificate: PathBuf,
    /// File of the key (PEM).
    pub key: PathBuf,
}

/// Errors that end the webhook.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The connection to the API server.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The certificate or the key cannot be used.
    #[error("certificate of the webhook: {0}")]
    Certificate(String),
    /// The address cannot be used.
    #[error("{address}: cannot listen: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        cause: io::Error,
    },
}

/// Runs the webhook until `stop` becomes true.
///
/// # Errors
/// [`WebhookError`].
pub fn run(options: &WebhookOptions, stop: &Arc<AtomicBool>) -> Result<(), WebhookError> {
    let runtime = crate::runtime().map_err(AgentError::Runtime)?;
    runtime.block_on(async {
        let files = Files {
            certificate: options.certificate.clone(),
            key: options.key.clone(),
        };
        let config = files.load().map_err(WebhookError::Certificate)?;
        let client = connect(options.kubeconfig.as_deref()).await?;
        let address = options.listen;
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|cause| WebhookError::Listen { address, cause })?;
        serve(client, &listener, &files, config, ended(stop)).await;
        Ok(())
    })
}

/// Connections of a peer address.
#[derive(Debug)]
struct Peer {
    /// Number of connections, with those that wait.
    count: usize,
    places: Arc<Semaphore>,
}

/// Peer addresses that have connections.
#[derive(Debug, Default)]
struct Peers(Mutex<HashMap<IpAddr, Peer>>);

/// A connection of a peer.
#[derive(Debug)]
struct PeerConnection {
    peers: Arc<Peers>,
    address: IpAddr,
    places: Arc<Semaphore>,
}

impl Peers {
    fn all(&self) -> MutexGuard<'_, HashMap<IpAddr, Peer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection until the result is dropped; `None` if the peer has too many.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<PeerConnection> {
        let mut all = self.all();
        let peer = all.entry(address).or_insert_with(|| Peer {
            count: 0,
            places: Arc::new(Semaphore::new(CONNECTIONS_OF_PEER)),
        });
        if peer.count >= ACCEPTED_OF_PEER {
            return None;
        }
        peer.count = peer.count.saturating_add(1);
        Some(PeerConnection {
            peers: Arc::clone(self),
            address,
            places: Arc::clone(&peer.places),
        })
    }
}

impl PeerConnection {
    /// Waits for a place among the connections of the peer, and then among all. Returns `None` after [`PLACE`].
    async fn place(&self, permits: &Arc<Semaphore>) -> Option<[OwnedSemaphorePermit; 2]> {
        let places = async {
            let of_peer = Arc::clone(&self.places).acquire_owned().await.ok()?;
            let of_all = Arc::clone(permits).acquire_owned().await.ok()?;
            Some([of_peer, of_all])
        };
        timeout(PLACE, places).await.ok().flatten()
    }
}

impl Drop for PeerConnection {
    fn drop(&mut self) {
        let mut all = self.peers.all();
        if let Some(peer) = all.get_mut(&self.address) {
            peer.count = peer.count.saturating_sub(1);
            if peer.count == 0 {
                all.remove(&self.address);
            }
        }
    }
}

/// Decides on reviews.
struct Reviewer {
    client: Client,
    permits: Semaphore,
}

/// Accepts a connection when there is space for its socket.
async fn accept(
    listener: &TcpListener,
    sockets: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(sockets).acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, permit))
}

/// Accepts connections until `ended` becomes true, and waits for those that are open then, for a limited time.
async fn serve(
    client: Client,
    listener: &TcpListener,
    files: &Files,
    mut config: Arc<ServerConfig>,
    mut ended: watch::Receiver<bool>,
) {
    let sockets = Arc::new(Semaphore::new(ACCEPTED_MAX));
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let peers = Arc::new(Peers::default());
    let reviewer = Arc::new(Reviewer {
        client,
        permits: Semaphore::new(REVIEWS_MAX),
    });
    let mut connections = JoinSet::new();
    let mut reload = tokio::time::interval(RELOAD);
    while !*ended.borrow() {
        tokio::select! {
            _ = ended.changed() => break,
            Some(_) = connections.join_next() => {}
            _ = reload.tick() => match files.load() {
                Ok(current) => config = current,
                // While a Secret changes, the files may not fit one another.
                Err(problem) => tracing::warn!("the webhook keeps its former certificate: {problem}"),
            },
            accepted = accept(listener, &sockets) => match accepted {
                Ok((stream, peer, socket)) => {
                    let Some(of_peer) = peers.admit(peer.ip().to_canonical()) else {
                        continue;
                    };
                    let (config, reviewer) = (Arc::clone(&config), Arc::clone(&reviewer));
                    let permits = Arc::clone(&permits);
                    connections.spawn(async move {
                        let served = async {
                            let Some(_places) = of_peer.place(&permits).await else {
                                tracing::debug!("a connection to the webhook had no place within {PLACE:?}");
                                return;
                            };
                            converse(stream, config, reviewer).await;
                        };
                        if timeout(CONNECTION, served).await.is_err() {
                            tracing::debug!("a connection to the webhook was closed at its time limit");
                        }
                        drop((of_peer, socket));
                    });
                }
                Err(error) => {
                    tracing::warn!("accepting a connection: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN, drained).await.is_err() {
        tracing::warn!(
            "the webhook closes connections that did not end within {DRAIN:?} after the signal"
        );
    }
}

/// Serves one request. A second one has a connection of its own, so no request meets a connection that has just been closed.
async fn converse(stream: TcpStream, config: Arc<ServerConfig>, reviewer: Arc<Reviewer>) {
    let stream = match timeout(HEAD, TlsAcceptor::from(config).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Err(_) => return,
        Ok(Err(error)) => {
            tracing::debug!("a connection of the webhook: {error}");
            return;
        }
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let reviewer = Arc::clone(&reviewer);
        async move { Ok::<_, Infallible>(respond(&reviewer, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(BUFFER)
        .keep_alive(false);
    let served = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!("a connection of the webhook: {error}");
    }
}

async fn respond(reviewer: &Reviewer, request: Request<Incoming>) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz") => response(StatusCode::OK, "ok".to_owned()),
        (&Method::POST, "/mutate") => {
            let body = Limited::new(request.into_body(), BODY_MAX).collect();
            match timeout(BODY, body).await {
                Ok(Ok(body)) => review(reviewer, || body.to_bytes()).await,
                Ok(Err(error)) => response(StatusCode::BAD_REQUEST, error.to_string()),
                Err(_) => response(
                    StatusCode::REQUEST_TIMEOUT,
                    format!("no complete review within {BODY:?}"),
                ),
            }
        }
        _ => response(StatusCode::NOT_FOUND, "not found".to_owned()),
    }
}

async fn review(reviewer: &Reviewer, octets: impl FnOnce() -> Bytes) -> Response<Full<Bytes>> {
    let failed = |problem: String| {
        tracing::warn!("cannot decide on a pod: {problem}");
        response(StatusCode::INTERNAL_SERVER_ERROR, problem)
    };
    let decided = async {
        // Without a permit, it waits as octets.
        let _permit = reviewer.permits.acquire().await;
        let request = match parse(&octets()) {
            Ok(request) => request,
            Err(problem) => return response(StatusCode::BAD_REQUEST, problem),
        };
        match decide(&reviewer.client, &request).await {
            Ok(decision) => response(StatusCode::OK, reply(&request, &decision).to_string()),
            Err(error) => failed(error.to_string()),
        }
    };
    match timeout(DECISION, decided).await {
        Ok(response) => response,
        Err(_) => failed(format!("the API server did not reply within {DECISION:?}")),
    }
}

/// Returns a response: JSON, or a text for people.
fn response(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use quietwire_base::Deadline;
    use quietwire_base::supervised::Command;
    use serde_json::{Value, json};
    use tokio::sync::Notify;

    use super::*;
    use crate::runtime;
    use crate::simulated::Simulated;

    const LIMIT: Duration = Duration::from_secs(60);

    fn ran(command: &Command) -> Result<String, String> {
        command.run(Deadline::after(LIMIT)).unwrap().into_result()
    }

    /// Makes a certificate for `localhost` that is its own authority.
    fn certificate(directory: &Path) -> Files {
        let files = Files {
            certificate: directory.join("tls.crt"),
            key: directory.join("tls.key"),
        };
        let configuration = directory.join("openssl.cnf");
        fs::write(&configuration, "[req]\ndistinguished_name = dn\n[dn]\n").unwrap();
        let command = Command::new("openssl")
            .args(["req", "-config"])
            .arg(&configuration)
            .args(["-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj"])
            .args(["/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
            .arg("-keyout")
            .arg(&files.key)
            .arg("-out")
            .arg(&files.certificate);
        ran(&command).unwrap();
        files
    }

    /// Returns a command that sends a request to the webhook, as the API server does: it trusts one authority.
    fn curl(files: &Files, port: u16, path: &str) -> Command {
        Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--noproxy", "*"])
            .args(["--max-time", "30", "--cacert"])
            .arg(&files.certificate)
            .args(["--resolve", &format!("localhost:{port}:127.0.0.1")])
            .arg(format!("https://localhost:{port}{path}"))
    }

    /// Runs a blocking task beside a webhook.
    fn beside_a_webhook<T: Send + 'static>(
        server: &Simulated,
        task: impl FnOnce(Files, u16) -> T + Send + 'static,
    ) -> T {
        let directory = tempfile::tempdir().unwrap();
        let files = certificate(directory.path());
        runtime().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let (_ending, ended) = watch::channel(false);
            let config = files.load().unwrap();
            let given = files.clone();
            let task = tokio::task::spawn_blocking(move || task(given, port));
            tokio::select! {
                () = serve(server.client(), &listener, &files, config, ended) => panic!("the webhook ended"),
                done = task => done.unwrap(),
            }
        })
    }

    #[test]
    fn a_review_over_https_is_answered_with_a_patch() {
        let server = Simulated::default();
        let network = json!({
            "apiVersion": "quietwire.io/v1alpha1", "kind": "Network",
            "metadata": { "namespace": "apps", "name": "lan" }, "spec": { "bridge": "lan", "resource": "memif" },
        });
        server.put("networks", &network);
        let pod = json!({
            "metadata": { "annotations": { "k8s.v1.cni.cncf.io/networks": "lan" } },
            "spec": { "containers": [{ "name": "app" }] },
        });
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": { "uid": "7", "namespace": "apps", "object": pod },
        });
        let reply = beside_a_webhook(&server, move |files, port| {
            let send = curl(&files, port, "/mutate").args(["--data-binary", &review.to_string()]);
            ran(&send)
        });
        let reply: Value = serde_json::from_str(&reply.unwrap()).unwrap();
        let patch = reply["response"]["patch"].as_str().unwrap();
        let patch: Value = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
        assert_eq!(patch[0]["value"]["limits"]["quietwire.io/memif"], "1");
    }

    #[test]
    fn a_peer_has_a_part_of_the_connections_only() {
        let peers = Arc::new(Peers::default());
        let [first, second] = [1u8, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut held: Vec<PeerConnection> = (0..ACCEPTED_OF_PEER)
            .map(|_| peers.admit(first).unwrap())
            .collect();
        assert!(peers.admit(first).is_none());
        let other = peers.admit(second);
        assert!(other.is_some());
        held.pop();
        held.push(peers.admit(first).unwrap());
        assert!(peers.admit(first).is_none());
        drop((held, other));
        assert!(peers.all().is_empty(), "addresses are forgotten");
    }

    #[test]
    fn more_connections_of_a_peer_wait_for_a_place_and_others_do_not() {
        let peers = Arc::new(Peers::default());
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let [first, second] = [1u8, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let admitted: Vec<PeerConnection> = (0..=CONNECTIONS_OF_PEER)
            .map(|_| peers.admit(first).unwrap())
            .collect();
        let other = peers.admit(second).unwrap();
        runtime().unwrap().block_on(async {
            let (last, before) = admitted.split_last().unwrap();
            let mut places = Vec::new();
            for one in before {
                places.push(one.place(&permits).await.unwrap());
            }
            let mut waiting = std::pin::pin!(last.place(&permits));
            let early = timeout(Duration::from_millis(20), waiting.as_mut()).await;
            assert!(early.is_err(), "the peer has no place");
            assert!(other.place(&permits).await.is_some());
            places.pop();
            assert!(waiting.await.is_some());
        });
    }

    #[test]
    fn reviews_in_progress_are_answered_before_the_webhook_ends() {
        let directory = tempfile::tempdir().unwrap();
        let files = certificate(directory.path());
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": { "uid": "7", "namespace": "apps", "object": {
                "metadata": { "annotations": { "k8s.v1.cni.cncf.io/networks": "lan" } },
                "spec": { "containers": [{ "name": "app" }] },
            } },
        });
        // An API server that waits with its answer.
        let (asked, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let is_answered = Arc::new(AtomicBool::new(false));
        let service = {
            let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
            let is_answered = Arc::clone(&is_answered);
            tower::service_fn(move |_: http::Request<kube::client::Body>| {
                let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                let is_answered = Arc::clone(&is_answered);
                async move {
                    asked.notify_one();
                    answer.notified().await;
                    is_answered.store(true, Ordering::SeqCst);
                    let network = json!({
                        "apiVersion": "quietwire.io/v1alpha1", "kind": "Network",
                        "metadata": { "namespace": "apps", "name": "lan" },
                        "spec": { "bridge": "lan", "resource": "memif" },
                    });
                    let body = kube::client::Body::from(network.to_string().into_bytes());
                    Ok::<_, Infallible>(http::Response::new(body))
                }
            })
        };
        let reply = runtime().unwrap().block_on(async {
            let client = Client::new(service, "default");
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let (ending, ended) = watch::channel(false);
            let config = files.load().unwrap();
            let (given, text) = (files.clone(), review.to_string());
            let sent = tokio::task::spawn_blocking(move || {
                let send = curl(&given, port, "/mutate");
                ran(&send.args(["--data-binary", text.as_str()]))
            });
            let serving = async {
                serve(client, &listener, &files, config, ended).await;
                assert!(
                    is_answered.load(Ordering::SeqCst),
                    "the webhook ended before"
                );
            };
            let steps = async {
                asked.notified().await;
                ending.send(true).unwrap();
                // The webhook knows that it has to end.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                answer.notify_one();
                sent.await.unwrap()
            };
            let ((), reply) = tokio::join!(serving, steps);
            reply
        });
        let reply: Value = serde_json::from_str(&reply.unwrap()).unwrap();
        assert_eq!(reply["response"]["patchType"], "JSONPatch");
    }

    #[test]
    fn probes_are_answered_and_other_requests_refused() {
        let server = Simulated::default();
        let replies = beside_a_webhook(&server, |files, port| {
            let get = |path: &str| ran(&curl(&files, port, path));
            let nonsense = curl(&files, port, "/mutate").args(["--data-binary", "{"]);
            [get("/healthz"), get("/mutate"), get("/"), ran(&nonsense)]
        });
        let [healthz, others @ ..] = &replies;
        assert_eq!(healthz.as_deref(), Ok("ok"));
        assert!(others.iter().all(Result::is_err), "{others:?}");
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let files = certificate(directory.path());
        assert!(files.load().is_ok());
        let swapped = Files {
            certificate: files.key.clone(),
            key: files.certificate.clone(),
        };
        let error = swapped.load().unwrap_err();
        assert!(error.contains("tls.key: no certificate"), "{error}");
        let other = tempfile::tempdir().unwrap();
        let mixed = Files {
            key: certificate(other.path()).key,
            ..files.clone()
        };
        assert!(mixed.load().is_err());
        fs::remove_file(&files.key).unwrap();
        let error = files.load().unwrap_err();
        assert!(error.contains("tls.key"), "{error}");
    }
}
