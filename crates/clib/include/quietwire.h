/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packet classifier and the connection tracker of quietwire, for other
 * data planes: bursts of packet descriptors in, verdicts out. The guide is
 * docs/c-library.md.
 *
 * Rules of all functions:
 *
 * - They return a status: QW_OK, or a negative number of enum qw_status. After
 *   an error, nothing has changed and no result is stored, except as a function
 *   describes.
 * - Handles are numbers. A wrong handle, and one whose object was destroyed,
 *   is QW_ERR_HANDLE.
 * - They never wait. An object that another thread is using is QW_ERR_BUSY:
 *   give each thread a tracker of its own and a handle of its own of the same
 *   rules (qw_classifier_share).
 * - qw_classify, qw_track, qw_commit, qw_filter and qw_tracker_expire neither
 *   allocate memory nor call the kernel. All others can do both.
 * - Pointers must not be null, unless a comment allows it. Packets must not
 *   change until the function returns.
 * - Reserved fields are 0.
 */
#ifndef QUIETWIRE_H
#define QUIETWIRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Number of the binary interface. Compare it with qw_abi_version(). */
#define QW_ABI_VERSION 1

/* Most packets of a burst. */
#define QW_BURST_MAX 64
/* Most rules of a classifier. */
#define QW_RULES_MAX 100000
/* Most objects of a process, of all kinds. */
#define QW_HANDLES_MAX 1024
/* Most connections of a tracker, and most zones. */
#define QW_ENTRIES_MAX 67108864
#define QW_ZONES_MAX 1024
/* Longest timeout, seconds. */
#define QW_TIMEOUT_MAX 2592000
/* Latest time, seconds. */
#define QW_SECONDS_MAX 2147483648u
/* Most connections that qw_tracker_list stores at once. */
#define QW_PAGE_MAX 4096
/* Most different marks and labels, with their masks, that the rules of a
 * classifier compare, together. */
#define QW_CONDITIONS_MAX 24

/* No rule. */
#define QW_NO_RULE UINT32_MAX
/* A state or reason that is not in this header. */
#define QW_OTHER 255

enum qw_status {
    QW_OK = 0,
    /* No such object. */
    QW_ERR_HANDLE = -1,
    /* Another thread is using the object. */
    QW_ERR_BUSY = -2,
    /* A pointer is null or not aligned. */
    QW_ERR_POINTER = -3,
    /* Too many packets or rules. */
    QW_ERR_SIZE = -4,
    /* A value out of range, or a rule that no packet can match. */
    QW_ERR_ARGUMENT = -5,
    /* Out of memory. */
    QW_ERR_MEMORY = -6,
    /* No free handle. */
    QW_ERR_LIMIT = -7,
    /* A defect of the library. The object can only be destroyed. */
    QW_ERR_INTERNAL = -8,
};

enum qw_action {
    QW_ACCEPT = 0,
    QW_DROP = 1,
    /* Drop, and answer the sender: a TCP reset or an ICMP error. */
    QW_REJECT = 2,
};

/* What decided on a packet. */
enum qw_cause {
    /* Nothing: qw_track judges no packet. */
    QW_CAUSE_NONE = 0,
    /* The rule of the verdict. */
    QW_CAUSE_RULE = 1,
    /* No rule matches. */
    QW_CAUSE_DEFAULT = 2,
    /* Malformed headers: enum qw_malformation is the reason. */
    QW_CAUSE_MALFORMED = 3,
    /* Shorter than an Ethernet header. */
    QW_CAUSE_SHORT = 4,
    /* No space for its connection: enum qw_refusal is the reason. */
    QW_CAUSE_REFUSED = 5,
};

/* Class of a packet by its connection: `ct state` of nftables. */
enum qw_ct_state {
    QW_CT_NEW = 0,
    QW_CT_ESTABLISHED = 1,
    QW_CT_RELATED = 2,
    QW_CT_INVALID = 3,
    QW_CT_UNTRACKED = 4,
};

/* State of a connection. Those of TCP are the kernel's. */
enum qw_connection_state {
    QW_STATE_TCP_SYN_SENT = 0,
    QW_STATE_TCP_SYN_SENT2 = 1,
    QW_STATE_TCP_SYN_RECV = 2,
    QW_STATE_TCP_ESTABLISHED = 3,
    QW_STATE_TCP_FIN_WAIT = 4,
    QW_STATE_TCP_CLOSE_WAIT = 5,
    QW_STATE_TCP_LAST_ACK = 6,
    QW_STATE_TCP_TIME_WAIT = 7,
    QW_STATE_TCP_CLOSE = 8,
    QW_STATE_UDP_UNREPLIED = 9,
    QW_STATE_UDP_REPLIED = 10,
    QW_STATE_ICMP_UNREPLIED = 11,
    QW_STATE_ICMP_REPLIED = 12,
    QW_STATE_OTHER_UNREPLIED = 13,
    QW_STATE_OTHER_REPLIED = 14,
};

