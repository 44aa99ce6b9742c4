// SPDX-License-Identifier: Apache-2.0
//! The server: accepts connections, each of which a thread serves. Their number, and the size and time of each, are bounded.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use quietwire_base::Deadline;

use crate::http::{Parsed, REQUEST_MAX, Response, Status, parse};
use crate::options::{ServeError, ServeOptions};
use crate::routes::Views;

/// Most connections at once. Further ones are refused.
const CLIENTS_MAX: usize = 32;
/// Time that a client has to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Time that a client has to receive the response.
const RESPONSE_TIME: Duration = Duration::from_secs(30);
/// Interval at which the listener checks whether it has to stop.
const POLL: Duration = Duration::from_millis(20);
/// Pause after a connection that could not be accepted, for example without file descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    views: Arc<Views>,
}

/// A slot among the connections.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    /// Takes a slot; none if all are taken.
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let before = taken.fetch_add(1, Ordering::Relaxed);
        let slot = Self(Arc::clone(taken));
        // The drop frees the slot.
        (before < CLIENTS_MAX).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// Listens on the address of the options.
    ///
    /// # Errors
    /// [`ServeError`]: the options are not suitable, or the address is not available.
    pub fn listen(options: ServeOptions) -> Result<Self, ServeError> {
        options.check()?;
        let failed = |error| ServeError::Listen {
            address: options.listen,
            error,
        };
        let listener = TcpListener::bind(options.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            views: Arc::new(Views::new(options, address)),
        })
    }

    /// Returns the address. Port 0 is replaced by the actual port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves clients until the flag is set. Then it ends the study that a client has started.
    pub fn serve(self, stop: &AtomicBool) {
        let taken = Arc::new(AtomicUsize::new(0));
        while !stop.load(Ordering::Relaxed) {
            match self.listener.accept() {
                Ok((stream, _)) => self.begin(stream, &taken),
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(POLL),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    thread::sleep(PAUSE);
                }
            }
        }
        self.views.end();
    }

    /// Serves a connection in a thread of its own.
    fn begin(&self, mut stream: TcpStream, taken: &Arc<AtomicUsize>) {
        // Sockets of a nonblocking listener may block on Linux, but need not elsewhere.
        if stream.set_nonblocking(false).is_err() {
            return;
        }
        let Some(slot) = Slot::take(taken) else {
            let busy = Response::error(Status::Busy, "too many connections (try again)");
            send(&mut stream, &busy.octets(false), POLL);
            close(&mut stream);
            return;
        };
        let views = Arc::clone(&self.views);
        let serve = move || {
            let _slot = slot;
            serve(&mut stream, &views);
        };
        let spawned = thread::Builder::new().name("qw-serve".to_owned());
        if let Err(error) = spawned.spawn(serve) {
            tracing::warn!("cannot serve a connection: {error}");
        }
    }
}

/// Serves one connection.
fn serve(stream: &mut TcpStream, views: &Views) {
    let deadline = Deadline::after(REQUEST_TIME);
    let mut octets = Vec::new();
    let (response, is_head) = loop {
        match parse(&octets) {
            Parsed::Complete(request) => {
                break (views.respond(&request), request.method == "HEAD");
            }
            Parsed::Refused(status) => break (Response::error(status, "invalid request"), false),
            Parsed::Incomplete if octets.len() >= REQUEST_MAX => {
                break (
                    Response::error(Status::ContentTooLarge, "invalid request"),
                    false,
                );
            }
            Parsed::Incomplete => {}
        }
        // A client that is too slow, or has gone, gets no response.
        let Some(remaining) = Some(deadline.remaining()).filter(|it| !it.is_zero()) else {
            return;
        };
        if stream.set_read_timeout(Some(remaining)).is_err() {
            return;
        }
        let mut chunk = [0; 2048];
        match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => octets.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    };
    send(stream, &response.octets(is_head), RESPONSE_TIME);
    close(stream);
}

/// Closes a connection. Octets that were not read would make the system reset it, and the client might lose the response.
fn close(stream: &mut TcpStream) {
    // If this fails, the connection is closed already.
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Some(POLL));
    let mut chunk = [0; REQUEST_MAX];
    // The client closes its side, or has sent more than a request has.
    for _ in 0..2 {
        if !matches!(stream.read(&mut chunk), Ok(1..)) {
            return;
        }
    }
}

/// Sends octets, as far as the client receives them in time.
fn send(stream: &mut TcpStream, mut octets: &[u8], time: Duration) {
    let deadline = Deadline::after(time);
    while !octets.is_empty() {
        let remaining = deadline.remaining();
        if remaining.is_zero() || stream.set_write_timeout(Some(remaining)).is_err() {
            return;
        }
        match stream.write(octets) {
            Ok(0) => return,
            Ok(count) => octets = octets.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use quietwire_base::wait_until;

    use super::*;

    fn options(directory: &Path, listen: &str) -> ServeOptions {
        ServeOptions {
            listen: listen.parse().unwrap(),
            directory: directory.to_owned(),
            token: None,
            program: "/nonexistent/quietwire".into(),
            control_socket: "/nonexistent/switch.sock".into(),
            partition_state: directory.to_owned(),
        }
    }

    /// Sends octets and returns the response.
    fn exchange(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn a_crowd_of_silent_clients_is_refused_and_the_server_stops() {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::listen(options(directory.path(), "127.0.0.1:0")).unwrap();
        let address = server.address();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let running = scope.spawn(|| server.serve(&stop));
            let get = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
            assert!(exchange(address, &get).starts_with("HTTP/1.1 200 OK\r\n"));
            let head = exchange(address, &get.replace("GET", "HEAD"));
            assert!(head.ends_with("\r\n\r\n") && head.contains("\r\nContent-Length: "));
            let other = get.replace(&address.to_string(), "evil.example");
            assert!(exchange(address, &other).starts_with("HTTP/1.1 403 "));
            assert!(exchange(address, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
            let deadline = Duration::from_secs(20);
            let mut crowd = Vec::new();
            // The threads of the connections before may still end.
            assert!(wait_until(deadline, || {
                crowd.extend((0..CLIENTS_MAX).map(|_| TcpStream::connect(address).unwrap()));
                exchange(address, &get).starts_with("HTTP/1.1 503 ")
            }));
            drop(crowd);
            assert!(wait_until(deadline, || exchange(address, &get)
                .starts_with("HTTP/1.1 200 ")));
            stop.store(true, Ordering::Relaxed);
            running.join().unwrap();
        });
    }

    #[test]
    fn other_machines_and_weak_tokens_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
            let refused = Server::listen(options(directory.path(), listen));
            assert!(matches!(refused, Err(ServeError::NotLocal(_))), "{listen}");
        }
        for token in ["", "short", "0123456789abcde ", "0123456789abcdef\n"] {
            let options = ServeOptions {
                token: Some(token.to_owned()),
                ..options(directory.path(), "127.0.0.1:0")
            };
            assert!(
                matches!(Server::listen(options), Err(ServeError::Token)),
                "{token:?}"
            );
        }
    }
}
