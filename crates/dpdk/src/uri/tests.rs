// SPDX-License-Identifier: Apache-2.0

use super::parse::SOCKET_PATH_MAX;
use super::*;

#[test]
fn every_form_survives_printing_and_reading() {
    for text in [
        "memif:/run/a.sock?role=server&id=7",
        "memif:/run/a.sock?role=client&id=0&queues=4",
        "memif:@name?role=server&id=1&secret-file=/etc/secret&trust-memory=on",
        "vhost:/run/v.sock?role=server&iommu=on&trust-memory=on",
        "virtio-user:/run/v?role=client",
        "virtio-user:/run/v?role=server&queues=2&mergeable=on&packed=on",
        "virtio-user:/run/v?role=client&mergeable=on&checksum=on",
        "virtio-user:/run/v?role=client&packed=on&tso=on",
        "vhost:/run/v.sock?role=server",
        "vhost:/run/v.sock?role=client&queues=64&mergeable=off&checksum=off",
        "vhost:/run/v.sock?role=server&tso=on",
        "af-xdp:eth0",
        "af-xdp:eth0?queues=2&first-queue=3&copy=on",
        "af-packet:veth1",
        "af-packet:veth1?queues=2",
        "af-packet:veth1?gro=on",
        "veth:host0",
        "veth:host0?netns=blue",
        "veth:host0?queues=2&netns=/proc/1/ns/net&peer=lan0&mtu=9000&mac=02:00:00:00:00:0a&peer-mac=02:00:00:00:00:0b&persist=on&gro=on",
        "veth:host0?peer=eth0",
        "tap:host0",
        "tap:host0?queues=3",
        "tap:host0?mtu=1400",
        "tap:host0?mtu=9000&mac=02:00:00:00:00:0a&netns=blue&persist=on&gro=on",
        "tap:host0?queues=2&netns=/proc/1/ns/net",
        "pcap:?rx=/tmp/a b.pcap",
        "pcap:?tx=/tmp/b.pcap",
        "pcap:?rx=/tmp/a.pcap&tx=/tmp/b.pcap&loop=on",
        "null:",
        "pci:0000:17:00.0",
        "pci:0000:17:00.0?queues=8",
        "pci:0000:17:00.0?rss=symmetric&tso=off&hw-offload=on&flow-control=rx",
        "pci:0000:17:00.0?flow-control=off",
        "pci:0000:17:00.0?checksum=off",
        "pci:0000:17:00.0?queues=8&rss=symmetric&devargs=mprq_en=1,rxqs_min_mprq=4&trust=on",
        "pci:0000:17:02.0?queues=2&mac=02:00:00:00:00:0a&vlan=4094&trust=on&spoof-check=off&max-tx-rate=1000",
        "pci:0000:17:02.0?vlan=0&trust=off&spoof-check=on&max-tx-rate=0",
        "pci:0000:17:02.0?functions=4&mac=02:00:00:00:00:0a",
    ] {
        let uri: PortUri = text.parse().unwrap();
        assert_eq!(uri.to_string(), text);
        assert_eq!(uri.to_string().parse::<PortUri>().unwrap(), uri);
    }
    for (text, whole) in [
        ("pci:17:00.1", "pci:0000:17:00.1"),
        ("pci:17:00.1?rss=default&tso=on", "pci:0000:17:00.1"),
        ("veth:v0?peer=v0-peer&persist=off&gro=off", "veth:v0"),
        ("veth:eth0?peer=eth0&netns=b", "veth:eth0?netns=b"),
        ("vhost:/v?checksum=on&queues=1", "vhost:/v?role=server"),
        ("memif:/m?id=2&role=client", "memif:/m?role=client&id=2"),
        (
            "virtio-user:/v?tso=on&checksum=on&mergeable=on",
            "virtio-user:/v?role=client&tso=on",
        ),
        (
            "virtio-user:/v?tso=off&checksum=off&mergeable=off",
            "virtio-user:/v?role=client",
        ),
    ] {
        assert_eq!(text.parse::<PortUri>().unwrap().to_string(), whole);
    }
}

