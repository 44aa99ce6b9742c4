# SPDX-License-Identifier: Apache-2.0
# Everything a person types in this repository. `make` lists it.
# Needs Debian 12 or 13, git, make and cargo; scripts/setup brings the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Recipes share the lab, the CPUs and the target directory: one at a time.
.NOTPARALLEL:

# Elsewhere than on Debian and Ubuntu, with the equivalents installed by hand: make SETUP=: …
SETUP ?= scripts/setup
# CPU sets, huge pages and real-time priority are root's.
AS_ROOT ?= $(if $(filter 0,$(shell id -u)),,sudo)
STUDY ?= studies/noisy-neighbours.toml
RESULTS ?= results
# --fresh moves the store of an earlier run aside. To go on with a run that was interrupted:
# make demo STUDY_FLAGS=--resume
STUDY_FLAGS ?= --fresh
# What `make bench` runs, and options of all of them: make bench BENCH_FLAGS='--huge-pages --rounds 9'
BENCHES ?= peers generators connections bridge_scale route_scale route_add filter_scale tracker_scale ports_scale kernel_ports builds pacing repeatability reports monitors
BENCH_FLAGS ?=
# Duration of make soak, hours.
HOURS ?= 1
# Rounds of make repeat-measurements.
ROUNDS ?= 10
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60
# Preemptions of the threads of models. `make test` has two or three.
PREEMPTIONS ?= 5
# Sequences of faults, and the first seed. `make test` runs the first thousand.
FAULT_SEEDS ?= 1000000
FAULT_START ?= 1000
# Crates that `make miri` tests: base memory packet tables search memif vhost. All of them by default.
MIRI_CRATES ?=
# Debian's suites that test-dpdk-versions uses; all of them by default.
SUITES ?=

# Scripts of `make lint`, those that take longest first: they read the tree, and run at the same time.
CHECKS := check-words check-modules test-replay-renames test-check-sources check-sources test-check-words test-check-modules \
    test-check-fuzz test-check-proofs check-fuzz check-proofs check-directions test-run-tests test-oci-image \
    test-check-kubelet-messages

target_dir := $(or $(CARGO_TARGET_DIR),target)
study_name := $(basename $(notdir $(STUDY)))
page := $(RESULTS)/$(study_name).html
quietwire := $(target_dir)/release/quietwire
# The Python that has scapy, for tests that compare with it.
export QUIETWIRE_PYTHON ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/quietwire/venv/bin/python
# tuned's files, unpacked for tests.
export QUIETWIRE_TUNED ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/quietwire/tuned

.PHONY: help setup build image clib demo test check test-labs test-cards test-longer test-hardware test-all test-api test-page test-cluster test-node-guest test-dpdk-versions deb test-deb lint bench performance-page repeat-measurements fuzz test-fuzz models nftables ndpi faults soak asan miri mutants deny clean-lab

help: ## List what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install the Debian packages that building and running need
	@$(SETUP)

build: setup ## Build the binary, optimised
	cargo build --release --locked

clib: setup ## Build the C library of the classifier and the tracker into target/clib
	@scripts/build-clib

deb: build clib ## Build the Debian package into target/deb
	@scripts/build-deb

image: build ## Build the container image into target/image (needs buildah, mmdebstrap and root)
	@scripts/build-image

demo: build ## Run the noisy-neighbours study and write its page into results/
	@mkdir -p $(RESULTS)
	$(AS_ROOT) $(quietwire) study run $(STUDY) --store $(RESULTS)/$(study_name).sqlite --html $(page) --allow-unknown $(STUDY_FLAGS); \
		status=$$?; printf '\nThe page: %s\n' "$(abspath $(page))"; exit $$status

test: ## Build and run every test that is not ignored; ends with what ran and what did not
	@if [ "$(SETUP)" = scripts/setup ]; then $(SETUP) --with-tests; else $(SETUP); fi
	@scripts/run-tests --locked

