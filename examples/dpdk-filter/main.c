/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A firewall between two DPDK ports, on one CPU, with quietwire's classifier
 * and connection tracker: hosts behind the first port can begin connections,
 * and the second port accepts only their answers.
 *
 *     cc -O3 main.c $(pkg-config --cflags --libs libdpdk quietwire) -o dpdk-filter
 *     ./dpdk-filter EAL-OPTIONS -- CONNECTIONS
 *
 * CONNECTIONS is the maximum number of tracked connections. SIGINT or SIGTERM
 * ends the program, which prints its counters.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <quietwire.h>

enum {
    PORTS = 2,
    RING = 1024,
    MBUFS = 8191,
    CACHE = 256,
    BURST = 32,
    /* Steps of the tracker's timer for each burst. */
    EXPIRY_STEPS = 64,
};

static volatile sig_atomic_t is_ending;

static void end(int signal_number)
{
    (void)signal_number;
    is_ending = 1;
}

/* Ends the program if a function of the library failed. */
static void require(int status, const char *what)
{
    if (status != QW_OK) {
        fprintf(stderr, "%s: %s\n", what, qw_status_text(status));
        exit(1);
    }
}

/* Both ports accept ARP and all packets of known connections. The first port
 * also accepts new connections. */
static qw_classifier rules_of(uint16_t port)
{
    struct qw_rule rules[3];
    size_t count = 2, wrong;
    qw_classifier classifier;
    int status;

    memset(rules, 0, sizeof rules);
    rules[0].fields = QW_MATCH_ETHERTYPE;
    rules[0].ethertype = 0x0806;
    rules[1].fields = QW_MATCH_CT_STATE;
    rules[1].ct_states = (1 << QW_CT_ESTABLISHED) | (1 << QW_CT_RELATED);
    if (port == 0) {
        rules[2].fields = QW_MATCH_CT_STATE;
        rules[2].ct_states = 1 << QW_CT_NEW;
        count = 3;
    }
    status = qw_classifier_create(rules, count, QW_DROP, 0, &classifier, &wrong);
    if (status == QW_ERR_ARGUMENT)
        fprintf(stderr, "rule %zu is wrong\n", wrong);
    require(status, "rules");
    return classifier;
}

static int start_port(uint16_t port, struct rte_mempool *pool)
{
    struct rte_eth_conf configuration;
    uint16_t received = RING, sent = RING;
    int socket = rte_eth_dev_socket_id(port);

    memset(&configuration, 0, sizeof configuration);
    if (rte_eth_dev_configure(port, 1, 1, &configuration) != 0 ||
        rte_eth_dev_adjust_nb_rx_tx_desc(port, &received, &sent) != 0 ||
        rte_eth_rx_queue_setup(port, 0, received, (unsigned int)socket, NULL, pool) != 0 ||
        rte_eth_tx_queue_setup(port, 0, sent, (unsigned int)socket, NULL) != 0 ||
        rte_eth_dev_start(port) != 0)
        return -1;
    /* Not every port has a promiscuous mode. */
    (void)rte_eth_promiscuous_enable(port);
    return 0;
}

/* Filters the packets of a burst, and frees those that are dropped. Returns the
 * number of the others, which it moves to the front. */
static uint16_t judge(qw_classifier classifier, qw_tracker tracker, struct rte_mbuf **mbufs,
                      uint16_t count, uint32_t now_s)
{
    struct qw_packet packets[BURST];
    struct qw_verdict verdicts[BURST];
    uint16_t at, kept = 0;

    memset(packets, 0, sizeof packets);
    for (at = 0; at < count; at++) {
        packets[at].data = rte_pktmbuf_mtod(mbufs[at], const void *);
        packets[at].data_length = rte_pktmbuf_data_len(mbufs[at]);
        packets[at].frame_length = rte_pktmbuf_pkt_len(mbufs[at]);
    }
    require(qw_filter(classifier, tracker, packets, count, now_s, verdicts), "burst");
    for (at = 0; at < count; at++) {
        if (verdicts[at].action == QW_ACCEPT)
            mbufs[kept++] = mbufs[at];
        else
            rte_pktmbuf_free(mbufs[at]);
    }
    return kept;
}