#[test]
fn the_kind_is_the_scheme_and_only_created_interfaces_have_a_namespace() {
    for (kind, text, namespace) in [
        (PortKind::Memif, "memif:/run/a.sock?role=server", None),
        (PortKind::Vhost, "vhost:/run/v.sock", None),
        (PortKind::VirtioUser, "virtio-user:/run/v.sock", None),
        (PortKind::Tap, "tap:host0?netns=blue", Some("blue")),
        (PortKind::Veth, "veth:host0?netns=/run/n", Some("/run/n")),
        (PortKind::AfPacket, "af-packet:eth0", None),
        (PortKind::AfXdp, "af-xdp:eth0", None),
        (PortKind::Pci, "pci:0000:17:00.0", None),
        (PortKind::Pcap, "pcap:?rx=/tmp/a.pcap", None),
        (PortKind::Null, "null:", None),
    ] {
        let uri: PortUri = text.parse().unwrap();
        assert_eq!(uri.kind(), kind);
        assert!(text.starts_with(&format!("{}:", kind.name())), "{text}");
        assert_eq!(uri.network_namespace(), namespace);
    }
    let names: std::collections::BTreeSet<&str> =
        PortKind::ALL.into_iter().map(PortKind::name).collect();
    assert_eq!(names.len(), PortKind::ALL.len());
}

#[test]
fn ports_that_exchange_large_frames_keep_buffers_for_them() {
    for (text, exchanges) in [
        ("virtio-user:/v?mergeable=on&checksum=on", false),
        ("virtio-user:/v?tso=on", true),
        ("vhost:/v", false),
        ("vhost:/v?tso=on", true),
        ("memif:/m?role=server", false),
    ] {
        let uri: PortUri = text.parse().unwrap();
        assert_eq!(uri.has_segmentation(), exchanges, "{text}");
        assert_eq!(uri.buffers_kept(2048) > 0, exchanges, "{text}");
    }
}

