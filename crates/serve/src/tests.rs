// SPDX-License-Identifier: Apache-2.0
//! The server as its OpenAPI document describes it: every path responds with each documented status, type and schema.

mod schema;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use quietwire_study::simulated::SimulatedBench;
use quietwire_study::{OpenMode, Silent, Store, StudyFile, run_study};
use serde_json::Value;

use crate::openapi;
use crate::{ServeOptions, Server};

pub(crate) use schema::assert_schema;

const STUDY: &str = "name = \"s\"\ntitle = \"T\"\nrounds = 1\n[device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
     [tester]\ncpu = \"0\"\n[trials]\nduration-s = 1\nmax-rate-pps = 9_000_000\n\
     [search]\nstart-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5\n\
     goal = [{ name = \"NDR\", loss-ratio = 0.0 }]\n\
     [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n";

/// Runs a study on a simulated device.
pub(crate) fn study(path: &Path) {
    let file = StudyFile::parse(STUDY, Path::new("study.toml")).unwrap();
    let mut store = Store::open(path, &file, STUDY, OpenMode::New).unwrap();
    let mut bench = SimulatedBench::new(11, 0);
    let stop = AtomicBool::new(false);
    run_study(&file, &mut store, &mut bench, &mut Silent, &stop).unwrap();
}

/// Stops a server, also if the test fails: a scope waits for its threads.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A response.
struct Exchanged {
    code: String,
    kind: String,
    content: String,
}

/// Sends a request and returns the response.
fn exchange(address: SocketAddr, request: &str) -> Exchanged {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, content) = response.split_once("\r\n\r\n").unwrap();
    let kind = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Type: "));
    Exchanged {
        code: head.split(' ').nth(1).unwrap().to_owned(),
        kind: kind.unwrap().to_owned(),
        content: content.to_owned(),
    }
}

/// A running server, and the responses of its document that were received.
struct Documented {
    address: SocketAddr,
    document: Value,
    received: BTreeSet<(String, String, String)>,
}

impl Documented {
    /// Sends a request to a path of the document, with this name and these further header fields, and checks the response.
    fn check(&mut self, operation: (&str, &str), name: &str, fields: &str, code: &str) {
        self.check_content(operation, name, fields, "", code);
    }

    fn check_content(
        &mut self,
        (method, path): (&str, &str),
        name: &str,
        fields: &str,
        content: &str,
        code: &str,
    ) {
        let place = format!("{method} {path} {name} {fields}");
        let host = match fields.contains("Host: ") {
            true => String::new(),
            false => format!("Host: {}\r\n", self.address),
        };
        let length = match content {
            "" => String::new(),
            content => format!("Content-Length: {}\r\n", content.len()),
        };
        let target = path.replace("{name}", name);
        let upper = method.to_uppercase();
        let request = format!("{upper} {target} HTTP/1.1\r\n{host}{fields}{length}\r\n{content}");
        let response = exchange(self.address, &request);
        assert_eq!(response.code, code, "{place}: {}", response.content);
        let documented = &self.document["paths"][path][method]["responses"][code]["content"];
        let kind = documented.get(&response.kind);
        let kind = kind.unwrap_or_else(|| panic!("{place}: {code} {}", response.kind));
        let value = match response.kind.as_str() {
            "application/json" => serde_json::from_str(&response.content).unwrap(),
            _ => Value::String(response.content),
        };
        schema::check(&self.document, &kind["schema"], &value, &place).unwrap();
        let key = (path.to_owned(), method.to_owned(), code.to_owned());
        self.received.insert(key);
    }

    /// Returns the paths with their methods.
    fn operations(&self) -> Vec<(String, String)> {
        let paths = self.document["paths"].as_object().unwrap().iter();
        let all = paths.flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            let methods = methods.filter(|method| *method != "parameters");
            methods.map(move |method| (method.clone(), path.clone()))
        });
        all.collect()
    }

    /// Returns the documented responses that were not received.
    fn missing(&self) -> Vec<(String, String, String)> {
        let all = self.operations().into_iter().flat_map(|(method, path)| {
            let responses = &self.document["paths"][&path][&method]["responses"];
            let codes = responses.as_object().unwrap().keys();
            let keys = codes.map(|code| (path.clone(), method.clone(), code.clone()));
            keys.collect::<Vec<_>>()
        });
        all.filter(|key| !self.received.contains(key)).collect()
    }
}

const TOKEN: &str = "0123456789abcdef";

/// Checks the responses of every operation to requests that are refused.
fn check_refusals(server: &mut Documented) {
    let large = format!("A: {}\r\n", "a".repeat(9000));
    for (method, path) in server.operations() {
        let operation = (method.as_str(), path.as_str());
        for (fields, code) in [
            ("Host: a\r\nHost: b\r\n", "400"),
            ("Host: evil.example\r\n", "403"),
            ("Content-Length: 5000\r\n", "413"),
            (large.as_str(), "431"),
        ] {
            server.check(operation, "a.sqlite", fields, code);
        }
    }
}

/// Checks the responses to requests to start a study.
fn check_starts(server: &mut Documented) {
    let start = ("post", "/api/studies");
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let fields = format!("{token}Content-Type: application/json\r\n");
    let study = r#"{"study": "density", "is_quick": true}"#;
    server.check_content(
        start,
        "",
        "Content-Type: application/json\r\n",
        study,
        "401",
    );
    server.check_content(start, "", &token, study, "415");
    server.check_content(start, "", &fields, r#"{"study": "none"}"#, "400");
    server.check_content(start, "", &fields, study, "202");
    server.check_content(start, "", &fields, study, "409");
}

#[test]
fn every_path_responds_with_each_documented_status_type_and_schema() {
    let directory = tempfile::tempdir().unwrap();
    let stores = directory.path().join("stores");
    fs::create_dir(&stores).unwrap();
    study(&stores.join("a.sqlite"));
    // A study that runs until it is ended.
    let program = directory.path().join("program");
    fs::write(
        &program,
        "#!/bin/sh\ntrap 'exit 3' TERM\nwhile :; do sleep 0.01; done\n",
    )
    .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::listen(ServeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        directory: stores,
        token: Some(TOKEN.to_owned()),
        program,
        control_socket: directory.path().join("none.sock"),
        partition_state: directory.path().to_owned(),
    })
    .unwrap();
    let mut documented = Documented {
        address: server.address(),
        document: openapi::document(),
        received: BTreeSet::new(),
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| server.serve(&stop));
        check_refusals(&mut documented);
        for (method, path) in documented.operations() {
            let operation = (method.as_str(), path.as_str());
            if path.contains("{name}") {
                documented.check(operation, "none.sqlite", "", "404");
            }
            // No switch runs.
            let code = if path == "/api/switch" { "503" } else { "200" };
            if method == "get" {
                documented.check(operation, "a.sqlite", "", code);
            }
        }
        check_starts(&mut documented);
        documented.check(("get", "/api/started"), "", "", "200");
    });
    // All others of 503 are those of too many connections and of stores that cannot be read.
    let mut missing = documented.missing();
    missing.retain(|(path, _, code)| code != "503" && (path != "/api/switch" || code != "200"));
    assert!(missing.is_empty(), "{missing:?}");
}
