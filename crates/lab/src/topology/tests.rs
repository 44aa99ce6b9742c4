// SPDX-License-Identifier: Apache-2.0
//! Properties of every possible topology: links have two ends, chains lead from the tester to the tester, and the numbers of
//! chains and VNFs are the requested ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proptest::prelude::*;
use quietwire_base::fuzz::{check, planted};
use quietwire_host::CpuList;

use super::file::parse;
use super::*;

fn container(chains: Option<u32>, length: Option<u32>) -> Parameters {
    Parameters {
        chains,
        length,
        inside: ElementPlace::Container,
        ..Parameters::default()
    }
}

fn graph(name: &str, parameters: &Parameters) -> Graph {
    named(name).unwrap().graph(parameters).unwrap()
}

fn refused(name: &str, parameters: &Parameters) -> String {
    named(name)
        .unwrap()
        .graph(parameters)
        .unwrap_err()
        .to_string()
}

fn cpus(text: &str) -> CpuList {
    text.parse().unwrap()
}

/// Checks the properties of any graph.
fn check_links(graph: &Graph) {
    // Every port is one end of one link, and port numbers have no gaps.
    let ends: Vec<(usize, usize)> = graph
        .links
        .iter()
        .flat_map(|link| link.ends)
        .map(|end| (end.element, end.port))
        .collect();
    let apart: BTreeSet<_> = ends.iter().copied().collect();
    assert_eq!(ends.len(), 2 * graph.links.len());
    assert_eq!(apart.len(), ends.len(), "{graph:?}");
    for element in 0..graph.elements.len() {
        let ports = graph.port_count(element);
        assert!(ports > 0 && ports.is_multiple_of(2));
        assert!((0..ports).all(|port| apart.contains(&(element, port))));
    }
    // Each chain leads from the tester, through links and joins in turn, to the tester.
    for (chain, links) in graph.chains.iter().enumerate() {
        let mut at = graph.links[links[0]].ends[0];
        assert_eq!(at.element, 0);
        for (hop, link) in links.iter().enumerate() {
            let link = &graph.links[*link];
            assert_eq!((link.ends[0], link.chain), (at, chain));
            at = link.ends[1];
            if hop + 1 < links.len() {
                let through = graph
                    .joins
                    .iter()
                    .find(|join| join.element == at.element && join.ports[0] == at.port)
                    .unwrap();
                assert_eq!(through.chain, chain);
                at.port = through.ports[1];
            }
        }
        assert_eq!(at.element, 0);
    }
    let in_chains: usize = graph.chains.iter().map(Vec::len).sum();
    assert_eq!(in_chains, graph.links.len());
}

proptest! {
    // Topologies of many chains are large: a quarter of the usual number of cases.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 4,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_topology_connects_the_tester_to_itself(
        which in 0..CATALOG.len(),
        chains in 1..=CHAINS_MAX,
        length in 1..=LENGTH_MAX,
        place in 0..3_usize,
    ) {
        let topology = CATALOG[which];
        let chains = if topology.chains == Chains::Many { chains } else { 1 };
        let length = (topology.length == Length::Any).then_some(length);
        let inside = ElementPlace::ALL[place];
        let graph = topology.graph(&Parameters { inside, ..container(Some(chains), length) }).unwrap();
        check_links(&graph);
        let n = chains as usize;
        prop_assert_eq!(graph.chains.len(), n);
        prop_assert_eq!(graph.port_count(0), 2 * n);
        let m = match topology.shape {
            Shape::Switch => 0,
            Shape::Vnf => 1,
            Shape::VnfSwitchVnf => 2,
            Shape::SwitchedVnfs => length.unwrap_or(1) as usize,
        };
        let count = |role: Role| graph.elements.iter().filter(|element| element.role == role).count();
        prop_assert_eq!(count(Role::Vnf), n * m);
        prop_assert_eq!(graph.length(), m);
        prop_assert_eq!(count(Role::Tester), 1);
        prop_assert_eq!(count(Role::Switch), usize::from(topology.shape != Shape::Vnf));
        let guests_meet = inside == ElementPlace::Guest && topology.switch == inside && m > 0;
        prop_assert_eq!(count(Role::Relay), usize::from(guests_meet));
        for element in &graph.elements {
            let printed = match element.role {
                Role::Tester => ElementPlace::Host,
                Role::Switch => topology.switch,
                Role::Vnf => topology.vnf,
                Role::Relay => ElementPlace::Host,
            };
            let expected = if printed == ElementPlace::Guest { inside } else { printed };
            prop_assert_eq!(element.place, expected);
        }
        // Both forms exist for each topology and contain the right number of elements.
        let given = assign(&graph, &cpus("0-1"), &BTreeMap::new()).unwrap();
        let picture = draw(&graph, &given);
        prop_assert_eq!(picture.matches(">CPU ").count(), graph.elements.len() + given.shared.len());
        let text = describe(&graph, &given);
        prop_assert_eq!(text.lines().filter(|line| line.starts_with("chain ")).count(), n);
    }
}

