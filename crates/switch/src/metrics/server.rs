// SPDX-License-Identifier: Apache-2.0
//! Minimal HTTP/1.1 server (RFC 9112): `GET /metrics` only, one response per connection. The control thread serves it between two polls of
//! the control socket; no client can block it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use quietwire_base::Deadline;
use quietwire_base::metrics::CONTENT_TYPE;

use crate::accept::AcceptErrors;
use crate::error::SwitchError;

/// Maximum number of clients at once. For a further one, the oldest connection is closed.
const CLIENTS_MAX: usize = 64;
/// Maximum length of a request, octets.
const REQUEST_MAX: usize = 8192;
const HEADERS_MAX: usize = 64;
/// Timeout of a connection.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    deadline: Deadline,
}

/// Listener of the metrics server, and its clients.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    clients: Vec<Client>,
    errors: AcceptErrors,
}

impl MetricsServer {
    /// Listens on `address`.
    ///
    /// # Errors
    /// [`SwitchError::Config`] if the address is not available.
    pub fn listen(address: SocketAddr) -> Result<Self, SwitchError> {
        let listener = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        Ok(Self {
            listener: listener.map_err(|error| SwitchError::Config {
                location: "metrics".to_owned(),
                what: format!("cannot listen on {address}: {error}"),
            })?,
            clients: Vec::new(),
            errors: AcceptErrors::new("metrics server"),
        })
    }

    /// Returns the address it listens on. Port 0 is replaced by the actual port.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the events to wait for.
    pub fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let clients = self.clients.iter().map(|client| {
            let interest = if client.answer.is_empty() {
                PollFlags::POLLIN
            } else {
                PollFlags::POLLOUT
            };
            PollFd::new(client.stream.as_fd(), interest)
        });
        let is_open = !self.errors.is_paused();
        let listener = is_open.then(|| PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        clients.chain(listener)
    }

    /// Serves clients without blocking. `text` renders the metrics, at most once.
    pub fn turn(&mut self, text: &mut dyn FnMut() -> String) {
        // Otherwise, many clients at the same time would keep the control thread busy.
        let mut rendered: Option<String> = None;
        let mut once = || rendered.get_or_insert_with(&mut *text).clone();
        // A client that has sent its request is served before its place is given to another.
        self.serve(&mut once);
        if self.accept() {
            self.serve(&mut once);
        }
    }

    fn serve(&mut self, text: &mut dyn FnMut() -> String) {
        self.clients
            .retain_mut(|client| !client.deadline.has_passed() && client.turn(text));
    }

    /// Accepts waiting clients, at most as many as have space. Returns true if there is a new one.
    fn accept(&mut self) -> bool {
        if self.errors.is_paused() {
            return false;
        }
        let mut accepted = Vec::new();
        while accepted.len() < CLIENTS_MAX {
            let stream = self.listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                Ok(stream)
            });
            match stream {
                Ok(stream) => accepted.push(Client {
                    stream,
                    request: Vec::new(),
                    answer: Vec::new(),
                    sent: 0,
                    deadline: Deadline::after(TIMEOUT),
                }),
                Err(error) => {
                    // Without file descriptors, an old client gives its own to the next one.
                    if self.errors.note(&error) && self.close_oldest() {
                        self.errors.resume();
                    }
                    break;
                }
            }
        }
        let clients = self.clients.len().saturating_add(accepted.len());
        let excess = clients.saturating_sub(CLIENTS_MAX);
        for _ in 0..excess {
            self.close_oldest();
        }
        let has_new = !accepted.is_empty();
        self.clients.append(&mut accepted);
        has_new
    }

    /// Closes the oldest connection: one without a response under way, if there is one. Returns false if there is no connection.
    fn close_oldest(&mut self) -> bool {
        let clients = self.clients.iter().enumerate();
        let oldest = clients.min_by_key(|(_, one)| (!one.answer.is_empty(), one.deadline));
        let index = oldest.map(|(index, _)| index);
        index.map(|index| self.clients.remove(index)).is_some()
    }
}

