// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use quietwire_host::partition::{CpuRequest, PartitionRequest, SiblingPolicy};
use quietwire_switch::config::{PORT_NAME_MAX, is_port_name};
use serde_json::{Value, json};

use super::*;

#[test]
fn the_printed_definitions_are_those_of_the_package() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/base/crds.yaml");
    let packaged = fs::read_to_string(&path).unwrap();
    assert!(
        packaged == to_yaml().unwrap(),
        "packaging/kubernetes/base/crds.yaml is old (run: quietwire cluster crds > packaging/kubernetes/base/crds.yaml)"
    );
}

#[test]
fn definitions_have_names_versions_and_a_status_of_their_own() {
    for (definition, plural, is_namespaced, has_status) in [
        (&definitions()[0], "nodepartitions", false, true),
        (&definitions()[1], "dataplanes", false, true),
        (&definitions()[2], "nodereports", false, false),
        (&definitions()[3], "networks", true, true),
        (&definitions()[4], "addresses", true, false),
    ] {
        assert_eq!(
            definition.metadata.name.as_deref(),
            Some(&*format!("{plural}.{GROUP}"))
        );
        let spec = &definition.spec;
        assert_eq!(
            spec.scope,
            if is_namespaced {
                "Namespaced"
            } else {
                "Cluster"
            }
        );
        assert_eq!(spec.versions.len(), 1);
        let version = &spec.versions[0];
        assert_eq!(version.name, "v1alpha1");
        let subresources = version.subresources.as_ref();
        let status = subresources.and_then(|it| it.status.as_ref());
        assert_eq!(status.is_some(), has_status, "{plural}");
    }
}

/// Calls `visit` with every schema of a definition and its path.
fn schemas(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        schemas(child, &format!("{path}.{name}"), visit);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            schemas(&schema[key], &format!("{path}[]"), visit);
        }
    }
}

fn all_schemas(visit: &mut dyn FnMut(&str, &Value)) {
    for definition in definitions() {
        let definition = serde_json::to_value(definition).unwrap();
        let kind = definition["spec"]["names"]["kind"]
            .as_str()
            .unwrap()
            .to_owned();
        schemas(
            &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            &kind,
            visit,
        );
    }
}

#[test]
fn schemas_are_structural() {
    all_schemas(&mut |path, schema| {
        let is_number_or_text = schema["x-kubernetes-int-or-string"] == json!(true);
        assert!(
            schema["type"].is_string() || is_number_or_text,
            "{path}: {schema}"
        );
        for key in ["$ref", "oneOf", "anyOf", "allOf", "not", "definitions"] {
            assert!(schema.get(key).is_none(), "{path} has {key}");
        }
        if schema["x-kubernetes-list-type"] == "map" {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().unwrap();
            let required = schema["items"]["required"].as_array().unwrap();
            assert!(keys.iter().all(|key| required.contains(key)), "{path}");
        }
    });
}

/// The API server estimates the cost of a rule from the bounds of lists and texts, and refuses rules that may take too long.
#[test]
fn lists_and_texts_of_specifications_are_bounded() {
    let mut unbounded = BTreeSet::new();
    all_schemas(&mut |path, schema| {
        if !path.contains(".spec") {
            return;
        }
        let bound = match schema["type"].as_str() {
            Some("array") => "maxItems",
            Some("string") if schema["enum"].is_null() => "maxLength",
            Some("object") if schema["additionalProperties"].is_object() => "maxProperties",
            _ => return,
        };
        if schema[bound].is_null() {
            unbounded.insert(path.to_owned());
        }
    });
    // The API server bounds the values of labels.
    let values: BTreeSet<String> = ["NodePartition", "DataPlane"]
        .map(|kind| format!("{kind}.spec.nodeSelector[]"))
        .into();
    assert_eq!(unbounded, values);
}

#[test]
fn ports_have_the_names_that_the_switch_accepts() {
    let mut checked = 0;
    all_schemas(&mut |path, schema| {
        if path == "DataPlane.spec.ports[].name" {
            assert_eq!(schema["maxLength"], json!(PORT_NAME_MAX));
            assert_eq!(schema["pattern"], "^[A-Za-z0-9_.-]+$");
            checked += 1;
        }
    });
    assert_eq!(checked, 1);
    let is_of_pattern = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    for letter in '\0'..='\u{ff}' {
        let name = letter.to_string();
        assert_eq!(is_port_name(&name), is_of_pattern(letter), "{name:?}");
    }
}

#[test]
fn every_validation_rule_has_a_message() {
    let mut rules = 0;
    all_schemas(&mut |path, schema| {
        for rule in schema["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            rules += 1;
            assert!(
                rule["rule"].is_string() && rule["message"].is_string(),
                "{path}: {rule}"
            );
        }
    });
    assert_eq!(rules, 40);
}