/* Why a packet is QW_CT_INVALID. */
enum qw_invalid_reason {
    QW_INVALID_MALFORMED = 1,
    QW_INVALID_FRAGMENT = 2,
    QW_INVALID_SAME_ENDPOINT = 3,
    QW_INVALID_FLAGS = 4,
    QW_INVALID_NO_CONNECTION = 5,
    QW_INVALID_STATE = 6,
    QW_INVALID_SEQUENCE = 7,
    QW_INVALID_ACKNOWLEDGEMENT = 8,
    QW_INVALID_SYN = 9,
    QW_INVALID_ICMP_TYPE = 10,
    QW_INVALID_UNRELATED = 11,
};

/* Why there is no space for a connection. */
enum qw_refusal {
    QW_REFUSED_TABLE_FULL = 1,
    QW_REFUSED_ZONE_FULL = 2,
    QW_REFUSED_NO_ZONE = 3,
    /* Does not fit an earlier packet of the burst. */
    QW_REFUSED_CONFLICT = 4,
};

/* Why a frame is malformed. */
enum qw_malformation {
    QW_MALFORMED_TRUNCATED_TAG = 1,
    QW_MALFORMED_TOO_MANY_TAGS = 2,
    QW_MALFORMED_HIDDEN_VLAN = 3,
    QW_MALFORMED_SNAP = 4,
    QW_MALFORMED_TRUNCATED_HEADER = 5,
    QW_MALFORMED_IP_VERSION = 6,
    QW_MALFORMED_HEADER_LENGTH = 7,
    QW_MALFORMED_PACKET_LENGTH = 8,
    QW_MALFORMED_OPTIONS = 9,
    QW_MALFORMED_JUMBOGRAM = 10,
    QW_MALFORMED_TRUNCATED_EXTENSION = 11,
    QW_MALFORMED_TOO_MANY_EXTENSIONS = 12,
    QW_MALFORMED_EXTENSION_ORDER = 13,
    QW_MALFORMED_UNKNOWN_EXTENSION = 14,
    QW_MALFORMED_TRUNCATED_TRANSPORT = 15,
    QW_MALFORMED_OVERLAPPING_FRAGMENT = 16,
    QW_MALFORMED_FRAGMENT_LENGTH = 17,
    QW_MALFORMED_FRAGMENT_END = 18,
    QW_MALFORMED_SCATTERED_HEADERS = 19,
};

/* Fields of a rule that are compared, in qw_rule.fields. */
#define QW_MATCH_ETHERTYPE (1u << 0)
#define QW_MATCH_VLAN (1u << 1)
#define QW_MATCH_PROTOCOL (1u << 2)
#define QW_MATCH_SOURCE (1u << 3)
#define QW_MATCH_DESTINATION (1u << 4)
#define QW_MATCH_SOURCE_PORT (1u << 5)
#define QW_MATCH_DESTINATION_PORT (1u << 6)
#define QW_MATCH_TCP_FLAGS (1u << 7)
#define QW_MATCH_ICMP_TYPE (1u << 8)
#define QW_MATCH_ICMP_CODE (1u << 9)
#define QW_MATCH_DSCP (1u << 10)
#define QW_MATCH_CT_STATE (1u << 11)
/* These require qw_classifier_create_ct. */
#define QW_MATCH_CT_MARK (1u << 12)
#define QW_MATCH_CT_LABEL (1u << 13)
/* Not compared: the rule sets the mark or the label of the connections of
 * packets that it accepts. Requires QW_ACCEPT. */
#define QW_SET_CT_MARK (1u << 14)
#define QW_SET_CT_LABEL (1u << 15)

/* Flag of qw_classifier_create: compare malformed frames by the headers that
 * can be read. Default: drop them before the rules. */
#define QW_CLASSIFIER_MATCH_MALFORMED 1u

/* Flag of qw_tracker_settings: connections have labels. */
#define QW_TRACKER_LABELS 1u

/* Handles. 0 is never one. */
typedef uint64_t qw_classifier;
typedef uint64_t qw_tracker;
/* A connection of one tracker. 0 is none. A number can name another connection
 * only after its entry has had 65,536 others. */
