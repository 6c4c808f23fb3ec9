//go:build linux

// Command hypervisor compares the hypervisor daemon with the tools that it uses, in the same run on
// the same machine: with QEMU started by hand with the same arguments, with runsc run by hand, with
// qemu-img, and with itself at a larger number of VMs.
//
// It needs root, the programs in bin (make build), qemu-system-x86_64, qemu-img, runsc and busybox. The
// sections vm-backup and vm-load measure VM management above the daemon; vm-backup needs mke2fs and zstd.
package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/bench/section"
)

type options struct {
	bin       string // folder of the programs
	rounds    int
	vms       int // for lists
	creates   int
	megabytes int // of a backup
}

var sections = []section.Section[*bench]{
	{Name: "boot", Run: boot}, {Name: "instant", Run: instant}, {Name: "sandbox", Run: sandboxes}, {Name: "list", Run: lists},
	{Name: "history", Run: histories}, {Name: "fleet", Run: fleets}, {Name: "backup", Run: backups},
	{Name: "vm-backup", Run: vmBackups}, {Name: "vm-load", Run: vmLoad},
}

// bench is a run, with a folder that is removed at the end.
type bench struct {
	options
	dir string
}

func main() {
	var b bench
	chosen := flag.String("sections", "boot,instant,sandbox,list,history,fleet,backup", "sections to run")
	flag.StringVar(&b.bin, "bin", "../bin", "folder of mainstay and mainstay-guest")
	flag.IntVar(&b.rounds, "rounds", 7, "rounds, in each of which every way is taken once")
	flag.IntVar(&b.vms, "vms", 5000, "VMs of the long list")
	flag.IntVar(&b.creates, "creates", 400, "VMs that are made across a fleet")
	flag.IntVar(&b.megabytes, "megabytes", 512, "size of the disk that is backed up")
	flag.Parse()
	section.Main("hypervisor", func(ctx context.Context, folder string) (err error) {
		b.dir = folder
		if b.bin, err = filepath.Abs(b.bin); err != nil {
			return err
		}
		return section.Run(ctx, &b, sections, *chosen)
	})
}

// middle returns the median.
func middle(all []time.Duration) time.Duration {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}

// compare prints our times next to theirs.
func compare(what string, ours, theirs []time.Duration, their string) {
	fmt.Printf(
		"%-44s %8s (%s to %s)   %s %s (%s to %s)   %.2f times\n", what, ms(middle(ours)), ms(slices.Min(ours)),
		ms(slices.Max(ours)), their, ms(middle(theirs)), ms(slices.Min(theirs)), ms(slices.Max(theirs)),
		float64(middle(ours))/float64(middle(theirs)),
	)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1000) }
