// SPDX-License-Identifier: Apache-2.0
//! Networks that a pod names in its annotation (Kubernetes Network Custom Resource Definition De-facto Standard, version 1.3, section 4.1).

use serde::Deserialize;

use crate::object_name::is_object_name;

/// The annotation.
pub(super) const ANNOTATION: &str = "k8s.v1.cni.cncf.io/networks";
/// Most networks of a pod.
pub(super) const NETWORKS_MAX: usize = 32;

/// An element of the annotation in JSON. It has more keys, which are Multus' concern.
#[derive(Debug, Deserialize)]
struct Element {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
}

impl Element {
    /// Reads the short form: `[NAMESPACE/]NAME[@INTERFACE]`.
    fn of_short(text: &str) -> Self {
        let (network, _interface) = text.split_once('@').unwrap_or((text, ""));
        match network.split_once('/') {
            Some((namespace, name)) => Self {
                name: name.to_owned(),
                namespace: Some(namespace.to_owned()),
            },
            None => Self {
                name: network.to_owned(),
                namespace: None,
            },
        }
    }
}

/// Returns namespaces and names of the networks that an annotation names, each as often as it is named. `namespace` is that of the pod.
///
/// # Errors
/// The text is in neither form of the standard, or names more than 32 networks.
pub(super) fn selected(text: &str, namespace: &str) -> Result<Vec<(String, String)>, String> {
    let text = text.trim();
    let elements: Vec<Element> = if text.starts_with('[') {
        serde_json::from_str(text).map_err(|error| error.to_string())?
    } else {
        let parts = text.split(',').map(str::trim);
        let parts = parts.filter(|part| !part.is_empty());
        parts.map(Element::of_short).collect()
    };
    if elements.len() > NETWORKS_MAX {
        return Err(format!("more than {NETWORKS_MAX} networks"));
    }
    let mut networks = Vec::new();
    for element in elements {
        let of_pod = || namespace.to_owned();
        let namespace = element.namespace.filter(|it| !it.is_empty());
        let network = (namespace.unwrap_or_else(of_pod), element.name);
        if !is_object_name(&network.0) || !is_object_name(&network.1) {
            return Err(format!("'{}/{}' is no network", network.0, network.1));
        }
        networks.push(network);
    }
    Ok(networks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Vec<String> {
        let networks = selected(text, "apps").unwrap();
        let networks = networks.iter();
        networks
            .map(|(namespace, name)| format!("{namespace}/{name}"))
            .collect()
    }

    #[test]
    fn both_forms_of_the_annotation_are_read() {
        assert_eq!(
            of("lan, db/wan@net2,lan"),
            ["apps/lan", "db/wan", "apps/lan"]
        );
        assert_eq!(
            of(r#" [{"name": "lan", "ips": ["10.66.0.7"]}, {"name": "wan", "namespace": "db"}] "#),
            ["apps/lan", "db/wan"]
        );
        assert!(of("").is_empty() && of("[]").is_empty());
    }

    #[test]
    fn mistakes_are_reported() {
        for text in [
            "[",
            r#"[{"namespace": "db"}]"#,
            "../secrets",
            "a/b/c",
            r#"[{"name": "a?b"}]"#,
            "lan@",
        ] {
            let networks = selected(text, "apps");
            assert_eq!(networks.is_err(), text != "lan@", "{text}: {networks:?}");
        }
        let many = vec!["lan"; NETWORKS_MAX + 1].join(",");
        assert!(selected(&many, "apps").unwrap_err().contains("more than"));
    }

    proptest! {
        #[test]
        fn names_stay_in_their_place_of_a_path(text in ".{0,60}") {
            for (namespace, name) in selected(&text, "apps").unwrap_or_default() {
                prop_assert!(is_object_name(&namespace) && is_object_name(&name));
                prop_assert!(!name.contains(['/', '?', '%']));
            }
        }
    }
}
