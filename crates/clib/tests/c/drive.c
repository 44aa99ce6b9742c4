/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses the library as a program of C does: rules, connections, and everything
 * that is wrong. Prints the first failed check and exits with code 1.
 */
#include <stdio.h>
#include <string.h>

#include "quietwire.h"

static int failures;

static void check_at(int line, const char *text, int is_met)
{
    if (!is_met) {
        fprintf(stderr, "line %d: %s\n", line, text);
        failures++;
    }
}

#define CHECK(condition) check_at(__LINE__, #condition, (condition))

/* Octets of an Ethernet frame with IPv4 and TCP, without options. */
enum { FRAME = 14 + 20 + 20 };
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

static void put16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, (uint16_t)(value >> 16));
    put16(at + 2, (uint16_t)value);
}

/* Writes a segment from 10.0.0.SOURCE to 10.0.0.DESTINATION. */
static void segment(uint8_t *frame, uint8_t source, uint8_t destination, uint16_t from, uint16_t to,
                    uint8_t flags, uint32_t sequence, uint32_t acknowledgement)
{
    uint8_t *ip = frame + 14, *tcp = ip + 20;

    memset(frame, 0, FRAME);
    memset(frame, 2, 12);
    put16(frame + 12, 0x0800);
    ip[0] = 0x45;
    put16(ip + 2, 40);
    ip[8] = 64;
    ip[9] = 6;
    put32(ip + 12, 0x0a000000u | source);
    put32(ip + 16, 0x0a000000u | destination);
    put16(tcp, from);
    put16(tcp + 2, to);
    put32(tcp + 4, sequence);
    put32(tcp + 8, acknowledgement);
    tcp[12] = 0x50;
    tcp[13] = flags;
    put16(tcp + 14, 65535);
}

static struct qw_packet packet_of(const uint8_t *frame)
{
    struct qw_packet packet;

    memset(&packet, 0, sizeof packet);
    packet.data = frame;
    packet.data_length = FRAME;
    packet.frame_length = FRAME;
    return packet;
}

/* Answers and hosts of 10.0.0.1 may pass. */
static qw_classifier rules_of_a_firewall(void)
{
    struct qw_rule rules[2];
    qw_classifier classifier = 0;
    size_t wrong = 0;

    memset(rules, 0, sizeof rules);
    rules[0].fields = QW_MATCH_CT_STATE;
    rules[0].ct_states = (1 << QW_CT_ESTABLISHED) | (1 << QW_CT_RELATED);
    rules[1].fields = QW_MATCH_CT_STATE | QW_MATCH_SOURCE | QW_MATCH_PROTOCOL;
    rules[1].ct_states = 1 << QW_CT_NEW;
    rules[1].protocol = 6;
    rules[1].source_length = 32;
    put32(rules[1].source, 0x0a000001);
    CHECK(qw_classifier_create(rules, 2, QW_DROP, 0, &classifier, &wrong) == QW_OK);
    CHECK(wrong == SIZE_MAX);
    return classifier;
}

static qw_tracker tracker_of(uint32_t entries)
{
    struct qw_tracker_settings settings;
    qw_tracker tracker = 0;

    memset(&settings, 0, sizeof settings);
    settings.entries_max = entries;
    settings.timeouts_s[QW_STATE_TCP_ESTABLISHED] = 100;
    CHECK(qw_tracker_create(&settings, &tracker) == QW_OK);
    return tracker;
}

static struct qw_verdict judge(qw_classifier classifier, qw_tracker tracker, const uint8_t *frame,
                               uint32_t now)
{
    struct qw_packet packet = packet_of(frame);
    struct qw_verdict verdict;

    memset(&verdict, 0xff, sizeof verdict);
    CHECK(qw_filter(classifier, tracker, &packet, 1, now, &verdict) == QW_OK);
    return verdict;
}