proptest! {
    #[test]
    fn cpus_are_given_to_all_and_sharing_is_reported(online in 1..80_u32, chains in 1..6_u32, length in 1..6_u32) {
        let graph = graph("vNet6-nVNFch", &container(Some(chains), Some(length)));
        let all: CpuList = (0..online).map(quietwire_host::CpuId).collect();
        let given = assign(&graph, &all, &BTreeMap::new()).unwrap();
        prop_assert_eq!(given.elements.len(), graph.elements.len());
        let mut users: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for (element, cpus) in graph.elements.iter().zip(&given.elements) {
            prop_assert_eq!(cpus.len(), 1);
            for cpu in cpus.iter() {
                users.entry(cpu).or_default().push(&element.name);
            }
        }
        let expected: Vec<_> = users.into_iter().filter(|(_, names)| names.len() > 1).collect();
        let reported: Vec<_> = given
            .shared
            .iter()
            .map(|shared| (shared.cpu, shared.elements.iter().map(String::as_str).collect::<Vec<_>>()))
            .collect();
        prop_assert_eq!(reported, expected);
        prop_assert_eq!(given.shared.is_empty(), online as usize >= graph.elements.len());
        // No forwarding element shares the tester's CPU if there is a second CPU.
        prop_assert_eq!(given.is_shared(TESTER), online == 1);
    }
}

#[test]
fn names_are_those_of_the_field_and_are_found_in_any_case() {
    assert_eq!(CATALOG.len(), 15);
    let names: BTreeSet<&str> = CATALOG.iter().map(|topology| topology.name).collect();
    assert_eq!(names.len(), 15);
    assert_eq!(named("vnet6-NVNFCH").unwrap().name, "vNet6-nVNFch");
    assert!(named("vNet8").is_none());
    let shown: Vec<String> = graph("vNet6-1VNFch", &container(None, None))
        .path(0)
        .into_iter()
        .map(|element| element.to_string())
        .collect();
    assert_eq!(shown.join(" "), "0 1 2 1 3 1 0");
}

