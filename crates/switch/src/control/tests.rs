// SPDX-License-Identifier: Apache-2.0

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

use quietwire_base::Fault;
use serde_json::{Value, json};

use super::server::TIMEOUT as IDLE_TIMEOUT;
use super::*;
use crate::error::SwitchError;

/// Larger than any socket buffer.
const LARGE: usize = 4 << 20;

fn show(request: Request) -> Answer {
    let ok = Answer::ok;
    let Request::Show(subject) = request else {
        return ok(Value::Null);
    };
    match subject {
        Subject::Ports => ok(json!(["a"])),
        Subject::Fdb => ok(json!("x".repeat(LARGE))),
        Subject::Threads => Answer::error(Fault::Failed, "no threads today"),
        Subject::Queues => Answer::error(Fault::MissingPrerequisite, "no memory today"),
        Subject::Stats => ok(json!({"uptime_s": 1})),
        _ => Answer::error(Fault::BadInput, "not here"),
    }
}

fn with_server(clients: impl FnOnce(&Path)) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("switch.sock");
    let mut server = Server::new(ControlSocket::listen(&path).unwrap());
    let done = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                server.turn(5, std::iter::empty(), &mut show);
            }
        });
        // Stops the server even if an assertion of a client fails.
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _end = End(&done);
        clients(&path);
    });
    drop(server);
    assert!(!path.exists(), "the socket file still exists");
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream
}

#[test]
fn questions_are_answered() {
    with_server(|path| {
        assert_eq!(
            ask::<Value>(path, &Request::Show(Subject::Ports)).unwrap(),
            json!(["a"])
        );
        assert_eq!(
            ask::<String>(path, &Request::Show(Subject::Fdb))
                .unwrap()
                .len(),
            LARGE
        );
        let change = Request::Change(Box::new(Change::DelPort {
            name: "a".to_owned(),
        }));
        ask::<()>(path, &change).unwrap();
        assert_eq!(ask::<Value>(path, &change).unwrap(), Value::Null);
        for (subject, part, fault) in [
            (Subject::Threads, "no threads today", Fault::Failed),
            (
                Subject::Queues,
                "no memory today",
                Fault::MissingPrerequisite,
            ),
            (Subject::Moves, "not here", Fault::BadInput),
        ] {
            let error = ask::<Value>(path, &Request::Show(subject)).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
            assert_eq!(error.fault(), fault, "{error}");
        }
        let error = ask::<u64>(path, &Request::Show(Subject::Ports)).unwrap_err();
        assert!(error.to_string().contains("same version"), "{error}");
        assert_eq!(
            fs::metadata(path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    });
}

#[test]
fn one_connection_may_ask_often_and_in_pieces() {
    with_server(|path| {
        let mut stream = connect(path);
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        stream
            .write_all(b"{\"show\":\"ports\"}\n{\"show\":\"sta")
            .unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), r#"{"ok":["a"]}"#);
        stream
            .write_all(b"ts\"}\n{\"show\":\"colours\"}\n\n")
            .unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), r#"{"ok":{"uptime_s":1}}"#);
        for _ in 0..2 {
            let line = lines.next().unwrap().unwrap();
            assert!(line.starts_with(r#"{"error":"invalid request"#), "{line}");
            assert!(line.ends_with(r#","fault":"bad-input"}"#), "{line}");
        }
        for _ in 0..20 {
            stream.write_all(b"{\"show\":\"ports\"}\n").unwrap();
        }
        for _ in 0..20 {
            assert_eq!(lines.next().unwrap().unwrap(), r#"{"ok":["a"]}"#);
        }
    });
}

#[test]
fn a_key_of_an_earlier_version_is_refused_with_its_new_name() {
    with_server(|path| {
        let mut stream = connect(path);
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let request = json!({"change": {"set-port": {"name": "a", "anew": true, "bridging": {}}}});
        writeln!(stream, "{request}").unwrap();
        assert_eq!(
            lines.next().unwrap().unwrap(),
            r#"{"error":"invalid request: 'anew' is now 'reset'","fault":"bad-input"}"#
        );
    });
}

#[test]
fn a_client_that_misbehaves_hurts_only_itself() {
    with_server(|path| {
        // One client never reads its large reply, one sends nothing, and one sends too much.
        let mut deaf = connect(path);
        deaf.write_all(b"{\"show\":\"fdb\"}\n").unwrap();
        let _mute = connect(path);
        let mut loud = connect(path);
        // The switch stops reading and closes the connection, so the remaining data cannot be written.
        let _ = loud.write_all(&vec![b'x'; 4 * REQUEST_MAX]);
        assert_eq!(
            ask::<Value>(path, &Request::Show(Subject::Ports)).unwrap(),
            json!(["a"])
        );
        let mut answer = String::new();
        // Unread data turns the close into a reset, which may overtake the reply.
        match loud.read_to_string(&mut answer) {
            Ok(_) => assert!(answer.contains("longer than 65536 octets"), "{answer}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
        // More clients than the server serves at once, idle or in the middle of a request.
        let crowd: Vec<UnixStream> = (0..200)
            .map(|number| {
                let mut stream = connect(path);
                if number % 2 == 0 {
                    stream.write_all(b"{\"show\":").unwrap();
                }
                stream
            })
            .collect();
        for _ in 0..10 {
            let asked = Instant::now();
            let shown: Value = ask(path, &Request::Show(Subject::Ports)).unwrap();
            assert_eq!(shown, json!(["a"]));
            // The places of the idle are given away; their timeout is not waited for.
            assert!(asked.elapsed() < IDLE_TIMEOUT, "{:?}", asked.elapsed());
        }
        let (mut first, mut line) = (BufReader::new(&crowd[0]), String::new());
        first.read_line(&mut line).unwrap();
        assert!(line.contains("too many clients"), "{line}");
        drop(crowd);
    });
}

#[test]
fn only_the_socket_of_an_ended_switch_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("switch.sock");
    let refusal = |path: &Path| {
        let error = ControlSocket::listen(path).unwrap_err();
        assert_eq!(error.fault(), Fault::BadInput);
        error.to_string()
    };
    let living = UnixListener::bind(&path).unwrap();
    assert!(refusal(&path).contains("another switch is listening"));
    drop(living);
    assert!(path.exists());
    drop(ControlSocket::listen(&path).unwrap());
    assert!(!path.exists());
    fs::write(&path, "precious").unwrap();
    assert!(refusal(&path).contains("file exists and is not a socket"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    let nowhere = directory.path().join("no/switch.sock");
    assert!(refusal(&nowhere).contains("create it first"));
    // An address of a Unix socket has 108 octets (unix(7)).
    let long = directory.path().join("s".repeat(108));
    assert!(refusal(&long).contains("File name too long"));
    for path in [&nowhere, &long] {
        let error = ask::<Value>(path, &Request::Show(Subject::Ports)).unwrap_err();
        assert!(matches!(
            error,
            SwitchError::ControlSocket {
                fault: Fault::BadInput,
                ..
            }
        ));
    }
}
