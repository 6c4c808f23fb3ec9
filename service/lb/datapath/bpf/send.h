/* Sending packets: to a backend, as its mode has it, and back to where one came from. */
#pragma once

#include "checksum.h"

#define ETHERTYPE_IPV4 bpf_htons(ETH_P_IP)
#define ETHERTYPE_IPV6 bpf_htons(ETH_P_IPV6)
#define TUNNEL_TTL 64

static __always_inline int send(struct xdp_md *ctx, __u32 interface)
{
	if (interface == ctx->ingress_ifindex && !settings.redirect)
		return XDP_TX;
	return bpf_redirect(interface, 0);
}

struct gre {
	__be16 flags, protocol;
};

/* overhead is what a tunnel to the member adds to a packet, in bytes. */
static __always_inline __u32 overhead(const struct member *m)
{
	__u32 size = m->flags & MEMBER_IPV6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	if (m->mode == MODE_GRE)
		size += sizeof(struct gre);
	return size;
}

static __always_inline int tunnels(const struct member *m)
{
	return m->mode == MODE_IPIP || m->mode == MODE_GRE;
}

/* outer4 and outer6 write the headers of a tunnel before an inner packet. */
static __always_inline int outer4(struct xdp_md *ctx, const struct member *m, __be16 inner, __u32 length, __u8 tos)
{
	int gre = m->mode == MODE_GRE;
	__u32 size = sizeof(struct iphdr) + (gre ? sizeof(struct gre) : 0);
	if (bpf_xdp_adjust_head(ctx, -(int)size))
		return drop_of(m->vip, DROP_HEADROOM);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *e = data;
	struct iphdr *ip = (void *)(e + 1);
	struct gre *g = (void *)(ip + 1);
	if ((void *)(g + 1) > end)
		return drop_of(m->vip, DROP_HEADROOM);
	__builtin_memcpy(e->h_dest, m->destination_mac, 6);
	__builtin_memcpy(e->h_source, m->source_mac, 6);
	e->h_proto = ETHERTYPE_IPV4;
	ip->version = 4;
	ip->ihl = 5;
	ip->tos = tos;
	ip->tot_len = bpf_htons(length + size);
	ip->id = 0;
	ip->frag_off = bpf_htons(IP_DONT_FRAGMENT);
	ip->ttl = TUNNEL_TTL;
	ip->protocol = gre ? IPPROTO_GRE : inner == ETHERTYPE_IPV6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	ip->saddr = m->source.word[0];
	ip->daddr = m->address.word[0];
	ip->check = 0;
	ip->check = header_checksum(ip);
	if (gre) {
		g->flags = 0;
		g->protocol = inner;
	}
	return send(ctx, m->interface);
}

static __always_inline int outer6(struct xdp_md *ctx, const struct member *m, __be16 inner, __u32 length, __u8 tos,
				  __u32 hash)
{
	int gre = m->mode == MODE_GRE;
	__u32 size = sizeof(struct ipv6hdr) + (gre ? sizeof(struct gre) : 0);
	if (bpf_xdp_adjust_head(ctx, -(int)size))
		return drop_of(m->vip, DROP_HEADROOM);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *e = data;
	struct ipv6hdr *ip = (void *)(e + 1);
	struct gre *g = (void *)(ip + 1);
	if ((void *)(g + 1) > end)
		return drop_of(m->vip, DROP_HEADROOM);
	__builtin_memcpy(e->h_dest, m->destination_mac, 6);
	__builtin_memcpy(e->h_source, m->source_mac, 6);
	e->h_proto = ETHERTYPE_IPV6;
	/* The flow label spreads flows over the paths of a network (RFC 6438). */
	*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)tos << 20 | (hash & 0xfffff));
	ip->payload_len = bpf_htons(length + (gre ? sizeof(struct gre) : 0));
	ip->nexthdr = gre ? IPPROTO_GRE : inner == ETHERTYPE_IPV6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	ip->hop_limit = TUNNEL_TTL;
	__builtin_memcpy(&ip->saddr, &m->source, 16);
	__builtin_memcpy(&ip->daddr, &m->address, 16);
	if (gre) {
		g->flags = 0;
		g->protocol = inner;
	}
	return send(ctx, m->interface);
}

/* send_direct sends a packet to a member without changing more of it than DSR
 * does: the Ethernet header, or a tunnel's headers before it. */
static __always_inline int send_direct(struct xdp_md *ctx, const struct member *m, __be16 inner, __u32 length, __u8 tos,
				       __u32 hash)
{
	if (tunnels(m))
		return m->flags & MEMBER_IPV6 ? outer6(ctx, m, inner, length, tos, hash) :
						outer4(ctx, m, inner, length, tos);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *e = data;
	if ((void *)(e + 1) > end)
		return drop_of(m->vip, DROP_HEADROOM);
	__builtin_memcpy(e->h_dest, m->destination_mac, 6);
	__builtin_memcpy(e->h_source, m->source_mac, 6);
	return send(ctx, m->interface);
}

/* exceeds says whether a packet is too long for the way to a member, and sets what
 * would fit. Within one network packets are not cut, so only the tunnel's headers
 * and a change of interface matter. */
static __always_inline int exceeds(struct xdp_md *ctx, const struct member *m, __u32 length, __u32 *fits)
{
	if (!tunnels(m) && m->interface == ctx->ingress_ifindex)
		return 0;
	*fits = m->mtu;
	if (tunnels(m))
		*fits -= overhead(m);
	return m->mtu && length > *fits;
}
