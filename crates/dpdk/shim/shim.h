/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header for bindgen, and wrappers of functions that DPDK offers only as inline code.
 * Every function is called once per burst or at set-up, never per packet, except those for one frame of 64 KiB and for a frame whose
 * checksum a card computes.
 */
#ifndef QUIETWIRE_SHIM_H
#define QUIETWIRE_SHIM_H

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

/*
 * Offsets of the fields of struct rte_mbuf that Rust uses, octets. DPDK 24.03 and later have most of them in anonymous
 * unions and structures. bindgen gives these names that depend on the version; C accesses the fields in every version.
 */
enum qw_mbuf_offset {
	QW_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	QW_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	QW_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	QW_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	QW_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	QW_MBUF_PACKET_TYPE = offsetof(struct rte_mbuf, packet_type),
	QW_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	QW_MBUF_REFCNT = offsetof(struct rte_mbuf, refcnt),
	QW_MBUF_NEXT = offsetof(struct rte_mbuf, next),
	QW_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	QW_MBUF_HASH_USR = offsetof(struct rte_mbuf, hash.usr),
	QW_MBUF_HASH_FDIR_HI = offsetof(struct rte_mbuf, hash.fdir.hi),
};

/* Receives up to n frames of one queue. Returns how many (rte_eth_rx_burst). */
uint16_t qw_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);

/* Hands n frames to one queue; takes over the first returned-value of them (rte_eth_tx_burst). */
uint16_t qw_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);

/*
 * Prepares n frames, of which the device does work, for one queue (rte_eth_tx_prepare). Returns how many from the first on the device
 * accepts. It may change checksum fields.
 */
uint16_t qw_tx_prepare(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);

/*
 * Takes n mbufs from a pool, all or none. Returns 0 or a negative errno. Each has one segment, one reference and no successor;
 * other fields have the values of the last user.
 */
int qw_take_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n);

/*
 * Creates a pool of n mbufs that no thread caches, each with data_room octets, headroom included. If DPDK's driver "stack" is loaded, the
 * mbufs that were freed last are taken first, otherwise those that were freed first. Returns NULL and sets rte_errno on failure.
 */
struct rte_mempool *qw_create_stack_pool(const char *name, unsigned int n, uint16_t data_room);

/* Returns n mbufs, each with the segments behind it, to their pools. */
void qw_free_bulk(struct rte_mbuf **mbufs, unsigned int n);

/* Segment size requested for a frame, octets of data (tso_segsz of struct rte_mbuf). */
uint16_t qw_segment_size(const struct rte_mbuf *mbuf);

/*
 * Requests segmentation of a frame by its receiver. Arguments: header lengths of Ethernet, IP and TCP or UDP, octets of data per
 * segment, 1 for IPv4, and 1 for TCP.
 */
void qw_request_segments(struct rte_mbuf *mbuf, uint16_t l2, uint16_t l3, uint16_t l4, uint16_t size, int is_ipv4, int is_tcp);

/*
 * Requests the checksum of TCP, or of UDP, from the device that sends a frame. Arguments: header lengths of Ethernet, IP and TCP or UDP,
 * 1 for IPv4, and 1 for TCP.
 */
void qw_request_checksum(struct rte_mbuf *mbuf, uint16_t l2, uint16_t l3, uint16_t l4, int is_ipv4, int is_tcp);

/*
 * Returns the link state of a port from its driver (rte_eth_link_get_nowait): 1 up, 0 down, or a negative errno. Writes the
 * speed in Mbit/s to speed_mbps: 0 none, UINT32_MAX unknown.
 */
int qw_link(uint16_t port, uint32_t *speed_mbps);

/* Has what DPDK logs from now on go to a function, so many octets at a time. 0 or a negative errno. */
int qw_log_to(void (*sink)(const char *text, size_t length));

/* The same for libbpf and libxdp, if a driver has loaded them. Call qw_log_to before. */
void qw_log_libraries(void);

/*
 * Sets the mode of flow control of a started port (enum rte_eth_fc_mode), and writes the former one. Thresholds and autonegotiation stay.
 * Returns 0 or a negative errno, which is -ENOTSUP for a driver without flow control.
 */
int qw_set_flow_control(uint16_t port, int mode, int *former);

/* Returns the mode of flow control that the driver of a port reports (enum rte_eth_fc_mode), or a negative errno as above. */
int qw_flow_control(uint16_t port);

/* Value of rte_errno of the calling thread. */
int qw_errno(void);

