// SPDX-License-Identifier: Apache-2.0
//! Requests for devices in the first container of a pod, as a JSON patch (RFC 6902).

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Fields of `resources` that have a device plugin's resource, with the same quantity.
const FIELDS: [&str; 2] = ["limits", "requests"];

/// Returns the patch that gives a pod the wanted number of each resource; `None` if its containers request them already. The first
/// container gets what is missing.
pub(super) fn patch(pod: &Value, wanted: &BTreeMap<String, u64>) -> Option<Value> {
    let containers = pod.pointer("/spec/containers")?.as_array()?;
    let first = containers.first()?;
    let resources = first.get("resources").and_then(Value::as_object);
    let mut resources = resources.cloned().unwrap_or_default();
    let mut is_changed = false;
    for (name, wanted) in wanted {
        // A quantity that is no plain number is the user's own decision.
        let Some(requested) = requested(containers, name) else {
            continue;
        };
        let missing = wanted.saturating_sub(requested);
        if missing == 0 {
            continue;
        }
        let own = requested_by(first, name).unwrap_or_default();
        for field in FIELDS {
            let quantity = json!(own.saturating_add(missing).to_string());
            match resources.entry(field).or_insert(Value::Null) {
                Value::Object(quantities) => {
                    quantities.insert(name.clone(), quantity);
                }
                other => *other = json!({ name: quantity }),
            }
        }
        is_changed = true;
    }
    // `add` replaces a value that exists (RFC 6902, section 4.1).
    is_changed.then(
        || json!([{ "op": "add", "path": "/spec/containers/0/resources", "value": resources }]),
    )
}

/// Returns the number of a resource that all containers request; `None` if a quantity is no plain number.
fn requested(containers: &[Value], name: &str) -> Option<u64> {
    containers.iter().try_fold(0_u64, |sum, container| {
        Some(sum.saturating_add(requested_by(container, name)?))
    })
}

/// Returns the number of a resource that a container requests; 0 without a request.
fn requested_by(container: &Value, name: &str) -> Option<u64> {
    let resources = container.get("resources");
    let quantities = FIELDS.map(|field| resources?.get(field)?.get(name));
    let mut number = 0_u64;
    for quantity in quantities {
        number = number.max(match quantity {
            None | Some(Value::Null) => 0,
            Some(Value::String(text)) => text.parse().ok()?,
            Some(other) => other.as_u64()?,
        });
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMIF: &str = "quietwire.io/memif";

    fn wanted(number: u64) -> BTreeMap<String, u64> {
        BTreeMap::from([(MEMIF.to_owned(), number)])
    }

    fn pod(containers: Value) -> Value {
        json!({ "metadata": { "name": "a" }, "spec": { "containers": containers } })
    }

    /// Applies the patch, which has one operation.
    fn patched(pod: &Value, wanted: &BTreeMap<String, u64>) -> Value {
        let patch = patch(pod, wanted).unwrap();
        assert_eq!(patch.as_array().unwrap().len(), 1);
        assert_eq!(patch[0]["op"], "add");
        let mut patched = pod.clone();
        assert_eq!(patch[0]["path"], "/spec/containers/0/resources");
        patched["spec"]["containers"][0]["resources"] = patch[0]["value"].clone();
        patched
    }

    #[test]
    fn the_first_container_gets_the_request_and_keeps_its_others() {
        let cpu = json!({ "limits": { "cpu": "2" } });
        let before = pod(json!([{ "name": "a", "resources": cpu }, { "name": "b" }]));
        let after = patched(&before, &wanted(2));
        let resources = &after["spec"]["containers"][0]["resources"];
        let expected = json!({ "limits": { "cpu": "2", MEMIF: "2" }, "requests": { MEMIF: "2" } });
        assert_eq!(resources, &expected);
        assert_eq!(after["spec"]["containers"][1], json!({ "name": "b" }));
        // A pod is admitted again when another webhook has changed it.
        assert_eq!(patch(&after, &wanted(2)), None);
    }

    #[test]
    fn requests_of_the_user_count() {
        let with = |quantity: Value| json!({ "name": "x", "resources": { "limits": { MEMIF: quantity } } });
        let enough = pod(json!([{ "name": "a" }, with(json!("2"))]));
        assert_eq!(patch(&enough, &wanted(2)), None);
        let own = pod(json!([{ "name": "a" }, with(json!(1))]));
        let after = patched(&own, &wanted(2));
        let limits = &after["spec"]["containers"][0]["resources"]["limits"];
        assert_eq!(limits, &json!({ MEMIF: "1" }));
        let first = pod(json!([with(json!("1"))]));
        let after = patched(&first, &wanted(3));
        let resources = &after["spec"]["containers"][0]["resources"];
        assert_eq!(resources["limits"][MEMIF], "3");
        assert_eq!(resources["requests"][MEMIF], "3");
        // No plain number.
        assert_eq!(patch(&pod(json!([with(json!("1k"))])), &wanted(2)), None);
    }

    #[test]
    fn pods_of_any_form_are_no_problem() {
        for pod in [
            json!(null),
            json!({ "spec": { "containers": [] } }),
            json!({ "spec": { "containers": 7 } }),
        ] {
            assert_eq!(patch(&pod, &wanted(1)), None);
        }
        let odd = pod(json!([{ "resources": { "limits": 7, "requests": null } }]));
        assert!(patch(&odd, &wanted(1)).is_some());
        assert_eq!(patch(&pod(json!([{}])), &BTreeMap::new()), None);
    }
}