typedef uint64_t qw_connection_id;

struct qw_packet {
    /* First octet of the Ethernet header. Null only if data_length is 0. */
    const void *data;
    /* Octets at data: at least all headers, and for an ICMP error those of
     * the packet in it. */
    uint32_t data_length;
    /* Octets of the frame without FCS, at least data_length. */
    uint32_t frame_length;
    /* Zone of the tracker. */
    uint16_t zone;
    uint16_t reserved[3];
};

/* Label of a connection: 128 bits. A new connection has the label 0. */
struct qw_label {
    /* Bits 0 to 63. */
    uint64_t low;
    /* Bits 64 to 127. */
    uint64_t high;
};

/* Only the fields that `fields` names are compared. All octets 0: a rule that
 * accepts every packet. */
struct qw_rule {
    /* QW_MATCH_..., QW_SET_CT_... */
    uint32_t fields;
    /* enum qw_action */
    uint8_t action;
    /* Bit N is state N of enum qw_ct_state; at least one. */
    uint8_t ct_states;
    uint8_t protocol;
    /* 0 to 63 */
    uint8_t dscp;
    /* Flags that are set, out of those that are compared. */
    uint8_t tcp_flags;
    uint8_t tcp_flags_mask;
    uint8_t icmp_type;
    uint8_t icmp_code;
    /* Behind the tags. */
    uint16_t ethertype;
    /* Of the outermost tag, 0 to 4094. */
    uint16_t vlan;
    /* Lengths of the prefixes, bits. */
    uint8_t source_length;
    uint8_t destination_length;
    /* 1: both addresses are of IPv6; 0: of IPv4. */
    uint8_t is_ipv6;
    uint8_t reserved;
    /* First and last port. Requires a protocol with ports. */
    uint16_t source_port_first;
    uint16_t source_port_last;
    uint16_t destination_port_first;
    uint16_t destination_port_last;
    /* In network order. An IPv4 address is in the first four octets. */
    uint8_t source[16];
    uint8_t destination[16];
    uint32_t reserved_words[1];
};

/* Marks and labels of a rule. Only those that qw_rule.fields names are used.
 * Each value has a mask of the bits that are compared or set: a mask is not 0,
 * and a value has no bit outside of its mask. */
struct qw_rule_ct {
    /* QW_MATCH_CT_MARK */
    uint32_t mark;
    uint32_t mark_mask;
    /* QW_SET_CT_MARK */
    uint32_t set_mark;
    uint32_t set_mark_mask;
    /* QW_MATCH_CT_LABEL */
    struct qw_label label;
    struct qw_label label_mask;
    /* QW_SET_CT_LABEL */
    struct qw_label set_label;
    struct qw_label set_label_mask;
};

struct qw_verdict {
    /* enum qw_action */
    uint8_t action;
    /* enum qw_cause */
    uint8_t cause;
    /* enum qw_ct_state */
    uint8_t ct_state;
    /* 1 if the packet goes against the first packet of its connection. */
    uint8_t is_reply;
    /* enum qw_invalid_reason, or 0 */
    uint8_t invalid_reason;
    /* By the cause: enum qw_malformation or enum qw_refusal, or 0 */
    uint8_t reason;
    uint16_t reserved;
    /* Number of the rule, from 0 on, or QW_NO_RULE. */
    uint32_t rule;
    /* Mark of the connection: the new one if the rule sets it. */
    uint32_t mark;
    qw_connection_id connection;
};

struct qw_tracker_settings {
    /* Most connections, 1 to QW_ENTRIES_MAX. */
    uint32_t entries_max;
    /* Number of zones, up to QW_ZONES_MAX. 0: one. */
    uint32_t zones;
    /* Most connections of a zone. 0: no limit but that of the table. */
    uint32_t zone_limit;
    /* QW_TRACKER_LABELS, or 0. */
    uint32_t flags;
    /* By enum qw_connection_state, up to QW_TIMEOUT_MAX. 0: the default. */
    uint32_t timeouts_s[32];
};

struct qw_connection {
    /* Address and port that sent the first packet, as in struct qw_rule. The
     * ports of an ICMP echo are its identifier. Ports are in host order. */
    uint8_t source[16];
    uint8_t destination[16];
    uint16_t source_port;
    uint16_t destination_port;
    uint16_t zone;
    uint8_t protocol;
    /* enum qw_connection_state, or QW_OTHER */
    uint8_t state;
    uint8_t is_ipv6;
    /* 1 if both sides have sent packets. */
    uint8_t is_replied;
    uint16_t reserved;
    uint32_t mark;
    /* Seconds until it expires without further packets. */
    uint32_t expires_in_s;
    /* Of each direction, the original one first. */
    uint32_t packets[2];
    uint32_t reserved_word;
    uint64_t octets[2];
};

