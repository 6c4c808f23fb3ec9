// A generator of UDP packets, run with live frames, and a sink that counts them.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} received SEC(".maps");

volatile const __u32 interface = 0, flows = 256;
volatile const __be32 source = 0, destination = 0;
volatile const __u8 source_mac[6] = {}, destination_mac[6] = {};

/* The frames' pages are used again: whatever a receiver wrote into one is still there,
 * so all headers are written each time. */
SEC("xdp") int generate(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *e = data;
	struct iphdr *ip = (void *)(e + 1);
	struct udphdr *u = (void *)(ip + 1);
	if ((void *)(u + 1) > end)
		return XDP_ABORTED;
#pragma unroll
	for (int i = 0; i < 6; i++) {
		e->h_source[i] = source_mac[i];
		e->h_dest[i] = destination_mac[i];
	}
	e->h_proto = bpf_htons(ETH_P_IP);
	ip->version = 4;
	ip->ihl = 5;
	ip->tos = 0;
	ip->tot_len = bpf_htons(46);
	ip->id = 0;
	ip->frag_off = 0;
	ip->ttl = 64;
	ip->protocol = IPPROTO_UDP;
	ip->saddr = source;
	ip->daddr = destination;
	ip->check = 0;
	__u32 sum = 0;
	__u16 *word = (void *)ip;
#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
	u->source = bpf_htons(10000 + bpf_get_prandom_u32() % flows);
	u->dest = bpf_htons(80);
	u->len = bpf_htons(26);
	u->check = 0;
	return bpf_redirect(interface, 0);
}

SEC("xdp") int sink(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *e = data;
	struct iphdr *ip = (void *)(e + 1);
	if ((void *)(ip + 1) > end || e->h_proto != bpf_htons(ETH_P_IP))
		return XDP_PASS;
	/* A tunnel's packets count too. */
	if (ip->protocol != IPPROTO_UDP && ip->protocol != IPPROTO_IPIP && ip->protocol != IPPROTO_GRE)
		return XDP_PASS;
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&received, &zero);
	if (n)
		(*n)++;
	return XDP_DROP;
}

char _license[] SEC("license") = "GPL";
