/* What the program and the Go side share: the maps and the values in them. */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

/* Sizes. Those that the Go side changes before loading are only defaults here. */
#define MAX_VIPS 4096
#define MAX_MEMBERS 65536
/* Twice what a configuration may have, so that all can be replaced. */
#define MAX_BLOCKS 32768
#define TABLE_SLOTS 65537
#define DEFAULT_FLOWS 262144
#define DEFAULT_CLIENTS 65536
#define MAX_FRAGMENTS 16384
/* More than there are reasons, so that a new reason does not change the map. */
#define MAX_DROPS 64
/* Source addresses that SNAT may use, of each family. */
#define MAX_SOURCES 16
#define MAX_PATHS 4096
/* Addresses of the node. */
#define MAX_OWN 65536
/* Segments a second, for each VIP, that may begin an entry though no SYN did: those of flows
 * that another node had, or that this one forgot. */
#define ADOPTED_PER_SECOND 1000

/* Time is counted in ticks of 2^26 ns, about 67 ms, so that it fits 32 bits. */
#define TICK_SHIFT 26
#define TICKS(seconds) ((__u32)(((seconds)*1000000000ULL) >> TICK_SHIFT))
#define UDP_IDLE TICKS(30)
#define FRAGMENT_IDLE TICKS(30)
#define REPLY_REFRESH TICKS(1)
#define TCP_CLOSED TICKS(60)
/* After both sides have closed, or one has reset. */
#define TCP_ENDED TICKS(1)
#define TCP_UNANSWERED TICKS(30)
#define TCP_IDLE TICKS(7200)

/* An address of either family; IPv4 is in the first word, the others are zero. */
struct address {
	__be32 word[4];
};

enum mode { MODE_NAT, MODE_DSR, MODE_IPIP, MODE_GRE };
enum state { STATE_UNUSED, STATE_HEALTHY, STATE_DRAINING, STATE_DOWN };

/* What is found under a VIP's address, port and protocol. */
#define VIP_AFFINITY 1
#define VIP_LIMITED 2
struct vip {
	__u32 id; /* index in tables, vip_counters, limits */
	__u32 flags;
};

struct vip_key4 {
	__be32 address;
	__be16 port;
	__u8 protocol, pad;
};
struct vip_key6 {
	struct address address;
	__be16 port;
	__u8 protocol, pad;
};
/* In a key of a range the port comes last, so that blocks of ports are prefixes. */
struct range_key4 {
	__u32 prefix;
	__be32 address;
	__u8 protocol, pad;
	__be16 port;
};
struct range_key6 {
	__u32 prefix;
	struct address address;
	__u8 protocol, pad;
	__be16 port;
};

/* A backend of one VIP. Its epoch goes up whenever the flows it had are no longer
 * its own: when it goes down, and when its place is given to another. */
#define MEMBER_SNAT 1
#define MEMBER_IPV6 2 /* the family of address and source */
struct member {
	__u32 epoch;
	__u8 state, mode, flags, pad;
	__u32 vip;
	__u32 interface; /* 0 while the next hop is not known */
	__be16 port;	 /* 0 keeps the packet's */
	__u16 mtu;
	__u8 destination_mac[6], source_mac[6];
	struct address address;
	struct address source; /* of the tunnel, or the new source with MEMBER_SNAT */
};

/* A VIP's hash table: members by slot; 0 is none. */
struct table {
	__u16 member[TABLE_SLOTS + 1];
};

struct tuple4 {
	__be32 source, destination;
	__be16 source_port, destination_port;
	__u8 protocol, pad[3];
};
struct tuple6 {
	struct address source, destination;
	__be16 source_port, destination_port;
	__u8 protocol, pad[3];
};

/* A flow from a client to a VIP. */
#define FLOW_CLOSING 1 /* FIN or RST was seen */
#define FLOW_NEW 2     /* TCP: only its first segment was seen */
struct flow {
	__u32 epoch;
	__u16 member;
	__be16 port; /* the source port that the backend sees; NAT only */
	__u32 seen;  /* ticks */
	__u16 refreshed; /* the low bits of the tick when its reply was last looked at */
	__u8 flags;
	__u8 source; /* which of the sources the backend sees; see source_of_flow */
};

