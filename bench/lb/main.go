//go:build linux

// Command lb compares the load balancer with alternatives on one machine: with the kernel's own
// routing and nftables for packets, and with haproxy for connections.
//
// Everything runs in network namespaces connected by veth pairs. So the numbers compare ways
// through one kernel on the same cores; they do not predict results with network cards. It needs
// root, nft, haproxy and wrk.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

//go:generate go tool -modfile=../../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -output-suffix _bpf -tags linux traffic bpf/traffic.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

type options struct {
	packets int // of one live run
	rounds  int
	seconds int // of one connections run
	vips    int
}

var sections = []struct {
	name string
	run  func(context.Context, options) error
}{{"live", live}, {"connections", connections}, {"reload", reload}}

func main() {
	var o options
	chosen := flag.String("sections", "live,connections,reload", "sections to run")
	flag.IntVar(&o.packets, "packets", 1_000_000, "packets of one live run")
	flag.IntVar(&o.rounds, "rounds", 7, "rounds, in each of which every way is taken once, in random order")
	flag.IntVar(&o.seconds, "seconds", 5, "how long connections are made in one run")
	flag.IntVar(&o.vips, "vips", 1000, "VIPs to reload, with 10 backends each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, s := range sections {
		if !slices.Contains(strings.Split(*chosen, ","), s.name) {
			continue
		}
		if err := s.run(ctx, o); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", s.name, err)
			os.Exit(1)
		}
	}
}

// spread returns the median, the minimum and the maximum of several measurements.
func spread(all []float64) (middle, least, greatest float64) {
	slices.Sort(all)
	return all[len(all)/2], all[0], all[len(all)-1]
}