check: ## `make lint`, then `make test`, as CI does
	@if [ "$(SETUP)" = scripts/setup ]; then $(SETUP) --with-tests; else $(SETUP); fi
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test

test-labs: ## Tests of minutes each: all topologies with guests, every switch and network function
	@scripts/build-l3fwd
	cargo test --workspace --test labs --test guests --test studies --test self_test --locked -- --ignored --nocapture

test-longer: ## Tests of `make test` that attack, download, wait and stop threads, each for longer (needs root)
	QUIETWIRE_HOSTILE_SECONDS=2 QUIETWIRE_DOWNLOAD_MIB=1024 QUIETWIRE_SILENCE_SECONDS=10 QUIETWIRE_FAULT_ROUNDS=10 QUIETWIRE_SOAK_SECONDS=60 \
	    cargo test --workspace --test hostile_peers --test switch_ports --test switch_memif --test soak --locked --no-fail-fast

test-cards: ## Forwarding between emulated network cards in a guest, with their real DPDK drivers; fetches QEMU 10 and a kernel
	@scripts/emulated-cards
	cargo test --package quietwire --test cards --locked -- --ignored --test-threads=1

test-hardware: ## Tests that require hardware or a kernel that few machines have; each names it
	cargo test --workspace --lib --test host --locked --no-fail-fast -- --ignored

test-cluster: ## Custom resources, agent and rights against a real Kubernetes API server, and pods on a real node, built from Go modules (needs Go 1.24 and root)
	@scripts/test-cluster

test-node-guest: build ## A partition with systemd and cgroup v2, and at boot, in an emulated guest with Debian 13's kernel (needs QEMU, debootstrap and root)
	@scripts/test-node-guest

test-api: build ## Requests of serve's OpenAPI document by schemathesis, which it installs from PyPI
	@scripts/test-api

test-page: build ## Pages of study, measure, trend and serve in headless Chromium: values, hover, zoom, widths of a phone and a desktop, dark, print
	@scripts/test-page

test-all: test ## `make test`, then every test that it leaves out
	@scripts/build-l3fwd
	@scripts/emulated-cards
	@scripts/run-tests --locked -- --ignored
	@$(MAKE) --no-print-directory test-longer

test-dpdk-versions: ## Build and test with the DPDK of Debian 12, 13 and unstable, in chroots
	@scripts/test-dpdk-versions $(SUITES)

test-deb: ## Build the package of QUIETWIRE_BINARY or the release binary; install, run, upgrade and purge it in a chroot
	@scripts/test-deb

