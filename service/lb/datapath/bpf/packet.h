/* Reading packets. Nothing here trusts a length that a packet states. */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "maps.h"

#define L3 ((__u32)sizeof(struct ethhdr))

/* Extension headers that are followed, and the bytes they may have in all. */
#define MAX_EXTENSIONS 4
#define MAX_EXTENSION_BYTES 248

#define IP_MORE_FRAGMENTS 0x2000
#define IP_DONT_FRAGMENT 0x4000
#define IP_OFFSET 0x1fff

enum fragmented { WHOLE, FIRST_FRAGMENT, LATER_FRAGMENT };

struct packet {
	__u32 l4;	/* where the transport header is, from the frame's start */
	__u32 length;	/* of the IP packet, its header included */
	__u32 id;	/* of the fragments */
	__u8 protocol;
	__u8 carries; /* of a fragment, what the IP or fragment header says that it carries */
	__u8 fragmented;
	__u8 tcp_flags; /* byte 13 of the header */
	__u8 tos;
	__be16 source_port, destination_port;
};

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* Every offset into a packet is below this, which the verifier must see. */
#define MAX_OFFSET 511

static __always_inline void *at(void *data, __u32 offset)
{
	return data + (offset & MAX_OFFSET);
}

/* parse4 reads an IPv4 header. It returns 0, or minus one and the reason to drop. */
static __always_inline int parse4(void *data, void *end, struct packet *p)
{
	struct iphdr *ip = data + L3;
	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return -1 - DROP_IPV4_HEADER;
	__u32 header = ip->ihl * 4, frame = end - data;
	p->length = bpf_ntohs(ip->tot_len);
	if (p->length < header || L3 + p->length > frame)
		return -1 - DROP_IPV4_HEADER;
	__u16 fragment = bpf_ntohs(ip->frag_off);
	p->l4 = L3 + header;
	p->protocol = p->carries = ip->protocol;
	p->tos = ip->tos;
	p->id = ip->id;
	p->fragmented = WHOLE;
	if (fragment & IP_OFFSET)
		p->fragmented = LATER_FRAGMENT;
	else if (fragment & IP_MORE_FRAGMENTS)
		p->fragmented = FIRST_FRAGMENT;
	return 0;
}

struct extension {
	__u8 next, length; /* in units of 8 bytes, the first not counted */
};
struct fragment_header {
	__u8 next, reserved;
	__be16 offset;
	__be32 id;
};

#define NEXT_HOP_BY_HOP 0
#define NEXT_ROUTING 43
#define NEXT_FRAGMENT 44
#define NEXT_AUTHENTICATION 51
#define NEXT_DESTINATION 60

static __always_inline int is_extension(__u8 next)
{
	return next == NEXT_HOP_BY_HOP || next == NEXT_ROUTING || next == NEXT_FRAGMENT ||
	       next == NEXT_AUTHENTICATION || next == NEXT_DESTINATION;
}

/* extensions6 follows extension headers from offset, where the first one, of kind
 * next, is. It returns minus one and the reason to drop, or packed in one number
 * where the transport header is (9 bits), the protocol (8 bits), enum fragmented
 * (2 bits) and where the fragment header is (9 bits).
 *
 * It is a function of its own so that the verifier looks at it once. */
__noinline int extensions6(struct xdp_md *ctx, __u32 offset, __u32 next)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 first = offset, fragmented = WHOLE, fragment = 0;
#pragma unroll
	for (int i = 0; i <= MAX_EXTENSIONS; i++) {
		if (!is_extension(next))
			break;
		if (i == MAX_EXTENSIONS)
			return -1 - DROP_IPV6_EXTENSIONS;
		struct extension *x = at(data, offset);
		if ((void *)x + 8 > end)
			return -1 - DROP_IPV6_HEADER;
		__u32 size = (x->length + 1) * 8;
		if (next == NEXT_AUTHENTICATION)
			size = (x->length + 2) * 4;
		if (next == NEXT_FRAGMENT) {
			__u16 bits = bpf_ntohs(((struct fragment_header *)x)->offset);
			size = 8;
			fragment = offset & MAX_OFFSET;
			if (bits & ~7)
				fragmented = LATER_FRAGMENT;
			else if (bits & 1)
				fragmented = FIRST_FRAGMENT;
		}
		next = x->next;
		offset += size;
		if (offset - first > MAX_EXTENSION_BYTES || offset > MAX_OFFSET)
			return -1 - DROP_IPV6_EXTENSIONS;
		if (fragmented == LATER_FRAGMENT)
			break; /* what follows is payload */
	}
	return offset | (next & 0xff) << 9 | fragmented << 17 | fragment << 19;
}

