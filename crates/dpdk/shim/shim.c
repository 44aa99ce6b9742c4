/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
/* rte_dev_event_callback_register is experimental in DPDK 22.11. */
#define ALLOW_EXPERIMENTAL_API
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "shim.h"

/* The types that src/sys.rs gives the fields. */
#define FIELD_HAS_SIZE(field, size) \
	_Static_assert(sizeof(((struct rte_mbuf *)0)->field) == (size), "size of " #field " in struct rte_mbuf")
FIELD_HAS_SIZE(buf_addr, sizeof(void *));
FIELD_HAS_SIZE(buf_len, sizeof(uint16_t));
FIELD_HAS_SIZE(data_off, sizeof(uint16_t));
FIELD_HAS_SIZE(data_len, sizeof(uint16_t));
FIELD_HAS_SIZE(pkt_len, sizeof(uint32_t));
FIELD_HAS_SIZE(packet_type, sizeof(uint32_t));
FIELD_HAS_SIZE(vlan_tci, sizeof(uint16_t));
FIELD_HAS_SIZE(nb_segs, sizeof(uint16_t));
FIELD_HAS_SIZE(refcnt, sizeof(uint16_t));
FIELD_HAS_SIZE(next, sizeof(struct rte_mbuf *));
FIELD_HAS_SIZE(ol_flags, sizeof(uint64_t));
FIELD_HAS_SIZE(hash.usr, sizeof(uint32_t));
FIELD_HAS_SIZE(hash.fdir.hi, sizeof(uint32_t));

/* Each group is read and written as one word. */
#define FIELD_IS_BEHIND(first, field, offset) \
	_Static_assert(offsetof(struct rte_mbuf, field) == offsetof(struct rte_mbuf, first) + (offset), \
		"offset of " #field " in struct rte_mbuf")
FIELD_IS_BEHIND(data_off, refcnt, 2);
FIELD_IS_BEHIND(data_off, nb_segs, 4);
FIELD_IS_BEHIND(data_off, port, 6);
FIELD_IS_BEHIND(packet_type, pkt_len, 4);
FIELD_IS_BEHIND(data_len, vlan_tci, 2);
/* Both are in use at once. */
FIELD_IS_BEHIND(hash.usr, hash.fdir.hi, 4);

/* The bits that src/sys.rs gives these macros, which bindgen cannot read. */
_Static_assert(RTE_MBUF_F_RX_L4_CKSUM_BAD == UINT64_C(1) << 3 && RTE_MBUF_F_RX_L4_CKSUM_GOOD == UINT64_C(1) << 8 &&
	RTE_MBUF_F_RX_L4_CKSUM_NONE == (UINT64_C(1) << 3 | UINT64_C(1) << 8), "flags of received checksums");
_Static_assert(RTE_MBUF_F_TX_L4_MASK == UINT64_C(3) << 52, "flags of checksums to compute");
_Static_assert(RTE_PTYPE_L4_TCP == 0x100 && RTE_PTYPE_L4_UDP == 0x200 && RTE_PTYPE_L4_MASK == 0xf00 &&
	RTE_PTYPE_TUNNEL_MASK == 0xf000, "types of packets");

uint16_t
qw_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_rx_burst(port, queue, mbufs, n);
}

uint16_t
qw_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_tx_burst(port, queue, mbufs, n);
}

uint16_t
qw_tx_prepare(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_tx_prepare(port, queue, mbufs, n);
}

int
qw_take_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n)
{
	return n == 0 ? 0 : rte_mempool_get_bulk(pool, (void **)mbufs, n);
}

struct rte_mempool *
qw_create_stack_pool(const char *name, unsigned int n, uint16_t data_room)
{
	const char *ops = NULL;
	unsigned int i;

	/* A name without a driver is an error that DPDK logs. */
	for (i = 0; i < rte_mempool_ops_table.num_ops; i++)
		if (strcmp(rte_mempool_ops_table.ops[i].name, "stack") == 0)
			ops = "stack";
	return rte_pktmbuf_pool_create_by_ops(name, n, 0, 0, data_room, SOCKET_ID_ANY, ops);
}