/* A connection from its handshake to its expiry. */
static void use_a_firewall(void)
{
    qw_classifier classifier = rules_of_a_firewall();
    qw_tracker tracker = tracker_of(16);
    struct qw_verdict verdict;
    struct qw_connection record, list[4];
    struct qw_tracker_counters counters;
    uint8_t frame[FRAME];
    uint64_t counts[2], others[2];
    size_t count = 0;
    uint32_t next = 0, removed = 0;
    qw_connection_id connection;

    /* From outside, nothing but answers. */
    segment(frame, 2, 1, 80, 1000, SYN, 1, 0);
    verdict = judge(classifier, tracker, frame, 1);
    CHECK(verdict.action == QW_DROP && verdict.cause == QW_CAUSE_DEFAULT);
    CHECK(verdict.ct_state == QW_CT_NEW && verdict.rule == QW_NO_RULE && verdict.connection == 0);

    segment(frame, 1, 2, 1000, 80, SYN, 100, 0);
    verdict = judge(classifier, tracker, frame, 1);
    CHECK(verdict.action == QW_ACCEPT && verdict.cause == QW_CAUSE_RULE && verdict.rule == 1);
    CHECK(verdict.ct_state == QW_CT_NEW && verdict.connection != 0);
    connection = verdict.connection;
    segment(frame, 2, 1, 80, 1000, SYN | ACK, 500, 101);
    verdict = judge(classifier, tracker, frame, 1);
    CHECK(verdict.action == QW_ACCEPT && verdict.rule == 0 && verdict.is_reply == 1);
    CHECK(verdict.ct_state == QW_CT_ESTABLISHED && verdict.connection == connection);
    segment(frame, 1, 2, 1000, 80, ACK, 101, 501);
    verdict = judge(classifier, tracker, frame, 1);
    CHECK(verdict.action == QW_ACCEPT && verdict.is_reply == 0);

    /* A blind reset is outside of the window. */
    segment(frame, 2, 1, 80, 1000, RST, 900000, 0);
    verdict = judge(classifier, tracker, frame, 1);
    CHECK(verdict.action == QW_DROP && verdict.ct_state == QW_CT_INVALID);
    CHECK(verdict.invalid_reason == QW_INVALID_SEQUENCE);

    /* A frame whose IP packet is longer than the frame. */
    segment(frame, 1, 2, 1000, 80, ACK, 101, 501);
    put16(frame + 16, 1500);
    verdict = judge(classifier, tracker, frame, 1);
    CHECK(verdict.action == QW_DROP && verdict.cause == QW_CAUSE_MALFORMED);
    CHECK(verdict.reason == QW_MALFORMED_PACKET_LENGTH);

    CHECK(qw_connection_set_mark(tracker, connection, 7) == QW_OK);
    memset(&record, 0, sizeof record);
    CHECK(qw_connection_get(tracker, connection, &record) == QW_OK);
    CHECK(record.mark == 7 && record.state == QW_STATE_TCP_ESTABLISHED && record.protocol == 6);
    CHECK(record.source_port == 1000 && record.destination_port == 80 && record.is_replied == 1);
    CHECK(record.source[3] == 1 && record.destination[3] == 2 && record.is_ipv6 == 0);
    CHECK(record.packets[0] == 2 && record.packets[1] == 1 && record.octets[1] == 40);
    CHECK(record.expires_in_s == 100);
    CHECK(qw_tracker_list(tracker, 0, list, 4, &count, &next) == QW_OK);
    CHECK(count == 1 && next == UINT32_MAX && memcmp(&list[0], &record, sizeof record) == 0);

    CHECK(qw_classifier_counts(classifier, counts, 2, &count, &others) == QW_OK);
    CHECK(count == 2 && counts[0] == 2 && counts[1] == 1 && others[0] == 2 && others[1] == 1);
    CHECK(qw_classifier_counts(classifier, NULL, 0, NULL, NULL) == QW_OK);

    CHECK(qw_tracker_expire(tracker, 1000, 100000, &removed) == QW_OK);
    CHECK(removed == 1);
    CHECK(qw_connection_get(tracker, connection, &record) == QW_ERR_HANDLE);
    CHECK(qw_tracker_counters(tracker, &counters) == QW_OK);
    CHECK(counters.connections == 0 && counters.created == 1 && counters.expired == 1);
    CHECK(counters.invalid == 2 && counters.octets >= 16 * 128);

    CHECK(qw_classifier_destroy(classifier) == QW_OK);
    CHECK(qw_tracker_destroy(tracker) == QW_OK);
}

