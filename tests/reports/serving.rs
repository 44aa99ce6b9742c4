// SPDX-License-Identifier: Apache-2.0
//! `quietwire serve`, with a store of a simulated device.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quietwire_base::testing::KillOnDrop;
use serde_json::Value;

use super::Workspace;

/// Sends a GET request and returns status and content.
fn get(address: &str, host: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, content) = response.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    (status.to_owned(), content.to_owned())
}

#[test]
fn studies_are_served_to_this_machine_only() {
    let workspace = Workspace::new();
    workspace.study("5M", "one.sqlite");
    let server = Command::new(env!("CARGO_BIN_EXE_quietwire"))
        .args(["serve", ".", "--listen", "127.0.0.1:0"])
        .args(["--control-socket", "none.sock"])
        .current_dir(workspace.path("."))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = KillOnDrop(server);
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim().strip_prefix("http://").unwrap();
    let own = |path: &str| get(address, address, path);
    let (status, list) = own("/api/studies");
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(status, "200");
    assert_eq!(list["studies"][0]["name"], "one.sqlite");
    assert_eq!(list["studies"][0]["state"], "finished");
    let (status, page) = own("/studies/one.sqlite");
    assert!(
        status == "200" && page.starts_with("<!DOCTYPE html>"),
        "{page}"
    );
    let (status, results) = own("/api/studies/one.sqlite");
    let results: Value = serde_json::from_str(&results).unwrap();
    assert_eq!(
        (status.as_str(), &results["summary"]["name"]),
        ("200", &Value::from("reported"))
    );
    let (status, metrics) = own("/metrics");
    let line = "quietwire_study_info{store=\"one.sqlite\",study=\"reported\",state=\"finished\"} 1";
    assert!(
        status == "200" && metrics.lines().any(|one| one == line),
        "{metrics}"
    );
    for (path, status) in [
        ("/", "200"),
        ("/index.js", "200"),
        ("/openapi.json", "200"),
        ("/api/switch", "503"),
        ("/studies/none.sqlite", "404"),
        ("/studies/..%2fone.sqlite", "404"),
        ("/studies/%2e%2e/one.sqlite", "404"),
        ("/study.toml", "404"),
    ] {
        assert_eq!(own(path).0, status, "{path}");
    }
    assert_eq!(get(address, "evil.example", "/api/studies").0, "403");
    kill(
        Pid::from_raw(i32::try_from(server.id()).unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
    workspace.refused(
        &["serve", "--listen", "0.0.0.0:0"],
        &["--listen", "127.0.0.1"],
    );
    workspace.refused(&["serve", "none"], &["none", "directory"]);
}