struct qw_tracker_counters {
    /* Connections at present. */
    uint64_t connections;
    uint64_t created;
    uint64_t expired;
    /* For the sake of new ones. */
    uint64_t dropped_early;
    uint64_t refused;
    /* Packets. */
    uint64_t invalid;
    /* Memory of the tables. */
    uint64_t octets;
};

#ifdef __cplusplus
#define QW_ASSERT static_assert
#else
#define QW_ASSERT _Static_assert
#endif
QW_ASSERT(sizeof(struct qw_packet) == 24, "size of qw_packet");
QW_ASSERT(offsetof(struct qw_packet, zone) == 16, "layout of qw_packet");
QW_ASSERT(sizeof(struct qw_rule) == 64, "size of qw_rule");
QW_ASSERT(offsetof(struct qw_rule, ethertype) == 12, "layout of qw_rule");
QW_ASSERT(offsetof(struct qw_rule, source_port_first) == 20, "layout of qw_rule");
QW_ASSERT(offsetof(struct qw_rule, source) == 28, "layout of qw_rule");
QW_ASSERT(sizeof(struct qw_label) == 16, "size of qw_label");
QW_ASSERT(offsetof(struct qw_label, high) == 8, "layout of qw_label");
QW_ASSERT(sizeof(struct qw_rule_ct) == 80, "size of qw_rule_ct");
QW_ASSERT(offsetof(struct qw_rule_ct, set_mark) == 8, "layout of qw_rule_ct");
QW_ASSERT(offsetof(struct qw_rule_ct, label) == 16, "layout of qw_rule_ct");
QW_ASSERT(offsetof(struct qw_rule_ct, set_label) == 48, "layout of qw_rule_ct");
QW_ASSERT(sizeof(struct qw_verdict) == 24, "size of qw_verdict");
QW_ASSERT(offsetof(struct qw_verdict, rule) == 8, "layout of qw_verdict");
QW_ASSERT(offsetof(struct qw_verdict, connection) == 16, "layout of qw_verdict");
QW_ASSERT(sizeof(struct qw_tracker_settings) == 144, "size of qw_tracker_settings");
QW_ASSERT(offsetof(struct qw_tracker_settings, timeouts_s) == 16, "layout of qw_tracker_settings");
QW_ASSERT(sizeof(struct qw_connection) == 80, "size of qw_connection");
QW_ASSERT(offsetof(struct qw_connection, mark) == 44, "layout of qw_connection");
QW_ASSERT(offsetof(struct qw_connection, octets) == 64, "layout of qw_connection");
QW_ASSERT(sizeof(struct qw_tracker_counters) == 56, "size of qw_tracker_counters");
#undef QW_ASSERT

/* Returns the number of the binary interface of the library. */
uint32_t qw_abi_version(void);

/* Returns the version of the library. */
const char *qw_version(void);

/* Returns the text of a status, of any number. */
const char *qw_status_text(int status);

/*
 * Compiles rules, of which the first match decides, and default_action for
 * packets that no rule matches. Takes up to seconds for QW_RULES_MAX rules.
 * wrong_rule may be null: it becomes the number of the first rule that is
 * refused, or SIZE_MAX, also after QW_ERR_ARGUMENT.
 *
 * Rules never change. Create a classifier with the new rules, use it from the
 * next burst on, and destroy the former one.
 */
int qw_classifier_create(const struct qw_rule *rules, size_t count, uint32_t default_action,
                         uint32_t flags, qw_classifier *classifier, size_t *wrong_rule);

/*
 * As qw_classifier_create, for rules that compare or set marks and labels:
 * rule_values has one element for each rule, and is null only if no rule does.
 * Rules compare the values that connections have before the burst. Packets
 * without a connection have mark and label 0. QW_ERR_ARGUMENT also if rules
 * compare more than QW_CONDITIONS_MAX different values: wrong_rule is the first
 * one beyond them.
 */
int qw_classifier_create_ct(const struct qw_rule *rules, const struct qw_rule_ct *rule_values,
                            size_t count, uint32_t default_action, uint32_t flags,
                            qw_classifier *classifier, size_t *wrong_rule);

/* Stores another handle of the same rules, for another thread. Both count into
 * the same counters, and both must be destroyed. */