/* The time stamp counter (rte_rdtsc). */
uint64_t qw_tsc(void);

/*
 * Enables RSS in the configuration of a port: the device hashes addresses and ports, as far as supported, to choose the
 * receive queue. With is_symmetric, the key gives both directions of a flow the same queue. Returns 0, or -ENOTSUP if the
 * device takes no such key or hashes nothing. The key stays as long as the process.
 */
int qw_hash_flows(struct rte_eth_conf *conf, const struct rte_eth_dev_info *info, int is_symmetric);

/* Has the receive queues of a port that is going to be configured interrupt. */
void qw_interrupt_receivers(struct rte_eth_conf *conf);

/* Sets all entries of the redirection table of a started port, at most 512. Returns 0 or a negative errno. */
int qw_set_redirection_table(uint16_t port, const uint16_t *queues, uint16_t entries);

/* Writes the queues of all entries of the redirection table of a port, at most 512. Returns 0 or a negative errno. */
int qw_redirection_table(uint16_t port, uint16_t *queues, uint16_t entries);

/*
 * Notes from now on if the device of a port is removed: by the kernel's request to release it (vfio, rte_dev_event_callback_register)
 * or by an event of its driver (RTE_ETH_EVENT_INTR_RMV). Notes also if it is reset (RTE_ETH_EVENT_INTR_RESET). Returns 0 or a negative
 * errno.
 */
int qw_watch_removal(uint16_t port, const char *device);

/* Ends this. Call it before the port is closed. Waits, for about a second at most, for the end of an event that is being reported. */
void qw_end_watch(uint16_t port, const char *device);

/* Returns 1 if the device of a port was removed since qw_watch_removal, otherwise 0. */
int qw_is_removed(uint16_t port);

/* Notes that the device of a port was reset. */
void qw_note_reset(uint16_t port);

/* Returns 1 at the first call after the first reset since qw_watch_removal, otherwise 0. */
int qw_take_reset(uint16_t port);

/* Returns 1 if qw_request_segments was called for a frame, and writes its arguments. */
int qw_is_to_segment(const struct rte_mbuf *mbuf, uint16_t *l2, uint16_t *l3, uint16_t *l4, uint16_t *size, int *is_ipv4,
	int *is_tcp);

/*
 * A flow rule of a card: fields of headers with masks, and a destination. Numbers of several octets are in network order, except
 * the destination.
 */
struct qw_flow {
	uint8_t source_mac[6];
	uint8_t source_mac_mask[6];
	uint8_t destination_mac[6];
	uint8_t destination_mac_mask[6];
	uint16_t ethertype;
	uint16_t ethertype_mask;
	/* Tag control information of the outermost tag; without mask, the rule is also about frames without a tag. */
	uint16_t vlan;
	uint16_t vlan_mask;
	/* Addresses of IPv4 are the first four octets. */
	uint8_t source[16];
	uint8_t source_mask[16];
	uint8_t destination[16];
	uint8_t destination_mask[16];
	uint16_t source_port;
	uint16_t source_port_mask;
	uint16_t destination_port;
	uint16_t destination_port_mask;
	uint8_t protocol;
	uint8_t protocol_mask;
	/* 4 or 6, or 0 for a rule about Ethernet headers alone. */
	uint8_t version;
	/* Whether the card counts the frames of the rule. */
	uint8_t is_counted;
	/* Whether the destination is a virtual function instead of a queue. */
	uint8_t is_to_function;
	/* Whether there is no destination: the card drops the frames. */
	uint8_t is_dropped;
	uint16_t queue;
	uint32_t function;
};

/*
 * Checks whether the driver of a port would accept a rule (rte_flow_validate), creates one, or destroys one. On refusal, they write
 * the reason, a terminated text of less than length octets. Return 0 or a negative errno, or the rule, which is NULL on refusal.
 */
int qw_flow_validate(uint16_t port, const struct qw_flow *flow, char *reason, size_t length);
void *qw_flow_create(uint16_t port, const struct qw_flow *flow, char *reason, size_t length);
int qw_flow_destroy(uint16_t port, void *flow, char *reason, size_t length);

/* Writes the frames that a rule with a counter has matched. Returns 0 or a negative errno. */
int qw_flow_hits(uint16_t port, void *flow, uint64_t *hits);

/* Marks a received frame: its TCP or UDP data must be cut into segments of this number of octets. */
void qw_set_segment_size(struct rte_mbuf *mbuf, uint16_t size);

#endif
