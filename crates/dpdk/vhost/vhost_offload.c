/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2010-2018 Intel Corporation
 * Copyright(c) 2016 IGEL Co., Ltd.
 */

/*
 * Checksums and segments that one side leaves to the other, from lib/vhost/virtio_net.c (vhost_dequeue_offload,
 * virtio_enqueue_offload) and drivers/net/vhost/rte_eth_vhost.c (vhost_dev_rx_sw_csum). Lengths in a frame are the guest's
 * word: none is followed beyond the frame.
 */

#include <stddef.h>
#include <string.h>

#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_net.h>
#include <rte_sctp.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "vhost_ring.h"

/* Puts a checksum into the first buffer of a frame, where there is room for it. */
static void
vhost_put_checksum(struct rte_mbuf *mbuf, uint32_t at, uint16_t sum)
{
	if (at + sizeof(sum) <= rte_pktmbuf_data_len(mbuf))
		memcpy(rte_pktmbuf_mtod_offset(mbuf, void *, at), &sum, sizeof(sum));
}

/* Sums up what comes from a place of a frame on. False when there is nothing. */
static bool
vhost_sum_from(const struct rte_mbuf *mbuf, uint32_t at, uint16_t *sum)
{
	const uint32_t length = rte_pktmbuf_pkt_len(mbuf);

	return at < length && rte_raw_cksum_mbuf(mbuf, at, length - at, sum) == 0;
}

/* Finishes the checksum of a frame that the guest did not. That of the pseudo header is there already. */
static void
vhost_finish_checksum(struct rte_mbuf *mbuf, uint32_t type, const struct rte_net_hdr_lens *lengths)
{
	const uint32_t headers = (uint32_t)lengths->l2_len + lengths->l3_len;
	uint32_t at = headers;
	uint16_t sum;

	switch (type & RTE_PTYPE_L4_MASK) {
	case RTE_PTYPE_L4_TCP:
		at += offsetof(struct rte_tcp_hdr, cksum);
		break;
	case RTE_PTYPE_L4_UDP:
		at += offsetof(struct rte_udp_hdr, dgram_cksum);
		break;
	default:
		return;
	}
	if (!vhost_sum_from(mbuf, headers, &sum))
		return;
	sum = ~sum;
	/* RFC 768: no checksum is sent as 0. */
	if ((type & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_UDP && sum == 0)
		sum = 0xffff;
	vhost_put_checksum(mbuf, at, sum);
	mbuf->ol_flags &= ~RTE_MBUF_F_RX_L4_CKSUM_MASK;
	mbuf->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_GOOD;
}

void
vhost_take_offloads(struct vhost_ring *ring, struct rte_mbuf *mbuf, const struct virtio_net_hdr *header)
{
	struct rte_net_hdr_lens lengths = { 0 };
	uint32_t type, l4, headers;
	uint16_t sum;

	type = rte_net_get_ptype(mbuf, &lengths, RTE_PTYPE_ALL_MASK);
	l4 = type & RTE_PTYPE_L4_MASK;
	mbuf->packet_type = type;
	headers = (uint32_t)lengths.l2_len + lengths.l3_len + lengths.l4_len;

	if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
		if (header->csum_start <= headers &&
		    (l4 == RTE_PTYPE_L4_TCP || l4 == RTE_PTYPE_L4_UDP || l4 == RTE_PTYPE_L4_SCTP)) {
			mbuf->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_NONE;
		} else {
			/* A protocol or tunnel that is not known: where the sum goes, the guest says. */
			if (!vhost_sum_from(mbuf, header->csum_start, &sum))
				return;
			if (sum != 0xffff)
				sum = ~sum;
			vhost_put_checksum(mbuf, (uint32_t)header->csum_start + header->csum_offset, sum);
		}
	}
	if (header->gso_type != VIRTIO_NET_HDR_GSO_NONE && header->gso_size != 0) {
		switch (header->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
		case VIRTIO_NET_HDR_GSO_TCPV4:
		case VIRTIO_NET_HDR_GSO_TCPV6:
			if (l4 != RTE_PTYPE_L4_TCP)
				break;
			mbuf->ol_flags |= RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_L4_CKSUM_NONE;
			mbuf->tso_segsz = header->gso_size;
			break;
		case VIRTIO_NET_HDR_GSO_UDP:
			if (l4 != RTE_PTYPE_L4_UDP)
				break;
			mbuf->ol_flags |= RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_L4_CKSUM_NONE;
			mbuf->tso_segsz = header->gso_size;
			break;
		default:
			break;
		}
	}
	if (ring->software_checksums &&
	    (mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_NONE)
		vhost_finish_checksum(mbuf, type, &lengths);
}

void
vhost_finish_frame(struct rte_mbuf *mbuf)
{
	struct rte_net_hdr_lens lengths = { 0 };
	uint32_t type;

	if ((mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) != RTE_MBUF_F_RX_L4_CKSUM_NONE)
		return;
	type = rte_net_get_ptype(mbuf, &lengths, RTE_PTYPE_ALL_MASK);
	vhost_finish_checksum(mbuf, type, &lengths);
}

void
vhost_give_offloads(struct rte_mbuf *mbuf, struct virtio_net_hdr *header)
{
	uint64_t l4 = mbuf->ol_flags & RTE_MBUF_F_TX_L4_MASK;
	struct rte_ipv4_hdr *ip;

	if (mbuf->ol_flags & RTE_MBUF_F_TX_TCP_SEG)
		l4 |= RTE_MBUF_F_TX_TCP_CKSUM;
	if (l4 != 0) {
		/* Errors would cost every frame: the guest drops what makes no sense. */
		rte_net_intel_cksum_prepare(mbuf);
		header->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
		header->csum_start = mbuf->l2_len + mbuf->l3_len;
		switch (l4) {
		case RTE_MBUF_F_TX_TCP_CKSUM:
			header->csum_offset = offsetof(struct rte_tcp_hdr, cksum);
			break;
		case RTE_MBUF_F_TX_UDP_CKSUM:
			header->csum_offset = offsetof(struct rte_udp_hdr, dgram_cksum);
			break;
		case RTE_MBUF_F_TX_SCTP_CKSUM:
			header->csum_offset = offsetof(struct rte_sctp_hdr, cksum);
			break;
		}
	}
	if (mbuf->ol_flags & RTE_MBUF_F_TX_IP_CKSUM) {
		ip = rte_pktmbuf_mtod_offset(mbuf, struct rte_ipv4_hdr *, mbuf->l2_len);
		ip->hdr_checksum = 0;
		ip->hdr_checksum = rte_ipv4_cksum(ip);
	}
	if (mbuf->ol_flags & RTE_MBUF_F_TX_TCP_SEG) {
		header->gso_type = mbuf->ol_flags & RTE_MBUF_F_TX_IPV4 ? VIRTIO_NET_HDR_GSO_TCPV4 :
									VIRTIO_NET_HDR_GSO_TCPV6;
		header->gso_size = mbuf->tso_segsz;
		header->hdr_len = mbuf->l2_len + mbuf->l3_len + mbuf->l4_len;
	}
}
