// SPDX-License-Identifier: Apache-2.0
//! Changes of NAT and of load balancers while steps and orders fail.

use std::net::SocketAddr;

use quietwire_tables::balance::{Backend, BalanceEndpoint, BalanceSettings, Balancer, Balancers};

use super::*;
use crate::config::balance::LoadBalancerSetting;
use crate::config::nat::NATS_MAX;
use crate::forward::NatBinding;
use crate::replication::{Digests, SETTINGS_MAX, Tables as _};

/// Additions to the configuration.
const TRANSLATED: &str = r#"
[[nat]]
name = "out"
interface = "up"
sources = ["10.0.0.0/8"]
max-mappings = 64
max-hosts = 8
[[load-balancer]]
name = "web"
address = "192.0.2.80"
port = 80
max-connections = 64
[[load-balancer.backend]]
to = "10.0.0.1:8080"
"#;

/// Returns a request about NAT, load balancers, or anything.
fn request_of_translation(random: &mut Random) -> Value {
    if random.below(4) == 0 {
        return request(random);
    }
    let mut one_of = |all: &[&'static str]| {
        let index = random.below(all.len() as u64);
        all[usize::try_from(index).unwrap()]
    };
    let backend = one_of(&["10.0.0.1:8080", "10.0.0.2:8080"]);
    let change = match one_of(&[
        "add-nat",
        "del-nat",
        "add-nat-address",
        "add-publish",
        "del-publish",
        "add-load-balancer",
        "add-load-balancer-ipv6",
        "del-load-balancer",
        "del-load-balancer-ipv6",
        "add-backend",
        "add-backend-ipv6",
        "set-backend",
        "del-backend",
        "set-interface",
        "set-threads",
    ]) {
        "add-nat" => json!({"add-nat": {"name": "out", "interface": "up",
            "sources": [one_of(&["10.0.0.0/8", "10.0.0.0/16"])], "max-mappings": 64, "max-hosts": 8}}),
        "del-nat" => json!({"del-nat": {"name": "out"}}),
        "add-nat-address" => json!({"add-nat-address": {"nat": "out",
            "address": one_of(&["203.0.113.1", "203.0.113.2"])}}),
        "add-publish" => json!({"add-publish": {"nat": "out",
            "publish": {"protocol": "tcp", "port": 443, "to": "10.0.0.6:8443"}}}),
        "del-publish" => json!({"del-publish": {"nat": "out", "protocol": "tcp", "port": 443}}),
        "add-load-balancer" => json!({"add-load-balancer": {"name": "web", "address": "192.0.2.80",
            "port": 80, "max-connections": 64, "backend": [{"to": backend}]}}),
        "add-load-balancer-ipv6" => json!({"add-load-balancer": {"name": "web6",
            "address": "2001:db8::80", "port": 80, "max-connections": 64}}),
        "del-load-balancer" => json!({"del-load-balancer": {"name": "web"}}),
        "del-load-balancer-ipv6" => json!({"del-load-balancer": {"name": "web6"}}),
        "add-backend-ipv6" => json!({"add-backend": {"load_balancer": "web6",
            "backend": {"to": one_of(&["[2001:db8:1::1]:8080", "[2001:db8:1::2]:8080"])}}}),
        "add-backend" => {
            json!({"add-backend": {"load_balancer": "web", "backend": {"to": backend}}})
        }
        "set-backend" => json!({"set-backend": {"load_balancer": "web",
            "backend": {"to": backend, "state": one_of(&["up", "draining", "down"])}}}),
        "del-backend" => json!({"del-backend": {"load_balancer": "web", "to": backend}}),
        "set-interface" => json!({"set-interface": {"name": "up", "port": "r",
            "addresses": [one_of(&["192.0.2.1/24", "192.0.2.2/24"])]}}),
        _ => {
            json!({"set-threads": {"forwarding_cpus": one_of(&["2", "2-3", "2-4", "3-5"])}})
        }
    };
    json!({"change": change})
}

/// Checks that a thread has the instances of NAT and the load balancers of the plan.
pub(super) fn check(engine: &Engine, worker: &Worker, cpu: u32) {
    let share = engine.share_of_thread(cpu).expect("a share");
    let (has, have_tables): (Vec<NatBinding>, Vec<bool>) = worker
        .nat()
        .map(|(place, has_tables)| (place.clone(), has_tables))
        .unzip();
    assert_eq!(has, engine.nat_places(Some(share)), "NAT of CPU {cpu}");
    assert!(have_tables.iter().all(|has| *has), "CPU {cpu}: {has:?}");
    let balancer = |setting: &LoadBalancerSetting| -> TableOf {
        let setting = setting.with_share(share);
        let mut backends = setting.backends();
        backends.sort_by_key(|one| one.endpoint);
        (setting.table(), backends)
    };
    let all = engine.plan.load_balancers.iter();
    let (of_ipv4, of_ipv6): (Vec<_>, Vec<_>) = all.partition(|one| one.address.is_ipv4());
    let wanted = of_ipv4.into_iter().chain(of_ipv6).map(balancer);
    let stage = worker.balance();
    let has: Vec<_> = stage
        .iter()
        .flat_map(|stage| [tables(&stage.balancers), tables(&stage.balancers_ipv6)])
        .flatten()
        .collect();
    assert_eq!(
        has,
        wanted.collect::<Vec<_>>(),
        "load balancers of CPU {cpu}"
    );
}

