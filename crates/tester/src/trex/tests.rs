// SPDX-License-Identifier: Apache-2.0
//! Sessions with a simulated server, written from the sources of TRex 3.08.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use quietwire_base::fuzz::{check, planted};

use super::*;

/// Requests and replies in order. In a reply, `$id` stands for the id of the request.
const SESSION: &str = include_str!("session.json");

fn trial() -> Trial {
    Trial {
        drain_s: 0.01,
        ..Trial::new(10_000.0, 0.1, FrameSizes::Fixed(64))
    }
}

fn read_frame(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0u8; 2];
    stream.read_exact(&mut head)?;
    let length = if head[0] & 2 == 0 {
        usize::from(head[1])
    } else {
        let mut rest = [0u8; 7];
        stream.read_exact(&mut rest)?;
        rest.iter().fold(usize::from(head[1]), |length, octet| {
            length << 8 | usize::from(*octet)
        })
    };
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((head[0], body))
}

fn write_frame(stream: &mut TcpStream, flags: u8, body: &[u8]) {
    let mut frame = vec![flags | 2];
    frame.extend((body.len() as u64).to_be_bytes());
    frame.extend(body);
    stream.write_all(&frame).unwrap();
}

/// Replies from the session until the client disconnects. Returns the requests received and the number of session entries left.
fn serve(session: Value) -> (String, JoinHandle<(Vec<Value>, usize)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut theirs = [0u8; 64];
        stream.read_exact(&mut theirs).unwrap();
        assert_eq!(theirs, zmtp::greeting());
        stream.write_all(&zmtp::greeting()).unwrap();
        let (flags, ready) = read_frame(&mut stream).unwrap();
        assert_eq!((flags, ready), (4, zmtp::ready(b"REQ")));
        let mut frame = vec![4, zmtp::ready(b"REP").len() as u8];
        frame.extend(zmtp::ready(b"REP"));
        stream.write_all(&frame).unwrap();
        let mut left = session.as_array().unwrap().clone();
        let mut asked = Vec::new();
        while let Ok((flags, empty)) = read_frame(&mut stream) {
            assert_eq!((flags, empty.len()), (1, 0));
            let (_, question) = read_frame(&mut stream).unwrap();
            let question: Value = serde_json::from_slice(&question).unwrap();
            let method = question["method"].clone();
            let port = question["params"].get("port_id").cloned();
            let fits = |turn: &Value| turn["method"] == method && turn.get("port").cloned() == port;
            let Some(at) = left.iter().position(fits) else {
                panic!("unexpected request {question}");
            };
            let mut answer = left.remove(at)["answer"].clone();
            answer["id"] = question["id"].clone();
            answer["jsonrpc"] = json!("2.0");
            asked.push(question);
            write_frame(&mut stream, 1, &[]);
            write_frame(&mut stream, 0, answer.to_string().as_bytes());
        }
        (asked, left.len())
    });
    (address, server)
}

fn session() -> Value {
    serde_json::from_str(SESSION).unwrap()
}

#[test]
fn a_trial_is_a_session_as_the_server_plays_it() {
    let (address, server) = serve(session());
    let mut trex = Trex::connect(&address).unwrap();
    let identity = trex.identity().unwrap();
    assert_eq!(
        (identity.name.as_str(), identity.version.as_str()),
        ("trex", "v3.08")
    );
    let result = trex.run(&trial()).unwrap();
    assert!(result.is_valid(), "{:?}", result.validity);
    assert_eq!((result.offered_frames, result.received_frames), (1000, 990));
    assert_eq!(result.loss_ratio, 0.01);
    assert_eq!(result.latency.samples, 0);
    drop(trex);
    let (asked, left) = server.join().unwrap();
    assert_eq!(left, 0, "the client ended the session early");
    // Every request except the first carries the API handle, and every request about a port carries the port's handle.
    for question in &asked[1..] {
        assert_eq!(question["params"]["api_h"], "SPhoCDIV");
    }
    let stream = asked
        .iter()
        .find(|it| it["method"] == "add_stream")
        .unwrap();
    let rate = &stream["params"]["stream"]["mode"]["rate"];
    assert_eq!(
        (rate["type"].as_str(), rate["value"].as_f64()),
        (Some("pps"), Some(5000.0))
    );
    let frame = STANDARD
        .decode(
            stream["params"]["stream"]["packet"]["binary"]
                .as_str()
                .unwrap(),
        )
        .unwrap();
    assert_eq!(frame.len(), 60);
    // Each port has its own handle. Every request about it except the first carries that handle.
    for question in &asked {
        let handle = match question["params"]["port_id"].as_u64() {
            Some(0) => "AQokC3ZA",
            Some(1) => "hO9kDb2Q",
            _ => continue,
        };
        if question["method"] != "acquire" {
            assert_eq!(question["params"]["handler"], handle, "{question}");
        }
    }
    for start in asked.iter().filter(|it| it["method"] == "start_traffic") {
        let params = &start["params"];
        assert_eq!(
            (params["force"].as_bool(), params["duration"].as_f64()),
            (Some(false), Some(0.1))
        );
        assert_eq!(
            params["mul"],
            json!({ "type": "raw", "op": "abs", "value": 1.0 })
        );
    }
}

