/* Which backend a packet gets: that of its flow, that of its client, or that of the
 * VIP's hash table. hash.go computes the same hash to explain a choice. */
#pragma once

#include "family.h"

static __always_inline __u32 mix(__u32 hash, __u32 word)
{
	hash ^= word;
	hash *= 0x85ebca6b;
	hash ^= hash >> 13;
	hash *= 0xc2b2ae35;
	hash ^= hash >> 16;
	return hash;
}

/* flow_hash is the same on every node, so that nodes behind one router agree. With
 * affinity the ports do not count. */
static __always_inline __u32 flow_hash(const int six, const struct address *client, __be16 client_port,
				       const struct address *vip, __be16 vip_port, __u8 protocol, int affinity)
{
	__u32 hash = 0x9e3779b1;
#pragma unroll
	for (int i = 0; i < words(six); i++)
		hash = mix(hash, client->word[i]);
#pragma unroll
	for (int i = 0; i < words(six); i++)
		hash = mix(hash, vip->word[i]);
	if (affinity)
		return mix(hash, protocol);
	return mix(hash, ((__u32)client_port << 16 | vip_port) + protocol);
}

static __always_inline __u32 slot_of(__u32 hash)
{
	return (__u64)hash * TABLE_SLOTS >> 32;
}

static __always_inline struct member *live_member(__u32 index, __u32 epoch)
{
	struct member *m = bpf_map_lookup_elem(&members, &index);
	if (!m || m->epoch != epoch || (m->state != STATE_HEALTHY && m->state != STATE_DRAINING))
		return 0;
	return m;
}

/* can_be_client says whether a flow may begin at an address. The node's own connections do not
 * come in on an interface; who forges their source would have the replies to them translated. */
static __always_inline int can_be_client(const int six, const struct address *client, const struct address *vip)
{
	__u32 first = bpf_ntohl(client->word[0]);
	if (six) {
		if (first >> 24 == 0xff)
			return 0; /* ff00::/8 */
		if (!first && !client->word[1] && !client->word[2] && bpf_ntohl(client->word[3]) <= 1)
			return 0; /* :: and ::1 */
	} else if (first >> 24 == 0 || first >> 24 == 127 || first >> 28 >= 14) {
		return 0; /* 0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/4, 240.0.0.0/4 */
	}
	return !same(client, vip) && !is_own(client);
}

/* member_of is the backend of a known flow, or none if it is to be hashed again. */
static __always_inline struct member *member_of(const struct flow *f, __u8 protocol, __u32 now)
{
	if (protocol == IPPROTO_UDP && idle(now, f->seen) > UDP_IDLE)
		return 0;
	return live_member(f->member, f->epoch);
}

/* pick chooses for a new flow. It stores nothing: see remember_client. */
static __always_inline struct member *pick(const struct vip *v, __u32 hash, const struct address *client, __u32 *index)
{
	if (v->flags & VIP_AFFINITY) {
		struct client_key k = {*client, v->id};
		struct client *c = bpf_map_lookup_elem(&clients, &k);
		if (c) {
			struct member *m = live_member(c->member, c->epoch);
			if (m && m->state == STATE_HEALTHY) {
				*index = c->member;
				return m;
			}
		}
	}
	__u32 id = v->id, zero = 0;
	void *inner = bpf_map_lookup_elem(&tables, &id);
	if (!inner)
		return 0;
	struct table *t = bpf_map_lookup_elem(inner, &zero);
	if (!t)
		return 0;
	__u32 slot = slot_of(hash);
	if (slot >= TABLE_SLOTS)
		return 0;
	*index = t->member[slot];
	if (*index == 0)
		return 0;
	struct member *m = bpf_map_lookup_elem(&members, index);
	/* The table may be older than the member's state by a moment. */
	if (!m || m->state == STATE_UNUSED || m->state == STATE_DOWN)
		return 0;
	return m;
}

/* remember_client notes the backend that a client's next flows shall get. */
static __always_inline void remember_client(const struct vip *v, const struct address *client, const struct member *m,
					    __u32 index)
{
	struct client_key k = {*client, v->id};
	struct client c = {m->epoch, index};
	struct client *known = bpf_map_lookup_elem(&clients, &k);
	if (!known || known->member != c.member || known->epoch != c.epoch)
		bpf_map_update_elem(&clients, &k, &c, BPF_ANY);
}

/* has_room says whether a VIP may put another flow into the tables. */
static __always_inline int has_room(const struct budget *b)
{
	return b && b->room > 0;
}

/* adopts says whether a segment that no SYN began may begin a flow's entry. Two CPUs may
 * count one less, which does not matter. */
static __always_inline int adopts(struct budget *b)
{
	if (!b)
		return 0;
	__u32 second = bpf_ktime_get_coarse_ns() >> 30; /* near enough */
	if (b->second != second) {
		b->second = second;
		b->adopted = 0;
	}
	return b->adopted++ < ADOPTED_PER_SECOND;
}

#define FLOW_TOKENS 1000000000ULL

/* admitted takes a token for a new flow from the VIP's bucket, which holds at most
 * one second's worth. */
static __always_inline int admitted(__u32 vip)
{
	struct limit *l = bpf_map_lookup_elem(&limits, &vip);
	if (!l)
		return 1;
	__u64 now = bpf_ktime_get_ns();
	int yes = 0;
	bpf_spin_lock(&l->lock);
	__u64 most = l->flows_per_second * FLOW_TOKENS;
	__u64 elapsed = now - l->filled;
	if (now < l->filled)
		elapsed = 0;
	if (elapsed > FLOW_TOKENS)
		elapsed = FLOW_TOKENS;
	l->filled = now;
	l->tokens += elapsed * l->flows_per_second;
	if (l->tokens > most)
		l->tokens = most;
	if (l->tokens >= FLOW_TOKENS) {
		l->tokens -= FLOW_TOKENS;
		yes = 1;
	}
	bpf_spin_unlock(&l->lock);
	return yes;
}
