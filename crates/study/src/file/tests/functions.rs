// SPDX-License-Identifier: Apache-2.0
//! Chains of functions, and configurations of quietwire's switch.

use super::{of_topologies, parse};

const CHAIN: &str = "switch = \"quietwire\"\ntopology = \"vNet6-nVNFch\"\nplace = \"container\"\nencapsulation = \"ipv4\"\n\
                     vnfs = [\"nat\", \"firewall\", \"quietwire-router\"]";
const ONLY: &str = "[[case]]\nname = \"only\"\n";

fn refused(device: &str, cases: &str, parts: &[&str]) {
    let error = of_topologies(device, cases).unwrap_err().to_string();
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn chains_have_functions_of_several_programs() {
    let cases = format!(
        "{ONLY}[[case]]\nname = \"same\"\nvnf = \"quietwire\"\n\
         [[case]]\nname = \"none\"\ntopology = \"vNet1\"\nvnfs = []\n"
    );
    let file = of_topologies(CHAIN, &cases).unwrap();
    let described = |case: usize| file.device_of(&file.cases[case]).described();
    assert_eq!(
        described(0),
        "quietwire in vNet6-nVNFch over memif, 6 network functions nat, firewall, quietwire-router in containers"
    );
    assert_eq!(
        described(1),
        "quietwire in vNet6-nVNFch over memif, 4 network functions quietwire in containers"
    );
    assert_eq!(described(2), "quietwire in vNet1 over memif");
    let text = toml::to_string(&file).unwrap();
    assert_eq!(parse(&text).unwrap(), file);
    refused(
        CHAIN,
        &format!("{ONLY}length = 2\n"),
        &["case[0]", "3 programs of VNFs are listed"],
    );
}

#[test]
fn several_chains_have_frames_of_their_own_in_both_directions() {
    let frames = "[traffic.frames]\n[traffic.frames.ipv4]\nttl = 9\n";
    refused(
        CHAIN,
        &format!("{frames}{ONLY}"),
        &["traffic.frames", "addresses of the first chain"],
    );
    for direction in ["one-way", "reverse"] {
        refused(
            CHAIN,
            &format!("[traffic]\ndirections = \"{direction}\"\n{ONLY}"),
            &["traffic.directions", "only the first chain"],
        );
    }
    let one = CHAIN.replace("nVNFch", "1VNFch");
    of_topologies(&one, &format!("{frames}{ONLY}")).unwrap();
    let forwarders = CHAIN.replace("\"nat\"", "\"firewall\"");
    let forwarders = forwarders.replace("quietwire-router", "quietwire");
    of_topologies(&forwarders, &format!("{frames}{ONLY}")).unwrap();
}

#[test]
fn configurations_of_the_switch_are_checked_with_its_ports_and_interfaces() {
    let router = "switch = \"quietwire-router\"\ntopology = \"vNet1\"\nencapsulation = \"ipv4\"";
    let case = |config: &str| format!("{ONLY}switch-config = '''\n{config}'''\n");
    let tracked = "[connections]\n[[rule]]\nname = \"new\"\naction = \"accept\"\nct-state = \"new\"\nport = \"p0\"\n";
    let nat = "[[nat]]\nname = \"n\"\ninterface = \"i1\"\n";
    let file = of_topologies(router, &case(&format!("{tracked}{nat}"))).unwrap();
    assert!(file.runs_in_topologies());
    let text = toml::to_string(&file).unwrap();
    assert_eq!(parse(&text).unwrap(), file);
    for (config, part) in [
        (tracked.replace("p0", "p7"), "p7"),
        (tracked.replace("[connections]\n", ""), "ct-state requires"),
        (nat.replace("i1", "i7"), "no such interface"),
        ("memory-mib = 9\n".to_owned(), "the lab sets 'memory-mib'"),
    ] {
        refused(router, &case(&config), &["case[0]", "S: ", part]);
    }
    // A switch with a configuration is not the standalone one, whose settings are those of [device].
    let alone = "switch = \"quietwire\"\ntopology = \"vNet1\"";
    let file = of_topologies(alone, &case(tracked)).unwrap();
    assert!(!file.device_of(&file.cases[0]).is_standalone_switch());
}
