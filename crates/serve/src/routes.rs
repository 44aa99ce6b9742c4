// SPDX-License-Identifier: Apache-2.0
//! Resources and their responses.

use std::net::SocketAddr;
use std::path::Path;

use quietwire_report::Report;
use quietwire_study::ready_made;
use serde_json::json;

use crate::access;
use crate::http::{Request, Response, Status};
use crate::index;
use crate::metrics;
use crate::openapi;
use crate::options::ServeOptions;
use crate::partition::PartitionReader;
use crate::started::{StartError, StartRequest, Starter};
use crate::stores::Stores;
use crate::switch::SwitchSampler;

/// Data of the resources.
#[derive(Debug)]
pub(crate) struct Views {
    address: SocketAddr,
    token: Option<String>,
    stores: Stores,
    starter: Starter,
    switch: SwitchSampler,
    partition: PartitionReader,
}

/// Methods of resources that are only read.
const READ: &str = "GET, HEAD";
/// Methods of the list of studies.
const READ_AND_START: &str = "GET, HEAD, POST";

impl Views {
    pub(crate) fn new(options: ServeOptions, address: SocketAddr) -> Self {
        Self {
            address,
            token: options.token,
            stores: Stores::new(options.directory),
            starter: Starter::new(options.program),
            switch: SwitchSampler::new(options.control_socket),
            partition: PartitionReader::new(Path::new("/"), options.partition_state),
        }
    }

    /// Ends the study that a client has started.
    pub(crate) fn end(&self) {
        self.starter.end();
    }

    /// Returns the response to a request.
    pub(crate) fn respond(&self, request: &Request) -> Response {
        if let Err(refused) = access::check(request, self.address) {
            return refused;
        }
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
        match path[..] {
            ["api", "studies"] if request.method == "POST" => self.start(request),
            ["api", "studies"] if !is_read => Response::only(READ_AND_START),
            _ => match self.resource(&path) {
                Some(read) if is_read => read(),
                Some(_) => Response::only(READ),
                None => Response::error(Status::NotFound, "there is no such resource"),
            },
        }
    }

    /// Returns the function that reads a resource; none if there is no such resource.
    fn resource<'a>(&'a self, path: &[&'a str]) -> Option<Box<dyn FnOnce() -> Response + 'a>> {
        let read: Box<dyn FnOnce() -> Response + 'a> = match *path {
            [""] => Box::new(|| Response::page(index::page())),
            ["index.js"] => Box::new(|| Response::script(index::SCRIPT)),
            ["metrics"] => Box::new(move || match self.stores.list() {
                Ok(list) => Response::metrics(metrics::exposition(&list)),
                Err(reason) => Response::error(Status::Busy, &reason),
            }),
            ["openapi.json"] => Box::new(|| Response::json(Status::Ok, &openapi::document())),
            ["studies", name] => Box::new(move || {
                found(
                    self.stores
                        .report(name, |report| Response::page(report.html())),
                )
            }),
            ["api", "studies"] => Box::new(move || match self.stores.list() {
                Ok(list) => Response::json(Status::Ok, &list),
                Err(reason) => Response::error(Status::Busy, &reason),
            }),
            ["api", "studies", name] => Box::new(move || {
                let document = |report: &Report<'_>| Response::json(Status::Ok, &report.json());
                found(self.stores.report(name, document))
            }),
            ["api", "studies", name, "progress"] => Box::new(move || match self.stores.one(name) {
                Some(entry) => Response::json(Status::Ok, &entry),
                None => not_found(),
            }),
            ["api", "ready-made"] => Box::new(ready_list),
            ["api", "started"] => Box::new(move || {
                Response::json(Status::Ok, &json!({ "started": self.starter.state() }))
            }),
            ["api", "switch"] => Box::new(move || match self.switch.view() {
                Ok(view) => Response::json(Status::Ok, &view),
                Err(reason) => Response::error(Status::Busy, &reason),
            }),
            ["api", "partition"] => Box::new(move || match self.partition.view() {
                Ok(view) => Response::json(Status::Ok, &view),
                Err(reason) => Response::error(Status::Busy, &reason),
            }),
            _ => return None,
        };
        Some(read)
    }

    fn start(&self, request: &Request) -> Response {
        if let Err(refused) = access::check_token(request, self.token.as_deref()) {
            return refused;
        }
        let kind = request.content_type.as_deref().unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let reason = "the content must be of the type application/json";
            return Response::error(Status::UnsupportedMediaType, reason);
        }
        let start: StartRequest = match serde_json::from_slice(&request.content) {
            Ok(start) => start,
            Err(error) => return Response::error(Status::BadRequest, &error.to_string()),
        };
        match self.starter.start(&start, self.stores.directory()) {
            Ok(state) => Response::json(Status::Accepted, &state),
            Err(StartError::Unknown) => {
                let reason = "there is no such ready-made study (see /api/ready-made)";
                Response::error(Status::BadRequest, reason)
            }
            Err(StartError::Running) => {
                let reason = "a study runs already (see /api/started)";
                Response::error(Status::Conflict, reason)
            }
            Err(StartError::Failed(reason)) => Response::error(Status::Busy, &reason),
        }
    }
}