#[test]
fn a_refused_version_and_an_unknown_one_are_reported() {
    // Messages of `TrexRpcAPIVersion::verify`: an older client, a newer client, a server in another mode.
    for what in [
        "RPC version mismatch: a newer client version is required\n(API type 'STL' - server: '6.0', client: '5.1')",
        "Version mismatch: your client version is too new to be supported by the server\n(API type 'STL' - server: '4.9', client: '5.1')",
        "RPC configuration mismatch - server RPC configuration: 'ASTF', client RPC configuration: 'STL'",
    ] {
        let refusal = json!([{ "method": "api_sync_v2", "answer": { "error": {
            "code": -32000, "message": "Failed To Execute Method", "specific_err": what,
        }}}]);
        let (address, server) = serve(refusal);
        let error = Trex::connect(&address).unwrap_err().to_string();
        assert!(error.contains(&what.replace('\n', " ")), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        server.join().unwrap();
    }

    let mut other = session();
    for turn in other.as_array_mut().unwrap() {
        if turn["method"] == "get_version" {
            turn["answer"]["result"]["version"] = json!("v9.1");
        }
    }
    let (address, server) = serve(other);
    let error = Trex::connect(&address).unwrap_err().to_string();
    assert!(error.contains("v9.1"), "{error}");
    server.join().unwrap();

    let mut taken = session();
    for turn in taken.as_array_mut().unwrap() {
        if turn["method"] == "acquire" {
            turn["answer"] = json!({ "error": {
                "code": -32000, "message": "Failed To Execute Method",
                "specific_err": "port is already taken by 'somebody'",
            }});
        }
    }
    let (address, server) = serve(taken);
    let error = Trex::connect(&address).unwrap_err().to_string();
    assert!(error.contains("already taken by 'somebody'"), "{error}");
    server.join().unwrap();
}

#[test]
fn a_port_that_may_not_send_ends_the_trial_with_what_the_server_says() {
    let mut down = session();
    for turn in down.as_array_mut().unwrap() {
        if turn["method"] == "start_traffic" {
            turn["answer"] = json!({ "error": {
                "code": -32000, "message": "Failed To Execute Method", "specific_err": "Link state is DOWN.",
            }});
        }
    }
    let (address, server) = serve(down);
    let mut trex = Trex::connect(&address).unwrap();
    let error = trex.run(&trial()).unwrap_err().to_string();
    assert!(error.contains("start_traffic was refused"), "{error}");
    assert!(error.contains("Link state is DOWN."), "{error}");
    drop(trex);
    server.join().unwrap();
}

#[test]
fn an_absent_server_and_another_server_are_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[b'x'; 64]).unwrap();
        let mut sink = Vec::new();
        drop(stream.read_to_end(&mut sink));
    });
    let error = Trex::connect(&address).unwrap_err().to_string();
    assert!(error.contains("ZMTP"), "{error}");
    other.join().unwrap();
    let error = Trex::connect(&address).unwrap_err().to_string();
    assert!(error.contains("no TRex server at"), "{error}");
}

#[test]
fn frames_have_a_sound_header() {
    for size in [64, 128, 1518] {
        let frame = frame::udp(size, 0);
        assert_eq!(frame.len(), usize::from(size) - 4);
        let sum: u32 = frame[14..34]
            .chunks_exact(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}

/// Reads any octets as a reply to `get_port_stats`.
fn fuzz_reply(octets: &[u8]) -> bool {
    let mut rest = octets;
    let Ok(answer) = zmtp::read_message(&mut rest) else {
        return false;
    };
    assert!(answer.len() < octets.len());
    let result = match result_of(&answer, "get_port_stats", 7) {
        Ok(result) => result,
        Err(error) => {
            assert!(error.to_string().contains("get_port_stats"), "{error}");
            return false;
        }
    };
    let has_handle = text(&result, "api_h").is_ok();
    let Ok(counters) = counters_of(&result) else {
        return has_handle;
    };
    planted("tester-trex", || {
        octets.first() == Some(&4) && counters.sent == 0 && counters.received > 5
    });
    true
}

#[test]
fn fuzz_replies() {
    check(env!("CARGO_MANIFEST_DIR"), "tester-trex", fuzz_reply);
}
