// SPDX-License-Identifier: Apache-2.0
//! The agent's side of the requests for addresses.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quietwire_base::durable;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};

use super::book::Book;
use super::protocol::{LENGTH_MAX, Reply, Request};

/// Mode of the directory of the socket: only root may ask.
const MODE: u32 = 0o700;
/// Most requests at the same time. Others wait.
const REQUESTS_MAX: usize = 8;
/// Time for a request and its reply.
const EXCHANGE: Duration = Duration::from_secs(45);
/// Pause after an error of the socket, also if it cannot be created.
const PAUSE: Duration = Duration::from_secs(1);

/// Answers requests for addresses at a socket until `ended` becomes true.
pub(crate) async fn serve(book: Book, socket: PathBuf, mut ended: watch::Receiver<bool>) {
    let Some(listener) = listen(&socket, &mut ended).await else {
        return;
    };
    let free = Arc::new(Semaphore::new(REQUESTS_MAX));
    while !*ended.borrow() {
        let accept = async {
            // The semaphore is never closed.
            let permit = Arc::clone(&free).acquire_owned().await.ok();
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            _ = ended.changed() => break,
            accepted = accept => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let book = book.clone();
                tokio::spawn(async move {
                    let done = tokio::time::timeout(EXCHANGE, exchange(&book, &stream)).await;
                    if let Ok(Err(error)) = done {
                        tracing::warn!("request for addresses: {error}");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!("{}: {error}", socket.display());
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    if let Err(error) = fs::remove_file(&socket) {
        tracing::warn!("{}: {error}", socket.display());
    }
}

/// Creates the socket, as soon as that is possible. Returns `None` if `ended` becomes true before.
async fn listen(socket: &Path, ended: &mut watch::Receiver<bool>) -> Option<UnixListener> {
    let mut reported = String::new();
    while !*ended.borrow() {
        match bind(socket) {
            Ok(listener) => return Some(listener),
            Err(error) => {
                let text = error.to_string();
                if text != reported {
                    tracing::error!("{}: {text}; pods get no addresses", socket.display());
                    reported = text;
                }
            }
        }
        tokio::select! {
            _ = ended.changed() => {}
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
    None
}

/// Creates the socket, in place of that of an agent that was killed.
fn bind(socket: &Path) -> io::Result<UnixListener> {
    let directory = durable::directory_of(socket);
    DirBuilder::new()
        .recursive(true)
        .mode(MODE)
        .create(directory)?;
    durable::remove_if_exists(socket)?;
    UnixListener::bind(socket)
}

async fn exchange(book: &Book, stream: &UnixStream) -> io::Result<()> {
    let octets = read(stream).await?;
    let reply = match serde_json::from_slice::<Request>(&octets) {
        Ok(request) => reply(book, &request).await,
        Err(error) => Reply::Refused {
            is_temporary: false,
            message: error.to_string(),
        },
    };
    let text = serde_json::to_vec(&reply).map_err(io::Error::other)?;
    write(stream, &text).await
}

async fn reply(book: &Book, request: &Request) -> Reply {
    match book.answer(request).await {
        Ok(given) => Reply::Given(given),
        Err(error) => Reply::Refused {
            is_temporary: error.is_temporary(),
            message: error.to_string(),
        },
    }
}

/// Reads until the peer closes its direction.
async fn read(stream: &UnixStream) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    let mut piece = [0; 4096];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut piece) {
            Ok(0) => return Ok(octets),
            Ok(length) => octets.extend(piece.iter().take(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if octets.len() > LENGTH_MAX {
            return Err(io::Error::other("the request is too long"));
        }
    }
}

async fn write(stream: &UnixStream, mut octets: &[u8]) -> io::Result<()> {
    while !octets.is_empty() {
        stream.writable().await?;
        match stream.try_write(octets) {
            Ok(length) => octets = octets.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
