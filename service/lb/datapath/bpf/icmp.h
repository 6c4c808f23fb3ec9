/* ICMP: errors about balanced packets go where those packets went, a packet that is
 * too big is answered, and an echo request to a VIP too. */
#pragma once

#include "nat.h"

/* Types and codes (RFC 792, RFC 4443); linux/icmp.h needs a C library. */
#define ICMP_ECHOREPLY 0
#define ICMP_DEST_UNREACH 3
#define ICMP_ECHO 8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define ICMP_FRAG_NEEDED 4
#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_PKT_TOOBIG 2
#define ICMPV6_PARAMPROB 4
#define ICMPV6_ECHO_REQUEST 128
#define ICMPV6_ECHO_REPLY 129

/* What an error quotes of the packet it is about: of IPv4 all headers there can be
 * and 8 bytes more, of IPv6 the longest headers that are accepted and some more. */
#define QUOTE4 128
#define QUOTE6 320

/* An ICMP header, the same in both families as far as it is used here. */
struct icmp_header {
	__u8 type, code;
	__u16 checksum;
	__be32 rest;
};

static __always_inline int is_icmp_error(const int six, __u8 type)
{
	if (six)
		return type >= ICMPV6_DEST_UNREACH && type <= ICMPV6_PARAMPROB;
	return type == ICMP_DEST_UNREACH || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETERPROB;
}

/* back sends what is in ctx to where the original packet, at original, came from. */
static __always_inline int back(struct xdp_md *ctx, struct ethhdr *e, struct ethhdr *original)
{
	__u8 mac[6];
	__builtin_memcpy(mac, original->h_source, 6);
	__builtin_memcpy(e->h_source, original->h_dest, 6);
	__builtin_memcpy(e->h_dest, mac, 6);
	return send(ctx, ctx->ingress_ifindex);
}

/* too_big4 answers a packet that is longer than fits with "fragmentation needed"
 * (RFC 1191), also when it may be fragmented: this program cannot, the sender can. */
static __always_inline int too_big4(struct xdp_md *ctx, __u32 vip, __u32 fits)
{
	__u32 frame = ctx->data_end - ctx->data, added = sizeof(struct iphdr) + sizeof(struct icmp_header);
	if (frame < L3 + QUOTE4 || bpf_xdp_adjust_tail(ctx, -(int)(frame - L3 - QUOTE4)) ||
	    bpf_xdp_adjust_head(ctx, -(int)added))
		return drop_of(vip, DROP_HEADROOM);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + L3 + added + QUOTE4 > end)
		return drop_of(vip, DROP_HEADROOM);
	struct ethhdr *e = data;
	struct iphdr *ip = data + L3, *quoted = data + L3 + added;
	struct icmp_header *icmp = (void *)(ip + 1);
	int verdict = back(ctx, e, data + added);
	e->h_proto = ETHERTYPE_IPV4;
	ip->version = 4;
	ip->ihl = 5;
	ip->tos = 0;
	ip->tot_len = bpf_htons(added + QUOTE4);
	ip->id = 0;
	ip->frag_off = 0;
	ip->ttl = TUNNEL_TTL;
	ip->protocol = IPPROTO_ICMP;
	ip->saddr = quoted->daddr;
	ip->daddr = quoted->saddr;
	ip->check = 0;
	ip->check = header_checksum(ip);
	icmp->type = ICMP_DEST_UNREACH;
	icmp->code = ICMP_FRAG_NEEDED;
	icmp->rest = bpf_htonl(fits);
	icmp->checksum = 0;
	icmp->checksum = ~fold(bpf_csum_diff(0, 0, (void *)icmp, sizeof(*icmp) + QUOTE4, 0));
	drop_of(vip, DROP_TOO_BIG);
	return verdict;
}

