// SPDX-License-Identifier: Apache-2.0
//! The Helm chart of the package installs what kustomize installs. Its templates use few of Helm's functions, which are rendered here.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use quietwire_switch::config::Settings;
use serde_json::{Value, json};

const TEMPLATES: [&str; 5] = [
    "agent.yaml",
    "controller.yaml",
    "devices.yaml",
    "policy.yaml",
    "rbac.yaml",
];
/// Templates of parts that are not installed by default.
const SWITCH: &str = "switch.yaml";
const WEBHOOK: &str = "webhook.yaml";

fn package(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging/kubernetes")
        .join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(package(path)).unwrap()
}

fn documents(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let documents = documents.into_iter();
    documents.filter(|document| !document.is_null()).collect()
}

fn values() -> Value {
    serde_saphyr::from_str(&read("chart/values.yaml")).unwrap()
}

/// Returns the values, with a part that is not installed by default.
fn with(part: &str) -> Value {
    let mut values = values();
    values[part]["enabled"] = json!(true);
    values
}

/// Renders templates with values, and notes which values they use.
struct Renderer {
    values: Value,
    namespace: &'static str,
    used: BTreeSet<String>,
}

impl Renderer {
    fn new(values: Value, namespace: &'static str) -> Self {
        Self {
            values,
            namespace,
            used: BTreeSet::new(),
        }
    }

    /// Returns the value of `.Values.a.b` or `.Release.Namespace`.
    fn value(&mut self, name: &str) -> Value {
        if name == ".Release.Namespace" {
            return json!(self.namespace);
        }
        let path = name.strip_prefix(".Values.").unwrap();
        self.used.insert(path.to_owned());
        let pointer = format!("/{}", path.replace('.', "/"));
        let value = self.values.pointer(&pointer);
        value
            .unwrap_or_else(|| panic!("values.yaml has no {path}"))
            .clone()
    }

    fn text(&mut self, name: &str) -> String {
        self.value(name).as_str().unwrap().to_owned()
    }

    /// Renders a line that is an action as a whole: the value on lines of its own, with a number of spaces before each.
    fn block(&mut self, action: &str) -> String {
        let (source, width) = action.split_once(" | nindent ").unwrap();
        let spaces = " ".repeat(width.parse().unwrap());
        let text = match source.strip_prefix("toYaml ") {
            // JSON is YAML.
            Some(name) => self.value(name).to_string(),
            None => self.text(source),
        };
        let lines = text.lines();
        lines.map(|line| format!("{spaces}{line}\n")).collect()
    }

    /// Renders actions within a line.
    fn line(&mut self, line: &str) -> String {
        let mut pieces = line.split("{{ ");
        let mut rendered = pieces.next().unwrap().to_owned();
        for piece in pieces {
            let (name, rest) = piece.split_once(" }}").unwrap();
            rendered.push_str(&self.text(name));
            rendered.push_str(rest);
        }
        rendered + "\n"
    }

    fn render(&mut self, template: &str) -> String {
        let mut rendered = String::new();
        let mut conditions: Vec<bool> = Vec::new();
        for line in template.lines() {
            let action = line.trim_start().strip_prefix("{{- ");
            let action = action.map(|rest| rest.strip_suffix(" }}").unwrap());
            let is_rendered = conditions.iter().all(|holds| *holds);
            match action {
                Some("end") => assert!(conditions.pop().is_some(), "end without if"),
                Some("else") => {
                    let holds = conditions.last_mut().expect("else without if");
                    *holds = !*holds;
                }
                Some(action) if action.starts_with("if ") => {
                    let value = self.value(&action[3..]);
                    conditions.push(value != json!(false) && value != json!([]));
                }
                _ if !is_rendered => {}
                Some(action) => rendered.push_str(&self.block(action)),
                None => rendered.push_str(&self.line(line)),
            }
        }
        assert!(conditions.is_empty(), "if without end");
        rendered
    }
}

#[test]
fn the_chart_installs_what_kustomize_installs() {
    let mut renderer = Renderer::new(values(), "quietwire");
    for file in TEMPLATES {
        let rendered = renderer.render(&read(&format!("chart/templates/{file}")));
        let base = documents(&read(&format!("base/{file}")));
        assert_eq!(documents(&rendered), base, "{file}");
    }
    let listed = fs::read_dir(package("chart/templates")).unwrap();
    let listed: BTreeSet<String> = listed
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut expected: BTreeSet<String> = TEMPLATES.map(str::to_owned).into();
    expected.extend([SWITCH, WEBHOOK].map(str::to_owned));
    assert_eq!(listed, expected);
    assert_eq!(read("chart/crds/crds.yaml"), read("base/crds.yaml"));
}