#[test]
fn wrong_uris_are_reported_with_the_reason() {
    for (text, part) in [
        ("memif", "no scheme"),
        ("memif:/a", "role=server"),
        ("memif:a?role=server", "absolute"),
        ("memif:@?role=server", "abstract"),
        ("memif:/a?role=server&secret-file=b", "absolute"),
        (
            "virtio-user:/a?trust-memory=on",
            "virtio-user does not support trust-memory",
        ),
        ("memif:/a?role=boss", "'boss'"),
        ("memif:/a?role=server&id=-1", "'-1'"),
        ("memif:/a?role=server&colour=red", "colour=red"),
        ("memif:/a?role=server&role=client", "'role' is given twice"),
        ("memif:/a,zero-copy=yes?role=server", "must not contain"),
        ("memif:/a?role=server&queues=0", "1 to 64, not '0'"),
        ("memif:/a?role=server&queues=65", "1 to 64, not '65'"),
        (
            "memif:/a?role=server&mergeable=on",
            "memif does not support mergeable",
        ),
        ("vhost:/a?mergeable=yes", "'on' or 'off', not 'yes'"),
        ("vhost:/a?packed=on", "vhost does not support packed"),
        (
            "vhost:/a?tso=on&checksum=off",
            "tso=on requires checksum=on",
        ),
        ("tap:a?tso=on", "tap does not support tso"),
        ("tap:a?mac=02:00", "not '02:00'"),
        ("tap:a?mac=01:00:00:00:00:01", "unicast"),
        ("tap:a?mac=00:00:00:00:00:00", "unicast"),
        ("tap:a?netns=", "not ''"),
        ("tap:a?netns=a/b", "not 'a/b'"),
        ("tap:a?netns=..", "not '..'"),
        ("tap:a?persist=yes", "'on' or 'off', not 'yes'"),
        ("veth:", "not a name"),
        ("veth:a/b", "'a/b' is not a name"),
        ("veth:qw%d", "not a name for a new"),
        ("veth:sixteen-letters-", "not a name"),
        (
            "veth:eleven-long",
            "requires peer=NAME because 'eleven-long-peer'",
        ),
        ("veth:a?peer=a", "both ends of the pair have the name 'a'"),
        ("veth:a?peer=a%d", "'a%d' is not a name for a new"),
        ("veth:a?peer=", "'' is not a name"),
        ("veth:a?netns=a/b", "not 'a/b'"),
        ("veth:a?mtu=67", "68 to 9198, not '67'"),
        ("veth:a?mtu=9199", "68 to 9198, not '9199'"),
        ("veth:a?mtu=big", "not 'big'"),
        ("veth:a?mac=x", "mac must be a MAC address"),
        (
            "veth:a?peer-mac=01:00:00:00:00:01",
            "peer-mac must be a unicast address",
        ),
        ("veth:a?persist=yes", "'on' or 'off', not 'yes'"),
        ("veth:a?role=server", "veth does not support role"),
        ("tap:a?gro=1", "'on' or 'off', not '1'"),
        ("af-xdp:a?gro=on", "af-xdp does not support gro"),
        ("tap:a?mtu=67", "68 to 9198, not '67'"),
        ("af-packet:a?mtu=1500", "af-packet does not support mtu"),
        ("tap:a?peer=b", "tap does not support peer"),
        ("af-packet:a?netns=b", "af-packet does not support netns"),
        (
            "vhost:/a?mac=02:00:00:00:00:01",
            "vhost does not support mac",
        ),
        ("null:?persist=on", "null does not support persist"),
        (
            "virtio-user:/a?tso=on&checksum=off",
            "tso=on requires checksum=on",
        ),
        (
            "virtio-user:/a?tso=on&mergeable=off",
            "tso=on requires mergeable=on",
        ),
        ("memif:/a?role=server&tso=on", "memif does not support tso"),
        ("null:x", "nothing after"),
        ("null:?id=3", "does not support id"),
        ("null:?queues=2", "does not support queues"),
        ("af-xdp:", "not a name"),
        ("af-xdp:eth0?first-queue=x", "not 'x'"),
        ("af-packet:a/b", "not a name"),
        ("pci:banana", "PCI address"),
        ("pci:0000:17:00.9", "PCI address"),
        ("pci:0000:17:02.0?vlan=4095", "0 to 4094, not '4095'"),
        ("pci:0000:17:00.0?rss=on", "'symmetric', not 'on'"),
        ("pci:0000:17:00.0?tso=auto", "'on' or 'off', not 'auto'"),
        ("tap:a?checksum=off", "tap does not support checksum"),
        ("tap:a?rss=symmetric", "tap does not support rss"),
        ("pci:0000:17:00.0?flow-control=full", "'tx', not 'full'"),
        ("tap:a?hw-offload=on", "tap does not support hw-offload"),
        ("pci:0000:17:00.0?devargs=", "NAME=VALUE"),
        ("pci:0000:17:00.0?devargs=a", "not 'a'"),
        ("pci:0000:17:00.0?devargs=a=1,,b=2", "NAME=VALUE"),
        ("pci:0000:17:00.0?devargs=a=1 --no-huge=1", "NAME=VALUE"),
        ("pci:0000:17:02.0?functions=0", "1 to 256, not '0'"),
        ("pci:0000:17:02.0?functions=257", "1 to 256, not '257'"),
        ("pci:0000:17:02.0?trust=1", "'on' or 'off', not '1'"),
        ("pci:0000:17:02.0?max-tx-rate=-1", "0 to 1000000, not '-1'"),
        ("pci:0000:17:02.0?mac=01:00:5e:00:00:01", "unicast"),
        ("af-xdp:eth0?vlan=5", "af-xdp does not support vlan"),
        ("tun:x", "'tun'"),
        ("tap:", "not a name"),
        ("tap:qw%d", "not a name for a new"),
        ("tap:sixteen-letters-", "not a name"),
        ("pcap:", "requires rx=FILE"),
        ("pcap:/a.pcap", "are options"),
        ("pcap:?rx=a.pcap", "absolute"),
        ("pcap:?rx=/a,b", "must not contain"),
        ("pcap:?rx=/a&tx=/a", "cannot read from the file"),
        ("pcap:?tx=/a&loop=on", "loop requires rx"),
        ("pcap:?rx=/a&loop=2", "'on' or 'off', not '2'"),
    ] {
        let error = text.parse::<PortUri>().unwrap_err();
        assert!(error.what.contains(part), "{text}: {}", error.what);
    }
    let long = format!("memif:/{}?role=server", "a".repeat(SOCKET_PATH_MAX));
    assert!(long.parse::<PortUri>().is_err());
}

#[test]
fn drivers_get_the_arguments_of_the_uri() {
    for (uri, arguments) in [
        (
            "af-xdp:e?queues=2&first-queue=4&copy=on",
            "net_af_xdp3,iface=e,start_queue=4,queue_count=2,force_copy=1",
        ),
        (
            "pcap:?rx=/a&tx=/b&loop=on",
            "net_pcap3,rx_pcap=/a,tx_pcap=/b,infinite_rx=1",
        ),
        (
            "pci:17:00.0?queues=2&devargs=mprq_en=1,x=[0-3]",
            "0000:17:00.0,mprq_en=1,x=[0-3]",
        ),
        ("pci:17:00.0", "0000:17:00.0"),
        ("memif:/m?role=server", ""),
        ("tap:t", ""),
        ("veth:v", ""),
    ] {
        let uri: PortUri = uri.parse().unwrap();
        assert_eq!(uri.device_arguments(3, 2), arguments);
    }
}
