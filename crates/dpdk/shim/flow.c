/* SPDX-License-Identifier: Apache-2.0 */
/* Flow rules of network cards: rte_flow (rte_flow.h), whose items are unions and bit fields that bindgen cannot read well. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <rte_flow.h>

#include "shim.h"

/* A rule in DPDK's form. Its items and actions point into it. */
struct rule {
	struct rte_flow_attr attributes;
	/* Ethernet, VLAN, IP, transport, end. */
	struct rte_flow_item items[5];
	unsigned int item_count;
	/* Counter, destination, end. */
	struct rte_flow_action actions[3];
	struct rte_flow_item_eth eth, eth_mask;
	struct rte_flow_item_vlan vlan, vlan_mask;
	struct rte_flow_item_ipv4 ipv4, ipv4_mask;
	struct rte_flow_item_ipv6 ipv6, ipv6_mask;
	struct rte_flow_item_tcp tcp, tcp_mask;
	struct rte_flow_item_udp udp, udp_mask;
	struct rte_flow_item_sctp sctp, sctp_mask;
	struct rte_flow_action_count counter;
	struct rte_flow_action_queue queue;
	struct rte_flow_action_vf function;
};

static bool
is_zero(const void *octets, size_t length)
{
	const unsigned char *octet = octets;

	while (length > 0)
		if (octet[--length] != 0)
			return false;
	return true;
}

/* Adds an item. One that compares nothing has neither values nor masks, as drivers expect it. */
static void
add_item(struct rule *rule, enum rte_flow_item_type type, const void *spec, const void *mask, size_t length)
{
	struct rte_flow_item *item = &rule->items[rule->item_count++];

	item->type = type;
	if (length > 0 && !is_zero(mask, length)) {
		item->spec = spec;
		item->mask = mask;
	}
}

static void
add_ip(struct rule *rule, const struct qw_flow *flow, bool has_transport)
{
	if (flow->version == 4) {
		memcpy(&rule->ipv4.hdr.src_addr, flow->source, 4);
		memcpy(&rule->ipv4_mask.hdr.src_addr, flow->source_mask, 4);
		memcpy(&rule->ipv4.hdr.dst_addr, flow->destination, 4);
		memcpy(&rule->ipv4_mask.hdr.dst_addr, flow->destination_mask, 4);
		if (!has_transport) {
			rule->ipv4.hdr.next_proto_id = flow->protocol;
			rule->ipv4_mask.hdr.next_proto_id = flow->protocol_mask;
		}
		add_item(rule, RTE_FLOW_ITEM_TYPE_IPV4, &rule->ipv4, &rule->ipv4_mask, sizeof(rule->ipv4_mask));
	} else {
		memcpy(&rule->ipv6.hdr.src_addr, flow->source, 16);
		memcpy(&rule->ipv6_mask.hdr.src_addr, flow->source_mask, 16);
		memcpy(&rule->ipv6.hdr.dst_addr, flow->destination, 16);
		memcpy(&rule->ipv6_mask.hdr.dst_addr, flow->destination_mask, 16);
		if (!has_transport) {
			rule->ipv6.hdr.proto = flow->protocol;
			rule->ipv6_mask.hdr.proto = flow->protocol_mask;
		}
		add_item(rule, RTE_FLOW_ITEM_TYPE_IPV6, &rule->ipv6, &rule->ipv6_mask, sizeof(rule->ipv6_mask));
	}
}

/* Adds the transport of a rule about TCP, UDP or SCTP. */
static void
add_transport(struct rule *rule, const struct qw_flow *flow)
{
	switch (flow->protocol) {
	case 6:
		rule->tcp.hdr.src_port = flow->source_port;
		rule->tcp.hdr.dst_port = flow->destination_port;
		rule->tcp_mask.hdr.src_port = flow->source_port_mask;
		rule->tcp_mask.hdr.dst_port = flow->destination_port_mask;
		add_item(rule, RTE_FLOW_ITEM_TYPE_TCP, &rule->tcp, &rule->tcp_mask, sizeof(rule->tcp_mask));
		break;
	case 17:
		rule->udp.hdr.src_port = flow->source_port;
		rule->udp.hdr.dst_port = flow->destination_port;
		rule->udp_mask.hdr.src_port = flow->source_port_mask;
		rule->udp_mask.hdr.dst_port = flow->destination_port_mask;
		add_item(rule, RTE_FLOW_ITEM_TYPE_UDP, &rule->udp, &rule->udp_mask, sizeof(rule->udp_mask));
		break;
	default:
		rule->sctp.hdr.src_port = flow->source_port;
		rule->sctp.hdr.dst_port = flow->destination_port;
		rule->sctp_mask.hdr.src_port = flow->source_port_mask;
		rule->sctp_mask.hdr.dst_port = flow->destination_port_mask;
		add_item(rule, RTE_FLOW_ITEM_TYPE_SCTP, &rule->sctp, &rule->sctp_mask, sizeof(rule->sctp_mask));
		break;
	}
}

