/* One code for both families: `six` is a constant wherever these are inlined, so
 * each family gets its own lean program. */
#pragma once

#include "packet.h"

union tuple {
	struct tuple4 v4;
	struct tuple6 v6;
};

static __always_inline int words(const int six)
{
	return six ? 4 : 1;
}

static __always_inline struct address source_of(const int six, void *data)
{
	if (six)
		return address6(&((struct ipv6hdr *)(data + L3))->saddr);
	return address4(((struct iphdr *)(data + L3))->saddr);
}

static __always_inline struct address destination_of(const int six, void *data)
{
	if (six)
		return address6(&((struct ipv6hdr *)(data + L3))->daddr);
	return address4(((struct iphdr *)(data + L3))->daddr);
}

static __always_inline union tuple tuple_of(const int six, const struct address *source, __be16 source_port,
					    const struct address *destination, __be16 destination_port, __u8 protocol)
{
	union tuple t = {};
	if (six) {
		t.v6.source = *source;
		t.v6.destination = *destination;
		t.v6.source_port = source_port;
		t.v6.destination_port = destination_port;
		t.v6.protocol = protocol;
	} else {
		t.v4.source = source->word[0];
		t.v4.destination = destination->word[0];
		t.v4.source_port = source_port;
		t.v4.destination_port = destination_port;
		t.v4.protocol = protocol;
	}
	return t;
}

static __always_inline struct flow *find_flow(const int six, const union tuple *t)
{
	return six ? bpf_map_lookup_elem(&flows6, &t->v6) : bpf_map_lookup_elem(&flows4, &t->v4);
}

static __always_inline long store_flow(const int six, const union tuple *t, const struct flow *f, __u64 how)
{
	return six ? bpf_map_update_elem(&flows6, &t->v6, f, how) : bpf_map_update_elem(&flows4, &t->v4, f, how);
}

static __always_inline void count(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &what);
	if (n)
		(*n)++;
}

static __always_inline struct reply *find_reply(const int six, const union tuple *t)
{
	return six ? bpf_map_lookup_elem(&replies6, &t->v6) : bpf_map_lookup_elem(&replies4, &t->v4);
}

static __always_inline long store_reply(const int six, const union tuple *t, const struct reply *r, __u64 how)
{
	return six ? bpf_map_update_elem(&replies6, &t->v6, r, how) : bpf_map_update_elem(&replies4, &t->v4, r, how);
}

static __always_inline struct vip *find_vip(const int six, const struct address *a, __be16 port, __u8 protocol)
{
	struct vip *v;
	if (six) {
		struct vip_key6 k = {*a, port, protocol, 0};
		v = bpf_map_lookup_elem(&vips6, &k);
		if (v || !settings.ranges)
			return v;
		struct range_key6 r = {160, *a, protocol, 0, port};
		return bpf_map_lookup_elem(&ranges6, &r);
	}
	struct vip_key4 k = {a->word[0], port, protocol, 0};
	v = bpf_map_lookup_elem(&vips4, &k);
	if (v || !settings.ranges)
		return v;
	struct range_key4 r = {64, a->word[0], protocol, 0, port};
	return bpf_map_lookup_elem(&ranges4, &r);
}

static __always_inline int is_own(const struct address *a)
{
	return bpf_map_lookup_elem(&own, a) != 0;
}

static __always_inline int has_vip(const struct address *a)
{
	return bpf_map_lookup_elem(&addresses, a) != 0;
}
