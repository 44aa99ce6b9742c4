// SPDX-License-Identifier: Apache-2.0
//! Statuses of resources, as the controller writes them.

use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::follow::{Followed, bounded};

/// Owner of the fields that the controller writes.
pub(crate) const MANAGER: &str = "quietwire-controller";

/// Writes the status of a resource of `all` (verb `patch` of its `status`), unless the resource was deleted meanwhile. With its UID, the API
/// server refuses the status of a resource that was made again under the same name.
///
/// # Errors
/// Those of the request.
pub(crate) async fn write_status<K: Followed>(
    all: &Api<K>,
    resource: &K,
    status: &Value,
) -> kube::Result<()> {
    let name = resource.name_any();
    let patch = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": name, "uid": resource.uid() },
        "status": status,
    });
    let parameters = PatchParams::apply(MANAGER).force();
    let patch = Patch::Apply(patch);
    match bounded(all.patch_status(&name, &parameters, &patch)).await {
        // It was deleted meanwhile.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done.map(drop),
    }
}
