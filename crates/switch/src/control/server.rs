// SPDX-License-Identifier: Apache-2.0
//! Server side of the control socket. One thread serves all clients, and no client can block the others.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quietwire_base::Fault;
use serde_json::Value;

use super::{Answer, ControlSocket, REQUEST_MAX, Request};
use crate::accept::AcceptErrors;

/// Maximum number of clients at once. For a further one, the connection that has been idle for the longest time is closed.
const CLIENTS_MAX: usize = 64;
/// Maximum number of requests of one client per turn.
const REQUESTS_A_TURN: usize = 4;
/// Idle timeout of a client that neither sends requests nor reads replies.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for reading a reply to its end.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Octets of a request that are read at once.
const CHUNK: usize = 4096;
/// Keys of earlier versions: place in a request (RFC 6901), old name, new name.
const RENAMED: [(&str, &str, &str); 1] = [("/change/set-port", "anew", "reset")]; // words: a key of an earlier version

/// Returns the end of a timeout.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the clock does not overflow within a minute"
)]
fn after(start: Instant, timeout: Duration) -> Instant {
    start + timeout
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    request: Vec<u8>,
    answer: Vec<u8>,
    /// Octets of the reply already sent.
    sent: usize,
    deadline: Instant,
    /// Time of the last request or of the last octet of a reply.
    active: Instant,
    /// Latest end of the reply that is being sent.
    reply_deadline: Instant,
    /// The remaining reply is sent, and no further request is read.
    closing: bool,
}

/// The clients of a control socket.
#[derive(Debug)]
pub(crate) struct Server {
    socket: ControlSocket,
    clients: Vec<Client>,
    errors: AcceptErrors,
}

impl Server {
    pub(crate) fn new(socket: ControlSocket) -> Self {
        Self {
            socket,
            clients: Vec::new(),
            errors: AcceptErrors::new("control socket"),
        }
    }

    /// Waits at most `wait_ms` for events on the control socket or on `others`, and serves the control socket. `handle` answers requests.
    pub(crate) fn turn<'fd>(
        &mut self,
        wait_ms: u16,
        others: impl Iterator<Item = PollFd<'fd>>,
        handle: &mut dyn FnMut(Request) -> Answer,
    ) {
        self.wait(wait_ms, others);
        // A client that has sent its request is served before its place is given to another.
        self.serve(handle);
        if self.accept() {
            self.serve(handle);
        }
    }

    fn serve(&mut self, handle: &mut dyn FnMut(Request) -> Answer) {
        self.clients
            .retain_mut(|client| client.turn(Instant::now(), handle));
    }

    fn wait<'here, 'fd: 'here>(
        &'here self,
        wait_ms: u16,
        others: impl Iterator<Item = PollFd<'fd>>,
    ) {
        let clients = self.clients.iter();
        let interests = clients.map(|one| PollFd::new(one.stream.as_fd(), one.interest()));
        let mut fds: Vec<PollFd<'here>> = Vec::new();
        fds.extend(interests);
        for other in others {
            fds.push(other);
        }
        if !self.errors.is_paused() {
            fds.push(PollFd::new(self.socket.listener.as_fd(), PollFlags::POLLIN));
        }
        // A request that is buffered and not answered yet causes no further event.
        let waiting = self.clients.iter().any(Client::has_request);
        let wait_ms = if waiting { 0 } else { wait_ms };
        match poll(&mut fds, PollTimeout::from(wait_ms)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => {
                tracing::warn!("cannot wait for events on the control socket: {error}");
                // The pause prevents a busy loop.
                std::thread::sleep(Duration::from_millis(u64::from(wait_ms)));
            }
        }
    }

    /// Accepts waiting clients, at most as many as have space. Returns true if there is a new one.
    fn accept(&mut self) -> bool {
        if self.errors.is_paused() {
            return false;
        }
        let mut accepted = Vec::new();
        while accepted.len() < CLIENTS_MAX {
            match self.socket.listener.accept() {
                Ok((stream, _)) => match Client::new(stream) {
                    Ok(client) => accepted.push(client),
                    Err(error) => {
                        self.errors.note(&error);
                    }
                },
                Err(error) => {
                    // Without file descriptors, an idle client gives its own to the next one.
                    if self.errors.note(&error) && self.close_idle() {
                        self.errors.resume();
                    }
                    break;
                }
            }
        }
        let clients = self.clients.len().saturating_add(accepted.len());
        let excess = clients.saturating_sub(CLIENTS_MAX);
        for _ in 0..excess {
            self.close_idle();
        }
        let has_new = !accepted.is_empty();
        self.clients.append(&mut accepted);
        has_new
    }

    /// Closes the connection that has been idle for the longest time: one without a reply under way, if there is one. Returns false if
    /// there is no connection.
    fn close_idle(&mut self) -> bool {
        let clients = self.clients.iter().enumerate();
        let idle = clients.min_by_key(|(_, client)| (client.has_reply(), client.active));
        let Some((index, _)) = idle else {
            return false;
        };
        let client = self.clients.swap_remove(index);
        client.refuse();
        true
    }
}

