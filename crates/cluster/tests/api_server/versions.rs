// SPDX-License-Identifier: Apache-2.0
//! A later version of a resource beside the present one, without a conversion webhook.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use quietwire_cluster::resources::{Network, NetworkSpec};
use serde_json::{Value, json};

use super::server::wait_for;
use super::{api, object};

const DEFINITION: &str = "networks.quietwire.io";

/// Serves and stores a later version of networks, with a further optional field in both versions.
async fn serve_later_version(admin: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let present = definitions.get(DEFINITION).await.unwrap();
    let mut version = serde_json::to_value(&present.spec.versions[0]).unwrap();
    let fields = "/schema/openAPIV3Schema/properties/spec/properties";
    version.pointer_mut(fields).unwrap()["later"] = json!({ "type": "string", "maxLength": 8 });
    let mut later = version.clone();
    later["name"] = json!("v1alpha2");
    version["storage"] = json!(false);
    let patch = Patch::Merge(json!({ "spec": { "versions": [version, later] } }));
    let parameters = PatchParams::default();
    let patched = definitions.patch(DEFINITION, &parameters, &patch).await;
    patched.unwrap();
}

/// The definitions are installed. Afterwards, networks are stored in the later version.
pub(crate) async fn a_later_version_has_the_objects_of_this_one(admin: &Client) {
    let networks = api(admin, "Network");
    let spec = json!({ "bridge": "lan", "vlan": 7, "ranges": [{ "subnet": "10.97.0.0/24" }] });
    let kept = object("Network", "kept", &spec);
    networks
        .create(&PostParams::default(), &kept)
        .await
        .unwrap();
    serve_later_version(admin).await;
    let resource = ApiResource {
        version: "v1alpha2".to_owned(),
        api_version: "quietwire.io/v1alpha2".to_owned(),
        ..ApiResource::erase::<Network>(&())
    };
    let later: Api<DynamicObject> = Api::default_namespaced_with(admin.clone(), &resource);
    let found = wait_for("the later version is served", async || {
        later.get_opt("kept").await.ok().flatten()
    })
    .await;
    assert_eq!(found.data["spec"]["vlan"], 7, "{found:?}");

    // The API server may know the field a moment later.
    let field = |object: &DynamicObject| -> Value { object.data["spec"]["later"].clone() };
    let change = Patch::Merge(json!({ "spec": { "later": "new" } }));
    wait_for("the later version has the field", async || {
        let changed = later.patch("kept", &PatchParams::default(), &change).await;
        (field(&changed.ok()?) == json!("new")).then_some(())
    })
    .await;
    // A client of this version changes another field, and knows the object.
    let change = Patch::Merge(json!({ "spec": { "vlan": 8 } }));
    let parameters = PatchParams::default();
    let changed = networks.patch("kept", &parameters, &change).await.unwrap();
    assert_eq!(field(&changed), "new", "{changed:?}");
    let known: NetworkSpec = serde_json::from_value(changed.data["spec"].clone()).unwrap();
    assert_eq!(
        (known.bridge.as_deref(), known.vlan),
        (Some("lan"), Some(8))
    );
    networks
        .delete("kept", &DeleteParams::default())
        .await
        .unwrap();
}