/* too_big6 is the same for IPv6 (RFC 4443, 3.2). */
static __always_inline int too_big6(struct xdp_md *ctx, __u32 vip, __u32 fits)
{
	__u32 frame = ctx->data_end - ctx->data, added = sizeof(struct ipv6hdr) + sizeof(struct icmp_header);
	if (frame < L3 + QUOTE6 || bpf_xdp_adjust_tail(ctx, -(int)(frame - L3 - QUOTE6)) ||
	    bpf_xdp_adjust_head(ctx, -(int)added))
		return drop_of(vip, DROP_HEADROOM);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + L3 + added + QUOTE6 > end)
		return drop_of(vip, DROP_HEADROOM);
	struct ethhdr *e = data;
	struct ipv6hdr *ip = data + L3, *quoted = data + L3 + added;
	struct icmp_header *icmp = (void *)(ip + 1);
	int verdict = back(ctx, e, data + added);
	e->h_proto = ETHERTYPE_IPV6;
	*(__be32 *)ip = bpf_htonl(6u << 28);
	ip->payload_len = bpf_htons(sizeof(*icmp) + QUOTE6);
	ip->nexthdr = IPPROTO_ICMPV6;
	ip->hop_limit = TUNNEL_TTL;
	ip->saddr = quoted->daddr;
	ip->daddr = quoted->saddr;
	icmp->type = ICMPV6_PKT_TOOBIG;
	icmp->code = 0;
	icmp->rest = bpf_htonl(fits);
	icmp->checksum = 0;
	__u64 sum = bpf_csum_diff(0, 0, (void *)&ip->saddr, 32, 0);
	sum += bpf_csum_diff(0, 0, (void *)icmp, sizeof(*icmp) + QUOTE6, 0);
	sum += bpf_htons(sizeof(*icmp) + QUOTE6) + bpf_htons(IPPROTO_ICMPV6);
	icmp->checksum = ~fold(sum);
	drop_of(vip, DROP_TOO_BIG);
	return verdict;
}

static __always_inline int too_big(const int six, struct xdp_md *ctx, __u32 vip, __u32 fits)
{
	return six ? too_big6(ctx, vip, fits) : too_big4(ctx, vip, fits);
}

/* freshen gives a packet the TTL of one that begins its way here. */
static __always_inline void freshen(const int six, void *data)
{
	if (six) {
		((struct ipv6hdr *)(data + L3))->hop_limit = TUNNEL_TTL;
		return;
	}
	struct iphdr *ip = data + L3;
	ip->check = updated(ip->check, change(0, bpf_htons(ip->ttl << 8), bpf_htons(TUNNEL_TTL << 8)));
	ip->ttl = TUNNEL_TTL;
}

/* echo answers an echo request in place. */
static __always_inline int echo(const int six, struct xdp_md *ctx, void *data, struct icmp_header *icmp)
{
	struct address source = source_of(six, data), destination = destination_of(six, data);
	set_addresses(six, data, &destination, &source); /* swapping does not change sums */
	__u8 request = icmp->type, reply = six ? ICMPV6_ECHO_REPLY : ICMP_ECHOREPLY;
	icmp->type = reply;
	icmp->checksum = updated(icmp->checksum, change(0, bpf_htons(request << 8), bpf_htons(reply << 8)));
	freshen(six, data);
	return back(ctx, data, data);
}

/* The packet that an error quotes: its addresses and ports, and where they are. */
struct quote {
	__u32 offset; /* of its IP header, from the frame's start */
	__u32 l4;
	struct address source, destination;
	__be16 source_port, destination_port;
	__u8 protocol;
};

static __always_inline int read_quote(const int six, struct xdp_md *ctx, void *data, void *end, struct quote *q)
{
	void *start = at(data, q->offset);
	struct packet p = {};
	if (six) {
		struct ipv6hdr *ip = start;
		if ((void *)(ip + 1) > end || ip->version != 6)
			return -1;
		q->source = address6(&ip->saddr);
		q->destination = address6(&ip->daddr);
		p.protocol = ip->nexthdr;
		p.l4 = q->offset + sizeof(*ip);
		if (is_extension(p.protocol) && (read_extensions(ctx, data, end, &p) || p.fragmented == LATER_FRAGMENT))
			return -1;
	} else {
		struct iphdr *ip = start;
		if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5 || ip->frag_off & bpf_htons(IP_OFFSET))
			return -1;
		q->source = address4(ip->saddr);
		q->destination = address4(ip->daddr);
		p.protocol = ip->protocol;
		p.l4 = q->offset + ip->ihl * 4;
	}
	if (p.protocol != IPPROTO_TCP && p.protocol != IPPROTO_UDP)
		return -1;
	if (p.l4 > MAX_OFFSET - 8)
		return -1;
	q->l4 = p.l4;
	q->protocol = p.protocol;
	__be16 *port = at(data, q->l4);
	if ((void *)(port + 2) > end)
		return -1;
	q->source_port = port[0];
	q->destination_port = port[1];
	return 0;
}