lint: ## Formatting, clippy, licence lines, directions between crates, scripts, documentation
	cargo fmt --all --check
	@printf 'scripts/%s\n' $(CHECKS) | xargs -P "$$(nproc)" -n 1 env
	@if command -v shellcheck >/dev/null; then shellcheck scripts/*.bash packaging/debian/* $$(grep -lE -d skip '^#!.*bash' scripts/* .ci/* images/*); \
	else echo 'shellcheck: not installed, the scripts were not checked'; fi
	@promtool=$$(command -v promtool || echo "$${XDG_CACHE_HOME:-$$HOME/.cache}/quietwire/prometheus/usr/bin/promtool"); \
	if [ -x "$$promtool" ]; then \
	"$$promtool" check rules packaging/monitoring/alerts.yaml && "$$promtool" test rules packaging/monitoring/alerts-test.yaml; \
	else echo 'promtool: not installed, the alert rules were not tested'; fi
	cargo clippy --workspace --all-targets --features quietwire-cluster/api-server --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked

bench: setup ## Run the benchmarks, beside those peers that are there; ends with all goals and their verdicts
	-@scripts/build-l3fwd
	@runs=$(abspath $(target_dir))/bench/$$(date -u +%Y%m%dT%H%M%SZ); failed=; \
	for bench in $(BENCHES); do \
	    cargo bench -p quietwire --locked --bench $$bench -- --runs $$runs $(BENCH_FLAGS) || failed+=" $$bench"; \
	done; \
	cargo bench -p quietwire --locked --bench page -- goals $$runs; \
	if [ -n "$$failed" ]; then printf 'failed:%s\n' "$$failed" >&2; exit 1; fi

performance-page: ## Make docs/performance.md, its figures and the table of docs/ports.md from the runs in docs/performance/runs, and those in RUNS
	cargo bench -p quietwire --locked --bench page -- $(if $(RUNS),take $(abspath $(RUNS)),write)

repeat-measurements: build ## Run the measuring commands of docs/tester.md ROUNDS times, and report how often each answered
	$(AS_ROOT) scripts/repeat-measurements --rounds $(ROUNDS)

fuzz: ## Run every fuzz target for FUZZ_SECONDS each (those guided by coverage need rustup's nightly)
	@scripts/fuzz $(FUZZ_SECONDS)

test-fuzz: ## Check that the fuzzer of the tests finds the planted fault of every target
	@scripts/test-fuzz

models: ## Models of threads with up to PREEMPTIONS preemptions, and small domains whole
	@scripts/models $(PREEMPTIONS)

soak: ## A switch that changes at random for HOURS beside checked traffic; samples and plot into results/soak (needs root)
	@QUIETWIRE_SOAK_SECONDS=$$(awk 'BEGIN { print int($(HOURS) * 3600) }') QUIETWIRE_SOAK_DIRECTORY=$(CURDIR)/results/soak \
		cargo test --release --locked --package quietwire --test soak -- --nocapture

nftables: ## A thousand generated rulesets with a thousand frames each, compared with the kernel's nftables (needs root and nft)
	QUIETWIRE_NFT_RULESETS=1000 QUIETWIRE_NFT_FRAMES=1000 QUIETWIRE_SEED=1 \
	    cargo test -p quietwire-switch --test nftables --locked

ndpi: ## Names that rules find compared with those that nDPI reports for the same packets (needs ndpiReader of libndpi-bin)
	@program=$${QUIETWIRE_NDPI_READER:-ndpiReader}; command -v "$$program" >/dev/null \
	    || { printf 'unavailable: %s is not installed (run: apt install libndpi-bin)\n' "$$program" >&2; exit 3; }
	cargo test -p quietwire-switch --test ndpi --locked -- --ignored

faults: ## Partitions, labs, studies and changes of a switch with failing files, processes, steps and threads: FAULT_SEEDS sequences, from seed FAULT_START on
	TMPDIR=$${TMPDIR:-/dev/shm} QUIETWIRE_SEED=$(FAULT_START) QUIETWIRE_FAULT_SEEDS=$(FAULT_SEEDS) \
	    cargo test -p quietwire-base -p quietwire-host -p quietwire-lab -p quietwire-switch --lib --locked --no-fail-fast after_any_fault -- --nocapture
	TMPDIR=$${TMPDIR:-/dev/shm} QUIETWIRE_SEED=$(FAULT_START) QUIETWIRE_FAULT_SEEDS=$$(( $(FAULT_SEEDS) / 100 )) \
	    cargo test -p quietwire-study --lib --locked after_any_fault -- --nocapture

asan: ## Memory that is shared with peers under AddressSanitizer: units, fuzz targets, the switch with memif ports and hostile peers (needs root)
	@scripts/asan

miri: ## Unit tests of MIRI_CRATES under Miri, which finds undefined behaviour (needs rustup's nightly with miri)
	@scripts/miri $(MIRI_CRATES)

mutants: ## Unit tests against mutants of what changed since MUTANTS_SINCE, or of everything (MUTANTS="all 0/8")
	@scripts/mutants $(MUTANTS)

deny: ## Check dependencies: licences, sources, known vulnerabilities
	@scripts/deny

clean-lab: ## Remove what an interrupted study or benchmark left on the machine
	@if [ ! -x $(quietwire) ]; then cargo build --release --locked; fi
	$(AS_ROOT) $(quietwire) lab clean
	$(AS_ROOT) $(quietwire) lab clean --state-directory /run/quietwire/bench
