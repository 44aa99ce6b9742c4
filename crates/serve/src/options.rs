// SPDX-License-Identifier: Apache-2.0
//! Options of a server.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Address to listen on, of this machine only.
    pub listen: SocketAddr,
    /// Directory of the stores.
    pub directory: PathBuf,
    /// Token of clients that may start a ready-made study. None: no client may.
    pub token: Option<String>,
    /// The program `quietwire`, which runs studies.
    pub program: PathBuf,
    /// Control socket of the switch.
    pub control_socket: PathBuf,
    /// State directory of the partition.
    pub partition_state: PathBuf,
}

/// Shortest token, characters.
const TOKEN_MIN: usize = 16;
/// Longest token, characters.
const TOKEN_MAX: usize = 256;

/// Error of a server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address belongs to other machines, too.
    #[error(
        "{0} is reachable from other machines (listen on 127.0.0.1 or [::1]; for others, put a server with access control in front)"
    )]
    NotLocal(SocketAddr),
    /// The token is too short, too long, or has other characters.
    #[error(
        "the token must have {TOKEN_MIN} to {TOKEN_MAX} letters, digits, '-' and '_' (create one with `openssl rand -hex 16`)"
    )]
    Token,
    /// The address is not available.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the system.
        error: std::io::Error,
    },
}

impl ServeOptions {
    /// Checks the options.
    pub(crate) fn check(&self) -> Result<(), ServeError> {
        if !self.listen.ip().is_loopback() {
            return Err(ServeError::NotLocal(self.listen));
        }
        let is_usable = |token: &String| {
            let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
            (TOKEN_MIN..=TOKEN_MAX).contains(&token.len()) && token.chars().all(is_letter)
        };
        match &self.token {
            Some(token) if !is_usable(token) => Err(ServeError::Token),
            _ => Ok(()),
        }
    }
}