static void forward(const qw_classifier *rules, qw_tracker tracker)
{
    struct rte_mbuf *mbufs[BURST];
    uint64_t begin = rte_get_timer_cycles();
    uint16_t port, count, sent;

    do {
        uint32_t now_s = (uint32_t)((rte_get_timer_cycles() - begin) / rte_get_timer_hz());

        require(qw_tracker_expire(tracker, now_s, EXPIRY_STEPS, NULL), "expiry");
        for (port = 0; port < PORTS; port++) {
            count = rte_eth_rx_burst(port, 0, mbufs, BURST);
            if (count == 0)
                continue;
            count = judge(rules[port], tracker, mbufs, count, now_s);
            sent = rte_eth_tx_burst(port ^ 1, 0, mbufs, count);
            while (sent < count)
                rte_pktmbuf_free(mbufs[sent++]);
        }
    } while (!is_ending);
}

static void print_counters(qw_tracker tracker)
{
    struct qw_tracker_counters counters;

    require(qw_tracker_counters(tracker, &counters), "counters");
    printf("connections: %llu, created: %llu, refused: %llu, invalid packets: %llu\n",
           (unsigned long long)counters.connections, (unsigned long long)counters.created,
           (unsigned long long)counters.refused, (unsigned long long)counters.invalid);
}

/* Returns the number of connections of the command line, or 0. */
static uint32_t connections_of(int count, char **arguments)
{
    char *rest = NULL;
    unsigned long number;

    if (count != 2)
        return 0;
    number = strtoul(arguments[1], &rest, 10);
    if (*rest != '\0' || number > QW_ENTRIES_MAX)
        return 0;
    return (uint32_t)number;
}

int main(int count, char **arguments)
{
    struct qw_tracker_settings settings;
    struct rte_mempool *pool;
    qw_classifier rules[PORTS];
    qw_tracker tracker;
    uint16_t port;
    int read;

    if (count < 3) {
        fprintf(stderr, "usage: dpdk-filter EAL-OPTIONS -- CONNECTIONS\n");
        return 2;
    }
    if (qw_abi_version() != QW_ABI_VERSION) {
        fprintf(stderr, "libquietwire %s has another interface\n", qw_version());
        return 1;
    }
    read = rte_eal_init(count, arguments);
    if (read < 0) {
        fprintf(stderr, "DPDK does not start\n");
        return 1;
    }
    memset(&settings, 0, sizeof settings);
    settings.entries_max = connections_of(count - read, arguments + read);
    if (settings.entries_max == 0) {
        fprintf(stderr, "CONNECTIONS must be 1 to %d\n", QW_ENTRIES_MAX);
        return 2;
    }
    if (rte_eth_dev_count_avail() != PORTS) {
        fprintf(stderr, "DPDK has %u ports, not %d\n", (unsigned int)rte_eth_dev_count_avail(), PORTS);
        return 1;
    }
    pool = rte_pktmbuf_pool_create("frames", MBUFS, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
                                   (int)rte_socket_id());
    if (pool == NULL) {
        fprintf(stderr, "no memory for frames\n");
        return 1;
    }
    require(qw_tracker_create(&settings, &tracker), "tracker");
    for (port = 0; port < PORTS; port++) {
        rules[port] = rules_of(port);
        if (start_port(port, pool) != 0) {
            fprintf(stderr, "port %u does not start\n", (unsigned int)port);
            return 1;
        }
    }
    signal(SIGINT, end);
    signal(SIGTERM, end);
    puts("forwarding");
    fflush(stdout);
    forward(rules, tracker);
    print_counters(tracker);
    for (port = 0; port < PORTS; port++) {
        rte_eth_dev_stop(port);
        rte_eth_dev_close(port);
        require(qw_classifier_destroy(rules[port]), "rules");
    }
    require(qw_tracker_destroy(tracker), "tracker");
    rte_eal_cleanup();
    return 0;
}
