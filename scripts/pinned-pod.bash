# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Part of scripts/test-node, whose functions and variables it uses: a pod with exclusive CPUs forwards frames as fast beside pods that load all
# other CPUs as without them. In the pod, quietwire's tester on one CPU sends through a switch on the other.

# Rounds, each without and with load, and the least share of the quiet rate that the median of the rounds may have.
readonly pinned_rounds=5 pinned_share=0.98

pinned_pod() {
    cat <<YAML
apiVersion: v1
kind: Pod
metadata:
  name: pinned
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
    - name: app
      image: ${image_name:?}
      imagePullPolicy: Never
      securityContext:
        privileged: true
      command: [/bin/busybox, sh, -euc]
      args:
        - |
          busybox mkdir -p /tmp /var/run
          cpus=\$(busybox sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
          exec taskset --cpu-list "\${cpus%%[-,]*}" quietwire switch run --pinning none --huge-pages never --memory-mib 256 \\
              --cross-connect left,right --port 'left=memif:/tmp/left.sock?role=server' --port 'right=memif:/tmp/right.sock?role=server'
      resources:
        limits:
          cpu: "2"
          memory: 1Gi
YAML
}

# load_pod COUNT: writes a pod without exclusive CPUs that loads COUNT CPUs and their memory.
load_pod() {
    cat <<YAML
apiVersion: v1
kind: Pod
metadata:
  name: load
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
    - name: app
      image: $image_name
      imagePullPolicy: Never
      command: [/bin/busybox, sh, -euc]
      args:
        - |
          for number in \$(busybox seq $1); do
              busybox sh -c 'while :; do :; done' &
              busybox dd if=/dev/zero of=/dev/null bs=4M 2>/dev/null &
          done
          wait
YAML
}

# pinned_rate CPU: prints the frames per second that the switch of the pod forwards, measured by a tester on a CPU of the pod.
pinned_rate() {
    inside kubectl exec pinned -- quietwire generate --rate max --direction one-way --cpus "$1" --isolation none --no-huge \
        --attempts 5 --duration 3s --json --port 'memif:/tmp/left.sock?role=client' --port 'memif:/tmp/right.sock?role=client' |
        python3 -c 'import json, sys; print(int(json.load(sys.stdin)["forwarding_rate_pps"]))'
}

# Whether the pod runs, and the sockets of its switch exist.
pinned_is_ready() {
    phase_is pinned Running && inside kubectl exec pinned -- /bin/busybox test -S /tmp/right.sock
}

check_pinned_pod() {
    local cpus round quiet loaded rates=() count
    count=$(nproc --all)
    if ((count < 4)); then
        say "unavailable: a pod with two exclusive CPUs beside loaded pods requires four CPUs, and this machine has $count"
        return
    fi
    pinned_pod | inside kubectl apply --filename=-
    wait_for "${pod_timeout:?}" 'the pod with exclusive CPUs runs' pinned_is_ready
    # The switch itself has one of them.
    cpus=$(inside kubectl exec pinned -- /bin/busybox sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
    for ((round = 0; round < pinned_rounds; round++)); do
        quiet=$(pinned_rate "${cpus##*[-,]}")
        load_pod "$count" | inside kubectl apply --filename=-
        wait_for "$pod_timeout" 'the load runs' phase_is load Running
        loaded=$(pinned_rate "${cpus##*[-,]}")
        rates+=("$quiet" "$loaded")
        inside kubectl delete pod load --wait=true --timeout=60s
    done
    inside kubectl delete pod pinned --wait=true --timeout=60s
    python3 - "$pinned_share" "${rates[@]}" >&2 <<'PYTHON' || fail 'the pod with exclusive CPUs is slower beside loaded pods'
import statistics
import sys

least, *rates = map(float, sys.argv[1:])
shares = [loaded / quiet for quiet, loaded in zip(rates[::2], rates[1::2], strict=True)]
median = statistics.median(shares)
print(f"test-node: beside loaded pods, {100 * median:.1f} % of the quiet rate (median; {100 * min(shares):.1f} to {100 * max(shares):.1f} %)")
sys.exit(median < least)
PYTHON
}