#[test]
fn links_are_what_both_ends_can() {
    let kinds = |name: &str, parameters: &Parameters| -> Vec<String> {
        graph(name, parameters)
            .links
            .iter()
            .map(|link| link.kind.to_string())
            .collect()
    };
    let usual = container(None, None);
    assert_eq!(kinds("vNet4-1VNF", &usual), ["memif"; 4]);
    let ovs = Parameters {
        switch: Program::OvsDpdk,
        ..usual.clone()
    };
    assert_eq!(kinds("vNet4-1VNF", &ovs), ["vhost-user"; 4]);
    assert_eq!(
        kinds("vNet4-1VNF", &Parameters::default()),
        ["memif", "vhost-user", "vhost-user", "memif"]
    );
    let bridge = Parameters {
        switch: Program::LinuxBridge,
        ..Parameters::default()
    };
    assert_eq!(kinds("vNet4-1VNF", &bridge), ["veth", "tap", "tap", "veth"]);
    let routing = Parameters {
        switch: Program::LinuxRouting,
        encapsulation: Encapsulation::Ipv6,
        ..Parameters::default()
    };
    assert_eq!(
        kinds("vNet6-1VNFch", &routing),
        ["veth", "tap", "tap", "tap", "tap", "veth"]
    );
    let router = Parameters {
        switch: Program::Quietwire,
        vnf: Program::QuietwireRouter,
        ..routing
    };
    assert_eq!(kinds("vNet4-1VNF", &router)[1], "vhost-user");
    let cards = Parameters {
        ports: ["0000:17:00.0", "0000:17:00.1"].map(str::to_owned).to_vec(),
        ..usual.clone()
    };
    let with_cards = graph("vNet4-1VNF", &cards);
    assert_eq!(
        kinds("vNet4-1VNF", &cards),
        ["pci", "memif", "memif", "pci"]
    );
    assert_eq!(with_cards.links[3].pci.as_deref(), Some("0000:17:00.1"));
    let wrong = Parameters {
        link: Some(LinkKind::Memif),
        ..ovs
    };
    let message = refused("vNet1", &wrong);
    assert!(
        message.contains("cannot be connected by memif (use vhost-user"),
        "{message}"
    );
}

#[test]
fn a_relay_stands_between_guests_and_nowhere_else() {
    let named = |name: &str| -> String {
        let graph = graph(name, &Parameters::default());
        check_links(&graph);
        let path = graph.path(0).into_iter();
        let names = path.map(|element| graph.elements[element].name.clone());
        names.collect::<Vec<String>>().join(" ")
    };
    assert_eq!(named("vNet5-1VNF"), "T S R V R S T");
    assert_eq!(named("vNet4-1VNF"), "T S V S T");
    assert_eq!(named("vNet2"), "T S T");
    // One relay for all chains, whatever the names of other elements.
    let graph = graph("vNet7-nVNFch", &Parameters::default());
    let relays = graph
        .elements
        .iter()
        .filter(|element| element.role == Role::Relay);
    assert_eq!(relays.count(), 1);
    let guests = OWN.replace("cpus = \"1\"", "place = \"guest\"");
    let guests = guests.replace("place = \"container\"", "place = \"guest\"");
    let guests = guests
        .replace("\"ovs-dpdk\"", "\"testpmd-io\"")
        .replace("\"left\"", "\"R\"");
    let own = parse(&guests, Path::new("own.toml")).unwrap();
    check_links(&own);
    assert_eq!(own.elements.last().unwrap().name, "R2");
}

