# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Part of scripts/test-node, whose functions and variables it uses: agent, switch, controller and webhook in pods, as the Helm chart installs
# them, with the image of $QUIETWIRE_IMAGE or that of the test. Pods reach the API server, and the API server the webhook, by services. The webhook adds a memif socket
# to a pod that names a Network. Without the webhook, the API server refuses this pod and accepts others.

# Writes the values of the chart.
chart_values() {
    cat <<YAML
image: $1
devices: |
  [[resource]]
  name = "memif"
  kind = "memif"
  count = 4
  bridge = "lan"
switch:
  enabled: true
webhook:
  enabled: true
  caBundle: $(base64 --wrap=0 "${work:?}/tls.crt")
YAML
}

# install_chart IMAGE: installs the chart as docs/kubernetes.md does, with a certificate for the webhook.
install_chart() {
    local chart=${scripts:?}/../packaging/kubernetes/chart
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout "$work/tls.key" -out "$work/tls.crt" \
        -subj /CN=quietwire-webhook -addext subjectAltName=DNS:quietwire-webhook.quietwire.svc 2>/dev/null
    inside kubectl create namespace quietwire
    inside kubectl label namespace quietwire pod-security.kubernetes.io/enforce=privileged
    inside kubectl create secret tls quietwire-webhook --namespace quietwire --cert="$work/tls.crt" --key="$work/tls.key"
    chart_values "$1" >"$work/values.yaml"
    copy_kubelet_configuration
    inside helm install quietwire "$chart" --namespace quietwire --values "$work/values.yaml"
}

# asking_pod NAME NETWORKS IMAGE: writes a pod that joins the memif socket of a network, for which it has no request of its own.
asking_pod() {
    cat <<YAML
apiVersion: v1
kind: Pod
metadata:
  name: $1
  annotations:
    k8s.v1.cni.cncf.io/networks: "$2"
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
    - name: app
      image: $3
      command: [sh, -euc]
      args:
        - |
          exec quietwire switch run --idle interrupt --pinning none --huge-pages never --memory-mib 128 \\
              --port "fast=memif:\$QUIETWIRE_MEMIF?role=client"
      resources:
        limits:
          memory: 512Mi
YAML
}

# requested POD: the memif sockets that the first container requests.
requested() {
    inside kubectl get pod "$1" --output 'jsonpath={.spec.containers[0].resources.requests.quietwire\.io/memif}'
}

chart_is_gone() {
    local pods
    pods=$(inside kubectl --namespace quietwire get pods --output name) || return 1
    [[ -z $pods ]]
}

# check_chart IMAGE: IMAGE is the name of an image that the cluster has.
check_chart() {
    local image=$1 printed left
    install_chart "$image"
    wait_for_pods
    wait_for "${pod_timeout:?}" 'the webhook runs' is_available deployment/quietwire-webhook
    apply_data_plane
    wait_for 60 'the switch has the port of the DataPlane' port_is uplink up
    wait_for "$pod_timeout" 'kubelet has the memif sockets' has_sockets
    apply_socket_network memif
    asking_pod first fast "$image" | inside kubectl apply --filename=-
    [[ $(requested first) == 1 ]] || fail 'the webhook adds no request to the pod that names a network'
    wait_for "$pod_timeout" 'the pod connects to its memif socket' port_is pod-memif connected
    inside kubectl --namespace quietwire scale deployment quietwire-webhook --replicas=0
    inside kubectl --namespace quietwire wait --for=delete pod --selector=app=quietwire-webhook --timeout=60s
    ! printed=$(asking_pod second fast "$image" | inside kubectl apply --filename=- 2>&1) ||
        fail 'the API server accepts a pod that names a network without the webhook'
    [[ $printed == *networks.quietwire.io* ]] || fail "the refusal does not name the webhook: $printed"
    inside kubectl run other --image="$image" --restart=Never --command -- sh -c true ||
        fail 'the API server refuses a pod that names no network'
    inside kubectl delete pod first other --wait=true --timeout=60s
    wait_for "${release_timeout:?}" 'the ports of removed pods are closed' has_no_ports
    inside helm uninstall quietwire --namespace quietwire --wait --timeout=80s
    wait_for "$release_timeout" 'the pods of the chart are gone' chart_is_gone
    left=$(inside kubectl get mutatingwebhookconfiguration,clusterrole,clusterrolebinding --output name)
    [[ $left != *quietwire* ]] || fail "helm uninstall leaves objects of the chart: $left"
}

# chart_image ARCHIVE: prints the name of the image in an OCI archive.
chart_image() {
    python3 - "$1" <<'PYTHON'
import json
import sys
import tarfile

with tarfile.open(sys.argv[1]) as archive:
    index = archive.extractfile(next(name for name in archive.getnames() if name.removeprefix("./") == "index.json"))
    annotations = json.load(index)["manifests"][0]["annotations"]
    print(annotations.get("io.containerd.image.name", annotations["org.opencontainers.image.ref.name"]))
PYTHON
}

# Whether this machine can install the chart. Reports what it lacks.
can_install_chart() {
    local program
    for program in helm iptables openssl; do
        # shellcheck disable=SC2016  # The shell inside expands it.
        inside sh -c 'command -v "$1" >/dev/null' sh "$program" || {
            say "unavailable: an installation by the chart requires '$program' (scripts/build-cluster helm; apt-get install iptables openssl)"
            return 1
        }
    done
}
