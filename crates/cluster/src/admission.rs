// SPDX-License-Identifier: Apache-2.0
//! Mutating admission webhook (kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers): a pod that names a
//! `Network` with a resource gets the request for it. A `MutatingAdmissionPolicy` cannot do that: Kubernetes 1.33 disables it by default,
//! and its CEL expressions neither parse the JSON of the annotation nor read the `Network` that it names.

mod certificate;
#[cfg(test)]
mod fuzz;
mod pods;
mod review;
mod selection;
mod server;

pub use server::{WebhookError, WebhookOptions, run};
