// SPDX-License-Identifier: Apache-2.0
//! Checks documents against the schemas of the OpenAPI document: JSON Schema (2020-12) with the keywords that the document uses. Members that
//! a schema does not name are refused, unless it describes the others.

use serde::Serialize;
use serde_json::Value;

use crate::openapi;

/// Asserts that a value, as JSON, satisfies a schema of the document and has no further members.
pub(crate) fn assert_schema(name: &str, value: &impl Serialize) {
    let document = openapi::document();
    let schema = &document["components"]["schemas"][name];
    let value = serde_json::to_value(value).unwrap();
    check(&document, schema, &value, name).unwrap();
}

/// Returns the place and the keyword that a value does not satisfy.
pub(super) fn check(
    document: &Value,
    schema: &Value,
    value: &Value,
    place: &str,
) -> Result<(), String> {
    for (keyword, rule) in schema.as_object().unwrap() {
        let is_met = match keyword.as_str() {
            "$ref" => {
                let target = rule.as_str().unwrap().trim_start_matches('#');
                check(document, document.pointer(target).unwrap(), value, place)?;
                true
            }
            "type" => types(rule).any(|one| is_of_type(value, one)),
            "enum" => rule.as_array().unwrap().contains(value),
            "anyOf" => {
                let mut all = rule.as_array().unwrap().iter();
                all.any(|one| check(document, one, value, place).is_ok())
            }
            "minimum" => value.as_f64().is_none_or(|it| it >= number(rule)),
            "maximum" => value.as_f64().is_none_or(|it| it <= number(rule)),
            "minLength" => length(value).is_none_or(|it| it >= number(rule)),
            "maxLength" => length(value).is_none_or(|it| it <= number(rule)),
            "required" => {
                let mut names = rule.as_array().unwrap().iter();
                let has = |name: &Value| value.get(name.as_str().unwrap()).is_some();
                !value.is_object() || names.all(has)
            }
            "properties" => {
                for (name, of) in rule.as_object().unwrap() {
                    if let Some(member) = value.get(name) {
                        check(document, of, member, &format!("{place}.{name}"))?;
                    }
                }
                let others = schema.get("additionalProperties");
                let is_known = |name: &String| rule.get(name).is_some();
                others.is_some() || members(value).all(|(name, _)| is_known(name))
            }
            "additionalProperties" => {
                let named = schema.get("properties");
                let is_named = |name: &String| named.is_some_and(|named| named.get(name).is_some());
                for (name, member) in members(value).filter(|(name, _)| !is_named(name)) {
                    if rule.is_object() {
                        check(document, rule, member, &format!("{place}.{name}"))?;
                    }
                }
                *rule != Value::Bool(false) || members(value).all(|(name, _)| is_named(name))
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(document, rule, item, &format!("{place}[{index}]"))?;
                }
                true
            }
            other => panic!("{place}: the keyword {other} is not checked"),
        };
        if !is_met {
            return Err(format!(
                "{place}: {value} does not satisfy {keyword} {rule}"
            ));
        }
    }
    Ok(())
}

fn types(rule: &Value) -> impl Iterator<Item = &str> {
    let one = rule.as_str();
    let many = rule.as_array().into_iter().flatten();
    one.into_iter().chain(many.filter_map(Value::as_str))
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => panic!("no type has the name {other}"),
    }
}

fn number(rule: &Value) -> f64 {
    rule.as_f64().unwrap()
}

fn length(value: &Value) -> Option<f64> {
    value.as_str().map(|text| text.chars().count() as f64)
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

#[test]
fn values_that_differ_from_a_schema_are_found() {
    let document = openapi::document();
    let entry = &document["components"]["schemas"]["StoreEntry"];
    let is_entry = |text: &str| {
        let value = serde_json::from_str(text).unwrap();
        check(&document, entry, &value, "entry").is_ok()
    };
    assert!(is_entry(r#"{"name": "a", "trials": 3, "latest": null}"#));
    for wrong in [
        "[]",
        "{}",
        r#"{"name": 3}"#,
        r#"{"name": "a", "trials": -1}"#,
        r#"{"name": "a", "trials": 0.5}"#,
        r#"{"name": "a", "state": "running"}"#,
        r#"{"name": "a", "latest": {"case": "c"}}"#,
        r#"{"name": "a", "more": 1}"#,
    ] {
        assert!(!is_entry(wrong), "{wrong}");
    }
}
