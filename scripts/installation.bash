# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Part of scripts/test-node, whose functions and variables it uses: agent, controller and switch in pods, as packaging/kubernetes installs
# them, and another pod of the switch, as after an upgrade: the port of a container and that of a memif socket come back, and frames pass.

# Installs what packaging/kubernetes/base and its addition for the switch have, with the image of this test. Pods reach the API server at its
# address: services require kube-proxy.
install_package() {
    local address=$1 directory=${work:?}/kustomize image=${image_name:?}
    mkdir "$directory"
    cp -r "${scripts:?}/../packaging/kubernetes/base" "$scripts/../packaging/kubernetes/switch" "$directory"
    cat >"$directory/devices.yaml" <<'YAML'
apiVersion: v1
kind: ConfigMap
metadata:
  name: quietwire-devices
  namespace: quietwire
data:
  devices.toml: |
    [[resource]]
    name = "memif"
    kind = "memif"
    count = 4
    bridge = "lan"
    [[resource]]
    name = "vhost-user"
    kind = "vhost-user"
    count = 2
YAML
    cat >"$directory/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [base, switch]
images:
  - name: quietwire
    newName: ${image%:*}
    newTag: "${image##*:}"
patches:
  - path: devices.yaml
  - target: { kind: DaemonSet, name: quietwire-agent }
    patch: |
      - op: add
        path: /spec/template/spec/containers/0/env/-
        value: { name: KUBERNETES_SERVICE_HOST, value: "$address" }
      - op: add
        path: /spec/template/spec/containers/0/env/-
        value: { name: KUBERNETES_SERVICE_PORT, value: "6443" }
  - target: { kind: Deployment, name: quietwire-controller }
    patch: |
      - op: add
        path: /spec/template/spec/containers/0/env
        value:
          - { name: KUBERNETES_SERVICE_HOST, value: "$address" }
          - { name: KUBERNETES_SERVICE_PORT, value: "6443" }
YAML
    inside kubectl apply --kustomize "$directory"
}

has_definition() {
    [[ $(inside kubectl get network-attachment-definition apart --output 'jsonpath={.spec.config}') == *default/apart* ]]
}

is_available() {
    inside kubectl --namespace quietwire rollout status "$1" --timeout=5s
}

# The switch runs in a pod of its own, and replies.
switch_is_ready() {
    inside kubectl --namespace quietwire wait --for=condition=Ready pod --selector=app=quietwire-switch --timeout=5s
}

# The agent in a pod reads the configuration of kubelet at its usual path. kubelet of this cluster has another one.
copy_kubelet_configuration() {
    inside cp "${state:?}/etc/kubelet.yaml" /var/lib/kubelet/config.yaml
}

wait_for_pods() {
    wait_for "${pod_timeout:?}" 'the switch runs on the node' switch_is_ready
    wait_for "$pod_timeout" 'the agent runs on the node' is_available daemonset/quietwire-agent
    wait_for "$pod_timeout" 'the controller runs' is_available deployment/quietwire-controller
}

# The summary of the DataPlane counts the node, with the version of its switch.
summary_has_version() {
    local version
    version=$("${quietwire:?}" --version)
    [[ $(inside kubectl get dataplane edge --output 'jsonpath={.status.ready} {.status.versions}') == "1 {\"${version#* }\":1}" ]]
}

# Agent, controller and switch in pods with the rights of the package: the device plugin, networks, and a partition that kubelet's
# configuration does not permit.
check_installation() {
    local address text
    address=$(inside kubectl get node local --output 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}')
    copy_kubelet_configuration
    define_attachments
    install_package "$address"
    wait_for_pods
    inside kubectl wait --for=condition=Established --timeout=60s crd/dataplanes.quietwire.io crd/networks.quietwire.io
    apply_data_plane
    wait_for 60 'the switch has the port of the DataPlane' port_is uplink up
    wait_for 60 'the summary has the version of the switch' summary_has_version
    wait_for "$pod_timeout" 'kubelet has the memif sockets' has_sockets
    apply_network
    wait_for 60 'the network has a definition' has_definition
    request_cpu 1
    wait_for "$pod_timeout" 'the agent refuses a CPU that kubelet gives to pods' state_is refused
    text=$(state_of_node .kubeletSettings)
    [[ $text == *reservedSystemCPUs* ]] || fail "the refusal does not name the setting of kubelet: $text"
    inside kubectl delete nodepartition quiet
}

# The UID of the pod of the switch.
switch_pod() {
    inside kubectl --namespace quietwire get pods --selector=app=quietwire-switch --output 'jsonpath={.items[*].metadata.uid}'
}

# is_another_switch UID: whether another pod of the switch runs, and is ready.
is_another_switch() {
    local uid
    uid=$(switch_pod) || return 1
    [[ -n $uid && $uid != *"$1"* ]] && switch_is_ready
}

has_restored_mappings() {
    [[ $(inside kubectl --namespace quietwire logs daemonset/quietwire-agent) == *'restored mappings of the switch'* ]] &&
        inside test ! -e /run/quietwire/mappings
}

# The pod of the switch is deleted, as for another version, while a container and a pod are attached to it.
check_switch_upgrade() {
    local network=tool-upgrade address=10.66.0.201 uid
    mkdir -p "$work/tool"
    cat >"$work/tool/upgrade.conflist" <<JSON
{ "cniVersion": "1.1.0", "name": "$network", "plugins": [{ "type": "quietwire", "bridge": "lan", "capabilities": { "ips": true } }] }
JSON
    inside ip netns add "$network"
    tool add "$network" "CAP_ARGS={ \"ips\": [\"$address/24\"] }"
    check_reach "$address"
    pod first "${address_first:?}" '' '' '' | inside kubectl apply --filename=-
    wait_for "$pod_timeout" 'the first pod runs' phase_is first Running
    wait_for 60 'the first pod connects' port_is pod-memif connected
    uid=$(switch_pod)
    inside kubectl --namespace quietwire delete pod --selector=app=quietwire-switch --wait=true --timeout=60s
    wait_for "$pod_timeout" 'another pod of the switch runs' is_another_switch "$uid"
    wait_for "${release_timeout:?}" 'the port of the DataPlane comes back' port_is uplink up
    wait_for "$release_timeout" 'the pod connects again' port_is pod-memif connected
    wait_for "$release_timeout" 'the container has its interface again' inside ip -netns "$network" link show eth0
    check_reach "$address"
    wait_for 60 'the agent restores the mappings that kubelet has saved' has_restored_mappings
    wait_for 60 'the summary has the version of the switch' summary_has_version
    inside kubectl delete pod first --wait=true --timeout=60s
    tool del "$network"
    inside ip netns del "$network"
}
