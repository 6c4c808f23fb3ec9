/* Network address translation: to a backend, and back to the client. */
#pragma once

#include "select.h"
#include "send.h"

/* New source ports come from below what Linux gives to sockets of its own. */
#define FIRST_PORT 1024
#define PORTS 31744
#define PORT_TRIES 32
#define PORT_STEP 7919
/* So many tries are for a port that nobody has had of late. */
#define PORT_TRIES_UNUSED 8

/* A reply that nobody needs any more; its tuple can be given to another flow. */
static __always_inline int is_stale(const struct reply *r, __u8 protocol, __u32 now)
{
	__u32 since = idle(now, r->seen);
	if (protocol == IPPROTO_UDP)
		return since > UDP_IDLE;
	if (r->closing & REPLY_RST || (r->closing & REPLY_FINS) == REPLY_FINS)
		return since > TCP_ENDED;
	if (r->closing)
		return since > TCP_CLOSED;
	if (!r->answered)
		return since > TCP_UNANSWERED;
	return since > TCP_IDLE;
}

static __always_inline int same_flow(const struct reply *a, const struct reply *b)
{
	return a->client_port == b->client_port && a->vip_port == b->vip_port && same(&a->client, &b->client) &&
	       same(&a->vip, &b->vip);
}

/* hides_client says whether the backend sees a source of this node's. A backend that is its
 * own client does in any case: it would drop what seems to come from itself. */
static __always_inline int hides_client(const struct member *m, const struct address *client)
{
	return m->flags & MEMBER_SNAT || (same(client, &m->address) && m->source.word[0]);
}

/* source_of_flow is the address that the backend sees: the client's, or one of this node's. */
static __always_inline struct address source_of_flow(const int six, const struct member *m, __u8 source,
						     const struct address *client)
{
	if (!hides_client(m, client))
		return *client;
	if (source) {
		__u32 index = source - 1 + (six ? MAX_SOURCES : 0);
		struct address *a = bpf_map_lookup_elem(&sources, &index);
		if (a && a->word[0])
			return *a;
	}
	return m->source;
}

/* choose_source spreads flows over the sources there are; 0 is the member's own. */
static __always_inline __u8 choose_source(const int six, const struct member *m, __u32 hash)
{
	__u32 n = six ? settings.sources6 : settings.sources4;
	if (!n || !(m->flags & MEMBER_SNAT))
		return 0;
	return 1 + (hash >> 16) % n;
}

/* closing_of is what a segment adds to a reply's closing. */
static __always_inline __u8 closing_of(__u8 tcp_flags, __u8 fin)
{
	return (tcp_flags & TCP_FIN ? fin : 0) | (tcp_flags & TCP_RST ? REPLY_RST : 0);
}

/* reply_of makes what a flow's reply needs: its tuple, but for the port, and how to
 * get it to the client, which is the way that the client's packet came. */
static __always_inline union tuple reply_of(const int six, struct xdp_md *ctx, void *data, const struct packet *p,
					    const struct member *m, __u8 source, struct reply *r)
{
	struct ethhdr *e = data;
	r->client = source_of(six, data);
	r->vip = destination_of(six, data);
	r->client_port = p->source_port;
	r->vip_port = p->destination_port;
	r->interface = ctx->ingress_ifindex;
	r->mtu = settings.mtu;
	__builtin_memcpy(r->destination_mac, e->h_source, 6);
	__builtin_memcpy(r->source_mac, e->h_dest, 6);
	struct address to = source_of_flow(six, m, source, &r->client);
	return tuple_of(six, &m->address, m->port ? m->port : p->destination_port, &to, 0, p->protocol);
}

static __always_inline void set_port(const int six, union tuple *t, __be16 port)
{
	if (six)
		t->v6.destination_port = port;
	else
		t->v4.destination_port = port;
}

/* What claim works on. */
struct claim {
	union tuple tuple; /* of the replies, but for the port */
	struct reply reply;
	__u32 hash;
	__u8 protocol;
	__u8 hides; /* the backend does not see the client's address */
	__u8 take;
};

/* claim_port finds a source port for a flow, with which the backend's replies can be
 * told from those of all other flows: the client's own, if it may. Without take it finds
 * only one that the flow has already. 0 is none. */
static __always_inline int claim_port(const int six, struct claim *c)
{
	__be16 ended = 0; /* a port whose last flow ended a moment ago */
	for (__u32 i = 0; i < PORT_TRIES; i++) {
		__be16 port = bpf_htons(FIRST_PORT + (c->hash % PORTS + i * PORT_STEP) % PORTS);
		if (i == 0 && !c->hides)
			port = c->reply.client_port;
		set_port(six, &c->tuple, port);
		if (c->take && !store_reply(six, &c->tuple, &c->reply, BPF_NOEXIST))
			return port;
		struct reply *other = find_reply(six, &c->tuple);
		if (!other) {
			if (!c->take)
				return 0;
			continue; /* it went at this moment */
		}
		if (same_flow(other, &c->reply)) {
			if (c->take)
				store_reply(six, &c->tuple, &c->reply, BPF_ANY);
			return port;
		}
		if (!c->take || !is_stale(other, c->protocol, c->reply.seen))
			continue;
		if (!other->closing || idle(c->reply.seen, other->seen) > TCP_CLOSED) {
			store_reply(six, &c->tuple, &c->reply, BPF_ANY);
			return port;
		}
		if (!ended)
			ended = port;
		if (i >= PORT_TRIES_UNUSED)
			break;
	}
	if (ended) {
		set_port(six, &c->tuple, ended);
		store_reply(six, &c->tuple, &c->reply, BPF_ANY);
	}
	return ended;
}

