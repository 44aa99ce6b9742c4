// SPDX-License-Identifier: Apache-2.0
//! The OpenAPI document of the server (OpenAPI Specification 3.1.0).

use quietwire_base::metrics::CONTENT_TYPE;
use serde_json::{Map, Value, json};

/// Responses that every resource has.
const ALWAYS: [(&str, &str); 4] = [
    ("400", "The request is malformed."),
    (
        "403",
        "The request is one of another origin or addresses another host.",
    ),
    ("413", "The content is too large."),
    ("431", "The header fields are too large."),
];
const BUSY: (&str, &str) = (
    "503",
    "The source of the data does not respond or cannot be read, or there are too many connections.",
);
const MISSING: (&str, &str) = ("404", "The directory has no such store.");

/// Returns the document.
pub(crate) fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "quietwire serve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Studies, a running switch and the partition of one machine. Only local clients are served.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": {
            "/": { "get": page("The first page.", &[]) },
            "/index.js": { "get": get("Script of the first page.", "text/javascript; charset=utf-8", json!({ "type": "string" }), &[]) },
            "/metrics": { "get": get("Metrics of all stores in the text format of Prometheus.", CONTENT_TYPE, json!({ "type": "string" }), &[]) },
            "/openapi.json": { "get": object("This document.", &[]) },
            "/studies/{name}": { "parameters": [name()], "get": page("The page of a study, made from its store.", &[MISSING]) },
            "/api/studies": {
                "get": data("All stores of the directory with their progress.", studies(), &[]),
                "post": start(),
            },
            "/api/studies/{name}": {
                "parameters": [name()],
                "get": object("The results of a study, as `study report --json` prints them.", &[MISSING]),
            },
            "/api/studies/{name}/progress": {
                "parameters": [name()],
                "get": data("The progress of a study.", reference("StoreEntry"), &[MISSING]),
            },
            "/api/ready-made": { "get": data("The ready-made studies.", ready_made(), &[]) },
            "/api/started": { "get": data("The study that a client has started last.", started(), &[]) },
            "/api/switch": { "get": data("A running switch: ports, load, cycles by step, drops by reason, connections.", reference("Switch"), &[]) },
            "/api/partition": { "get": data("The partition of the machine, with the checks that did not pass.", reference("Partition"), &[]) },
        },
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas(),
        },
    })
}