void
qw_free_bulk(struct rte_mbuf **mbufs, unsigned int n)
{
	/* From data_off to port. */
	const struct { uint16_t data_off, refcnt, nb_segs, port; } usual = { 0, 1, 1, 0 }, looked_at = { 0, UINT16_MAX, UINT16_MAX, 0 };
	uint64_t fields, usual_fields, mask, flags = 0, other = 0;
	const struct rte_mempool *pool;
	unsigned int i;

	if (n == 0)
		return;
	memcpy(&usual_fields, &usual, sizeof(usual));
	memcpy(&mask, &looked_at, sizeof(looked_at));
	pool = mbufs[0]->pool;
	/* Buffers of one pool without other references go back in one call. The check of all buffers has no branch. */
	for (i = 0; i < n; i++) {
		memcpy(&fields, (const char *)mbufs[i] + offsetof(struct rte_mbuf, data_off), sizeof(fields));
		other |= ((fields ^ usual_fields) & mask) | ((uintptr_t)mbufs[i]->pool ^ (uintptr_t)pool);
		flags |= mbufs[i]->ol_flags;
	}
	if (other == 0 && (flags & (RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL)) == 0)
		rte_mempool_put_bulk(mbufs[0]->pool, (void **)mbufs, n);
	else
		rte_pktmbuf_free_bulk(mbufs, n);
}

uint16_t
qw_segment_size(const struct rte_mbuf *mbuf)
{
	return mbuf->tso_segsz;
}

void
qw_request_segments(struct rte_mbuf *mbuf, uint16_t l2, uint16_t l3, uint16_t l4, uint16_t size, int is_ipv4, int is_tcp)
{
	mbuf->tx_offload = 0;
	mbuf->l2_len = l2;
	mbuf->l3_len = l3;
	mbuf->l4_len = l4;
	mbuf->tso_segsz = size;
	mbuf->ol_flags |= (is_tcp ? RTE_MBUF_F_TX_TCP_SEG : RTE_MBUF_F_TX_UDP_SEG) | (is_ipv4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6);
}

void
qw_request_checksum(struct rte_mbuf *mbuf, uint16_t l2, uint16_t l3, uint16_t l4, int is_ipv4, int is_tcp)
{
	mbuf->tx_offload = 0;
	mbuf->l2_len = l2;
	mbuf->l3_len = l3;
	mbuf->l4_len = l4;
	mbuf->ol_flags |= (is_tcp ? RTE_MBUF_F_TX_TCP_CKSUM : RTE_MBUF_F_TX_UDP_CKSUM) | (is_ipv4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6);
}

int
qw_link(uint16_t port, uint32_t *speed_mbps)
{
	struct rte_eth_link link = { 0 };
	int code = rte_eth_link_get_nowait(port, &link);

	*speed_mbps = link.link_speed;
	return code != 0 ? code : link.link_status == RTE_ETH_LINK_UP;
}

int
qw_set_flow_control(uint16_t port, int mode, int *former)
{
	struct rte_eth_fc_conf conf = { 0 };
	const int code = rte_eth_dev_flow_ctrl_get(port, &conf);

	if (code != 0)
		return code;
	*former = (int)conf.mode;
	/* Also if they are equal: drivers report the mode in effect, which is none until a link is negotiated. */
	conf.mode = (enum rte_eth_fc_mode)mode;
	return rte_eth_dev_flow_ctrl_set(port, &conf);
}

int
qw_flow_control(uint16_t port)
{
	struct rte_eth_fc_conf conf = { 0 };
	const int code = rte_eth_dev_flow_ctrl_get(port, &conf);

	return code != 0 ? code : (int)conf.mode;
}

int
qw_errno(void)
{
	return rte_errno;
}

uint64_t
qw_tsc(void)
{
	return rte_rdtsc();
}

/* Longest key of a driver, octets: 52, of i40e and ice. */
#define KEY_MAX 64