#[test]
fn invalid_parameters_are_reported() {
    let usual = container(None, None);
    let routing = Parameters {
        switch: Program::LinuxRouting,
        encapsulation: Encapsulation::Ipv4,
        ..Parameters::default()
    };
    for (name, parameters, part) in [
        ("vNet1", container(Some(2), None), "--chains is 2"),
        ("vNet4-nVNF", container(Some(0), None), "--chains is 0"),
        ("vNet4-nVNF", container(Some(33), None), "1 to 32"),
        ("vNet4-1VNF", container(None, Some(2)), "--length is 2"),
        ("vNet6-1VNFch", container(None, Some(33)), "--length is 33"),
        (
            "vNet1",
            Parameters {
                ports: vec!["eth0".to_owned()],
                ..usual.clone()
            },
            "two for each chain",
        ),
        (
            "vNet1",
            Parameters {
                ports: vec!["eth0".to_owned(), "eth1".to_owned()],
                ..usual.clone()
            },
            "'eth0' is not a PCI address",
        ),
        (
            "vNet1",
            Parameters {
                ports: vec!["0000:17:00.0".to_owned(); 2],
                ..usual.clone()
            },
            "named twice",
        ),
        (
            "vNet3",
            Parameters {
                vnf: Program::OvsDpdk,
                ..usual.clone()
            },
            "ovs-dpdk cannot be a vnf",
        ),
        (
            "vNet2",
            Parameters {
                switch: Program::OvsDpdk,
                ..usual.clone()
            },
            "is not supported in a container",
        ),
        (
            "vNet4-1VNF",
            Parameters {
                vnf: Program::TestpmdMacswap,
                forwarding: Forwarding::Bridge,
                ..usual.clone()
            },
            "changes them",
        ),
        (
            "vNet1",
            Parameters {
                switch: Program::LinuxRouting,
                ..usual.clone()
            },
            "encapsulation",
        ),
        (
            "vNet1",
            Parameters {
                switch: Program::L3fwd,
                encapsulation: Encapsulation::Ipv6,
                ..usual.clone()
            },
            "only IPv4",
        ),
        (
            "vNet4-1VNF",
            Parameters {
                switch: Program::L3fwd,
                ..routing.clone()
            },
            "as in vNet1",
        ),
        (
            "vNet4-1VNF",
            Parameters {
                switch: Program::OvsDpdkRouter,
                ..routing.clone()
            },
            "as in vNet1",
        ),
        (
            "vNet4-1VNF",
            Parameters {
                switch: Program::QuietwireRouter,
                ..routing.clone()
            },
            "passes it once",
        ),
        ("vNet4-nVNF", routing.clone(), "so there is one chain"),
        (
            "vNet4-1VNF",
            Parameters {
                vnf: Program::LinuxRouting,
                ..routing.clone()
            },
            "S and V both route",
        ),
        (
            "vNet4-1VNF",
            Parameters {
                vnf: Program::TestpmdMacswap,
                ..routing.clone()
            },
            "V: testpmd-macswap changes MAC addresses",
        ),
    ] {
        let message = refused(name, &parameters);
        assert!(message.contains(part), "{name}: {message}");
    }
}

#[test]
fn cpus_that_cannot_be_given_are_reported() {
    let graph = graph("vNet1", &container(None, None));
    let asked = |name: &str, list: &str| BTreeMap::from([(name.to_owned(), cpus(list))]);
    for (asked, part) in [
        (asked("V", "1"), "elements: T, S"),
        (asked("S", "2"), "CPUs 0-1 are available"),
    ] {
        let message = assign(&graph, &cpus("0-1"), &asked)
            .unwrap_err()
            .to_string();
        assert!(message.contains(part), "{message}");
    }
    let given = assign(&graph, &cpus("0-3"), &asked("S", "0,2")).unwrap();
    assert_eq!(given.elements, [cpus("1"), cpus("0,2")]);
    assert_eq!(given.rest, cpus("3"));
    assert!(given.warnings().is_empty());
}

const OWN: &str = r#"name = "two-tenants"
about = "two tenants behind one switch"

[[element]]
name = "S"
role = "switch"
program = "ovs-dpdk"
cpus = "1"

[[element]]
name = "left"
role = "vnf"
program = "testpmd-io"
place = "container"

[[element]]
name = "right"
role = "vnf"
program = "quietwire"
place = "container"

[[chain]]
path = ["T", "S", "left", "S", "T"]

[[chain]]
path = ["T", "S", "right", "S", "T"]
link = "vhost-user"
"#;

#[test]
fn a_custom_topology_has_the_same_parts() {
    let own = parse(OWN, Path::new("own.toml")).unwrap();
    check_links(&own);
    assert_eq!(own.chains.len(), 2);
    assert_eq!(own.port_count(1), 8);
    assert_eq!(own.elements[1].cpus, Some(cpus("1")));
    // Direct links between VNFs are supported, too, and can be drawn.
    let direct = OWN.replace("\"S\", \"left\", \"S\"", "\"S\", \"left\", \"right\"");
    let direct = direct
        .split("\n[[chain]]\npath = [\"T\", \"S\", \"right\"")
        .next()
        .unwrap()
        .to_owned();
    let direct = parse(&direct, Path::new("own.toml")).unwrap();
    check_links(&direct);
    assert_eq!(direct.links[2].kind, LinkKind::Memif);
    let given = assign(&direct, &cpus("0-1"), &BTreeMap::new()).unwrap();
    assert!(draw(&direct, &given).contains("(right)"));
}

