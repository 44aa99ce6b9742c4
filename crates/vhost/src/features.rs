// SPDX-License-Identifier: Apache-2.0
//! Feature bits of virtio network devices and of the vhost-user protocol, as masks.
//!
//! Sources: virtio 1.2, section 5.1.3 (network device) and section 6 (all devices); vhost-user protocol, sections
//! 'Communication', 'Migration' and 'Protocol features'.

/// Defines masks and the table of their names.
macro_rules! features {
    ($table:ident: $($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        $($(#[$doc])* pub const $name: u64 = 1 << $bit;)*
        const $table: &[(u64, &str)] = &[$(($name, stringify!($name))),*];
    };
}

features! { VIRTIO_NAMES:
    /// The device completes partial checksums of frames that the driver sends (virtio 1.2, section 5.1.3).
    NET_F_CSUM = 0;
    /// The driver accepts frames with partial checksums (section 5.1.3).
    NET_F_GUEST_CSUM = 1;
    /// The driver changes its offloads through the control queue (section 5.1.3).
    NET_F_CTRL_GUEST_OFFLOADS = 2;
    /// The configuration space has the device's largest MTU (section 5.1.3).
    NET_F_MTU = 3;
    /// The configuration space has a MAC address (section 5.1.3).
    NET_F_MAC = 5;
    /// The driver receives TCP segments over IPv4 larger than the MTU (section 5.1.3).
    NET_F_GUEST_TSO4 = 7;
    /// The driver receives TCP segments over IPv6 larger than the MTU (section 5.1.3).
    NET_F_GUEST_TSO6 = 8;
    /// The driver receives large TCP segments with ECN (section 5.1.3).
    NET_F_GUEST_ECN = 9;
    /// The driver receives UDP datagrams larger than the MTU, to be fragmented (section 5.1.3).
    NET_F_GUEST_UFO = 10;
    /// The device segments TCP over IPv4 (section 5.1.3).
    NET_F_HOST_TSO4 = 11;
    /// The device segments TCP over IPv6 (section 5.1.3).
    NET_F_HOST_TSO6 = 12;
    /// The device segments TCP with ECN (section 5.1.3).
    NET_F_HOST_ECN = 13;
    /// The device fragments UDP datagrams (section 5.1.3).
    NET_F_HOST_UFO = 14;
    /// A received frame may span several buffers (section 5.1.3).
    NET_F_MRG_RXBUF = 15;
    /// The configuration space has the link's status (section 5.1.3).
    NET_F_STATUS = 16;
    /// The device has a control queue (section 5.1.3).
    NET_F_CTRL_VQ = 17;
    /// The control queue sets receive modes (section 5.1.3).
    NET_F_CTRL_RX = 18;
    /// The control queue filters VLANs (section 5.1.3).
    NET_F_CTRL_VLAN = 19;
    /// The driver announces itself on request (section 5.1.3).
    NET_F_GUEST_ANNOUNCE = 21;
    /// The device has several pairs of queues (section 5.1.3).
    NET_F_MQ = 22;
    /// The control queue sets the MAC address (section 5.1.3).
    NET_F_CTRL_MAC_ADDR = 23;
    /// The device reports once that it has used all buffers (section 6.3, legacy).
    F_NOTIFY_ON_EMPTY = 24;
    /// The back end logs its writes to guest memory (vhost-user, section 'Migration').
    F_LOG_ALL = 26;
    /// Buffers may have any layout (section 6.3, legacy).
    F_ANY_LAYOUT = 27;
    /// A descriptor may refer to a table of descriptors (section 6).
    F_INDIRECT_DESC = 28;
    /// Notifications are suppressed by index (section 6).
    F_EVENT_IDX = 29;
    /// The peers negotiate protocol features (vhost-user, section 'Communication').
    F_PROTOCOL_FEATURES = 30;
    /// The device complies with virtio 1.0 or later (section 6).
    F_VERSION_1 = 32;
    /// Addresses are translated by an IOMMU (section 6).
    F_ACCESS_PLATFORM = 33;
    /// The device has packed rings (section 6).
    F_RING_PACKED = 34;
    /// The device uses buffers in the order in which they became available (section 6).
    F_IN_ORDER = 35;
    /// Memory accesses are ordered as the platform requires (section 6).
    F_ORDER_PLATFORM = 36;
    /// The device has virtual functions (section 6).
    F_SR_IOV = 37;
    /// Notifications carry the ring's index (section 6).
    F_NOTIFICATION_DATA = 38;
    /// The device chooses what notifications carry (section 6).
    F_NOTIF_CONFIG_DATA = 39;
    /// The driver can reset a single ring (section 6).
    F_RING_RESET = 40;
    /// The control queue sets notification coalescing (section 5.1.3).
    NET_F_NOTF_COAL = 53;
    /// The driver receives UDP segments over IPv4 (section 5.1.3).
    NET_F_GUEST_USO4 = 54;
    /// The driver receives UDP segments over IPv6 (section 5.1.3).
    NET_F_GUEST_USO6 = 55;
    /// The device segments UDP (section 5.1.3).
    NET_F_HOST_USO = 56;
    /// The device reports each frame's hash (section 5.1.3).
    NET_F_HASH_REPORT = 57;
    /// The driver gives the exact length of headers (section 5.1.3).
    NET_F_GUEST_HDRLEN = 59;
    /// The device scales receiving over its queues by hash (section 5.1.3).
    NET_F_RSS = 60;
    /// The device reports coalesced segments (section 5.1.3).
    NET_F_RSC_EXT = 61;
    /// The device stands by for a primary device (section 5.1.3).
    NET_F_STANDBY = 62;
    /// The device reports its speed and duplex mode (section 5.1.3).
    NET_F_SPEED_DUPLEX = 63;
}

features! { PROTOCOL_NAMES:
    /// The back end has several pairs of queues.
    PROTOCOL_F_MQ = 0;
    /// The log of written pages is in shared memory.
    PROTOCOL_F_LOG_SHMFD = 1;
    /// The back end broadcasts RARP for a guest that has migrated.
    PROTOCOL_F_RARP = 2;
    /// A request may ask for an acknowledgement.
    PROTOCOL_F_REPLY_ACK = 3;
    /// The front end sets the MTU.
    PROTOCOL_F_MTU = 4;
    /// The back end sends requests over a channel of its own.
    PROTOCOL_F_BACKEND_REQ = 5;
    /// Rings may be of the other byte order.
    PROTOCOL_F_CROSS_ENDIAN = 6;
    /// The back end has crypto sessions.
    PROTOCOL_F_CRYPTO_SESSION = 7;
    /// The back end supports postcopy migration.
    PROTOCOL_F_PAGEFAULT = 8;
    /// The back end has the configuration space.
    PROTOCOL_F_CONFIG = 9;
    /// Requests of the back end carry file descriptors.
    PROTOCOL_F_BACKEND_SEND_FD = 10;
    /// The back end maps notification areas into the guest.
    PROTOCOL_F_HOST_NOTIFIER = 11;
    /// Buffers in flight are tracked in shared memory.
    PROTOCOL_F_INFLIGHT_SHMFD = 12;
    /// The front end can reset the device.
    PROTOCOL_F_RESET_DEVICE = 13;
    /// Notifications are messages.
    PROTOCOL_F_INBAND_NOTIFICATIONS = 14;
    /// Memory regions are added and removed one by one.
    PROTOCOL_F_CONFIGURE_MEM_SLOTS = 15;
    /// The front end passes the device status on.
    PROTOCOL_F_STATUS = 16;
    /// Memory is mapped by Xen.
    PROTOCOL_F_XEN_MMAP = 17;
    /// Back ends share objects.
    PROTOCOL_F_SHARED_OBJECT = 18;
    /// The back end's state migrates.
    PROTOCOL_F_DEVICE_STATE = 19;
    /// A ring can stop with buffers in flight.
    PROTOCOL_F_GET_VRING_BASE_INFLIGHT = 20;
}

/// Device status: the driver has noticed the device (virtio 1.2, section 2.1).
pub const STATUS_ACKNOWLEDGE: u8 = 1;
/// Device status: the driver knows how to drive the device (section 2.1).
pub const STATUS_DRIVER: u8 = 2;
/// Device status: the driver is set up (section 2.1).
pub const STATUS_DRIVER_OK: u8 = 4;
/// Device status: feature negotiation is complete (section 2.1).
pub const STATUS_FEATURES_OK: u8 = 8;

/// Returns these features without segmentation whose checksum feature is missing: segmentation by the device requires `NET_F_CSUM`, that by
/// the driver `NET_F_GUEST_CSUM` (virtio 1.2, section 5.1.3.1).
#[must_use]
pub const fn without_unmet_segmentation(features: u64) -> u64 {
    const OF_DEVICE: u64 =
        NET_F_HOST_TSO4 | NET_F_HOST_TSO6 | NET_F_HOST_ECN | NET_F_HOST_UFO | NET_F_HOST_USO;
    const OF_DRIVER: u64 = NET_F_GUEST_TSO4
        | NET_F_GUEST_TSO6
        | NET_F_GUEST_ECN
        | NET_F_GUEST_UFO
        | NET_F_GUEST_USO4
        | NET_F_GUEST_USO6;
    let mut met = features;
    if features & NET_F_CSUM == 0 {
        met &= !OF_DEVICE;
    }
    if features & NET_F_GUEST_CSUM == 0 {
        met &= !OF_DRIVER;
    }
    met
}

/// Returns the names of virtio features, separated by blanks. Bits without a name are one hexadecimal number at the end.
#[must_use]
pub fn virtio_names(features: u64) -> String {
    names(VIRTIO_NAMES, features)
}

/// Returns the names of protocol features, separated by blanks. Bits without a name are one hexadecimal number at the end.
#[must_use]
pub fn protocol_names(features: u64) -> String {
    names(PROTOCOL_NAMES, features)
}

/// Returns the names of virtio features in the order of their bits, in lower case and without prefixes: `mrg-rxbuf`.
#[must_use]
pub fn virtio_name_list(features: u64) -> Vec<String> {
    let is_set = |(feature, _): &&(u64, &str)| features & *feature != 0;
    let short = |name: &str| {
        let name = name
            .strip_prefix("NET_F_")
            .or_else(|| name.strip_prefix("F_"))
            .unwrap_or(name);
        name.to_ascii_lowercase().replace('_', "-")
    };
    VIRTIO_NAMES
        .iter()
        .filter(is_set)
        .map(|(_, name)| short(name))
        .collect()
}

fn names(table: &[(u64, &str)], features: u64) -> String {
    let mut left = features;
    let mut text = String::new();
    for (mask, name) in table {
        if features & mask != 0 {
            left &= !mask;
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(name);
        }
    }
    if left != 0 {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&format!("{left:#x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_and_unknown_bits_are_a_number() {
        assert_eq!(
            virtio_names(NET_F_MRG_RXBUF | F_VERSION_1),
            "NET_F_MRG_RXBUF F_VERSION_1"
        );
        assert_eq!(
            virtio_names(1 << 50 | NET_F_CSUM),
            "NET_F_CSUM 0x4000000000000"
        );
        assert_eq!(
            protocol_names(PROTOCOL_F_REPLY_ACK | 1 << 40),
            "PROTOCOL_F_REPLY_ACK 0x10000000000"
        );
        assert_eq!(virtio_names(0), "");
    }

    #[test]
    fn segmentation_requires_the_checksums_of_its_direction() {
        let of_device = NET_F_HOST_TSO4 | NET_F_HOST_TSO6 | NET_F_HOST_USO;
        let of_driver = NET_F_GUEST_TSO4 | NET_F_GUEST_TSO6 | NET_F_GUEST_USO4 | NET_F_GUEST_USO6;
        let others = F_VERSION_1 | NET_F_MRG_RXBUF | NET_F_MQ;
        let all = others | of_device | of_driver;
        for (checksums, kept) in [
            (0, others),
            (NET_F_CSUM, others | of_device),
            (NET_F_GUEST_CSUM, others | of_driver),
            (NET_F_CSUM | NET_F_GUEST_CSUM, all),
        ] {
            let met = without_unmet_segmentation(all | checksums);
            assert_eq!(met, kept | checksums, "{}", virtio_names(checksums));
        }
    }

    #[test]
    fn each_bit_has_one_name() {
        for table in [VIRTIO_NAMES, PROTOCOL_NAMES] {
            let mut observed = 0;
            for (mask, name) in table {
                assert_eq!(observed & mask, 0, "{name}");
                assert_eq!(mask.count_ones(), 1, "{name}");
                observed |= mask;
            }
        }
    }
}