/* What becomes of packets from a backend, found by their tuple. */
enum reply_kind { REPLY_NAT, REPLY_PROBE };
#define REPLY_FIN_CLIENT 1
#define REPLY_FIN_BACKEND 2
#define REPLY_FINS (REPLY_FIN_CLIENT | REPLY_FIN_BACKEND)
#define REPLY_RST 4
struct reply {
	struct address vip, client;
	__be16 vip_port, client_port;
	__u32 seen;
	__u32 interface; /* to send from */
	__u8 destination_mac[6], source_mac[6];
	__u8 kind;
	__u8 answered, closing; /* closing is a set of REPLY_FIN... and REPLY_RST */
	__u8 pad;
	__u16 mtu; /* of the interface to send from */
	__u16 pad2;
};

/* The backend that a client had last, for VIP_AFFINITY. */
struct client_key {
	struct address client;
	__u32 vip;
};
struct client {
	__u32 epoch;
	__u32 member;
};

/* Later fragments have no ports: they follow the first one. */
struct fragment_key {
	struct address source, destination;
	__u32 id;
	__u32 protocol;
};
struct fragment {
	__u32 epoch;  /* of the member, for those that go to a backend */
	__u32 member; /* 0 for those that go to a client */
	__u32 seen;
	__u32 interface;
	struct address source, destination; /* the new ones; NAT only */
	__u8 destination_mac[6], source_mac[6];
};

struct vip_counters {
	__u64 packets, bytes, flows, rate_limited, no_backend, unserved;
};
struct member_counters {
	__u64 packets, bytes;
};

/* A bucket of tokens, in billionths of a flow. */
struct limit {
	struct bpf_spin_lock lock;
	__u32 flows_per_second;
	__u64 tokens;
	__u64 filled; /* ns */
};

/* What a VIP may put into the flow tables. The Go side counts its flows and sets room. */
struct budget {
	__s64 room;	/* entries that may still be added until the next count */
	__u32 second;	/* when adopted began to be counted */
	__u32 adopted;	/* segments without a SYN that began an entry in that second */
};

/* A backend of a NAT VIP, by what its replies come from. */
struct origin {
	struct address address;
	__be16 port;
	__u8 protocol, pad;
};

/* What a router said of the longest packet that gets to a tunnel's end. */
struct path {
	__u32 mtu;
	__u32 seen; /* ticks */
};

/* Why packets are dropped. The names are in drops.go, in the same order. */
enum drop {
	DROP_IPV4_HEADER,
	DROP_IPV6_HEADER,
	DROP_IPV6_EXTENSIONS,
	DROP_TRANSPORT_HEADER,
	DROP_ICMP_QUOTE,
	DROP_FRAGMENT,
	DROP_TTL,
	DROP_TOO_BIG,
	DROP_OVERSIZED,
	DROP_NO_BACKEND,
	DROP_RATE_LIMIT,
	DROP_NEXT_HOP,
	DROP_PORTS,
	DROP_HEADROOM,
	DROP_STRAY,
	DROP_FLOW_QUOTA,
	DROP_SOURCE,
	DROP_REASONS,
};

/* What the Go side tells the program. */
struct host {
	__u8 mac[6];	    /* of the interface; frames for others are not ours */
	__u8 ranges;	    /* there are ranges of ports */
	__u8 replies;	    /* there are NAT VIPs, or probes: packets of backends are looked up */
	__u8 redirect;	    /* send by redirect where XDP_TX would do, as native mode on veth needs */
	__u8 offloads;	    /* generic mode: a checksum may be left for the device to finish */
	__u16 mtu;	    /* of the interface */
	__u8 sources4, sources6; /* how many sources SNAT uses, 0 for the member's own */
	__u64 origin_ports; /* a bit for the low six bits of each port that NAT replies come from */
};
volatile struct host settings = {};

#define MAP(name, kind, k, v, n)                                                                                       \
	struct {                                                                                                       \
		__uint(type, kind);                                                                                    \
		__type(key, k);                                                                                        \
		__type(value, v);                                                                                      \
		__uint(max_entries, n);                                                                                \
	} name SEC(".maps")
#define TRIE(name, k, v, n)                                                                                            \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_LPM_TRIE);                                                                   \
		__type(key, k);                                                                                        \
		__type(value, v);                                                                                      \
		__uint(max_entries, n);                                                                                \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                                  \
	} name SEC(".maps")