#[test]
fn the_chart_installs_the_webhook_that_kustomize_installs() {
    let template = read(&format!("chart/templates/{WEBHOOK}"));
    let nothing = Renderer::new(values(), "quietwire").render(&template);
    assert!(documents(&nothing).is_empty());
    let rendered = Renderer::new(with("webhook"), "quietwire").render(&template);
    let packaged = documents(&read(&format!("webhook/{WEBHOOK}")));
    assert_eq!(documents(&rendered), packaged);
    let kustomization = documents(&read("webhook/kustomization.yaml"));
    assert_eq!(kustomization[0]["resources"], json!([WEBHOOK]));
    let mut values = with("webhook");
    values["webhook"]["secret"] = json!("other");
    values["webhook"]["caBundle"] = json!("Q0E=");
    let rendered = documents(&Renderer::new(values, "other").render(&template));
    let of_kind = |kind: &str| rendered.iter().find(|it| it["kind"] == kind).unwrap();
    let pod = &of_kind("Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "other");
    let client = &of_kind("MutatingWebhookConfiguration")["webhooks"][0]["clientConfig"];
    assert_eq!(client["caBundle"], "Q0E=");
    assert_eq!(client["service"]["namespace"], "other");
    assert_eq!(
        of_kind("ClusterRole")["rules"],
        json!([{ "apiGroups": ["quietwire.io"], "resources": ["networks"], "verbs": ["get"] }])
    );
}

/// Returns the specification of the pods of the switch, and its configuration.
fn switch_of(values: Value) -> (Value, String) {
    let template = read(&format!("chart/templates/{SWITCH}"));
    let mut rendered = documents(&Renderer::new(values, "quietwire").render(&template));
    let config = rendered[0]["data"]["switch.toml"].as_str().unwrap();
    let config = config.to_owned();
    (rendered[1]["spec"]["template"]["spec"].take(), config)
}

#[test]
fn the_chart_installs_the_switch_that_kustomize_installs() {
    let template = read(&format!("chart/templates/{SWITCH}"));
    let nothing = Renderer::new(values(), "quietwire").render(&template);
    assert!(documents(&nothing).is_empty());
    let rendered = Renderer::new(with("switch"), "quietwire").render(&template);
    let packaged = documents(&read(&format!("switch/{SWITCH}")));
    assert_eq!(documents(&rendered), packaged);
    let kustomization = documents(&read("switch/kustomization.yaml"));
    assert_eq!(kustomization[0]["resources"], json!([SWITCH]));
}

#[test]
fn the_switch_in_a_pod_has_the_capabilities_of_its_unit() {
    let (pod, config) = switch_of(with("switch"));
    Settings::parse(Path::new("switch.toml"), &config).unwrap();
    let container = &pod["containers"][0];
    let arguments = json!(["switch", "run", "--config=/etc/quietwire/switch.toml"]);
    assert_eq!(container["args"], arguments);
    let unit = read("../systemd/quietwire-switch.service");
    let mut settings = unit.lines();
    let of_unit = settings.find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let of_unit = of_unit.unwrap().split(' ');
    let of_unit: Vec<&str> = of_unit.map(|it| it.strip_prefix("CAP_").unwrap()).collect();
    let capabilities = json!({ "drop": ["ALL"], "add": of_unit });
    let context = &container["securityContext"];
    assert_eq!(context["capabilities"], capabilities);
    assert_eq!(context["privileged"], Value::Null);
    assert_eq!(pod["automountServiceAccountToken"], json!(false));
    // As long as the unit has, after 30 s for the files that the agent restores.
    assert!(unit.lines().any(|line| line == "TimeoutStopSec=30s"));
    assert_eq!(pod["terminationGracePeriodSeconds"], json!(60));
    let saving = &container["lifecycle"]["preStop"]["exec"]["command"];
    let save = |what: &str, file: &str| {
        let path = Path::new("/").join(file);
        format!("timeout 15 quietwire switch {what} save {}", path.display())
    };
    let connections = save("connections", crate::agent::CONNECTIONS);
    let mappings = save("mappings", crate::agent::MAPPINGS);
    let command = json!(["sh", "-c", format!("{connections}; {mappings}")]);
    assert_eq!(*saving, command);
}

#[test]
fn values_of_the_switch_have_an_effect() {
    let mut values = with("switch");
    values["switch"]["config"] = json!("forwarding-cpus = \"2\"\n");
    values["switch"]["vfio"] = json!(true);
    values["switch"]["tolerations"] = json!([{ "operator": "Exists" }]);
    values["switch"]["resources"] = json!({ "limits": { "cpu": "2", "hugepages-2Mi": "512Mi" } });
    let (pod, config) = switch_of(values.clone());
    assert_eq!(config, "forwarding-cpus = \"2\"\n");
    assert_eq!(pod["tolerations"], values["switch"]["tolerations"]);
    let container = &pod["containers"][0];
    assert_eq!(container["resources"], values["switch"]["resources"]);
    let context = json!({ "readOnlyRootFilesystem": true, "privileged": true });
    assert_eq!(container["securityContext"], context);
    let names = |list: &Value| -> BTreeSet<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|it| it["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let mounted = names(&container["volumeMounts"]);
    assert!(mounted.contains("vfio"), "{mounted:?}");
    assert_eq!(mounted, names(&pod["volumes"]));
}

#[test]
fn values_of_the_chart_have_an_effect() {
    let mut values = values();
    values["image"] = json!("registry.example/quietwire:1");
    values["imagePullSecrets"] = json!([{ "name": "registry" }]);
    values["devices"] = json!("[[resource]]\nname = \"memif\"\n");
    values["agent"]["tolerations"] = json!([{ "operator": "Exists" }]);
    values["agent"]["nodeSelector"] = json!({ "role": "edge" });
    values["agent"]["nodeResourceTopology"] = json!(true);
    values["agent"]["nodeFeature"] = json!(true);
    values["controller"]["enabled"] = json!(false);
    let mut renderer = Renderer::new(values, "other");
    let mut render =
        |file: &str| documents(&renderer.render(&read(&format!("chart/templates/{file}"))));
    let agent = &render("agent.yaml")[0];
    let pod = &agent["spec"]["template"]["spec"];
    assert_eq!(agent["metadata"]["namespace"], "other");
    assert_eq!(
        pod["containers"][0]["image"],
        "registry.example/quietwire:1"
    );
    assert_eq!(pod["imagePullSecrets"], json!([{ "name": "registry" }]));
    assert_eq!(pod["tolerations"], json!([{ "operator": "Exists" }]));
    assert_eq!(pod["nodeSelector"], json!({ "role": "edge" }));
    let arguments = pod["containers"][0]["args"].as_array().unwrap();
    let last = &arguments[arguments.len() - 2..];
    assert_eq!(last, ["--node-resource-topology", "--node-feature"]);
    let devices = &render("devices.yaml")[0]["data"]["devices.toml"];
    assert_eq!(devices, "[[resource]]\nname = \"memif\"\n");
    let condition = &render("policy.yaml")[0]["spec"]["matchConditions"][0]["expression"];
    let user = "request.userInfo.username == 'system:serviceaccount:other:quietwire-agent'";
    assert_eq!(condition, user);
    assert!(render("controller.yaml").is_empty());
}

/// Collects the names of values that are not objects with names of their own.
fn names(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    // Objects that a pod has as they are.
    let is_whole = ["nodeSelector", "resources", "updateStrategy"]
        .iter()
        .any(|name| path.ends_with(name));
    match value.as_object() {
        Some(fields) if !is_whole => {
            for (name, value) in fields {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                names(value, &path, into);
            }
        }
        _ => {
            into.insert(path.to_owned());
        }
    }
}

#[test]
fn every_value_of_the_chart_is_used_and_documented() {
    let mut values_with_all = with("webhook");
    values_with_all["switch"]["enabled"] = json!(true);
    let mut renderer = Renderer::new(values_with_all, "quietwire");
    for file in TEMPLATES.iter().chain([&SWITCH, &WEBHOOK]) {
        renderer.render(&read(&format!("chart/templates/{file}")));
    }
    let mut all = BTreeSet::new();
    names(&values(), "", &mut all);
    assert_eq!(renderer.used, all);
    let text = read("chart/values.yaml");
    let lines: Vec<&str> = text.lines().collect();
    for name in &all {
        let key = format!("{}:", name.rsplit('.').next().unwrap());
        let mut places = lines
            .windows(2)
            .filter(|pair| pair[1].trim_start().starts_with(&key));
        assert!(
            places.all(|pair| pair[0].trim_start().starts_with("# ")),
            "{name} has no comment"
        );
    }
    let chart: Value = serde_saphyr::from_str(&read("chart/Chart.yaml")).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}
