/* Internet checksums (RFC 1071), and what changing words does to them (RFC 1624). */
#pragma once

#include "packet.h"

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	__u32 s = (__u32)sum;
	s = (s & 0xffff) + (s >> 16);
	s = (s & 0xffff) + (s >> 16);
	return s;
}

/* change adds to a difference what replacing one word by another does. */
static __always_inline __u64 change(__u64 difference, __u32 old, __u32 new)
{
	return difference + (__u32)~old + new;
}

static __always_inline __u64 change_address(__u64 difference, const struct address *old, const struct address *new)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		difference = change(difference, old->word[i], new->word[i]);
	return difference;
}

static __always_inline __u16 updated(__u16 checksum, __u64 difference)
{
	return ~fold((__u16)~checksum + difference);
}

static __always_inline __u16 header_checksum(struct iphdr *ip)
{
	__u64 sum = 0;
	__u16 *word = (__u16 *)ip;
#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += word[i];
	return ~fold(sum);
}

/* age4 takes one from the TTL, which must be more than 1. */
static __always_inline void age4(struct iphdr *ip)
{
	__u32 sum = ip->check + bpf_htons(0x0100);
	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
}

/* Longest segment whose checksum is looked at as a whole. What is longer comes from
 * a sender on this host that left the cutting to the device. */
#define MAX_SUMMED 9216
#define SUMMED_AT_ONCE 64

/* is_partial says whether a segment's checksum field holds only the sum of the
 * pseudo header, as Linux leaves it for a device to finish (CHECKSUM_PARTIAL).
 * Frames from a veth or a bridge port of this host come so in generic mode. One
 * whole checksum in 65536 looks the same; then the whole segment is summed.
 *
 * It is a function of its own so that the verifier looks at it once. */
__noinline int is_partial(struct xdp_md *ctx, __u32 l4, __u32 segment, __u32 pseudo, __u32 field)
{
	if ((__u16)pseudo != (__u16)field)
		return 0;
	if (segment > MAX_SUMMED)
		return 1;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 sum = (__u16)pseudo;
	__u8 *next = at(data, l4);
	__u32 left = segment;
	for (int i = 0; i < MAX_SUMMED / SUMMED_AT_ONCE; i++) {
		if (left < SUMMED_AT_ONCE || next + SUMMED_AT_ONCE > (__u8 *)end)
			break;
		__u32 *word = (__u32 *)next;
#pragma unroll
		for (int j = 0; j < SUMMED_AT_ONCE / 4; j++)
			sum += word[j];
		next += SUMMED_AT_ONCE;
		left -= SUMMED_AT_ONCE;
	}
#pragma unroll
	for (__u32 size = SUMMED_AT_ONCE / 2; size >= 4; size /= 2) {
		if (left & size && next + size <= (__u8 *)end) {
			__u32 *word = (__u32 *)next;
			for (int j = 0; j < size / 4; j++)
				sum += word[j];
			next += size;
		}
	}
	if (left & 2 && next + 2 <= (__u8 *)end) {
		sum += *(__u16 *)next;
		next += 2;
	}
	if (left & 1 && next + 1 <= (__u8 *)end)
		sum += *next;
	return fold(sum) != 0xffff;
}