/* Rules set a mark and a label, and compare them in later bursts. */
static void use_marks_and_labels(void)
{
    struct qw_tracker_settings settings;
    struct qw_rule rules[2];
    struct qw_rule_ct values[2];
    struct qw_label label, mask = { 0, UINT64_MAX }, labels[2];
    struct qw_verdict verdict, both[2];
    qw_classifier classifier = 0;
    qw_tracker tracker = 0, without = tracker_of(1);
    uint8_t frame[FRAME] = { 0 };
    struct qw_packet packet = packet_of(frame);
    size_t wrong = 0;

    memset(rules, 0, sizeof rules);
    memset(values, 0, sizeof values);
    rules[0].fields = QW_MATCH_CT_MARK | QW_MATCH_CT_LABEL;
    values[0].mark = 2;
    values[0].mark_mask = 3;
    values[0].label.high = 1;
    values[0].label_mask.high = 1;
    rules[1].fields = QW_SET_CT_MARK | QW_SET_CT_LABEL;
    values[1].set_mark = 2;
    values[1].set_mark_mask = 2;
    values[1].set_label.high = 1;
    values[1].set_label_mask.high = 1;
    CHECK(qw_classifier_create(rules, 2, QW_DROP, 0, &classifier, &wrong) == QW_ERR_ARGUMENT);
    CHECK(wrong == 0);
    CHECK(qw_classifier_create_ct(rules, values, 2, QW_DROP, 0, &classifier, &wrong) == QW_OK);
    CHECK(wrong == SIZE_MAX);
    memset(&settings, 0, sizeof settings);
    settings.entries_max = 4;
    settings.flags = QW_TRACKER_LABELS;
    CHECK(qw_tracker_create(&settings, &tracker) == QW_OK);

    segment(frame, 1, 2, 1000, 80, SYN, 100, 0);
    CHECK(qw_filter(classifier, without, &packet, 1, 0, &verdict) == QW_ERR_ARGUMENT);
    verdict = judge(classifier, tracker, frame, 0);
    CHECK(verdict.rule == 1 && verdict.mark == 2 && verdict.connection != 0);
    segment(frame, 2, 1, 80, 1000, SYN | ACK, 500, 101);
    both[0] = judge(classifier, tracker, frame, 0);
    CHECK(both[0].rule == 0 && both[0].mark == 2 && both[0].connection == verdict.connection);

    CHECK(qw_connection_get_label(tracker, verdict.connection, &label) == QW_OK);
    CHECK(label.low == 0 && label.high == 1);
    label.high = 6;
    CHECK(qw_connection_set_label(tracker, verdict.connection, &label, &mask) == QW_OK);
    label.low = 5;
    CHECK(qw_connection_set_label(tracker, verdict.connection, &label, &mask) == QW_ERR_ARGUMENT);
    CHECK(qw_connection_set_label(tracker, verdict.connection, NULL, &mask) == QW_ERR_POINTER);
    CHECK(qw_connection_set_mark_bits(tracker, verdict.connection, 1, 1) == QW_OK);
    CHECK(qw_connection_set_mark_bits(tracker, verdict.connection, 2, 1) == QW_ERR_ARGUMENT);
    memset(&both[1], 0, sizeof both[1]);
    CHECK(qw_verdict_labels(tracker, both, 2, labels) == QW_OK);
    CHECK(labels[0].low == 0 && labels[0].high == 6);
    CHECK(labels[1].low == 0 && labels[1].high == 0);
    CHECK(qw_verdict_labels(tracker, both, QW_BURST_MAX + 1, labels) == QW_ERR_SIZE);

    /* An ended connection, and one of another tracker. */
    CHECK(qw_tracker_expire(tracker, 1000000, 10000000, NULL) == QW_OK);
    CHECK(qw_connection_get_label(tracker, verdict.connection, &label) == QW_ERR_HANDLE);
    CHECK(qw_connection_set_label(tracker, verdict.connection, &mask, NULL) == QW_ERR_HANDLE);
    CHECK(qw_connection_set_mark_bits(tracker, verdict.connection, 1, 1) == QW_ERR_HANDLE);
    CHECK(qw_verdict_labels(tracker, both, 1, labels) == QW_ERR_HANDLE);
    CHECK(qw_connection_get_label(without, verdict.connection, &label) == QW_ERR_HANDLE);

    CHECK(qw_tracker_destroy(tracker) == QW_OK);
    CHECK(qw_connection_get_label(tracker, verdict.connection, &label) == QW_ERR_HANDLE);
    CHECK(qw_tracker_destroy(without) == QW_OK);
    CHECK(qw_classifier_destroy(classifier) == QW_OK);
}