MAP(vips4, BPF_MAP_TYPE_HASH, struct vip_key4, struct vip, MAX_VIPS);
MAP(vips6, BPF_MAP_TYPE_HASH, struct vip_key6, struct vip, MAX_VIPS);
TRIE(ranges4, struct range_key4, struct vip, MAX_BLOCKS);
TRIE(ranges6, struct range_key6, struct vip, MAX_BLOCKS);
MAP(addresses, BPF_MAP_TYPE_HASH, struct address, __u32, MAX_VIPS);
MAP(members, BPF_MAP_TYPE_ARRAY, __u32, struct member, MAX_MEMBERS);
MAP(vip_counts, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct vip_counters, MAX_VIPS);
MAP(member_counts, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct member_counters, MAX_MEMBERS);
MAP(drops, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, MAX_DROPS);
/* How many flows were put into the flow tables of IPv4 and IPv6, and how many packets of
 * NAT backends were seen of which no flow is known. */
enum count { COUNT_STORED4, COUNT_STORED6, COUNT_LOST_REPLIES, COUNTS };
MAP(counts, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, COUNTS);
MAP(limits, BPF_MAP_TYPE_ARRAY, __u32, struct limit, MAX_VIPS);
MAP(budgets, BPF_MAP_TYPE_ARRAY, __u32, struct budget, MAX_VIPS);
/* Where replies of NAT VIPs come from. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct origin);
	__type(value, __u32);
	__uint(max_entries, MAX_MEMBERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} origins SEC(".maps");
/* The node's own addresses. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct address);
	__type(value, __u32);
	__uint(max_entries, MAX_OWN);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} own SEC(".maps");
/* Sources that SNAT uses: first those of IPv4, from MAX_SOURCES on those of IPv6. */
MAP(sources, BPF_MAP_TYPE_ARRAY, __u32, struct address, 2 * MAX_SOURCES);
MAP(paths, BPF_MAP_TYPE_LRU_HASH, struct address, struct path, MAX_PATHS);
/* The flow tables are LRU_HASH and not LRU_PERCPU_HASH: packets of one flow may
 * come in on any CPU, and each must find what another has stored. */
MAP(flows4, BPF_MAP_TYPE_LRU_HASH, struct tuple4, struct flow, DEFAULT_FLOWS);
MAP(flows6, BPF_MAP_TYPE_LRU_HASH, struct tuple6, struct flow, DEFAULT_FLOWS);
MAP(replies4, BPF_MAP_TYPE_LRU_HASH, struct tuple4, struct reply, DEFAULT_FLOWS);
MAP(replies6, BPF_MAP_TYPE_LRU_HASH, struct tuple6, struct reply, DEFAULT_FLOWS);
MAP(clients, BPF_MAP_TYPE_LRU_HASH, struct client_key, struct client, DEFAULT_CLIENTS);
MAP(fragments, BPF_MAP_TYPE_LRU_HASH, struct fragment_key, struct fragment, MAX_FRAGMENTS);
/* The member that each source port of a probe is meant for. */
MAP(probe_ports, BPF_MAP_TYPE_ARRAY, __u32, __u32, 65536);

struct inner_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct table));
	__uint(max_entries, 1);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__type(key, __u32);
	__uint(max_entries, MAX_VIPS);
	__array(values, struct inner_table);
} tables SEC(".maps");

static __always_inline __u32 now_ticks(void)
{
	return bpf_ktime_get_coarse_ns() >> TICK_SHIFT;
}

/* idle is how long ago something was seen. Another CPU may have seen it after now. */
static __always_inline __u32 idle(__u32 now, __u32 seen)
{
	__s32 since = now - seen;
	return since < 0 ? 0 : since;
}

static __always_inline int drop(__u32 reason)
{
	__u64 *count = bpf_map_lookup_elem(&drops, &reason);
	if (count)
		(*count)++;
	return XDP_DROP;
}

/* For drop_of, of a packet that is not known to belong to a VIP. */
#define NO_VIP 0xffffffff

/* drop_of drops a packet that belongs to a VIP. */
static __always_inline int drop_of(__u32 vip, __u32 reason)
{
	struct vip_counters *c = bpf_map_lookup_elem(&vip_counts, &vip);
	if (c) {
		if (reason == DROP_NO_BACKEND)
			c->no_backend++;
		else if (reason == DROP_RATE_LIMIT)
			c->rate_limited++;
		else
			c->unserved++;
	}
	return drop(reason);
}