fn not_found() -> Response {
    Response::error(Status::NotFound, "the directory has no such store")
}

/// Returns the response of a store; an error if there is no such store, or it cannot be read.
fn found(response: Option<Result<Response, String>>) -> Response {
    match response {
        Some(Ok(response)) => response,
        Some(Err(reason)) => Response::error(Status::Busy, &reason),
        None => not_found(),
    }
}

fn ready_list() -> Response {
    let studies = ready_made().iter().map(|one| {
        let title = one.file().map(|file| file.title);
        json!({ "name": one.name, "title": title.unwrap_or_default() })
    });
    let studies: Vec<_> = studies.collect();
    Response::json(Status::Ok, &json!({ "studies": studies }))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const ADDRESS: &str = "127.0.0.1:8080";

    fn views(directory: &Path, token: Option<&str>) -> Views {
        let options = ServeOptions {
            listen: ADDRESS.parse().unwrap(),
            directory: directory.to_owned(),
            token: token.map(str::to_owned),
            program: "/nonexistent/quietwire".into(),
            control_socket: "/nonexistent/switch.sock".into(),
            partition_state: directory.to_owned(),
        };
        Views::new(options, ADDRESS.parse().unwrap())
    }

    fn request(method: &str, path: &str) -> Request {
        Request {
            method: method.to_owned(),
            path: path.split('/').skip(1).map(str::to_owned).collect(),
            host: Some(ADDRESS.to_owned()),
            ..Request::default()
        }
    }

    fn content(response: &Response) -> Value {
        let octets = response.octets(false);
        let text = String::from_utf8(octets).unwrap();
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    #[test]
    fn every_resource_responds_as_documented() {
        let directory = tempfile::tempdir().unwrap();
        let views = views(directory.path(), Some("0123456789abcdef"));
        let document = openapi::document();
        let paths = document["paths"].as_object().unwrap();
        assert!(paths.len() > 8);
        for (path, operations) in paths {
            let path = path.replace("{name}", "none.sqlite");
            let operations = operations.as_object().unwrap().iter();
            for (method, operation) in operations.filter(|(key, _)| *key != "parameters") {
                let response = views.respond(&request(&method.to_uppercase(), &path));
                let responses = operation["responses"].as_object().unwrap();
                let code = &response.status.line()[..3];
                assert!(responses.contains_key(code), "{method} {path}: {code}");
                for always in ["400", "403", "431"] {
                    assert!(responses.contains_key(always), "{method} {path}: {always}");
                }
            }
            let other = views.respond(&request("DELETE", &path));
            assert_eq!(other.status, Status::MethodNotAllowed, "{path}");
        }
        for path in ["/none", "/api", "/api/studies/", "/api/studies/a/b/c", "//"] {
            assert_eq!(
                views.respond(&request("GET", path)).status,
                Status::NotFound,
                "{path}"
            );
        }
        let elsewhere = Request {
            host: Some("evil.example".to_owned()),
            ..request("GET", "/")
        };
        assert_eq!(views.respond(&elsewhere).status, Status::Forbidden);
        let list = content(&views.respond(&request("GET", "/api/studies")));
        assert_eq!(list, json!({ "studies": [], "not_listed": 0 }));
        let ready = content(&views.respond(&request("GET", "/api/ready-made")));
        assert!(ready["studies"].as_array().unwrap().len() > 10);
    }

    #[test]
    fn a_study_is_started_with_the_token_and_a_sound_request_only() {
        let directory = tempfile::tempdir().unwrap();
        let token = "0123456789abcdef";
        let start = |views: &Views, change: &dyn Fn(&mut Request)| {
            let mut request = Request {
                authorization: Some(format!("Bearer {token}")),
                content_type: Some("application/json; charset=utf-8".to_owned()),
                content: br#"{"study": "noisy-neighbours", "is_quick": true}"#.to_vec(),
                ..request("POST", "/api/studies")
            };
            change(&mut request);
            views.respond(&request).status
        };
        let with_token = views(directory.path(), Some(token));
        // The program does not exist.
        assert_eq!(start(&with_token, &|_| ()), Status::Busy);
        assert_eq!(
            start(&views(directory.path(), None), &|_| ()),
            Status::Forbidden
        );
        assert_eq!(
            start(&with_token, &|it| it.authorization = None),
            Status::Unauthorized
        );
        assert_eq!(
            start(&with_token, &|it| it.content_type = None),
            Status::UnsupportedMediaType
        );
        for wrong in [
            "",
            "{}",
            r#"{"study": "/etc/passwd"}"#,
            r#"{"study": "density", "store": "/a"}"#,
        ] {
            let status = start(&with_token, &|it| it.content = wrong.as_bytes().to_vec());
            assert_eq!(status, Status::BadRequest, "{wrong}");
        }
        let state = content(&with_token.respond(&request("GET", "/api/started")));
        assert_eq!(state["started"], Value::Null);
    }
}
