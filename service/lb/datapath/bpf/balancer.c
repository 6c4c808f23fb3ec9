// The load balancer's XDP programs. Each header beside this file is one part of the
// work; this one is the order of the work.
//
// balance runs on the interface that clients' packets come in on. A packet for a VIP
// goes to a backend, a packet from a backend of a NAT VIP goes back to its client,
// anything else is left to the kernel (XDP_PASS).
//
// probe runs on the device by which health checks leave their own namespace. It
// sends each on as balance would send a client's packet.

#include "icmp.h"

/* later_fragment sends a fragment without ports after the first one. */
static __always_inline int later_fragment(const int six, struct xdp_md *ctx, const struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	if (data + L3 + (six ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end)
		return XDP_PASS;
	struct fragment_key k = {source_of(six, data), destination_of(six, data), p->id, p->carries};
	struct fragment *f = bpf_map_lookup_elem(&fragments, &k);
	__u32 now = now_ticks();
	if (!f || idle(now, f->seen) > FRAGMENT_IDLE)
		return has_vip(&k.destination) ? drop(DROP_FRAGMENT) : XDP_PASS;
	f->seen = now;
	if (ttl_of(six, data) <= 1)
		return drop(DROP_TTL);
	if (f->member) {
		struct member *m = live_member(f->member, f->epoch);
		if (!m || !m->interface)
			return drop(DROP_FRAGMENT);
		__u32 fits, id = m->vip, index = f->member;
		if (exceeds(ctx, m, p->length, &fits))
			return too_big(six, ctx, id, fits);
		struct vip_counters *vc = bpf_map_lookup_elem(&vip_counts, &id);
		struct member_counters *mc = bpf_map_lookup_elem(&member_counts, &index);
		if (vc && mc) {
			vc->packets++, mc->packets++;
			vc->bytes += end - data, mc->bytes += end - data;
		}
		age(six, data);
		if (m->mode == MODE_NAT)
			set_addresses(six, data, &f->source, &f->destination);
		return send_direct(ctx, m, six ? ETHERTYPE_IPV6 : ETHERTYPE_IPV4, p->length, p->tos, p->id);
	}
	age(six, data);
	set_addresses(six, data, &f->source, &f->destination);
	struct ethhdr *e = data;
	__builtin_memcpy(e->h_dest, f->destination_mac, 6);
	__builtin_memcpy(e->h_source, f->source_mac, 6);
	return send(ctx, f->interface);
}

/* remember_fragment stores where the fragments after this first one belong. */
static __always_inline void remember_fragment(const int six, void *data, const struct packet *p, struct fragment *f)
{
	struct fragment_key k = {source_of(six, data), destination_of(six, data), p->id, p->carries};
	f->seen = now_ticks();
	bpf_map_update_elem(&fragments, &k, f, BPF_ANY);
}

/* count_lost counts a packet of a NAT backend that belongs to no flow. A SYN begins a
 * connection of the backend's own. */
static __always_inline void count_lost(const int six, const struct packet *p, const struct address *source,
				       const struct address *destination)
{
	/* Most packets that pass here are nobody's replies, and must not cost a lookup more. */
	if (!(settings.origin_ports >> (bpf_ntohs(p->source_port) & 63) & 1) ||
	    (p->protocol == IPPROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN))
		return;
	struct origin o = {*source, p->source_port, p->protocol, 0};
	if (!bpf_map_lookup_elem(&origins, &o)) {
		o.port = 0; /* a range of ports */
		if (!bpf_map_lookup_elem(&origins, &o))
			return;
	}
	/* The node's own connections, among them health checks, have no flow. SNAT uses other ports. */
	if ((__u16)(bpf_ntohs(p->destination_port) - FIRST_PORT) >= PORTS && is_own(destination))
		return;
	count(COUNT_LOST_REPLIES);
}

/* from_backend sends a reply on to its client, in the name of the VIP. What is no
 * reply is left to the kernel. */
static __always_inline int from_backend(const int six, struct xdp_md *ctx, void *data, const struct packet *p,
					const union tuple *t)
{
	struct reply *r = find_reply(six, t);
	if (!r) {
		struct address source = source_of(six, data), destination = destination_of(six, data);
		count_lost(six, p, &source, &destination);
		return XDP_PASS;
	}
	__u32 now = now_ticks();
	if (r->seen != now)
		r->seen = now;
	if (!r->answered)
		r->answered = 1;
	if (p->tcp_flags & (TCP_FIN | TCP_RST))
		r->closing |= closing_of(p->tcp_flags, REPLY_FIN_BACKEND);
	struct ethhdr *e = data;
	if (r->kind == REPLY_NAT) {
		if (r->mtu && p->length > r->mtu && r->interface != ctx->ingress_ifindex) {
			if (settings.mtu && p->length > settings.mtu)
				return drop(DROP_OVERSIZED);
			return too_big(six, ctx, NO_VIP, r->mtu);
		}
		if (ttl_of(six, data) <= 1)
			return drop(DROP_TTL);
		if (p->fragmented == FIRST_FRAGMENT) {
			struct fragment f = {.interface = r->interface, .source = r->vip, .destination = r->client};
			__builtin_memcpy(f.destination_mac, r->destination_mac, 6);
			__builtin_memcpy(f.source_mac, r->source_mac, 6);
			remember_fragment(six, data, p, &f);
		}
		age(six, data);
		if (translate(six, ctx, p, &r->vip, r->vip_port, &r->client, r->client_port))
			return drop(DROP_TRANSPORT_HEADER);
	}
	__builtin_memcpy(e->h_dest, r->destination_mac, 6);
	__builtin_memcpy(e->h_source, r->source_mac, 6);
	return send(ctx, r->interface);
}

/* to_backend sends a client's packet to the backend of its flow. */
static __always_inline int to_backend(const int six, struct xdp_md *ctx, void *data, void *end, const struct packet *p,
				      const union tuple *t, const struct vip *v)
{
	struct address client = source_of(six, data), vip = destination_of(six, data);
	__u32 now = now_ticks(), id = v->id, index;
	int begins = p->protocol == IPPROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	int closing = !!(p->tcp_flags & (TCP_FIN | TCP_RST));
	__u32 hash = flow_hash(six, &client, p->source_port, &vip, p->destination_port, p->protocol,
			       v->flags & VIP_AFFINITY);
	struct flow *f = begins ? 0 : find_flow(six, t);
	struct member *m = f ? member_of(f, p->protocol, now) : 0;
	__be16 port = p->source_port;
	__u8 source = 0;

	struct vip_counters *vc = bpf_map_lookup_elem(&vip_counts, &id);
	if (!vc)
		return drop(DROP_NO_BACKEND); /* ids are always in the array */
	if (ttl_of(six, data) <= 1)
		return drop_of(id, DROP_TTL);
	if (m) {
		index = f->member;
		port = f->port;
		source = f->source;
		if (!m->interface)
			return drop_of(id, DROP_NEXT_HOP);
		if (f->seen != now)
			f->seen = now;
		if (f->flags & FLOW_NEW || (closing && !(f->flags & FLOW_CLOSING)))
			f->flags = closing ? FLOW_CLOSING : 0;
		if (m->mode == MODE_NAT && (closing || (__u16)(now - f->refreshed) >= REPLY_REFRESH)) {
			f->refreshed = now;
			refresh(six, ctx, data, p, m, f, now);
		}
	} else {
		if (!can_be_client(six, &client, &vip))
			return drop_of(id, DROP_SOURCE);
		/* Anybody can send segments that no SYN began, so that few of them are worth an entry. */
		int stray = p->protocol == IPPROTO_TCP && !begins;
		struct budget *budget = bpf_map_lookup_elem(&budgets, &id);
		if (v->flags & VIP_LIMITED && !stray && !admitted(id))
			return drop_of(id, DROP_RATE_LIMIT);
		m = pick(v, hash, &client, &index);
		if (!m)
			return drop_of(id, DROP_NO_BACKEND);
		if (!m->interface)
			return drop_of(id, DROP_NEXT_HOP);
		int keep = has_room(budget);
		if (stray)
			keep = keep && !closing && adopts(budget);
		if (m->mode == MODE_NAT) {
			source = choose_source(six, m, hash);
			port = claim(six, ctx, data, p, m, source, hash, now, keep);
			if (!port)
				return drop_of(id, keep ? DROP_PORTS : stray ? DROP_STRAY : DROP_FLOW_QUOTA);
			keep = 1; /* it has a reply already, so that it is a flow */
		}
		if (keep) {
			struct flow fresh = {.epoch = m->epoch, .member = index, .port = port, .seen = now, .refreshed = now, .source = source};
			if (p->protocol == IPPROTO_TCP)
				fresh.flags = closing ? FLOW_CLOSING : FLOW_NEW;
			if (store_flow(six, t, &fresh, BPF_NOEXIST)) {
				store_flow(six, t, &fresh, BPF_ANY);
			} else {
				count(six ? COUNT_STORED6 : COUNT_STORED4);
				if (budget)
					__sync_fetch_and_add(&budget->room, -1);
			}
			if (v->flags & VIP_AFFINITY)
				remember_client(v, &client, m, index);
			vc->flows++;
		}
	}
	__u32 fits;
	if (exceeds(ctx, m, p->length, &fits)) {
		if (settings.mtu && p->length > settings.mtu)
			return drop_of(id, DROP_OVERSIZED);
		return too_big(six, ctx, id, fits);
	}
	vc->packets++;
	vc->bytes += end - data;
	struct member_counters *mc = bpf_map_lookup_elem(&member_counts, &index);
	if (mc) {
		mc->packets++;
		mc->bytes += end - data;
	}
	if (p->fragmented == FIRST_FRAGMENT) {
		struct fragment f = {.epoch = m->epoch, .member = index};
		f.source = source_of_flow(six, m, source, &client);
		f.destination = m->address;
		remember_fragment(six, data, p, &f);
	}
	age(six, data);
	if (m->mode == MODE_NAT) {
		struct address seen = source_of_flow(six, m, source, &client);
		if (translate(six, ctx, p, &seen, port, &m->address, m->port ? m->port : p->destination_port))
			return drop_of(id, DROP_TRANSPORT_HEADER);
	}
	return send_direct(ctx, m, six ? ETHERTYPE_IPV6 : ETHERTYPE_IPV4, p->length, p->tos, hash);
}

/* A verdict of dispatch for what is left to icmp4 and icmp6. They are not called
 * from there, since the frames of both do not fit the stack together. */
#define IS_ICMP 100

static __always_inline int dispatch(const int six, struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet p = {};
	int err = six ? parse6(ctx, data, end, &p) : parse4(data, end, &p);
	if (err) {
		struct ipv6hdr *ip = data + L3;
		/* What may be no mistake but only too much for this program concerns VIPs alone. */
		if (err == -1 - DROP_IPV6_EXTENSIONS && (void *)(ip + 1) <= end) {
			struct address destination = address6(&ip->daddr);
			if (!has_vip(&destination))
				return XDP_PASS;
		}
		return drop(-1 - err);
	}
	if (p.fragmented == LATER_FRAGMENT)
		return later_fragment(six, ctx, &p);
	if (p.protocol != IPPROTO_TCP && p.protocol != IPPROTO_UDP) {
		if (p.protocol == (six ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
			return IS_ICMP;
		return XDP_PASS;
	}
	struct address source = source_of(six, data), destination = destination_of(six, data);
	if (ports(data, end, &p))
		return has_vip(&destination) ? drop(DROP_TRANSPORT_HEADER) : XDP_PASS;
	union tuple t = tuple_of(six, &source, p.source_port, &destination, p.destination_port, p.protocol);
	struct vip *v = find_vip(six, &destination, p.destination_port, p.protocol);
	if (v)
		return to_backend(six, ctx, data, end, &p, &t, v);
	if (settings.replies)
		return from_backend(six, ctx, data, &p, &t);
	return XDP_PASS;
}

__noinline int dispatch4(struct xdp_md *ctx)
{
	return dispatch(0, ctx);
}

__noinline int dispatch6(struct xdp_md *ctx)
{
	return dispatch(1, ctx);
}

SEC("xdp") int balance(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *e = data;
	if ((void *)(e + 1) > end || !is_ours(e))
		return XDP_PASS;
	if (e->h_proto == ETHERTYPE_IPV4) {
		int verdict = dispatch4(ctx);
		return verdict == IS_ICMP ? icmp4(ctx) : verdict;
	}
	if (e->h_proto == ETHERTYPE_IPV6) {
		int verdict = dispatch6(ctx);
		return verdict == IS_ICMP ? icmp6(ctx) : verdict;
	}
	return XDP_PASS;
}

/* send_probe sends a health check, a TCP segment to a VIP, to the member that its
 * source port stands for, and makes ready for the answer. */
static __always_inline int send_probe(const int six, struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet p = {};
	if ((six ? parse6(ctx, data, end, &p) : parse4(data, end, &p)) || p.fragmented != WHOLE ||
	    p.protocol != IPPROTO_TCP || ports(data, end, &p))
		return XDP_DROP;
	__u32 port = bpf_ntohs(p.source_port);
	__u32 *index = bpf_map_lookup_elem(&probe_ports, &port);
	struct member *m = index ? bpf_map_lookup_elem(&members, index) : 0;
	if (!m || !m->interface)
		return XDP_DROP;
	struct address source = source_of(six, data), destination = destination_of(six, data);
	if (p.tcp_flags & TCP_SYN) {
		struct ethhdr *e = data;
		union tuple t = tuple_of(six, &destination, p.destination_port, &source, p.source_port, p.protocol);
		struct reply r = {.seen = now_ticks(), .kind = REPLY_PROBE, .interface = ctx->ingress_ifindex};
		__builtin_memcpy(r.destination_mac, e->h_source, 6);
		__builtin_memcpy(r.source_mac, e->h_dest, 6);
		store_reply(six, &t, &r, BPF_ANY);
	}
	return send_direct(ctx, m, six ? ETHERTYPE_IPV6 : ETHERTYPE_IPV4, p.length, p.tos, port);
}

__noinline int probe4(struct xdp_md *ctx)
{
	return send_probe(0, ctx);
}

__noinline int probe6(struct xdp_md *ctx)
{
	return send_probe(1, ctx);
}

SEC("xdp") int probe(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *e = data;
	if ((void *)(e + 1) > end)
		return XDP_DROP;
	if (e->h_proto == ETHERTYPE_IPV4)
		return probe4(ctx);
	if (e->h_proto == ETHERTYPE_IPV6)
		return probe6(ctx);
	return XDP_DROP;
}

char _license[] SEC("license") = "GPL";