int qw_classifier_share(qw_classifier classifier, qw_classifier *shared);

/* Destroys a handle. QW_ERR_BUSY: a thread uses it, nothing has changed. */
int qw_classifier_destroy(qw_classifier classifier);

/*
 * Stores the number of packets of each of the first `capacity` rules; the
 * number of rules; the packets that no rule matched, and the malformed ones.
 * Each pointer may be null.
 */
int qw_classifier_counts(qw_classifier classifier, uint64_t *counts, size_t capacity,
                         size_t *rules, uint64_t (*others)[2]);

/* Judges a burst by rules. All packets are QW_CT_UNTRACKED, with mark and
 * label 0. */
int qw_classify(qw_classifier classifier, const struct qw_packet *packets, size_t count,
                struct qw_verdict *verdicts);

/* Creates a tracker, with all of its memory: 128 octets a connection, 12 to 20
 * for its index, and 16 for its label, if there are labels. */
int qw_tracker_create(const struct qw_tracker_settings *settings, qw_tracker *tracker);

/* Destroys a tracker and its connections. */
int qw_tracker_destroy(qw_tracker tracker);

/*
 * Tracks a burst, judges it by rules, and creates the connections of the
 * packets that they accept: the usual way. QW_ERR_ARGUMENT also if rules
 * compare or set labels, and the tracker has none.
 *
 * now_s are the seconds of a clock that never goes back and that begins near
 * 0, such as those since the program's start.
 */
int qw_filter(qw_classifier classifier, qw_tracker tracker, const struct qw_packet *packets,
              size_t count, uint32_t now_s, struct qw_verdict *verdicts);

/*
 * Tracks a burst, for a program that has rules of its own: every verdict is
 * QW_ACCEPT. Change those of packets that must not pass, and call qw_commit
 * with the same packets, which creates the connections of the others.
 */
int qw_track(qw_tracker tracker, const struct qw_packet *packets, size_t count, uint32_t now_s,
             struct qw_verdict *verdicts);
int qw_commit(qw_tracker tracker, const struct qw_packet *packets, size_t count, uint32_t now_s,
              struct qw_verdict *verdicts);

/*
 * Removes expired connections, in at most `budget` steps: a connection or an
 * empty second of the timer. Call it with a budget of 64 before each burst, or
 * at least 512 steps a second. removed may be null.
 */
int qw_tracker_expire(qw_tracker tracker, uint32_t now_s, uint32_t budget, uint32_t *removed);

/* Reads a connection. QW_ERR_HANDLE: it has ended. */
int qw_connection_get(qw_tracker tracker, qw_connection_id connection,
                      struct qw_connection *record);

/* Sets the mark of a connection, which verdicts of later packets have. */
int qw_connection_set_mark(qw_tracker tracker, qw_connection_id connection, uint32_t mark);

/* Sets the bits of the mark that are in the mask. QW_ERR_ARGUMENT: the mask is
 * 0, or the mark has other bits. */
int qw_connection_set_mark_bits(qw_tracker tracker, qw_connection_id connection, uint32_t mark,
                                uint32_t mask);

/* Reads the label of a connection: 0 if the tracker has no labels. */
int qw_connection_get_label(qw_tracker tracker, qw_connection_id connection,
                            struct qw_label *label);

/* Sets the bits of the label that are in the mask; all bits if `mask` is null.
 * QW_ERR_ARGUMENT: the tracker has no labels, the mask is 0, or the label has
 * other bits. */
int qw_connection_set_label(qw_tracker tracker, qw_connection_id connection,
                            const struct qw_label *label, const struct qw_label *mask);

/* Reads the labels of the connections of up to QW_BURST_MAX verdicts, 0 for a
 * verdict without a connection. QW_ERR_HANDLE: one of them has ended, and no
 * label is stored. */
int qw_verdict_labels(qw_tracker tracker, const struct qw_verdict *verdicts, size_t count,
                      struct qw_label *labels);

/*
 * Stores connections from position `from` on, 0 at first: up to `capacity` and
 * up to QW_PAGE_MAX, their number, and the position to continue from,
 * UINT32_MAX at the end. A page can be empty before the end. Connections that
 * begin or end between two pages may be missing.
 */
int qw_tracker_list(qw_tracker tracker, uint32_t from, struct qw_connection *records,
                    size_t capacity, size_t *count, uint32_t *next);

/* Reads the counters of a tracker. */
int qw_tracker_counters(qw_tracker tracker, struct qw_tracker_counters *counters);

#ifdef __cplusplus
}
#endif

#endif
