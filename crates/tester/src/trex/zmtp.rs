// SPDX-License-Identifier: Apache-2.0
//! REQ socket of ZeroMQ over TCP. It implements the part of ZMTP 3.0 (RFC 23 of rfc.zeromq.org) that requests and replies require.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Flag: another frame of the same message follows.
const MORE: u8 = 0x01;
/// Flag: the length has eight octets.
const LONG: u8 = 0x02;
/// Flag: a command between the sockets, not a message.
const COMMAND: u8 = 0x04;
/// Longest reply accepted. It bounds the memory that a faulty peer can make the client allocate.
const LENGTH_MAX: u64 = 16 << 20;
/// Largest number of parts of a reply.
const PARTS_MAX: usize = 8;

/// Connection with alternating requests and replies.
#[derive(Debug)]
pub(super) struct Req {
    stream: TcpStream,
}

impl Req {
    /// Connects and performs the ZMTP handshake. No system call waits longer than `deadline`.
    pub(super) fn connect(address: &str, deadline: Duration) -> io::Result<Self> {
        let target = address.to_socket_addrs()?.next();
        let target = target.ok_or_else(|| wrong("the host name has no address"))?;
        let stream = TcpStream::connect_timeout(&target, deadline)?;
        stream.set_read_timeout(Some(deadline))?;
        stream.set_write_timeout(Some(deadline))?;
        stream.set_nodelay(true)?;
        let mut socket = Self { stream };
        socket.stream.write_all(&greeting())?;
        let mut theirs = [0u8; 64];
        socket.stream.read_exact(&mut theirs)?;
        if theirs.first() != Some(&0xff) || theirs.get(10).is_none_or(|major| *major < 3) {
            return Err(wrong("the server does not support ZMTP 3"));
        }
        if !theirs
            .get(12..)
            .is_some_and(|rest| rest.starts_with(b"NULL\0"))
        {
            return Err(wrong("the server requires authentication"));
        }
        socket.write(COMMAND, &ready(b"REQ"))?;
        let (flags, body) = read_frame(&mut socket.stream)?;
        if flags & COMMAND == 0 || !body.starts_with(b"\x05READY") {
            return Err(wrong("the server sent no READY command"));
        }
        Ok(socket)
    }

    /// Sends a request and returns the reply.
    pub(super) fn ask(&mut self, question: &[u8]) -> io::Result<Vec<u8>> {
        // Messages of a REQ socket begin with an empty part (RFC 28, "The Request-Reply Pattern").
        self.write(MORE, &[])?;
        self.write(0, question)?;
        read_message(&mut self.stream)
    }

    fn write(&mut self, flags: u8, body: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(body.len().saturating_add(9));
        match u8::try_from(body.len()) {
            Ok(length) => frame.extend([flags, length]),
            Err(_) => {
                frame.push(flags | LONG);
                frame.extend((body.len() as u64).to_be_bytes());
            }
        }
        frame.extend(body);
        self.stream.write_all(&frame)
    }
}

/// Reads a reply of several parts. Skips commands.
pub(super) fn read_message(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    for _ in 0..PARTS_MAX {
        let (flags, body) = read_frame(stream)?;
        if flags & COMMAND != 0 {
            continue;
        }
        answer.extend(body);
        if flags & MORE == 0 {
            return Ok(answer);
        }
    }
    Err(wrong("the reply has too many parts"))
}

/// Reads the flags and the body of a frame.
fn read_frame(stream: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut flags = [0u8; 1];
    stream.read_exact(&mut flags)?;
    let [flags] = flags;
    let length = if flags & LONG == 0 {
        let mut length = [0u8; 1];
        stream.read_exact(&mut length)?;
        u64::from(length[0])
    } else {
        let mut length = [0u8; 8];
        stream.read_exact(&mut length)?;
        u64::from_be_bytes(length)
    };
    if length > LENGTH_MAX {
        return Err(wrong("the reply is too long"));
    }
    let length = usize::try_from(length).map_err(|_| wrong("the reply is too long"))?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((flags, body))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Returns the greeting: signature, version 3.0, no security.
pub(super) fn greeting() -> [u8; 64] {
    let mut greeting = [0u8; 64];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// Returns the READY command of a socket of this type.
pub(super) fn ready(kind: &[u8]) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type".to_vec();
    body.extend(u32::try_from(kind.len()).unwrap_or(u32::MAX).to_be_bytes());
    body.extend(kind);
    body
}