/* requote makes the quoted packet look as its receiver knows it, with new addresses
 * and ports. A quoted transport checksum stays as it is: the quote is cut, so nobody
 * can check it. */
static __always_inline int requote(const int six, struct xdp_md *ctx, const struct packet *p, const struct quote *q,
				   const struct address *source, __be16 source_port, const struct address *destination,
				   __be16 destination_port, __u64 outer)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct icmp_header *icmp = at(data, p->l4);
	void *start = at(data, q->offset);
	__be16 *port = at(data, q->l4);
	if ((void *)(icmp + 1) > end || start + (six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end ||
	    (void *)(port + 2) > end)
		return -1;
	__u64 difference = 0;
	if (six) {
		struct ipv6hdr *ip = start;
		difference = change_address(outer, &q->source, source);
		difference = change_address(difference, &q->destination, destination);
		__builtin_memcpy(&ip->saddr, source, 16);
		__builtin_memcpy(&ip->daddr, destination, 16);
	} else {
		/* The quoted header's own checksum makes up for its addresses, so the sum
		 * over the whole header stays, and an ICMP checksum covers no addresses. */
		struct iphdr *ip = start;
		__u64 d = change(0, q->source.word[0], source->word[0]);
		d = change(d, q->destination.word[0], destination->word[0]);
		ip->saddr = source->word[0];
		ip->daddr = destination->word[0];
		ip->check = updated(ip->check, d);
	}
	difference = change(difference, port[0], source_port);
	difference = change(difference, port[1], destination_port);
	port[0] = source_port;
	port[1] = destination_port;
	icmp->checksum = updated(icmp->checksum, difference);
	return 0;
}

static __always_inline void age(const int six, void *data)
{
	if (six)
		((struct ipv6hdr *)(data + L3))->hop_limit--;
	else
		age4(data + L3);
}

static __always_inline __u8 ttl_of(const int six, void *data)
{
	return six ? ((struct ipv6hdr *)(data + L3))->hop_limit : ((struct iphdr *)(data + L3))->ttl;
}

/* error_to_backend forwards an error about a packet that a backend sent in the
 * VIP's name. */
static __always_inline int error_to_backend(const int six, struct xdp_md *ctx, const struct packet *p,
					    const struct quote *q, struct vip *v)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + L3 + (six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end)
		return XDP_PASS;
	union tuple t = tuple_of(six, &q->destination, q->destination_port, &q->source, q->source_port, q->protocol);
	__u32 hash = flow_hash(six, &q->destination, q->destination_port, &q->source, q->source_port, q->protocol,
			       v->flags & VIP_AFFINITY);
	struct flow *f = find_flow(six, &t);
	struct member *m = f ? member_of(f, q->protocol, now_ticks()) : 0;
	__be16 client_port = q->destination_port;
	__u8 flow_source = 0;
	__u32 index;
	if (m) {
		client_port = f->port;
		flow_source = f->source;
	} else {
		m = pick(v, hash, &q->destination, &index);
	}
	if (!m)
		return drop_of(v->id, DROP_NO_BACKEND);
	if (!m->interface)
		return drop_of(v->id, DROP_NEXT_HOP);
	if (ttl_of(six, data) <= 1)
		return drop_of(v->id, DROP_TTL);
	age(six, data);
	if (m->mode != MODE_NAT)
		return send_direct(ctx, m, six ? ETHERTYPE_IPV6 : ETHERTYPE_IPV4, p->length, p->tos, hash);
	struct address source = source_of(six, data), backend = m->address;
	struct address client = source_of_flow(six, m, flow_source, &q->destination);
	__u64 outer = set_addresses(six, data, &source, &backend);
	if (requote(six, ctx, p, q, &backend, m->port ? m->port : q->source_port, &client, client_port, outer))
		return drop_of(v->id, DROP_ICMP_QUOTE);
	return send_direct(ctx, m, 0, 0, 0, 0);
}