int
qw_hash_flows(struct rte_eth_conf *conf, const struct rte_eth_dev_info *info, int is_symmetric)
{
	const uint64_t flows = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_SCTP;
	/*
	 * A key of one repeated pattern of 16 bits: in the Toeplitz hash, exchanging fields at a distance of a multiple of 16 bits
	 * changes nothing. This pattern spreads well (Woo and Park, Scalable TCP Session Monitoring with Symmetric Receive-side
	 * Scaling, 2012).
	 */
#define EIGHT 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a
	static uint8_t key[KEY_MAX] = { EIGHT, EIGHT, EIGHT, EIGHT, EIGHT, EIGHT, EIGHT, EIGHT };
#undef EIGHT

	conf->rx_adv_conf.rss_conf.rss_hf = info->flow_type_rss_offloads & flows;
	if (conf->rx_adv_conf.rss_conf.rss_hf != 0)
		conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	if (!is_symmetric)
		return 0;
	if (conf->rx_adv_conf.rss_conf.rss_hf == 0 || info->hash_key_size == 0 || info->hash_key_size > KEY_MAX)
		return -ENOTSUP;
	conf->rx_adv_conf.rss_conf.rss_key = key;
	conf->rx_adv_conf.rss_conf.rss_key_len = info->hash_key_size;
	return 0;
}

static atomic_int removed[RTE_MAX_ETHPORTS];

/* Resets of devices since qw_watch_removal. */
enum { NO_RESET, WAS_RESET, TAKEN_RESET };
static atomic_int resets[RTE_MAX_ETHPORTS];

void
qw_note_reset(uint16_t port)
{
	int expected = NO_RESET;

	if (port < RTE_MAX_ETHPORTS)
		atomic_compare_exchange_strong(&resets[port], &expected, WAS_RESET);
}

int
qw_take_reset(uint16_t port)
{
	int expected = WAS_RESET;

	return port < RTE_MAX_ETHPORTS && atomic_compare_exchange_strong(&resets[port], &expected, TAKEN_RESET);
}

static int
on_port_event(uint16_t port, enum rte_eth_event_type type, void *argument, void *result)
{
	(void)argument;
	(void)result;
	if (type == RTE_ETH_EVENT_INTR_RMV && port < RTE_MAX_ETHPORTS)
		atomic_store(&removed[port], 1);
	if (type == RTE_ETH_EVENT_INTR_RESET)
		qw_note_reset(port);
	return 0;
}

static void
on_device_event(const char *device, enum rte_dev_event_type type, void *argument)
{
	const uintptr_t port = (uintptr_t)argument;

	(void)device;
	if (type == RTE_DEV_EVENT_REMOVE && port < RTE_MAX_ETHPORTS)
		atomic_store(&removed[port], 1);
}

int
qw_watch_removal(uint16_t port, const char *device)
{
	int code;

	if (port >= RTE_MAX_ETHPORTS)
		return -EINVAL;
	atomic_store(&removed[port], 0);
	atomic_store(&resets[port], NO_RESET);
	code = rte_dev_event_callback_register(device, on_device_event, (void *)(uintptr_t)port);
	if (code != 0 && code != -EEXIST)
		return code;
	code = rte_eth_dev_callback_register(port, RTE_ETH_EVENT_INTR_RMV, on_port_event, NULL);
	if (code != 0)
		return code;
	return rte_eth_dev_callback_register(port, RTE_ETH_EVENT_INTR_RESET, on_port_event, NULL);
}

/* Maximum number of waits, of 100 us each, for the end of an event that is being reported: it only sets a mark. */
#define REPORT_WAITS 10000

void
qw_end_watch(uint16_t port, const char *device)
{
	void *const argument = (void *)(uintptr_t)port;
	int waits = 0;

	/* If this callback stayed, a later removal of this device would set the mark of another device with this number. */
	while (rte_dev_event_callback_unregister(device, on_device_event, argument) == -EAGAIN && waits++ < REPORT_WAITS)
		rte_delay_us_sleep(100);
	/* If these stay because an event is being reported, they set a mark that the next port with this number clears. */
	rte_eth_dev_callback_unregister(port, RTE_ETH_EVENT_INTR_RMV, on_port_event, NULL);
	rte_eth_dev_callback_unregister(port, RTE_ETH_EVENT_INTR_RESET, on_port_event, NULL);
}

int
qw_is_removed(uint16_t port)
{
	return port < RTE_MAX_ETHPORTS && atomic_load(&removed[port]) != 0;
}

void
qw_interrupt_receivers(struct rte_eth_conf *conf)
{
	conf->intr_conf.rxq = 1;
}