/* A table full of established connections refuses new ones, with the reason. */
static void fill_a_table(void)
{
    qw_classifier classifier = 0;
    qw_tracker tracker = tracker_of(1);
    struct qw_verdict verdict;
    uint8_t frame[FRAME];

    CHECK(qw_classifier_create(NULL, 0, QW_ACCEPT, 0, &classifier, NULL) == QW_OK);
    segment(frame, 1, 2, 1000, 80, SYN, 100, 0);
    CHECK(judge(classifier, tracker, frame, 0).action == QW_ACCEPT);
    segment(frame, 2, 1, 80, 1000, SYN | ACK, 500, 101);
    CHECK(judge(classifier, tracker, frame, 0).action == QW_ACCEPT);
    segment(frame, 1, 2, 1000, 80, ACK, 101, 501);
    CHECK(judge(classifier, tracker, frame, 0).action == QW_ACCEPT);
    segment(frame, 1, 2, 1001, 80, SYN, 100, 0);
    verdict = judge(classifier, tracker, frame, 0);
    CHECK(verdict.action == QW_DROP && verdict.cause == QW_CAUSE_REFUSED);
    CHECK(verdict.reason == QW_REFUSED_TABLE_FULL && verdict.connection == 0);
    CHECK(qw_tracker_destroy(tracker) == QW_OK);
    CHECK(qw_classifier_destroy(classifier) == QW_OK);
}

/* Handles of other kinds, of destroyed objects, and numbers that are none. */
static void use_wrong_handles(void)
{
    qw_classifier classifier = rules_of_a_firewall(), other = 0;
    qw_tracker tracker = tracker_of(1), second;
    uint8_t frame[FRAME] = { 0 };
    struct qw_packet packet = packet_of(frame);
    struct qw_verdict verdict;
    struct qw_tracker_counters counters;

    memset(&verdict, 0xff, sizeof verdict);
    segment(frame, 1, 2, 1000, 80, SYN, 100, 0);
    CHECK(qw_classify(tracker, &packet, 1, &verdict) == QW_ERR_HANDLE);
    CHECK(qw_filter(tracker, classifier, &packet, 1, 0, &verdict) == QW_ERR_HANDLE);
    CHECK(qw_filter(0, 0, &packet, 1, 0, &verdict) == QW_ERR_HANDLE);
    CHECK(qw_filter(UINT64_MAX, tracker, &packet, 1, 0, &verdict) == QW_ERR_HANDLE);
    /* Not stored after an error. */
    CHECK(verdict.rule == UINT32_MAX && verdict.action == 0xff);
    CHECK(qw_tracker_destroy(classifier) == QW_ERR_HANDLE);

    CHECK(qw_tracker_destroy(tracker) == QW_OK);
    CHECK(qw_tracker_destroy(tracker) == QW_ERR_HANDLE);
    second = tracker_of(1);
    CHECK(second != tracker);
    CHECK(qw_track(tracker, &packet, 1, 0, &verdict) == QW_ERR_HANDLE);
    CHECK(qw_commit(tracker, &packet, 1, 0, &verdict) == QW_ERR_HANDLE);
    CHECK(qw_filter(classifier, tracker, &packet, 1, 0, &verdict) == QW_ERR_HANDLE);
    CHECK(qw_tracker_expire(tracker, 0, 1, NULL) == QW_ERR_HANDLE);
    CHECK(qw_tracker_counters(tracker, &counters) == QW_ERR_HANDLE);
    CHECK(qw_tracker_counters(second, &counters) == QW_OK && counters.created == 0);

    CHECK(qw_classifier_share(classifier, &other) == QW_OK);
    CHECK(qw_classifier_destroy(classifier) == QW_OK);
    CHECK(qw_classifier_share(classifier, &classifier) == QW_ERR_HANDLE);
    CHECK(qw_classify(classifier, &packet, 1, &verdict) == QW_ERR_HANDLE);
    CHECK(qw_classify(other, &packet, 1, &verdict) == QW_OK && verdict.action == QW_DROP);
    CHECK(qw_classifier_destroy(other) == QW_OK);
    CHECK(qw_tracker_destroy(second) == QW_OK);
}