impl Client {
    fn new(stream: UnixStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            request: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            deadline: after(Instant::now(), TIMEOUT),
            active: Instant::now(),
            reply_deadline: after(Instant::now(), REPLY_TIMEOUT),
            closing: false,
        })
    }

    fn has_request(&self) -> bool {
        self.sent == self.answer.len() && self.request.contains(&b'\n')
    }

    fn has_reply(&self) -> bool {
        self.sent < self.answer.len()
    }

    /// Sends the reason for the end of the connection, if the client reads it.
    fn refuse(mut self) {
        if self.has_reply() {
            return;
        }
        self.reply(&Answer::error(
            Fault::Failed,
            "too many clients: the connection was closed because it was idle (send the request again)",
        ));
        // The client loses the connection in any case.
        let _ = self.write(Instant::now());
    }

    fn interest(&self) -> PollFlags {
        if self.has_reply() {
            PollFlags::POLLOUT
        } else {
            PollFlags::POLLIN
        }
    }

    /// Reads, answers and writes without blocking. Returns false if the connection must be closed.
    fn turn(&mut self, now: Instant, handle: &mut dyn FnMut(Request) -> Answer) -> bool {
        for _ in 0..REQUESTS_A_TURN {
            match self.write(now) {
                Ok(true) => {}
                Ok(false) => return now < self.deadline.min(self.reply_deadline),
                Err(()) => return false,
            }
            if self.closing {
                return false;
            }
            match self.read_line(now) {
                Ok(Some(line)) => self.reply(&answer(&line, handle)),
                Ok(None) => return now < self.deadline,
                Err(None) => return false,
                Err(Some(answer)) => {
                    self.reply(&answer);
                    self.closing = true;
                }
            }
        }
        true
    }

    fn reply(&mut self, answer: &Answer) {
        self.reply_deadline = after(Instant::now(), REPLY_TIMEOUT);
        self.sent = 0;
        self.answer.clear();
        if let Err(error) = serde_json::to_writer(&mut self.answer, answer) {
            tracing::error!("cannot serialise a reply: {error}");
            self.closing = true;
        }
        self.answer.push(b'\n');
    }

    /// Writes the reply without blocking. Returns true once it is sent completely.
    fn write(&mut self, now: Instant) -> Result<bool, ()> {
        while let Some(rest) = self.answer.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return Err(()),
                Ok(count) => {
                    self.sent = self.sent.saturating_add(count);
                    self.deadline = after(now, TIMEOUT);
                    self.active = now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(()),
            }
        }
        // The memory of a large reply is released.
        self.answer = Vec::new();
        self.sent = 0;
        Ok(true)
    }

    /// Returns the next complete line. An error closes the connection after a reply, if there is one.
    fn read_line(&mut self, now: Instant) -> Result<Option<Vec<u8>>, Option<Answer>> {
        loop {
            if let Some(end) = self.request.iter().position(|octet| *octet == b'\n') {
                let rest = self.request.split_off(end.saturating_add(1));
                let mut line = std::mem::replace(&mut self.request, rest);
                line.truncate(end);
                self.deadline = after(now, TIMEOUT);
                self.active = now;
                return Ok(Some(line));
            }
            if self.request.len() >= REQUEST_MAX {
                let what = format!("request is longer than {REQUEST_MAX} octets");
                return Err(Some(Answer::error(Fault::BadInput, what)));
            }
            let mut chunk = [0; CHUNK];
            let space = REQUEST_MAX.saturating_sub(self.request.len());
            let (space, _) = chunk.split_at_mut(space.min(CHUNK));
            match self.stream.read(space) {
                Ok(0) => return Err(None),
                Ok(count) => {
                    let read = space.get(..count).unwrap_or_default();
                    self.request.extend_from_slice(read);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(None),
            }
        }
    }
}

fn answer(line: &[u8], handle: &mut dyn FnMut(Request) -> Answer) -> Answer {
    match serde_json::from_slice::<Request>(line) {
        Ok(request) => handle(request),
        Err(error) => {
            let reason = renamed(line).unwrap_or_else(|| {
                format!("{error} (example of a request: {{\"show\":\"ports\"}})")
            });
            Answer::error(Fault::BadInput, format!("invalid request: {reason}"))
        }
    }
}

/// Returns the new name of a key of an earlier version in a request; `None` if the request has no such key.
fn renamed(line: &[u8]) -> Option<String> {
    let request: Value = serde_json::from_slice(line).ok()?;
    RENAMED.into_iter().find_map(|(place, old, new)| {
        request.pointer(place)?.get(old)?;
        Some(format!("'{old}' is now '{new}'"))
    })
}
