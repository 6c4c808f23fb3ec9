//go:build linux && ceph

package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/bench/section"
	"github.com/mainstay-infra/mainstay/kit/cephlab"
)

// bench is a run, with a folder that is removed at the end.
type bench struct {
	bin       string // folder of the programs
	rounds    int
	images    int   // of a discovery, and then of lists
	megabytes int64 // of an image that is backed up
	sparse    int64 // GiB of a large image

	dir string
	lab *cephlab.Lab // the cluster of most sections
}

var sections = []section.Section[*bench]{
	{Name: "calls", Run: calls}, {Name: "lists", Run: lists}, {Name: "backup", Run: backups}, {Name: "sparse", Run: sparse},
	{Name: "hang", Run: hang},
}

func main() {
	var b bench
	chosen := flag.String("sections", "calls,lists,backup,sparse,hang", "sections to run")
	flag.StringVar(&b.bin, "bin", "../bin", "folder of mainstay and mainstay-ceph")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds, in each of which every way is taken once")
	flag.IntVar(&b.images, "images", 10_000, "images that are discovered and listed")
	flag.Int64Var(&b.megabytes, "megabytes", 512, "size of the image that is backed up, in MiB")
	flag.Int64Var(&b.sparse, "gigabytes", 20, "size of the sparse image, in GiB")
	flag.Parse()
	section.Main("storage", func(ctx context.Context, folder string) (err error) {
		b.dir = folder
		if b.bin, err = filepath.Abs(b.bin); err != nil {
			return err
		}
		if b.lab, err = b.cluster(ctx, "one"); err != nil {
			return err
		}
		defer b.lab.Kill()
		return section.Run(ctx, &b, sections, *chosen)
	})
}

// cluster starts a Ceph cluster with one OSD and an object gateway.
func (b *bench) cluster(ctx context.Context, name string) (*cephlab.Lab, error) {
	return cephlab.Up(ctx, filepath.Join(b.dir, name), cephlab.Settings{
		Name: name, OSDs: 1, OSDBytes: 32 << 30, Manager: true, Gateway: true, Pool: "rbd",
	}, func(string) {})
}

// times are how long something took, once a round.
type times []time.Duration

// at returns a quantile from 0 to 1.
func (t times) at(q float64) time.Duration {
	all := slices.Sorted(slices.Values(t))
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }

// compare prints our times next to those of others.
func compare(what string, ours times, others ...other) {
	fmt.Printf("%-46s %10s (to %s)", what, ms(ours.at(.5)), ms(slices.Max(ours)))
	for _, o := range others {
		fmt.Printf("   %s %s: %.2f times", o.name, ms(o.at(.5)), float64(ours.at(.5))/float64(o.at(.5)))
	}
	fmt.Println()
}

type other struct {
	name string
	times
}

// speed prints how fast bytes went, next to others.
func speed(what string, bytes int64, ours times, others ...other) {
	rate := func(d time.Duration) float64 { return float64(bytes) / (1 << 20) / d.Seconds() }
	fmt.Printf("%-46s %7.0f MiB/s", what, rate(ours.at(.5)))
	for _, o := range others {
		fmt.Printf("   %s %.0f MiB/s: %.2f times as fast", o.name, rate(o.at(.5)), float64(o.at(.5))/float64(ours.at(.5)))
	}
	fmt.Println()
}

// took measures something.
func took(do func() error) (time.Duration, error) {
	begun := time.Now()
	err := do()
	return time.Since(begun), err
}

// each takes every way once in each of some rounds, and returns their times by their order.
func each(rounds int, ways ...func(round int) error) ([]times, error) {
	all := make([]times, len(ways))
	for round := range rounds {
		for i, way := range ways {
			d, err := took(func() error { return way(round) })
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], d)
		}
	}
	return all, nil
}
