// SPDX-License-Identifier: Apache-2.0
//! REQ socket of ZeroMQ over TCP. It implements the part of ZMTP 3.0 (RFC 23 of rfc.zeromq.org) that requests and replies require.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use quietwire_base::{BoundedStream, Deadline};

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
    /// Time of the handshake, and of each request with its reply.
    time: Duration,
}

impl Req {
    /// Connects within `time`, and performs the ZMTP handshake within `time`, which is also that of each request with its reply.
    pub(super) fn connect(address: &str, time: Duration) -> io::Result<Self> {
        let target = address.to_socket_addrs()?.next();
        let target = target.ok_or_else(|| wrong("the host name has no address"))?;
        let stream = TcpStream::connect_timeout(&target, time)?;
        stream.set_nodelay(true)?;
        let socket = Self { stream, time };
        socket.shake_hands()?;
        Ok(socket)
    }

    /// Returns the stream with a deadline for an exchange. Its octets may arrive one at a time.
    fn bounded(&self) -> BoundedStream<'_, TcpStream> {
        BoundedStream::new(&self.stream, self.time, Deadline::after(self.time))
    }

    fn shake_hands(&self) -> io::Result<()> {
        let mut stream = self.bounded();
        stream.write_all(&greeting())?;
        let mut theirs = [0u8; 64];
        stream.read_exact(&mut theirs)?;
        if theirs.first() != Some(&0xff) || theirs.get(10).is_none_or(|major| *major < 3) {
            return Err(wrong("the server does not support ZMTP 3"));
        }
        if !theirs
            .get(12..)
            .is_some_and(|rest| rest.starts_with(b"NULL\0"))
        {
            return Err(wrong("the server requires authentication"));
        }
        write_frame(&mut stream, COMMAND, &ready(b"REQ"))?;
        let (flags, body) = read_frame(&mut stream)?;
        if flags & COMMAND == 0 || !body.starts_with(b"\x05READY") {
            return Err(wrong("the server sent no READY command"));
        }
        Ok(())
    }

    /// Sends a request and returns the reply.
    pub(super) fn ask(&mut self, question: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = self.bounded();
        // Messages of a REQ socket begin with an empty part (RFC 28, "The Request-Reply Pattern").
        write_frame(&mut stream, MORE, &[])?;
        write_frame(&mut stream, 0, question)?;
        read_message(&mut stream)
    }
}

fn write_frame(stream: &mut impl Write, flags: u8, body: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(body.len().saturating_add(9));
    match u8::try_from(body.len()) {
        Ok(length) => frame.extend([flags, length]),
        Err(_) => {
            frame.push(flags | LONG);
            frame.extend((body.len() as u64).to_be_bytes());
        }
    }
    frame.extend(body);
    stream.write_all(&frame)
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_reply_of_one_octet_at_a_time_has_a_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(&greeting()).unwrap();
                write_frame(&mut stream, COMMAND, &ready(b"REP")).unwrap();
                // The length of a frame, and its octets until the client has closed the connection.
                stream.write_all(&[LONG, 0, 0, 0, 0, 0, 1, 0, 0]).unwrap();
                let pause = Duration::from_millis(5);
                Deadline::after(MINUTE).poll(pause, || stream.write_all(b"x").err())
            });
            let mut socket = Req::connect(&address, Duration::from_secs(1)).unwrap();
            let start = Instant::now();
            let error = socket.ask(b"{}").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            assert!(start.elapsed() < MINUTE / 2);
        });
    }
}