/* Functions of their own, so that the verifier looks at each once. */
__noinline int claim_port4(struct claim *c)
{
	return c ? claim_port(0, c) : 0;
}

__noinline int claim_port6(struct claim *c)
{
	return c ? claim_port(1, c) : 0;
}

/* claim is claim_port for a client's packet. */
static __always_inline __be16 claim(const int six, struct xdp_md *ctx, void *data, const struct packet *p,
				    const struct member *m, __u8 source, __u32 hash, __u32 now, int take)
{
	struct claim c = {.hash = hash, .protocol = p->protocol, .take = !!take};
	c.reply.seen = now;
	c.reply.kind = REPLY_NAT;
	c.tuple = reply_of(six, ctx, data, p, m, source, &c.reply);
	c.hides = !!hides_client(m, &c.reply.client);
	return six ? claim_port6(&c) : claim_port4(&c);
}

/* refresh keeps a flow's reply from being forgotten before the flow, and learns a
 * changed way to the client. */
static __always_inline void refresh(const int six, struct xdp_md *ctx, void *data, const struct packet *p,
				    const struct member *m, const struct flow *f, __u32 now)
{
	__u8 closing = closing_of(p->tcp_flags, REPLY_FIN_CLIENT);
	struct reply r = {.seen = now, .kind = REPLY_NAT, .answered = 1, .closing = closing};
	union tuple t = reply_of(six, ctx, data, p, m, f->source, &r);
	set_port(six, &t, f->port);
	struct reply *known = find_reply(six, &t);
	if (!known) {
		store_reply(six, &t, &r, BPF_NOEXIST);
		return;
	}
	if (!same_flow(known, &r))
		return;
	known->seen = now;
	known->interface = r.interface;
	known->mtu = r.mtu;
	if (closing)
		known->closing |= closing;
	__builtin_memcpy(known->destination_mac, r.destination_mac, 6);
	__builtin_memcpy(known->source_mac, r.source_mac, 6);
}

/* set_addresses replaces the addresses of an IP header, and returns the difference
 * that this makes to checksums that cover them. */
static __always_inline __u64 set_addresses(const int six, void *data, const struct address *source,
					   const struct address *destination)
{
	struct address old_source = source_of(six, data), old_destination = destination_of(six, data);
	__u64 difference = 0;
#pragma unroll
	for (int i = 0; i < words(six); i++) {
		difference = change(difference, old_source.word[i], source->word[i]);
		difference = change(difference, old_destination.word[i], destination->word[i]);
	}
	if (six) {
		struct ipv6hdr *ip = data + L3;
		__builtin_memcpy(&ip->saddr, source, 16);
		__builtin_memcpy(&ip->daddr, destination, 16);
	} else {
		struct iphdr *ip = data + L3;
		ip->saddr = source->word[0];
		ip->daddr = destination->word[0];
		ip->check = updated(ip->check, difference);
	}
	return difference;
}

/* pseudo_sum is the sum of the pseudo header that a transport checksum covers. */
static __always_inline __u16 pseudo_sum(const int six, void *data, const struct packet *p)
{
	struct address source = source_of(six, data), destination = destination_of(six, data);
	__u64 sum = bpf_htons(p->protocol) + bpf_htons(L3 + p->length - p->l4);
#pragma unroll
	for (int i = 0; i < words(six); i++)
		sum += (__u64)source.word[i] + destination.word[i];
	return fold(sum);
}

/* translate gives a packet, whose TCP or UDP header is there, new addresses and
 * ports, and corrects its checksums. It returns 0, or -1 if the packet is too short. */
static __always_inline int translate(const int six, struct xdp_md *ctx, const struct packet *p,
				     const struct address *source, __be16 source_port,
				     const struct address *destination, __be16 destination_port)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + L3 + (six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end)
		return -1;
	struct udphdr *u = at(data, p->l4);
	__u16 *checksum = &u->check;
	if (p->protocol == IPPROTO_TCP)
		checksum = &((struct tcphdr *)u)->check;
	if ((void *)(u + 1) > end || (void *)(checksum + 1) > end)
		return -1;
	int partial = 0;
	if (settings.offloads && p->fragmented == WHOLE)
		partial = is_partial(ctx, p->l4, L3 + p->length - p->l4, pseudo_sum(six, data, p), *checksum);
	__u64 difference = set_addresses(six, data, source, destination);
	if (partial) {
		/* The device will add the rest, the ports among it. */
		*checksum = fold(*checksum + difference);
	} else if (p->protocol == IPPROTO_TCP || *checksum) {
		difference = change(difference, u->source, source_port);
		difference = change(difference, u->dest, destination_port);
		__u16 sum = updated(*checksum, difference);
		/* A UDP checksum of 0 would mean that there is none. */
		*checksum = sum || p->protocol == IPPROTO_TCP ? sum : 0xffff;
	}
	u->source = source_port;
	u->dest = destination_port;
	return 0;
}
