// Package datapath balances packets in the kernel: one XDP program, its maps, and
// the Go that keeps them as wanted.
package datapath
