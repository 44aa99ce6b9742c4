// SPDX-License-Identifier: Apache-2.0
//! Protocol between self-test and device: one JSON document per line, one reply to each request.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quietwire_base::Deadline;
use serde::{Deserialize, Serialize};

use super::connection_device::{ConnectionLedger, ConnectionScript};
use super::ledger::Ledger;
use super::script::Script;
use crate::error::TesterError;

/// Parameters of one trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Orders {
    /// Number of the trial, which determines the mark of its counted frames.
    pub(super) trial: u64,
    pub(super) script: Script,
}

/// A request to the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    /// Begin a trial.
    Begin(Orders),
    /// Begin a trial with connections.
    BeginConnections(ConnectionScript),
    /// End the trial and send its ledger.
    Finish,
    /// End the trial with connections and send its ledger.
    FinishConnections,
}

/// A reply of the device. The first reply, [`Reply::Ready`], needs no request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reply {
    /// The device forwards frames, and follows the script if it has one.
    Ready,
    /// The ledger of the trial.
    Ledger(Box<Ledger>),
    /// The ledger of the trial with connections.
    Connections(Box<ConnectionLedger>),
}

/// Timeout of the device's start and of each reply.
const DEADLINE: Duration = Duration::from_secs(30);
/// Longest wait in one system call, milliseconds.
const POLL_MS: u16 = 100;

/// The self-test's end of the link to a device process.
#[derive(Debug)]
pub struct DeviceLink<R, W> {
    replies: R,
    requests: W,
    buffer: Vec<u8>,
}

fn failed(text: impl Into<String>) -> TesterError {
    TesterError::SelfTestDevice(text.into())
}

impl<R: Read + AsFd, W: Write> DeviceLink<R, W> {
    /// Creates a link over the standard output and the standard input of a device process.
    pub fn new(replies: R, requests: W) -> Self {
        Self {
            replies,
            requests,
            buffer: Vec::new(),
        }
    }

    /// Waits until the device has opened its ports.
    ///
    /// # Errors
    /// [`TesterError::SelfTestDevice`] if the process ended or does not reply.
    pub fn wait_until_ready(&mut self) -> Result<(), TesterError> {
        match self.reply()? {
            Reply::Ready => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Begins a trial.
    pub(super) fn begin(&mut self, orders: Orders) -> Result<(), TesterError> {
        self.request(&Request::Begin(orders))?;
        self.wait_until_ready()
    }

    /// Ends a trial and returns its ledger.
    pub(super) fn finish(&mut self) -> Result<Ledger, TesterError> {
        self.request(&Request::Finish)?;
        match self.reply()? {
            Reply::Ledger(ledger) => Ok(*ledger),
            other => Err(unexpected(&other)),
        }
    }

    /// Begins a trial with connections.
    pub(super) fn begin_connections(
        &mut self,
        script: ConnectionScript,
    ) -> Result<(), TesterError> {
        self.request(&Request::BeginConnections(script))?;
        self.wait_until_ready()
    }

    /// Ends a trial with connections and returns its ledger.
    pub(super) fn finish_connections(&mut self) -> Result<ConnectionLedger, TesterError> {
        self.request(&Request::FinishConnections)?;
        match self.reply()? {
            Reply::Connections(ledger) => Ok(*ledger),
            other => Err(unexpected(&other)),
        }
    }

    fn request(&mut self, request: &Request) -> Result<(), TesterError> {
        let mut line = serde_json::to_vec(request).map_err(|error| failed(error.to_string()))?;
        line.push(b'\n');
        let written = self.requests.write_all(&line);
        written
            .and_then(|()| self.requests.flush())
            .map_err(|error| failed(format!("request not sent: {error}")))
    }

    fn reply(&mut self) -> Result<Reply, TesterError> {
        let line = self.line(Deadline::after(DEADLINE))?;
        serde_json::from_slice(&line).map_err(|error| {
            let text = String::from_utf8_lossy(&line);
            failed(format!("unexpected reply '{text}': {error}"))
        })
    }

    /// Reads one line and strips the newline.
    fn line(&mut self, deadline: Deadline) -> Result<Vec<u8>, TesterError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|octet| *octet == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
                line.pop();
                return Ok(line);
            }
            if deadline.has_passed() {
                let waited_s = DEADLINE.as_secs();
                return Err(failed(format!("no reply within {waited_s} s")));
            }
            let mut watched = [PollFd::new(self.replies.as_fd(), PollFlags::POLLIN)];
            match poll(&mut watched, PollTimeout::from(POLL_MS)) {
                Ok(0) | Err(Errno::EINTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(failed(format!("no reply: {error}"))),
            }
            let mut chunk = [0; 4096];
            match self.replies.read(&mut chunk) {
                Ok(0) => return Err(failed("the process ended")),
                Ok(count) => self.buffer.extend(chunk.iter().take(count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(format!("no reply: {error}"))),
            }
        }
    }
}

fn unexpected(reply: &Reply) -> TesterError {
    failed(format!("unexpected reply {reply:?}"))
}

#[cfg(test)]
mod tests {
    use std::io::pipe;

    use super::*;

    #[test]
    fn replies_are_lines_and_the_end_of_the_process_is_an_error() {
        let (replies, mut device) = pipe().unwrap();
        let mut requests = Vec::new();
        let mut link = DeviceLink::new(replies, &mut requests);
        device.write_all(b"\"ready\"\n\"rea").unwrap();
        link.wait_until_ready().unwrap();
        device.write_all(b"dy\"\n").unwrap();
        let orders = Orders {
            trial: 3,
            script: Script::of(&super::super::Fault::ALL, 1),
        };
        link.begin(orders.clone()).unwrap();
        let ledger = Reply::Ledger(Box::default());
        let text = serde_json::to_string(&ledger).unwrap();
        device.write_all(format!("{text}\n").as_bytes()).unwrap();
        assert_eq!(link.finish().unwrap(), Ledger::default());
        device.write_all(b"nonsense\n").unwrap();
        let error = link.finish().unwrap_err().to_string();
        assert!(error.contains("nonsense"), "{error}");
        drop(device);
        let error = link.finish().unwrap_err().to_string();
        assert!(error.contains("the process ended"), "{error}");
        let first: Request =
            serde_json::from_slice(requests.split(|octet| *octet == b'\n').next().unwrap())
                .unwrap();
        assert_eq!(first, Request::Begin(orders));
    }
}