fn name() -> Value {
    json!({
        "name": "name",
        "in": "path",
        "required": true,
        "description": "Name of a store in the directory.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
    })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn error(text: &str) -> Value {
    json!({ "description": text, "content": { "application/json": { "schema": reference("Error") } } })
}

fn responses(success: (&str, Value), more: &[(&str, &str)]) -> Value {
    let mut all = Map::new();
    all.insert(success.0.to_owned(), success.1);
    for (code, text) in ALWAYS.iter().chain([&BUSY]).chain(more) {
        all.insert((*code).to_owned(), error(text));
    }
    Value::Object(all)
}

/// Returns an operation that reads a resource.
fn get(summary: &str, kind: &str, schema: Value, more: &[(&str, &str)]) -> Value {
    let success = json!({ "description": summary, "content": { kind: { "schema": schema } } });
    json!({ "summary": summary, "responses": responses(("200", success), more) })
}

fn page(summary: &str, more: &[(&str, &str)]) -> Value {
    get(
        summary,
        "text/html; charset=utf-8",
        json!({ "type": "string" }),
        more,
    )
}

fn data(summary: &str, schema: Value, more: &[(&str, &str)]) -> Value {
    get(summary, "application/json", schema, more)
}

fn object(summary: &str, more: &[(&str, &str)]) -> Value {
    data(summary, json!({ "type": "object" }), more)
}

fn start() -> Value {
    let summary = "Starts a ready-made study with a new store.";
    let success = json!({
        "description": "The study was started.",
        "content": { "application/json": { "schema": reference("Started") } },
    });
    let more = [
        ("401", "The token is missing or wrong."),
        ("409", "A study runs already."),
        ("415", "The content is not of the type application/json."),
    ];
    json!({
        "summary": summary,
        "security": [{ "token": [] }],
        "requestBody": {
            "required": true,
            "content": { "application/json": { "schema": reference("Start") } },
        },
        "responses": responses(("202", success), &more),
    })
}

fn studies() -> Value {
    json!({
        "type": "object",
        "required": ["studies", "not_listed"],
        "properties": {
            "studies": { "type": "array", "items": reference("StoreEntry") },
            "not_listed": { "type": "integer", "minimum": 0 },
        },
    })
}

fn ready_made() -> Value {
    let study = json!({
        "type": "object",
        "required": ["name", "title"],
        "properties": { "name": { "type": "string" }, "title": { "type": "string" } },
    });
    json!({
        "type": "object",
        "required": ["studies"],
        "properties": { "studies": { "type": "array", "items": study } },
    })
}

fn started() -> Value {
    json!({
        "type": "object",
        "required": ["started"],
        "properties": { "started": { "anyOf": [{ "type": "null" }, reference("Started")] } },
    })
}

/// Returns the schema of an object whose members are all required.
fn of_members(members: Value) -> Value {
    let required: Vec<String> = members
        .as_object()
        .map(|members| members.keys().cloned().collect())
        .unwrap_or_default();
    json!({ "type": "object", "required": required, "properties": members })
}

fn schemas() -> Value {
    let text = || json!({ "type": "string" });
    let flag = || json!({ "type": "boolean" });
    let count = || json!({ "type": "integer", "minimum": 0 });
    let share = || json!({ "type": ["number", "null"], "minimum": 0, "maximum": 1 });
    let rate = || json!({ "type": ["number", "null"], "minimum": 0 });
    let latest = of_members(json!({
        "case": text(), "frame_size": text(), "step": text(), "offered_rate_pps": { "type": "number" },
        "loss_ratio": { "type": "number" }, "is_valid": flag(), "stored_unix_ns": count(),
    }));
    let drop = of_members(json!({ "frames": count(), "pps": rate() }));
    let step = of_members(json!({ "step": text(), "share": share(), "cycles_per_frame": rate() }));
    let port = of_members(json!({
        "name": text(), "group": text(), "state": text(), "link_up": flag(), "rx_frames": count(), "tx_frames": count(),
        "rx_pps": rate(), "tx_pps": rate(), "drops": { "type": "object", "additionalProperties": drop },
    }));
    let thread = of_members(json!({
        "cpu": count(), "load": share(), "rx_pps": rate(), "tx_pps": rate(), "steps": { "type": "array", "items": step },
    }));
    let check = json!({
        "type": "object",
        "required": ["name", "verdict", "file", "expected", "actual"],
        "properties": {
            "name": text(), "verdict": text(), "file": text(), "expected": text(), "actual": text(),
            "remedy": { "type": ["string", "null"] }, "commands": { "type": "array", "items": text() },
        },
    });
    let connections = of_members(json!({
        "total": count(), "max_entries": count(), "created_per_s": rate(), "dropped_early": count(),
        "refused": { "type": "object", "additionalProperties": count() },
    }));
    json!({
        "Error": of_members(json!({ "error": text() })),
        "StoreEntry": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": text(), "error": text(), "study": text(), "title": text(), "started_unix_ns": count(),
                "state": { "enum": ["finished", "interrupted", "failed", "unfinished"] },
                "finished_steps": count(), "planned_steps": count(), "trials": count(), "invalid_trials": count(),
                "latest": { "anyOf": [{ "type": "null" }, latest] },
            },
        },
        "Start": {
            "type": "object",
            "required": ["study"],
            "additionalProperties": false,
            "properties": {
                "study": { "enum": names() },
                "is_quick": flag(),
            },
        },
        "Started": of_members(json!({
            "study": text(), "store": text(), "is_running": flag(), "exit_code": { "type": ["integer", "null"] },
            "output": { "type": ["string", "null"] },
        })),
        "Switch": of_members(json!({
            "uptime_s": { "type": "number", "minimum": 0 }, "interval_s": rate(),
            "ports": { "type": "array", "items": port }, "threads": { "type": "array", "items": thread },
            "connections": { "anyOf": [{ "type": "null" }, connections] },
            "connections_unavailable": { "type": ["string", "null"] },
        })),
        "Partition": of_members(json!({
            "is_applied": flag(), "passed": count(), "open": { "type": "array", "items": check },
        })),
    })
}

fn names() -> Vec<&'static str> {
    quietwire_study::ready_made()
        .iter()
        .map(|one| one.name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the references of a document.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                let target = members.get("$ref").and_then(Value::as_str);
                found.extend(target.map(str::to_owned));
                members
                    .values()
                    .for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_of_the_document_has_a_target_and_every_schema_a_reference() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        found.sort();
        found.dedup();
        for target in &found {
            assert!(
                document.pointer(target.trim_start_matches('#')).is_some(),
                "{target}"
            );
        }
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert_eq!(schemas.len(), found.len(), "{found:?}");
    }
}