#[test]
fn a_request_of_a_resource_is_that_of_partition_toml() {
    let spec: NodePartitionSpec = serde_json::from_value(json!({
        "nodeSelector": { "role": "edge" },
        "request": {
            "host": { "cpus": 2, "cachePercent": 20 },
            "service": {},
            "forwarding": { "cpus": "4-5", "siblings": "forward", "memoryMib": 512 },
            "guests": [{ "name": "db", "cpus": 2, "memoryMib": 1024 }],
            "neighbours": [{ "name": "batch", "cpus": "7" }],
            "nics": [{ "pci": "0000:17:00.0", "queues": 2 }],
            "machine": { "bootIsolation": false },
        },
    }))
    .unwrap();
    let request = spec.request.to_request().unwrap();
    let text = "[host]\ncpus = 2\ncache-percent = 20\n[service]\n[forwarding]\ncpus = \"4-5\"\nsiblings = \"forward\"\nmemory-mib = 512\n\
        [[guest]]\nname = \"db\"\ncpus = 2\nmemory-mib = 1024\n[[neighbour]]\nname = \"batch\"\ncpus = \"7\"\n\
        [[nic]]\npci = \"0000:17:00.0\"\nqueues = 2\n[machine]\nboot-isolation = false\n";
    assert_eq!(request, PartitionRequest::parse(text).unwrap());
    assert_eq!(request.forwarding.siblings, SiblingPolicy::Forward);
    assert_eq!(request.host.cpus, Some(CpuRequest::Count(2)));
    assert_eq!(spec.rollout.failure_domain, "topology.kubernetes.io/zone");
    let bad = Request {
        forwarding: Some(Forwarding {
            cpus: Some(Cpus::List("5-4".to_owned())),
            ..Forwarding::default()
        }),
        ..Request::default()
    };
    let error = bad.to_request().unwrap_err().to_string();
    assert!(
        error.starts_with("request.forwarding.cpus: '5-4'"),
        "{error}"
    );
}

/// Objects that an earlier version wrote have states of all nodes in their status, and may have fields that this version does not have.
#[test]
fn stored_objects_of_earlier_versions_are_read() {
    let partition = json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": "NodePartition",
        "metadata": { "name": "edge", "uid": "u1", "generation": 2 },
        "spec": { "nodeSelector": { "role": "edge" }, "former": { "field": [1] } },
        "status": { "nodes": [{ "node": "n1", "phase": "verified", "observedGeneration": 2 }] },
    });
    let partition: NodePartition = serde_json::from_value(partition).unwrap();
    assert_eq!(partition.status, Some(NodePartitionStatus::default()));
    assert_eq!(partition.spec.rollout, Rollout::default());
    let plane = json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": "DataPlane",
        "metadata": { "name": "edge", "uid": "u2", "generation": 2 },
        "spec": { "nodeSelector": { "role": "edge" } },
        "status": { "nodes": [{ "node": "n1", "rejected": [{ "object": "port a", "message": "no" }] }] },
    });
    let plane: DataPlane = serde_json::from_value(plane).unwrap();
    assert_eq!(plane.status, Some(DataPlaneStatus::default()));
    // A report of an earlier agent lacks fields that have defaults.
    let report = json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": "NodeReport", "metadata": { "name": "n1" },
        "spec": { "partitions": [{ "partition": "edge", "phase": "planned" }], "former": 1 },
    });
    let report: NodeReport = serde_json::from_value(report).unwrap();
    assert_eq!(report.spec.partitions[0].phase, Phase::Planned);
}

#[test]
fn a_selector_selects_nodes_with_all_its_labels() {
    let spec = |selector: Value| -> NodePartitionSpec {
        serde_json::from_value(json!({ "nodeSelector": selector })).unwrap()
    };
    let labels = [
        ("a".to_owned(), "1".to_owned()),
        ("b".to_owned(), "2".to_owned()),
    ]
    .into();
    assert!(spec(json!({ "a": "1" })).selects(&labels));
    assert!(spec(json!({ "a": "1", "b": "2" })).selects(&labels));
    assert!(!spec(json!({ "a": "2" })).selects(&labels));
    assert!(!spec(json!({ "c": "1" })).selects(&labels));
    assert!(!spec(json!({})).selects(&labels));
}

#[test]
fn resources_in_the_guide_have_known_keys() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/kubernetes.md");
    let guide = fs::read_to_string(guide).unwrap();
    let blocks = guide.split("\n```yaml\n").skip(1);
    let mut kinds = Vec::new();
    for block in blocks.map(|block| block.split("\n```").next().unwrap()) {
        let shown: Value = serde_saphyr::from_str(block).unwrap();
        let read: Value = match shown["kind"].as_str() {
            Some("NodePartition") => {
                let read: NodePartition = serde_json::from_value(shown.clone()).unwrap();
                serde_json::to_value(read).unwrap()
            }
            Some("DataPlane") => {
                let read: DataPlane = serde_json::from_value(shown.clone()).unwrap();
                serde_json::to_value(read).unwrap()
            }
            Some("Network") => {
                let read: Network = serde_json::from_value(shown.clone()).unwrap();
                serde_json::to_value(read).unwrap()
            }
            _ => continue,
        };
        kinds.push(shown["kind"].clone());
        let unknown = missing(&shown["spec"], &read["spec"], "spec");
        assert!(unknown.is_empty(), "{unknown:?}");
    }
    assert_eq!(kinds, ["NodePartition", "DataPlane", "Network"]);
}