static void
add_ethernet(struct rule *rule, const struct qw_flow *flow)
{
	memcpy(&rule->eth.hdr.src_addr, flow->source_mac, 6);
	memcpy(&rule->eth_mask.hdr.src_addr, flow->source_mac_mask, 6);
	memcpy(&rule->eth.hdr.dst_addr, flow->destination_mac, 6);
	memcpy(&rule->eth_mask.hdr.dst_addr, flow->destination_mac_mask, 6);
	if (flow->vlan_mask == 0) {
		rule->eth.hdr.ether_type = flow->ethertype;
		rule->eth_mask.hdr.ether_type = flow->ethertype_mask;
	}
	add_item(rule, RTE_FLOW_ITEM_TYPE_ETH, &rule->eth, &rule->eth_mask, sizeof(rule->eth_mask));
	if (flow->vlan_mask != 0) {
		rule->vlan.hdr.vlan_tci = flow->vlan;
		rule->vlan_mask.hdr.vlan_tci = flow->vlan_mask;
		/* The EtherType is behind the tag. */
		rule->vlan.hdr.eth_proto = flow->ethertype;
		rule->vlan_mask.hdr.eth_proto = flow->ethertype_mask;
		add_item(rule, RTE_FLOW_ITEM_TYPE_VLAN, &rule->vlan, &rule->vlan_mask, sizeof(rule->vlan_mask));
	}
}

static void
make(struct rule *rule, const struct qw_flow *flow)
{
	unsigned int actions = 0;

	memset(rule, 0, sizeof(*rule));
	rule->attributes.ingress = 1;
	add_ethernet(rule, flow);
	if (flow->version != 0) {
		const bool has_transport = flow->protocol_mask != 0 &&
			(flow->protocol == 6 || flow->protocol == 17 || flow->protocol == 132);

		add_ip(rule, flow, has_transport);
		if (has_transport)
			add_transport(rule, flow);
	}
	add_item(rule, RTE_FLOW_ITEM_TYPE_END, NULL, NULL, 0);
	if (flow->is_counted) {
		rule->actions[actions].type = RTE_FLOW_ACTION_TYPE_COUNT;
		rule->actions[actions++].conf = &rule->counter;
	}
	if (flow->is_dropped) {
		rule->actions[actions++].type = RTE_FLOW_ACTION_TYPE_DROP;
	} else if (flow->is_to_function) {
		rule->function.id = flow->function;
		rule->actions[actions].type = RTE_FLOW_ACTION_TYPE_VF;
		rule->actions[actions++].conf = &rule->function;
	} else {
		rule->queue.index = flow->queue;
		rule->actions[actions].type = RTE_FLOW_ACTION_TYPE_QUEUE;
		rule->actions[actions++].conf = &rule->queue;
	}
	rule->actions[actions].type = RTE_FLOW_ACTION_TYPE_END;
}

/* Writes why a driver has refused something. */
static void
explain(const struct rte_flow_error *error, int code, char *reason, size_t length)
{
	snprintf(reason, length, "%s", error->message != NULL ? error->message : rte_strerror(code < 0 ? -code : code));
}

int
qw_flow_validate(uint16_t port, const struct qw_flow *flow, char *reason, size_t length)
{
	struct rte_flow_error error = { 0 };
	struct rule rule;
	int code;

	make(&rule, flow);
	code = rte_flow_validate(port, &rule.attributes, rule.items, rule.actions, &error);
	if (code != 0)
		explain(&error, code, reason, length);
	return code;
}

void *
qw_flow_create(uint16_t port, const struct qw_flow *flow, char *reason, size_t length)
{
	struct rte_flow_error error = { 0 };
	struct rule rule;
	struct rte_flow *made;

	make(&rule, flow);
	made = rte_flow_create(port, &rule.attributes, rule.items, rule.actions, &error);
	if (made == NULL)
		explain(&error, rte_errno, reason, length);
	return made;
}

int
qw_flow_destroy(uint16_t port, void *flow, char *reason, size_t length)
{
	struct rte_flow_error error = { 0 };
	const int code = rte_flow_destroy(port, flow, &error);

	if (code != 0)
		explain(&error, code, reason, length);
	return code;
}

int
qw_flow_hits(uint16_t port, void *flow, uint64_t *hits)
{
	const struct rte_flow_action_count counter = { 0 };
	const struct rte_flow_action actions[2] = {
		{ .type = RTE_FLOW_ACTION_TYPE_COUNT, .conf = &counter },
		{ .type = RTE_FLOW_ACTION_TYPE_END },
	};
	struct rte_flow_query_count counts = { 0 };
	struct rte_flow_error error = { 0 };
	const int code = rte_flow_query(port, flow, actions, &counts, &error);

	if (code != 0)
		return code;
	if (!counts.hits_set)
		return -ENOTSUP;
	*hits = counts.hits;
	return 0;
}