/* Null, too many, and values out of range. */
static void use_wrong_arguments(void)
{
    qw_classifier classifier = rules_of_a_firewall();
    qw_tracker tracker = tracker_of(1);
    struct qw_packet packets[QW_BURST_MAX + 1];
    struct qw_verdict verdicts[QW_BURST_MAX + 1];
    struct qw_tracker_settings settings;
    struct qw_rule rule;
    size_t wrong = 0;
    qw_classifier made = 0;

    memset(packets, 0, sizeof packets);
    CHECK(qw_filter(classifier, tracker, packets, QW_BURST_MAX, 0, verdicts) == QW_OK);
    CHECK(verdicts[0].action == QW_DROP && verdicts[0].cause == QW_CAUSE_SHORT);
    CHECK(qw_filter(classifier, tracker, packets, QW_BURST_MAX + 1, 0, verdicts) == QW_ERR_SIZE);
    CHECK(qw_filter(classifier, tracker, packets, SIZE_MAX, 0, verdicts) == QW_ERR_SIZE);
    CHECK(qw_filter(classifier, tracker, NULL, 0, 0, NULL) == QW_OK);
    CHECK(qw_filter(classifier, tracker, NULL, 1, 0, verdicts) == QW_ERR_POINTER);
    CHECK(qw_filter(classifier, tracker, packets, 1, 0, NULL) == QW_ERR_POINTER);
    CHECK(qw_filter(classifier, tracker, packets, 1, UINT32_MAX, verdicts) == QW_ERR_ARGUMENT);
    packets[1].data_length = 60;
    packets[1].frame_length = 60;
    CHECK(qw_filter(classifier, tracker, packets, 2, 0, verdicts) == QW_ERR_POINTER);
    packets[1].data = packets;
    packets[1].frame_length = 59;
    CHECK(qw_filter(classifier, tracker, packets, 2, 0, verdicts) == QW_ERR_ARGUMENT);

    memset(&rule, 0, sizeof rule);
    rule.action = 9;
    CHECK(qw_classifier_create(&rule, 1, QW_DROP, 0, &made, &wrong) == QW_ERR_ARGUMENT);
    CHECK(wrong == 0 && made == 0);
    rule.action = QW_ACCEPT;
    CHECK(qw_classifier_create(&rule, 1, 9, 0, &made, &wrong) == QW_ERR_ARGUMENT);
    CHECK(wrong == SIZE_MAX && made == 0);
    CHECK(qw_classifier_create(&rule, 1, QW_DROP, 1u << 31, &made, NULL) == QW_ERR_ARGUMENT);
    CHECK(qw_classifier_create(&rule, QW_RULES_MAX + 1, QW_DROP, 0, &made, NULL) == QW_ERR_SIZE);
    CHECK(qw_classifier_create(NULL, 1, QW_DROP, 0, &made, NULL) == QW_ERR_POINTER);
    CHECK(qw_classifier_create(&rule, 1, QW_DROP, 0, NULL, NULL) == QW_ERR_POINTER);

    memset(&settings, 0, sizeof settings);
    CHECK(qw_tracker_create(&settings, &made) == QW_ERR_ARGUMENT);
    settings.entries_max = QW_ENTRIES_MAX + 1u;
    CHECK(qw_tracker_create(&settings, &made) == QW_ERR_ARGUMENT);
    settings.entries_max = 1;
    settings.zones = QW_ZONES_MAX + 1;
    CHECK(qw_tracker_create(&settings, &made) == QW_ERR_ARGUMENT);
    settings.zones = 0;
    settings.timeouts_s[QW_STATE_UDP_REPLIED] = QW_TIMEOUT_MAX + 1;
    CHECK(qw_tracker_create(&settings, &made) == QW_ERR_ARGUMENT);
    CHECK(qw_tracker_create(NULL, &made) == QW_ERR_POINTER);

    CHECK(qw_tracker_destroy(tracker) == QW_OK);
    CHECK(qw_classifier_destroy(classifier) == QW_OK);
}

/* All handles of a process, and one more. */
static void use_up_all_handles(void)
{
    static qw_classifier all[QW_HANDLES_MAX];
    qw_classifier more = 0;
    size_t at;

    CHECK(qw_classifier_create(NULL, 0, QW_ACCEPT, 0, &all[0], NULL) == QW_OK);
    for (at = 1; at < QW_HANDLES_MAX; at++)
        CHECK(qw_classifier_share(all[0], &all[at]) == QW_OK);
    CHECK(qw_classifier_share(all[0], &more) == QW_ERR_LIMIT);
    CHECK(more == 0);
    for (at = 0; at < QW_HANDLES_MAX; at++)
        CHECK(qw_classifier_destroy(all[at]) == QW_OK);
}

int main(void)
{
    CHECK(qw_abi_version() == QW_ABI_VERSION);
    CHECK(strlen(qw_version()) >= 5);
    CHECK(strcmp(qw_status_text(QW_OK), "success") == 0);
    CHECK(strstr(qw_status_text(QW_ERR_HANDLE), "no such object") != NULL);
    CHECK(strcmp(qw_status_text(1234), "unknown status") == 0);
    use_a_firewall();
    use_marks_and_labels();
    fill_a_table();
    use_wrong_handles();
    use_wrong_arguments();
    use_up_all_handles();
    if (failures == 0)
        printf("quietwire %s: all checks passed\n", qw_version());
    return failures != 0;
}
