//go:build linux && ceph

package main

import (
	"context"
	"fmt"
	"sync"
)

// lists measures the discovery of many images, and lists and searches of the volumes that they are then.
func lists(ctx context.Context, b *bench) error {
	r, err := connect(b.lab)
	if err != nil {
		return err
	}
	defer r.close()
	var work sync.WaitGroup
	problems := make([]error, 8)
	for w := range problems {
		work.Go(func() {
			for i := w; i < b.images && problems[w] == nil; i += len(problems) {
				problems[w] = r.create(fmt.Sprintf("image-%06d", i), 1<<30)
			}
		})
	}
	work.Wait()
	for _, err := range problems {
		if err != nil {
			return err
		}
	}
	g, err := b.start(ctx, "lists", b.lab)
	if err != nil {
		return err
	}
	defer g.stop()
	var backends []struct{ ID, Name string }
	if err := g.call("GET", "/backends", nil, &backends); err != nil {
		return err
	}
	id := ""
	for _, one := range backends {
		if one.Name == b.lab.Name {
			id = one.ID
		}
	}
	stop := g.peak()
	all, err := each(b.rounds,
		func(int) error { return g.call("POST", "/backends/"+id+"/discover", nil, nil) },
		func(int) error { return rbdCommand(ctx, b.lab, "ls", "rbd") },
		func(round int) error {
			if round > 0 {
				return nil
			}
			return rbdCommand(ctx, b.lab, "ls", "-l", "rbd")
		})
	if err != nil {
		return err
	}
	memory := stop()
	compare(fmt.Sprintf("discover %d images again", b.images), all[0],
		other{"rbd ls (names only)", all[1]}, other{"rbd ls -l", all[2][:1]})
	fmt.Printf("%-46s %.0f MiB with its helper\n", "memory meanwhile", float64(memory)/(1<<20))

	all, err = each(40*b.rounds,
		func(int) error { return g.call("GET", "/volumes?limit=100", nil, nil) },
		func(i int) error { return g.call("GET", fmt.Sprintf("/volumes?q=image-%06d", i*37%b.images), nil, nil) },
		func(int) error { return g.call("GET", "/rbd-images?limit=100", nil, nil) })
	if err != nil {
		return err
	}
	for i, what := range []string{"a page of 100 volumes", "one volume by its name", "a page of 100 images"} {
		fmt.Printf("%-46s %10s, p99 %s\n", what, ms(all[i].at(.5)), ms(all[i].at(.99)))
	}
	n := 0
	whole, err := took(func() error {
		for next := "/volumes?limit=1000"; next != ""; {
			var page []struct{ ID string }
			var err error
			if next, err = g.page("GET", next, nil, &page); err != nil {
				return err
			}
			n += len(page)
		}
		return nil
	})
	fmt.Printf("%-46s %10s for %d\n", "all volumes, page by page", ms(whole), n)
	return err
}
