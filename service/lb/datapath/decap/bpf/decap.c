// Takes the headers of a tunnel (IP in IP, or GRE without options) off a packet and
// gives the inner one to the kernel, as a backend does.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

static __always_inline int strip(struct xdp_md *ctx, int size, __be16 protocol)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr header, *e = data;
	if ((void *)(e + 1) > end)
		return XDP_PASS;
	header = *e;
	header.h_proto = protocol;
	if (bpf_xdp_adjust_head(ctx, size))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	e = data;
	if ((void *)(e + 1) > end)
		return XDP_ABORTED;
	*e = header;
	return XDP_PASS;
}

SEC("xdp") int decapsulate(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *e = data;
	struct iphdr *ip4 = (void *)(e + 1);
	struct ipv6hdr *ip6 = (void *)(e + 1);
	int size;
	__u8 protocol;
	if ((void *)(e + 1) > end)
		return XDP_PASS;
	if (e->h_proto == bpf_htons(ETH_P_IP) && (void *)(ip4 + 1) <= end && ip4->ihl == 5) {
		size = sizeof(*ip4);
		protocol = ip4->protocol;
	} else if (e->h_proto == bpf_htons(ETH_P_IPV6) && (void *)(ip6 + 1) <= end) {
		size = sizeof(*ip6);
		protocol = ip6->nexthdr;
	} else {
		return XDP_PASS;
	}
	if (protocol == IPPROTO_IPIP)
		return strip(ctx, size, bpf_htons(ETH_P_IP));
	if (protocol == IPPROTO_IPV6)
		return strip(ctx, size, bpf_htons(ETH_P_IPV6));
	if (protocol != IPPROTO_GRE)
		return XDP_PASS;
	__be16 *gre = (void *)(e + 1) + size;
	if ((void *)(gre + 2) > end || gre[0])
		return XDP_PASS;
	return strip(ctx, size + 4, gre[1]);
}

SEC("xdp") int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