/// Reads an object as its type has it.
fn read<T: serde::de::DeserializeOwned + serde::Serialize>(shown: &Value) -> Value {
    let read: T = serde_json::from_value(shown.clone()).unwrap();
    serde_json::to_value(read).unwrap()
}

#[test]
fn examples_of_the_package_have_known_keys_and_resources() {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/examples");
    let mut kinds = BTreeSet::new();
    let mut resources = BTreeSet::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for shown in documents.iter().filter(|document| !document.is_null()) {
            let kind = shown["kind"].as_str().unwrap();
            kinds.insert(kind.to_owned());
            let known = match kind {
                "DataPlane" => read::<DataPlane>(shown),
                "Network" => read::<Network>(shown),
                "Pod" => read::<Pod>(shown),
                other => panic!("{other}"),
            };
            let unknown = missing(&shown["spec"], &known["spec"], "spec");
            assert!(unknown.is_empty(), "{}: {unknown:?}", path.display());
            for container in shown["spec"]["containers"].as_array().into_iter().flatten() {
                let limits = container["resources"]["limits"].as_object();
                let names = limits.into_iter().flat_map(|limits| limits.keys());
                let names = names.filter_map(|name| name.strip_prefix("quietwire.io/"));
                for name in names {
                    let variable = format!("$QUIETWIRE_{}", name.to_uppercase());
                    assert!(text.contains(&variable), "{}: {variable}", path.display());
                    resources.insert(name.to_owned());
                }
            }
        }
    }
    let all = ["DataPlane", "Network", "Pod"];
    assert_eq!(kinds, all.map(str::to_owned).into());
    assert_eq!(resources, BTreeSet::from(["memif".to_owned()]));
}

/// Returns a value of a schema with all its fields. With `with_unknown`, its objects have a field that the schema lacks.
fn complete(schema: &Value, with_unknown: bool) -> Value {
    if schema["x-kubernetes-int-or-string"] == json!(true) {
        return json!(2);
    }
    let mut choices = schema["enum"].as_array().into_iter().flatten();
    if let Some(choice) = choices.find(|choice| !choice.is_null()) {
        return choice.clone();
    }
    match schema["type"].as_str() {
        Some("object") if schema["additionalProperties"].is_object() => {
            json!({ "key": complete(&schema["additionalProperties"], with_unknown) })
        }
        Some("object") => {
            let mut object = json!({});
            for (name, child) in schema["properties"].as_object().into_iter().flatten() {
                object[name] = complete(child, with_unknown);
            }
            if with_unknown {
                object["later"] = json!({ "field": [1] });
            }
            object
        }
        Some("array") => json!([complete(&schema["items"], with_unknown)]),
        Some("boolean") => json!(true),
        Some("integer" | "number") => json!(1),
        Some("string") => json!("text"),
        other => panic!("{other:?}: {schema}"),
    }
}

/// A later version may add optional fields: this one reads its objects, and loses none of the fields that it knows itself.
#[test]
fn objects_of_a_later_version_are_read_and_known_fields_survive() {
    for definition in definitions() {
        let spec = &definition.spec;
        let kind = spec.names.kind.as_str();
        let version = &spec.versions[0];
        // The strategy is None: versions differ in optional fields only, and each has those of all.
        assert!(spec.conversion.is_none() && version.storage && version.served);
        assert_eq!(spec.preserve_unknown_fields, None);
        let schema = serde_json::to_value(version.schema.as_ref().unwrap()).unwrap();
        let parts = &schema["openAPIV3Schema"]["properties"];
        let object = |with_unknown: bool| {
            let mut object = json!({
                "apiVersion": "quietwire.io/v1alpha1", "kind": kind, "metadata": { "name": "it" },
            });
            for part in ["spec", "status"] {
                if parts[part].is_object() {
                    object[part] = complete(&parts[part], with_unknown);
                }
            }
            object
        };
        let (known, later) = (object(false), object(true));
        let read = match kind {
            "NodePartition" => read::<NodePartition>(&later),
            "DataPlane" => read::<DataPlane>(&later),
            "NodeReport" => read::<NodeReport>(&later),
            "Network" => read::<Network>(&later),
            "Address" => read::<Address>(&later),
            other => panic!("{other}"),
        };
        let lost = missing(&known, &read, kind);
        assert!(lost.is_empty(), "{lost:?}");
    }
}

/// Returns the paths of values that were lost or changed.
fn missing(shown: &Value, read: &Value, path: &str) -> Vec<String> {
    match shown {
        Value::Object(all) => {
            let fields = all.iter();
            fields
                .flat_map(|(key, value)| missing(value, &read[key], &format!("{path}.{key}")))
                .collect()
        }
        Value::Array(all) => {
            let items = all.iter().enumerate();
            items
                .flat_map(|(index, value)| {
                    missing(value, &read[index], &format!("{path}[{index}]"))
                })
                .collect()
        }
        value if value == read => Vec::new(),
        _ => vec![path.to_owned()],
    }
}