impl Client {
    /// Serves one client. Returns false if the connection must be closed.
    fn turn(&mut self, text: &mut dyn FnMut() -> String) -> bool {
        if self.answer.is_empty() {
            match self.read() {
                Ok(Some(status)) => self.answer = answer(status, text),
                Ok(None) => return true,
                Err(()) => return false,
            }
        }
        while let Some(rest) = self.answer.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return false,
                Ok(count) => self.sent = self.sent.saturating_add(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// Returns the status of the response, once the request is complete.
    fn read(&mut self) -> Result<Option<Status>, ()> {
        const CHUNK: usize = 2048;
        let mut chunk = [0; CHUNK];
        // Maximum length of a request.
        for _ in 0..=REQUEST_MAX / CHUNK {
            match self.stream.read(&mut chunk) {
                // The client has closed its sending side; the request may be complete.
                Ok(0) => return status(&self.request).map(Some).ok_or(()),
                Ok(count) => {
                    let read = chunk.get(..count).unwrap_or_default();
                    self.request.extend_from_slice(read);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Err(()),
            }
        }
        Ok(status(&self.request))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    TooLarge,
}

/// Returns the status for a request; `None` if the request is incomplete.
fn status(request: &[u8]) -> Option<Status> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if request.len() >= REQUEST_MAX => {
            return Some(Status::TooLarge);
        }
        Ok(httparse::Status::Partial) => return None,
        Err(httparse::Error::TooManyHeaders) => return Some(Status::TooLarge),
        Err(_) => return Some(Status::BadRequest),
    }
    let path = parsed.path.unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    Some(match (parsed.method, path) {
        (Some("GET"), "/metrics") => Status::Ok,
        (Some("GET"), _) => Status::NotFound,
        _ => Status::MethodNotAllowed,
    })
}

fn answer(status: Status, text: &mut dyn FnMut() -> String) -> Vec<u8> {
    let (line, body) = match status {
        Status::Ok => ("200 OK", text()),
        Status::BadRequest => ("400 Bad Request", "invalid HTTP request\n".to_owned()),
        Status::NotFound => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        Status::MethodNotAllowed => (
            "405 Method Not Allowed",
            "only GET is supported\n".to_owned(),
        ),
        Status::TooLarge => (
            "431 Request Header Fields Too Large",
            format!("request is longer than {REQUEST_MAX} octets\n"),
        ),
    };
    let kind = if status == Status::Ok {
        CONTENT_TYPE
    } else {
        "text/plain; charset=utf-8"
    };
    let allow = if status == Status::MethodNotAllowed {
        "Allow: GET\r\n"
    } else {
        ""
    };
    format!(
        "HTTP/1.1 {line}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use quietwire_base::fuzz::{check, planted};

    use super::*;

    #[test]
    fn a_crowd_of_the_slow_and_the_silent_delays_no_other() {
        let mut server = MetricsServer::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.listener.local_addr().unwrap();
        // More clients than the server serves at once, each with an incomplete request.
        let crowd: Vec<TcpStream> = (0..2 * CLIENTS_MAX)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"GET /metr").unwrap();
                stream
            })
            .collect();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        client.set_nonblocking(true).unwrap();
        let mut text = String::new;
        let mut got = [0; 12];
        // As many turns as it takes to accept all. No timeout of the crowd is waited for.
        for _ in 0..5 {
            server.turn(&mut text);
            assert!(server.clients.len() <= CLIENTS_MAX);
        }
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"HTTP/1.1 404");
        drop(crowd);
    }

    #[test]
    fn many_clients_at_the_same_time_cost_one_rendering() {
        let mut server = MetricsServer::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.listener.local_addr().unwrap();
        let mut waiting: Vec<TcpStream> = (0..CLIENTS_MAX / 2)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
                stream.set_nonblocking(true).unwrap();
                stream
            })
            .collect();
        let deadline = Instant::now() + Duration::from_secs(20);
        let (mut turns, mut renderings) = (0, 0);
        while !waiting.is_empty() {
            assert!(Instant::now() < deadline);
            turns += 1;
            server.turn(&mut || {
                renderings += 1;
                "quietwire_x 1\n".to_owned()
            });
            waiting.retain_mut(|client| !matches!(client.read(&mut [0; 12]), Ok(1..)));
        }
        assert!(renderings <= turns, "{renderings} in {turns} turns");
    }

    #[test]
    fn requests_get_their_status() {
        for (request, expected) in [
            (
                &b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"[..],
                Some(Status::Ok),
            ),
            (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", Some(Status::Ok)),
            (b"GET / HTTP/1.1\r\n\r\n", Some(Status::NotFound)),
            (
                b"POST /metrics HTTP/1.1\r\n\r\n",
                Some(Status::MethodNotAllowed),
            ),
            (b"GET /metrics HTTP/1.1\r\nHost:", None),
            (b"\x16\x03\x01\x02", Some(Status::BadRequest)),
            (&[b'a'; REQUEST_MAX], Some(Status::TooLarge)),
        ] {
            assert_eq!(status(request), expected, "{request:?}");
        }
    }

    #[test]
    fn clients_are_served_and_cut_off() {
        let mut server = MetricsServer::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.listener.local_addr().unwrap();
        let mut silent = TcpStream::connect(address).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut text = || "quietwire_x 1\n".to_owned();
        client.set_nonblocking(true).unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"quietwire_x 1\n") {
            assert!(Instant::now() < deadline);
            server.turn(&mut text);
            let mut chunk = [0; 512];
            if let Ok(count) = client.read(&mut chunk) {
                got.extend_from_slice(&chunk[..count]);
            }
        }
        assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n"));
        // A client that closes its sending side at once gets a response too.
        let mut closing = TcpStream::connect(address).unwrap();
        closing.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        closing.shutdown(std::net::Shutdown::Write).unwrap();
        closing.set_nonblocking(true).unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"quietwire_x 1\n") {
            assert!(Instant::now() < deadline);
            server.turn(&mut text);
            let mut chunk = [0; 512];
            if let Ok(count) = closing.read(&mut chunk) {
                got.extend_from_slice(&chunk[..count]);
            }
        }
        // The server closes an idle connection in time.
        assert_eq!(server.clients.len(), 1);
        server.clients[0].deadline = Deadline::after(Duration::ZERO);
        server.turn(&mut text);
        assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
    }

    /// Parses any octets as a request, as they arrive one after the other. A complete request stays complete whatever follows, and every
    /// request is complete or refused at its maximum length.
    fn fuzz_http(octets: &[u8]) -> bool {
        let octets = octets.get(..REQUEST_MAX).unwrap_or(octets);
        let whole = status(octets);
        let mut padded = octets.to_vec();
        padded.resize(REQUEST_MAX, b'a');
        assert!(status(&padded).is_some());
        if let Some(whole) = whole {
            let first = (0..=octets.len()).find_map(|end| status(&octets[..end]));
            assert_eq!(first, Some(whole));
            if first != Some(Status::BadRequest) {
                assert_eq!(status(&padded), first);
            }
            let mut printed = 0;
            let answer = answer(whole, &mut || {
                printed += 1;
                "x 1\n".to_owned()
            });
            assert!(answer.starts_with(b"HTTP/1.1 ") && printed <= 1);
        }
        planted("switch-http", || {
            let colons = octets.iter().filter(|octet| **octet == b':').count();
            whole == Some(Status::Ok) && colons > 12
        });
        whole.is_some_and(|whole| whole != Status::BadRequest)
    }

    #[test]
    fn fuzz_requests() {
        check(env!("CARGO_MANIFEST_DIR"), "switch-http", fuzz_http);
    }
}