#[test]
fn firewalls_have_rules_and_guests_custom_images() {
    let rules = Some("rule-default = \"drop\"".to_owned());
    let image = Some(OwnImage {
        kernel: "/k".into(),
        initramfs: "/i".into(),
    });
    let firewall = Parameters {
        vnf: Program::Firewall,
        rules: rules.clone(),
        image: image.clone(),
        ..Parameters::default()
    };
    // A switch in a guest boots the built image nevertheless.
    let built = graph("vNet5-1VNF", &firewall);
    let of = |name: &str| built.elements.iter().find(|one| one.name == name).unwrap();
    assert_eq!((&of("V").rules, &of("V").image), (&rules, &image));
    assert_eq!((&of("S").rules, &of("S").image), (&None, &None));
    let own = Parameters {
        vnf: Program::OwnImage,
        ..Parameters::default()
    };
    for (name, parameters, part) in [
        (
            "vNet1",
            Parameters {
                rules,
                ..Parameters::default()
            },
            "the topology has no firewall",
        ),
        (
            "vNet1",
            Parameters {
                image,
                ..Parameters::default()
            },
            "no VNF in a guest",
        ),
        ("vNet3", own.clone(), "own-image requires a kernel"),
        (
            "vNet3",
            Parameters {
                inside: ElementPlace::Container,
                ..own
            },
            "set the place to guest",
        ),
        (
            "vNet1",
            Parameters {
                switch: Program::OwnImage,
                ..Parameters::default()
            },
            "cannot be a switch",
        ),
    ] {
        let message = refused(name, &parameters);
        assert!(message.contains(part), "{message}");
    }
    // In a file, paths are relative to its directory.
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("rules.toml"), "# none\n").unwrap();
    let path = directory.path().join("own.toml");
    let parts = "rules = \"rules.toml\"\nimage = [\"k\", \"/i\"]\nplace = \"guest\"";
    let text = OWN.replace(
        "program = \"testpmd-io\"\nplace = \"container\"",
        &format!("program = \"firewall\"\n{parts}"),
    );
    let own = parse(&text, &path).unwrap();
    let left = &own.elements[2];
    assert_eq!(left.rules.as_deref(), Some("# none\n"));
    let image = left.image.as_ref().unwrap();
    assert_eq!(
        (&image.kernel, &image.initramfs),
        (&directory.path().join("k"), &"/i".into())
    );
    for (from, to, part) in [
        ("rules.toml", "nowhere.toml", "element[1].rules"),
        (
            "\"firewall\"",
            "\"quietwire\"",
            "quietwire does not support rules",
        ),
        (
            "place = \"guest\"",
            "place = \"container\"",
            "left is not in one",
        ),
    ] {
        let message = parse(&text.replace(from, to), &path)
            .unwrap_err()
            .to_string();
        assert!(message.contains(part), "{message}");
    }
}

fn service_chain(chains: Option<u32>) -> Parameters {
    Parameters {
        vnfs: vec![Program::Nat, Program::Firewall, Program::QuietwireRouter],
        encapsulation: Encapsulation::Ipv4,
        ..container(chains, None)
    }
}

