// SPDX-License-Identifier: Apache-2.0
//! Requested CPUs in a resource: a number or a list.

use std::borrow::Cow;

use quietwire_host::CpuList;
use quietwire_host::partition::CpuRequest;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Requested CPUs: a number (`2`) or a list (`"2-3,8"`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cpus {
    /// A number of CPUs, which the planner chooses.
    Count(u32),
    /// A list of CPUs, as in `cpuset.cpus`.
    List(String),
}

/// A list of CPUs that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: '{text}' is not a list of CPUs (expected a list like 2-3,8)")]
pub struct MalformedCpus {
    /// The field of the resource.
    pub field: String,
    /// Its value.
    pub text: String,
}

impl Cpus {
    /// Returns the CPUs as a partition request has them. `field` is named in the error.
    ///
    /// # Errors
    /// [`MalformedCpus`].
    pub fn to_request(&self, field: &str) -> Result<CpuRequest, MalformedCpus> {
        match self {
            Self::Count(count) => Ok(CpuRequest::Count(*count)),
            Self::List(text) => match text.parse::<CpuList>() {
                Ok(list) if !list.is_empty() => Ok(CpuRequest::These(list)),
                _ => Err(MalformedCpus {
                    field: field.to_owned(),
                    text: text.clone(),
                }),
            },
        }
    }
}

impl JsonSchema for Cpus {
    fn schema_name() -> Cow<'static, str> {
        "Cpus".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true })
    }
}