/// Settings of a load balancer, and its backends in ascending order.
type TableOf = (BalanceSettings<SocketAddr>, Vec<Backend<SocketAddr>>);

/// Returns what a thread has, in the form of the plan.
fn tables<E: BalanceEndpoint>(balancers: &Balancers<E>) -> Vec<TableOf> {
    let table = |one: &Balancer<E>| {
        let settings = one.settings();
        let settings = BalanceSettings {
            protocol: settings.protocol,
            endpoint: settings.endpoint.into(),
            connections_max: settings.connections_max,
            is_direct: settings.is_direct,
        };
        let backends = one.backends().iter();
        let backends = backends.map(|one| one.of_any_version().backend).collect();
        (settings, backends)
    };
    balancers.balancers().iter().map(table).collect()
}

#[test]
fn threads_translate_as_the_plan_says_after_any_fault() {
    let test = "threads_translate_as_the_plan_says_after_any_fault";
    let start = format!("{START}{TRANSLATED}");
    run_all(FEW_SEEDS, test, (&start, request_of_translation));
}

/// The thread executes an order after the change that it belongs to has failed. Undoing the change has to give the thread back what it had.
#[test]
fn a_late_order_is_undone_with_its_change() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for change in [
        json!({"del-nat": {"name": "out"}}),
        json!({"del-load-balancer": {"name": "web"}}),
    ] {
        let mut rig = Rig::with(&format!("{START}{TRANSLATED}"));
        let before = rig.state();
        let request = json!({ "change": change });
        let mut refused = 0;
        // The number of the order is unknown, and so are the seeds with which the thread is late.
        'orders: for number in 0..40 {
            for seed in 0..6 {
                let answer = rig.ask(&request, When::Once(number), Random::new(seed), false);
                rig.settle();
                if matches!(answer, Answer::Ok { .. }) {
                    // The change has fewer orders.
                    break 'orders;
                }
                refused += 1;
                assert_eq!(rig.state(), before, "{change}, {number}, {seed}");
                rig.check();
            }
        }
        assert!(refused > 6, "{change}: {refused}");
    }
}

/// A standby compares these settings with those of the active switch.
#[test]
fn settings_that_a_standby_compares_differ_after_their_change() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rig = Rig::with(&format!("{START}{TRANSLATED}"));
    let mut before = rig.controller.engine().digests();
    // Those of one NAT, labels and zones. With the maximum number of NATs they are as many as fit into a message.
    assert_eq!((before.len() - 2) * NATS_MAX + 2, SETTINGS_MAX);
    let differing = |before: &Digests, after: &Digests| -> Vec<String> {
        let pairs = before.iter().zip(after);
        let differing = pairs.filter(|(one, other)| one != other);
        differing.map(|((name, _), _)| name.clone()).collect()
    };
    let moved = json!({"name": "up", "port": "r", "addresses": ["192.0.2.2/24"]});
    for (change, expected) in [
        (json!({"add-bridge": {"name": "wan"}}), None),
        (
            json!({ "set-interface": moved }),
            Some("addresses of NAT 'out'"),
        ),
        (
            json!({"set-threads": {"forwarding_cpus": "2-3"}}),
            Some("number of forwarding CPUs of NAT 'out'"),
        ),
    ] {
        rig.change(&change);
        let after = rig.controller.engine().digests();
        let names = differing(&before, &after);
        assert_eq!(names, Vec::from_iter(expected), "{change}");
        before = after;
    }
    rig.change(&json!({"del-nat": {"name": "out"}}));
    let nat = json!({"name": "out", "interface": "up", "sources": ["10.0.0.0/8"],
        "max-mappings": 64, "max-hosts": 8, "mapping": "address-dependent"});
    rig.change(&json!({ "add-nat": nat }));
    let after = rig.controller.engine().digests();
    let name = "mapping and filtering of NAT 'out'";
    assert_eq!(differing(&before, &after), [name]);
    drop(rig);
    // Labels are a setting of the start.
    let digests = |start: &str| Rig::with(start).controller.engine().digests();
    let shared = start_shared();
    let labelled = digests(&format!("{shared}labels = true\n"));
    let without = digests(&shared);
    assert_eq!(differing(&without, &labelled), ["labels of connections"]);
}

/// A standby compares these limits with those of the active switch.
#[test]
fn limits_that_a_standby_compares_are_those_of_all_tables() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let limits = |start: &str| Rig::with(start).controller.engine().limits();
    let named = |name: &str, value| (name.to_owned(), value);
    let shared = start_shared();
    let all = [
        named("max-entries of connections", 64),
        named("max-per-source of connections", u32::MAX),
        named("max-mappings of NAT 'out'", 64),
        named("max-hosts of NAT 'out'", 8),
        named("max-connections of load balancer 'web'", 64),
    ];
    assert_eq!(limits(&format!("{shared}{TRANSLATED}")), all);
    let zones = "max-per-source = 7\n[[connections.zone]]\nname = \"one\"\nports = [\"a\"]\n\
        max-entries = 32\n[[connections.zone]]\nname = \"two\"\nports = [\"b\"]\n";
    let of_zones = [
        named("max-entries of connections", 64),
        named("max-per-source of connections", 7),
        named("max-entries of zone 'one'", 32),
        named("max-entries of zone 'two'", u32::MAX),
    ];
    assert_eq!(limits(&format!("{shared}{zones}")), of_zones);
}