static __always_inline int read_extensions(struct xdp_md *ctx, void *data, void *end, struct packet *p)
{
	int found = extensions6(ctx, p->l4, p->protocol);
	if (found < 0)
		return found;
	p->l4 = found & MAX_OFFSET;
	p->protocol = found >> 9 & 0xff;
	p->fragmented = found >> 17 & 3;
	struct fragment_header *f = at(data, found >> 19);
	if (p->fragmented != WHOLE && (void *)(f + 1) <= end) {
		p->id = f->id;
		p->carries = f->next; /* options may come after it, but only in the first fragment */
	}
	return 0;
}

/* parse6 reads an IPv6 header and its extension headers, like parse4. */
static __always_inline int parse6(struct xdp_md *ctx, void *data, void *end, struct packet *p)
{
	struct ipv6hdr *ip = data + L3;
	if ((void *)(ip + 1) > end || ip->version != 6)
		return -1 - DROP_IPV6_HEADER;
	__u32 frame = end - data;
	p->length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (L3 + p->length > frame)
		return -1 - DROP_IPV6_HEADER;
	p->l4 = L3 + sizeof(*ip);
	p->protocol = ip->nexthdr;
	p->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	p->fragmented = WHOLE;
	p->id = 0;
	if (is_extension(p->protocol)) {
		int err = read_extensions(ctx, data, end, p);
		if (err)
			return err;
	}
	if (p->l4 > L3 + p->length)
		return -1 - DROP_IPV6_HEADER;
	return 0;
}

/* ports reads the TCP or UDP header at p->l4. */
static __always_inline int ports(void *data, void *end, struct packet *p)
{
	struct udphdr *u = at(data, p->l4);
	if ((void *)(u + 1) > end)
		return -1 - DROP_TRANSPORT_HEADER;
	__u32 needed = sizeof(*u);
	p->tcp_flags = 0;
	if (p->protocol == IPPROTO_TCP) {
		struct tcphdr *t = (void *)u;
		if ((void *)(t + 1) > end)
			return -1 - DROP_TRANSPORT_HEADER;
		p->tcp_flags = ((__u8 *)t)[13];
		needed = (((__u8 *)t)[12] >> 4) * 4;
		if (needed < sizeof(*t) || (p->tcp_flags & TCP_SYN && p->tcp_flags & (TCP_FIN | TCP_RST)))
			return -1 - DROP_TRANSPORT_HEADER;
	} else if (p->protocol == IPPROTO_UDP) {
		__u32 stated = bpf_ntohs(u->len);
		if (stated < needed)
			return -1 - DROP_TRANSPORT_HEADER;
		if (p->fragmented == WHOLE)
			needed = stated;
	}
	if (p->l4 + needed > L3 + p->length)
		return -1 - DROP_TRANSPORT_HEADER;
	p->source_port = u->source;
	p->destination_port = u->dest;
	return 0;
}

static __always_inline int same(const struct address *a, const struct address *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] &&
	       a->word[3] == b->word[3];
}

static __always_inline struct address address4(__be32 a)
{
	struct address x = {{a, 0, 0, 0}};
	return x;
}

static __always_inline struct address address6(const struct in6_addr *a)
{
	struct address x;
	__builtin_memcpy(&x, a, sizeof(x));
	return x;
}

static __always_inline int is_ours(struct ethhdr *e)
{
	/* Two loads each: the compiler would compare byte by byte. */
	__u16 *mac = (__u16 *)e->h_dest;
	volatile __u16 *own = (volatile __u16 *)settings.mac;
	return mac[0] == own[0] && mac[1] == own[1] && mac[2] == own[2];
}