#[test]
fn a_chain_has_functions_of_several_programs_and_several_routers() {
    for name in ["vNet6-1VNFch", "vNet7-1VNFch"] {
        let built = graph(name, &service_chain(None));
        check_links(&built);
        let path = built.path(0).into_iter();
        let programs: Vec<&str> = path
            .map(|element| built.elements[element].program.name())
            .collect();
        assert_eq!(
            programs.join(" "),
            "tester quietwire nat quietwire firewall quietwire quietwire-router quietwire tester"
        );
    }
    // Each chain has its own routers, in the order of the chain.
    let built = graph("vNet6-nVNFch", &service_chain(Some(2)));
    let place = |name: &str| {
        let mut elements = built.elements.iter();
        let element = elements.position(|one| one.name == name).unwrap();
        (built.router_place(element), built.vnf_place(element))
    };
    let router = |chain, index| RouterPlace {
        chain,
        index,
        count: 2,
    };
    assert_eq!(place("V1.1"), (router(0, 0), Some(1)));
    assert_eq!(place("V2.3"), (router(1, 1), Some(3)));
    assert_eq!(place("V2.2").1, Some(2));
    assert_eq!(place("S").1, None);
    // A router that a chain passes several times is one router.
    let around = graph(
        "vNet6-1VNFch",
        &Parameters {
            switch: Program::LinuxRouting,
            encapsulation: Encapsulation::Ipv4,
            ..container(None, None)
        },
    );
    assert_eq!(around.router_place(1), RouterPlace::default());
    let usual = || service_chain(None);
    for (name, parameters, part) in [
        (
            "vNet6-1VNFch",
            Parameters {
                length: Some(2),
                ..usual()
            },
            "3 programs of VNFs are listed, and --length is 2",
        ),
        ("vNet4-1VNF", usual(), "the number of listed programs is 3"),
        (
            "vNet6-1VNFch",
            Parameters {
                encapsulation: Encapsulation::Ipv6,
                ..usual()
            },
            "V1: nat translates IPv4 addresses",
        ),
        (
            "vNet6-1VNFch",
            Parameters {
                vnfs: vec![Program::Nat, Program::TestpmdMac],
                ..usual()
            },
            "V2: testpmd-mac changes MAC addresses",
        ),
        (
            "vNet6-1VNFch",
            Parameters {
                vnfs: vec![Program::Nat, Program::LinuxRouting],
                inside: ElementPlace::Guest,
                ..usual()
            },
            "V1 and V2 both route",
        ),
        (
            "vNet6-1VNFch",
            Parameters {
                vnf_config: Some(String::new()),
                ..usual()
            },
            "no common configuration",
        ),
    ] {
        let message = refused(name, &parameters);
        assert!(message.contains(part), "{name}: {message}");
    }
}

#[test]
fn switches_of_quietwire_and_vnfs_have_configurations() {
    let config = Some("[connections]\nmax-entries = 9\n".to_owned());
    let both = Parameters {
        switch_config: config.clone(),
        vnf_config: Some("# none\n".to_owned()),
        vnf: Program::Firewall,
        ..container(None, None)
    };
    let built = graph("vNet4-1VNF", &both);
    let of = |name: &str| built.elements.iter().find(|one| one.name == name).unwrap();
    assert_eq!(of("S").config, config);
    assert_eq!(of("V").config.as_deref(), Some("# none\n"));
    assert_eq!(of("T").config, None);
    let stored = serde_json::to_string(&built).unwrap();
    assert_eq!(
        serde_json::from_slice::<Graph>(stored.as_bytes()).unwrap(),
        built
    );
    for (name, parameters, part) in [
        ("vNet3", both.clone(), "there is no switch"),
        ("vNet1", both.clone(), "there is no VNF"),
        (
            "vNet4-1VNF",
            Parameters {
                rules: Some(String::new()),
                ..both.clone()
            },
            "V: rules and a configuration exclude each other",
        ),
        (
            "vNet4-1VNF",
            Parameters {
                switch: Program::OvsDpdk,
                ..both.clone()
            },
            "S: ovs-dpdk does not support a configuration",
        ),
        (
            "vNet4-1VNF",
            Parameters {
                switch_config: Some("idle = \"poll\"\n".to_owned()),
                ..both.clone()
            },
            "S: the lab sets 'idle' itself",
        ),
    ] {
        let message = refused(name, &parameters);
        assert!(message.contains(part), "{name}: {message}");
    }
    // In a file, the path is relative to its directory.
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("config.toml"), "# none\n").unwrap();
    let path = directory.path().join("own.toml");
    let text = OWN.replace(
        "program = \"quietwire\"\n",
        "program = \"quietwire\"\nconfig = \"config.toml\"\n",
    );
    let own = parse(&text, &path).unwrap();
    assert_eq!(own.elements[3].config.as_deref(), Some("# none\n"));
    let message = parse(&text.replace("config.toml", "nowhere.toml"), &path)
        .unwrap_err()
        .to_string();
    assert!(message.contains("element[2].config"), "{message}");
}