int
qw_set_redirection_table(uint16_t port, const uint16_t *queues, uint16_t entries)
{
	struct rte_eth_rss_reta_entry64 table[RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE];
	uint16_t i;

	if (entries > RTE_ETH_RSS_RETA_SIZE_512)
		return -EINVAL;
	memset(table, 0, sizeof(table));
	for (i = 0; i < entries; i++) {
		table[i / RTE_ETH_RETA_GROUP_SIZE].mask |= UINT64_C(1) << i % RTE_ETH_RETA_GROUP_SIZE;
		table[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE] = queues[i];
	}
	return rte_eth_dev_rss_reta_update(port, table, entries);
}

int
qw_redirection_table(uint16_t port, uint16_t *queues, uint16_t entries)
{
	struct rte_eth_rss_reta_entry64 table[RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE];
	uint16_t i;
	int code;

	if (entries > RTE_ETH_RSS_RETA_SIZE_512)
		return -EINVAL;
	memset(table, 0, sizeof(table));
	for (i = 0; i < entries; i++)
		table[i / RTE_ETH_RETA_GROUP_SIZE].mask |= UINT64_C(1) << i % RTE_ETH_RETA_GROUP_SIZE;
	code = rte_eth_dev_rss_reta_query(port, table, entries);
	for (i = 0; code == 0 && i < entries; i++)
		queues[i] = table[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE];
	return code;
}

int
qw_is_to_segment(const struct rte_mbuf *mbuf, uint16_t *l2, uint16_t *l3, uint16_t *l4, uint16_t *size, int *is_ipv4,
	int *is_tcp)
{
	if ((mbuf->ol_flags & (RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_UDP_SEG)) == 0)
		return 0;
	*l2 = mbuf->l2_len;
	*l3 = mbuf->l3_len;
	*l4 = mbuf->l4_len;
	*size = mbuf->tso_segsz;
	*is_ipv4 = (mbuf->ol_flags & RTE_MBUF_F_TX_IPV4) != 0;
	*is_tcp = (mbuf->ol_flags & RTE_MBUF_F_TX_TCP_SEG) != 0;
	return 1;
}

void
qw_set_segment_size(struct rte_mbuf *mbuf, uint16_t size)
{
	mbuf->ol_flags |= RTE_MBUF_F_RX_LRO;
	mbuf->tso_segsz = size;
}

static void (*log_sink)(const char *text, size_t length);

static ssize_t
write_log(void *cookie, const char *text, size_t length)
{
	(void)cookie;
	log_sink(text, length);
	return (ssize_t)length;
}

int
qw_log_to(void (*sink)(const char *text, size_t length))
{
	const cookie_io_functions_t functions = { .write = write_log };
	FILE *stream;

	log_sink = sink;
	stream = fopencookie(NULL, "w", functions);
	if (stream == NULL)
		return -errno;
	/* DPDK flushes after each entry. */
	return rte_openlog_stream(stream);
}

/* Levels of libbpf and libxdp: 0 for warnings, 1 for information. */
static int
print_library(int level, const char *format, va_list arguments)
{
	char text[512];
	int length;

	if (level > 1)
		return 0;
	length = vsnprintf(text, sizeof(text), format, arguments);
	if (length > 0)
		log_sink(text, RTE_MIN((size_t)length, sizeof(text) - 1));
	return length;
}

void
qw_log_libraries(void)
{
	typedef int (*print)(int level, const char *format, va_list arguments);
	typedef print (*set_print)(print printer);
	static const struct {
		const char *library;
		const char *function;
	} libraries[] = {
		{ "libbpf.so.0", "libbpf_set_print" },
		{ "libbpf.so.1", "libbpf_set_print" },
		{ "libxdp.so.1", "libxdp_set_print" },
	};
	size_t i;

	for (i = 0; i < RTE_DIM(libraries); i++) {
		void *library = dlopen(libraries[i].library, RTLD_LAZY | RTLD_NOLOAD);
		void *function = library == NULL ? NULL : dlsym(library, libraries[i].function);

		/* The library stays: it has the function from now on. */
		if (function != NULL)
			((set_print)function)(print_library);
	}
}
