// SPDX-License-Identifier: Apache-2.0
//! Requests about interfaces of one network namespace (rtnetlink(7)).

use std::io;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::libc;

use super::message::{self, Link};
use quietwire_base::netns::Failure;
use quietwire_base::rtnetlink;

/// A socket in a network namespace.
#[derive(Debug)]
pub(super) struct Links(OwnedFd);

impl Links {
    /// Opens a socket in the network namespace of the thread.
    pub(super) fn open() -> Result<Self, Failure> {
        let socket = rtnetlink::open();
        socket.map(Self).map_err(|error| ("socket", error))
    }

    /// Returns the interface with a name, if it exists.
    pub(super) fn named(&self, name: &str) -> Result<Option<Link>, Failure> {
        self.get(message::named(name))
    }

    /// Returns the interface with an index, if it exists.
    pub(super) fn indexed(&self, index: u32) -> Result<Option<Link>, Failure> {
        self.get(Ok(message::indexed(index)))
    }

    /// Creates interfaces.
    pub(super) fn create(&self, message: io::Result<Vec<u8>>) -> Result<(), Failure> {
        const EXCLUSIVE: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_EXCL | libc::NLM_F_ACK;
        self.ask("RTM_NEWLINK", libc::RTM_NEWLINK, EXCLUSIVE, message)
            .map(drop)
    }

    /// Changes an interface.
    pub(super) fn change(&self, message: io::Result<Vec<u8>>) -> Result<(), Failure> {
        self.ask("RTM_SETLINK", libc::RTM_SETLINK, libc::NLM_F_ACK, message)
            .map(drop)
    }

    /// Deletes an interface, with the other end if it is one of a pair.
    pub(super) fn delete(&self, index: u32) -> Result<(), Failure> {
        let message = Ok(message::indexed(index));
        self.ask("RTM_DELLINK", libc::RTM_DELLINK, libc::NLM_F_ACK, message)
            .map(drop)
    }

    fn get(&self, message: io::Result<Vec<u8>>) -> Result<Option<Link>, Failure> {
        const STEP: &str = "RTM_GETLINK";
        match self.ask(STEP, libc::RTM_GETLINK, 0, message) {
            Ok(reply) => Link::parse(&reply).map(Some).ok_or((STEP, Errno::EBADMSG)),
            Err((_, Errno::ENODEV)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn ask(
        &self,
        step: &'static str,
        kind: u16,
        flags: libc::c_int,
        message: io::Result<Vec<u8>>,
    ) -> Result<Vec<u8>, Failure> {
        message
            .and_then(|message| rtnetlink::ask(&self.0, kind, flags, &message))
            .map_err(|error| {
                let error = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
                (step, error)
            })
    }
}
