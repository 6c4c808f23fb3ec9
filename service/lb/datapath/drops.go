package datapath

// dropReasons are the names of enum drop of bpf/maps.h, in the same order. The guide explains each
// reason.
var dropReasons = [...]string{
	"ipv4_header",
	"ipv6_header",
	"ipv6_extensions",
	"transport_header",
	"icmp_quote",
	"fragment",
	"ttl",
	"too_big",
	"oversized",
	"no_backend",
	"rate_limit",
	"next_hop",
	"ports",
	"headroom",
	"stray",
	"flow_quota",
	"source",
}
