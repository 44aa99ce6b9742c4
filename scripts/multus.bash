# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Part of scripts/test-node, whose functions and variables it uses: pods on the network of the cluster get three secondary networks by
# Multus. `apart` is a Network with addresses, as the controller defines it. `fast` is a Network whose port is the vhost-user socket of the
# device plugin: Multus copies its device-info file into the annotation network-status. The resource has no bridge, so that frames pass between
# these sockets only if the CNI plugin has put them into the network. `chained` has a plugin of containernetworking-plugins after quietwire,
# which sets an MTU. Frames pass the switch between the interfaces of `apart`, and between the sockets of `fast`.

readonly secondary_networks=apart,fast,chained chained_mtu=1400

# The definition of Multus, as far as the controller uses it.
define_attachments() {
    inside kubectl apply --filename=- <<'YAML'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: network-attachment-definitions.k8s.cni.cncf.io
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names:
    plural: network-attachment-definitions
    singular: network-attachment-definition
    kind: NetworkAttachmentDefinition
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                config:
                  type: string
YAML
    inside kubectl wait --for=condition=Established --timeout=60s crd/network-attachment-definitions.k8s.cni.cncf.io
}

# The rights that Multus requires.
multus_rights() {
    cat <<'YAML'
apiVersion: v1
kind: ServiceAccount
metadata:
  name: multus
  namespace: kube-system
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: multus
rules:
  - { apiGroups: [""], resources: [pods], verbs: [get] }
  - { apiGroups: [""], resources: [pods/status], verbs: [update] }
  - { apiGroups: [""], resources: [events], verbs: [create, patch] }
  - { apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], verbs: [get] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: multus
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: multus }
subjects:
  - { kind: ServiceAccount, name: multus, namespace: kube-system }
YAML
}

# install_multus PROGRAM: makes Multus the network of pods, and the network that they had its first delegate.
install_multus() {
    local token
    multus_rights | inside kubectl apply --filename=-
    token=$(inside kubectl --namespace kube-system create token multus --duration=1h)
    ln -s "$1" "${state:?}/cni/multus"
    TOKEN=$token python3 - "$state" <<'PYTHON'
import json
import os
import pathlib
import sys

os.umask(0o077)
state = pathlib.Path(sys.argv[1])
access = json.loads((state / "etc/admin.kubeconfig").read_text())
access["contexts"][0]["context"]["user"] = "multus"
access["users"] = [{"name": "multus", "user": {"token": os.environ["TOKEN"]}}]
kubeconfig = state / "etc/multus.kubeconfig"
kubeconfig.write_text(json.dumps(access))
multus = {
    "type": "multus",
    "kubeconfig": str(kubeconfig),
    "binDir": str(state / "cni"),
    "logFile": str(state / "log/multus.log"),
    "logLevel": "verbose",
    "delegates": [json.loads((state / "net.d/50-pods.conflist").read_text())],
}
# containerd uses the first file by name. It reads the directory again when a file is written there, but not when one is moved there.
(state / "net.d/00-multus.conflist").write_text(json.dumps({"cniVersion": "1.0.0", "name": "multus", "plugins": [multus]}))
PYTHON
}

define_networks() {
    apply_socket_network vhost-user
    inside kubectl apply --filename=- <<YAML
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: chained
  namespace: default
spec:
  config: |
    { "cniVersion": "1.0.0", "name": "chained", "plugins": [
      { "type": "quietwire", "bridge": "lan" }, { "type": "tuning", "mtu": $chained_mtu }
    ] }
YAML
    wait_for 60 'the definition of the network names its resource' names_resource
}

names_resource() {
    [[ $(inside kubectl get network-attachment-definition fast \
        --output 'jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/resourceName}') == quietwire.io/vhost-user ]]
}

# attachments POD: checks the annotation network-status of a pod. Prints its address in `apart` and the path of the socket of `fast`.
attachments() {
    local status
    status=$(inside kubectl get pod "$1" --output 'jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}')
    python3 - "$status" <<'PYTHON'
import json
import sys

if not sys.argv[1]:
    sys.exit("the pod has no annotation network-status")
networks = {network["name"]: network for network in json.loads(sys.argv[1])}
interfaces = {name: network.get("interface") for name, network in networks.items()}
if interfaces != {"pods": "eth0", "default/apart": "net1", "default/fast": "net2", "default/chained": "net3"}:
    sys.exit(f"interfaces of the pod: {interfaces}")
if not networks["pods"].get("default"):
    sys.exit("the network of the cluster is not the default network")
device = networks["default/fast"].get("device-info", {})
path = device.get("vhost-user", {}).get("path", "")
if device != {"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": path}}:
    sys.exit(f"device-info of the pod: {device}")
print(networks["default/apart"]["ips"][0], path)
PYTHON
}

check_first_attachments() {
    local address=$1 path=$2 own mtu
    own=$(inside kubectl get pod first --output 'jsonpath={.status.podIP}')
    [[ $own == 10.244.0.* ]] || fail "the pod has no address of the cluster's network: '$own'"
    [[ $address == 10.67.0.* ]] || fail "the pod has no address of its Network: '$address'"
    inside kubectl exec first -- /bin/busybox test -S "$path" || fail "the device-info names no socket of the pod: '$path'"
    inside grep -q -r -F -e "$path" /run/k8s.cni.cncf.io/devinfo/dp || fail 'no file of the device plugin names the socket'
    inside grep -q -r -F -e "$path" /run/k8s.cni.cncf.io/devinfo/cni || fail 'no device-info file of Multus names the socket'
    mtu=$(inside kubectl exec first -- /bin/busybox cat /sys/class/net/net3/mtu)
    [[ $mtu == "$chained_mtu" ]] || fail "the plugin after quietwire has not set the MTU: $mtu"
    has_plugin_ports 2 || fail 'the switch lacks a port for apart and chained, or has another one for fast'
}

# Neither ports nor addresses are left, and no files of Multus.
networks_left_nothing() {
    local addresses files
    has_no_ports || return 1
    addresses=$(inside kubectl get addresses --output name) || return 1
    files=$(inside find /var/lib/cni/multus /run/k8s.cni.cncf.io/devinfo -type f) || return 1
    [[ -z $addresses && -z $files ]]
}

# Requires the Network `apart` with its definition, and the agent with the resource vhost-user.
check_multus() {
    local program printed address path
    if ! program=$(inside sh -c 'command -v multus'); then
        say 'unavailable: pods with secondary networks by Multus require its program (scripts/build-cluster multus)'
        return
    fi
    say 'pods with secondary networks by Multus'
    install_multus "$program"
    define_networks
    pod first "${address_first:?}" '' '' '' vhost-user "$secondary_networks" | inside kubectl apply --filename=-
    wait_for "${pod_timeout:?}" 'the first pod runs' phase_is first Running
    printed=$(attachments first) || fail 'Multus has not attached the first pod to its networks'
    read -r address path <<<"$printed"
    check_first_attachments "$address" "$path"
    pod second "${address_second:?}" "$address_first" '' "$address" vhost-user "$secondary_networks" | inside kubectl apply --filename=-
    check_second_pod
    inside kubectl delete pod first second --wait=true --timeout=60s
    wait_for "${release_timeout:?}" 'ports, addresses and files of the networks of removed pods are gone' networks_left_nothing
}