/* error_to_client forwards an error about a translated packet of a client. */
static __always_inline int error_to_client(const int six, struct xdp_md *ctx, const struct packet *p,
					   const struct quote *q)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + L3 + (six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end)
		return XDP_PASS;
	union tuple t = tuple_of(six, &q->destination, q->destination_port, &q->source, q->source_port, q->protocol);
	struct reply *r = find_reply(six, &t);
	if (!r || r->kind != REPLY_NAT)
		return XDP_PASS;
	if (ttl_of(six, data) <= 1)
		return drop(DROP_TTL);
	age(six, data);
	struct address source = source_of(six, data), vip = r->vip, client = r->client;
	if (same(&source, &q->destination)) /* the backend itself is not shown */
		source = vip;
	__u64 outer = set_addresses(six, data, &source, &client);
	if (requote(six, ctx, p, q, &client, r->client_port, &vip, r->vip_port, outer))
		return drop(DROP_ICMP_QUOTE);
	struct ethhdr *e = (void *)(long)ctx->data;
	if ((void *)(e + 1) > (void *)(long)ctx->data_end)
		return drop(DROP_ICMP_QUOTE);
	__builtin_memcpy(e->h_dest, r->destination_mac, 6);
	__builtin_memcpy(e->h_source, r->source_mac, 6);
	return send(ctx, r->interface);
}

/* The least that a router may say: less would be no help but an attack (Linux has the
 * same bound for IPv4; RFC 8200 has that of IPv6). */
#define LEAST_MTU4 552
#define LEAST_MTU6 1280

/* learn_path notes what a router says of the way to a tunnel's end: that a packet of a
 * tunnel, which it quotes, is too big. The Go side lowers the MTU of the members there. */
static __always_inline void learn_path(const int six, void *data, void *end, const struct icmp_header *header,
				       __u32 offset)
{
	struct address to, from, own = destination_of(six, data);
	struct path found = {.seen = now_ticks()};
	__u8 protocol;
	if (six) {
		struct ipv6hdr *ip = at(data, offset);
		if (header->type != ICMPV6_PKT_TOOBIG || (void *)(ip + 1) > end)
			return;
		to = address6(&ip->daddr), from = address6(&ip->saddr);
		protocol = ip->nexthdr;
		found.mtu = bpf_ntohl(header->rest);
		if (found.mtu < LEAST_MTU6)
			found.mtu = LEAST_MTU6;
	} else {
		struct iphdr *ip = at(data, offset);
		if (header->type != ICMP_DEST_UNREACH || header->code != ICMP_FRAG_NEEDED || (void *)(ip + 1) > end)
			return;
		to = address4(ip->daddr), from = address4(ip->saddr);
		protocol = ip->protocol;
		found.mtu = bpf_ntohl(header->rest) & 0xffff;
		if (found.mtu < LEAST_MTU4)
			found.mtu = LEAST_MTU4;
	}
	if ((protocol == IPPROTO_IPIP || protocol == IPPROTO_IPV6 || protocol == IPPROTO_GRE) && same(&from, &own))
		bpf_map_update_elem(&paths, &to, &found, BPF_ANY);
}

static __always_inline int icmp(const int six, struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet p = {};
	if (six ? parse6(ctx, data, end, &p) : parse4(data, end, &p))
		return XDP_PASS;
	struct icmp_header *header = at(data, p.l4);
	if (p.fragmented != WHOLE || (void *)(header + 1) > end)
		return XDP_PASS;
	struct address destination = destination_of(six, data);
	if (header->type == (six ? ICMPV6_ECHO_REQUEST : ICMP_ECHO) && has_vip(&destination))
		return echo(six, ctx, data, header);
	if (!is_icmp_error(six, header->type))
		return XDP_PASS;
	struct quote q = {.offset = p.l4 + sizeof(*header)};
	if (q.offset <= MAX_OFFSET - sizeof(struct ipv6hdr))
		learn_path(six, data, end, header, q.offset);
	if (q.offset > MAX_OFFSET - sizeof(struct ipv6hdr) || read_quote(six, ctx, data, end, &q))
		return has_vip(&destination) ? drop(DROP_ICMP_QUOTE) : XDP_PASS;
	struct vip *v = find_vip(six, &q.source, q.source_port, q.protocol);
	if (v && same(&q.source, &destination))
		return error_to_backend(six, ctx, &p, &q, v);
	return settings.replies ? error_to_client(six, ctx, &p, &q) : XDP_PASS;
}

/* Functions of their own, so that the verifier looks at each once. */
__noinline int icmp4(struct xdp_md *ctx)
{
	return icmp(0, ctx);
}

__noinline int icmp6(struct xdp_md *ctx)
{
	return icmp(1, ctx);
}