#[test]
fn faults_of_a_file_are_reported_with_line_and_key() {
    for (from, to, expected) in [
        (
            "name = \"S\"",
            "name = \"T\"",
            "own.toml:5:8: element[0].name: the topology already has the tester",
        ),
        (
            "\"ovs-dpdk\"",
            "\"ovs\"",
            "own.toml:7:11: element[0].program: unknown variant `ovs`",
        ),
        (
            "cpus = \"1\"",
            "cpu = \"1\"",
            "own.toml:8:1: element[0].cpu: unknown field",
        ),
        (
            "name = \"left\"",
            "name = \"S\"",
            "own.toml:11:8: element[1].name: two elements have the name 'S'",
        ),
        (
            "[\"T\", \"S\", \"left\", \"S\", \"T\"]",
            "[\"T\", \"S\", \"middle\", \"S\", \"T\"]",
            "own.toml:23:19: chain[0].path[2]: unknown element 'middle' (elements: T, S, left, right)",
        ),
        (
            "[\"T\", \"S\", \"left\", \"S\", \"T\"]",
            "[\"T\", \"S\", \"left\", \"S\"]",
            "own.toml:23:8: chain[0].path: a chain begins and ends at T",
        ),
        (
            "[\"T\", \"S\", \"right\", \"S\", \"T\"]",
            "[\"T\", \"S\", \"left\", \"S\", \"T\"]",
            "own.toml:10:1: element[1]: left is passed 2 times",
        ),
        (
            "link = \"vhost-user\"",
            "link = \"memif\"",
            "own.toml:26:8: chain[1].path: the tester and S (ovs-dpdk) cannot be connected by memif",
        ),
        (
            "link = \"vhost-user\"",
            "ports = [\"a\", \"b\"]",
            "own.toml:27:9: chain[1].ports: 'a' is not a PCI address",
        ),
        (
            "name = \"two-tenants\"",
            "name = \"two/tenants\"",
            "own.toml:1:8: name: use up to 32",
        ),
    ] {
        assert!(OWN.contains(from), "{from}");
        let message = parse(&OWN.replace(from, to), Path::new("own.toml"))
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with(expected),
            "{message}\nis not\n{expected}"
        );
    }
}

/// Parses any text as a topology file. What is accepted passes its own check; an error names the file.
fn fuzz_topology(octets: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(octets) else {
        return false;
    };
    let graph = match parse(text, Path::new("/nonexistent/fuzz.toml")) {
        Ok(graph) => graph,
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("/nonexistent/fuzz.toml:"), "{error}");
            return false;
        }
    };
    assert_eq!(graph.check(), Ok(()));
    let stored = serde_json::to_string(&graph).unwrap();
    assert_eq!(
        serde_json::from_slice::<Graph>(stored.as_bytes()).unwrap(),
        graph
    );
    planted("lab-topology", || {
        graph.chains.len() > 2 && graph.elements.iter().any(|element| element.cpus.is_some())
    });
    true
}

#[test]
fn fuzz_topologies() {
    check(env!("CARGO_MANIFEST_DIR"), "lab-topology", fuzz_topology);
}
