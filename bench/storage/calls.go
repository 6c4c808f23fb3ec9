//go:build linux && ceph

package main

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"

	"github.com/mainstay-infra/mainstay/kit/cephlab"
)

// raw is a connection of go-ceph to the pool rbd.
type raw struct {
	*rados.IOContext
	conn *rados.Conn
}

func connect(lab *cephlab.Lab) (*raw, error) {
	conn, err := rados.NewConnWithUser(cephlab.User)
	if err != nil {
		return nil, err
	}
	if err := conn.ReadConfigFile(lab.Conf()); err != nil {
		return nil, err
	}
	if err := conn.Connect(); err != nil {
		return nil, err
	}
	io, err := conn.OpenIOContext("rbd")
	return &raw{io, conn}, err
}

func (r *raw) close() {
	r.Destroy()
	r.conn.Shutdown()
}

func (r *raw) create(name string, size int64) error {
	options := rbd.NewRbdImageOptions()
	defer options.Destroy()
	return rbd.CreateImage(r.IOContext, name, uint64(size), options)
}

// with opens an image for do.
func (r *raw) with(name string, do func(*rbd.Image) error) error {
	image, err := rbd.OpenImage(r.IOContext, name, rbd.NoSnapshot)
	if err != nil {
		return err
	}
	if err := do(image); err != nil {
		_ = image.Close()
		return err
	}
	return image.Close()
}

// rbdCommand runs the command rbd.
func rbdCommand(ctx context.Context, lab *cephlab.Lab, args ...string) error {
	out, err := exec.CommandContext(ctx, "rbd", append([]string{"-c", lab.Conf(), "--id", cephlab.User}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("rbd %v: %w: %s", args, err, out)
	}
	return nil
}

// calls compares single calls: what is asked of the cluster, and what a job makes there.
func calls(ctx context.Context, b *bench) error {
	g, err := b.start(ctx, "calls", b.lab)
	if err != nil {
		return err
	}
	defer g.stop()
	r, err := connect(b.lab)
	if err != nil {
		return err
	}
	defer r.close()
	if _, err := g.job("POST", "/rbd-images", object{"name": "one", "pool": "rbd", "size_bytes": 1 << 30}); err != nil {
		return err
	}
	for i := range 3 {
		if _, err := g.job("POST", "/rbd-images/rbd/one/snapshots", object{"name": fmt.Sprint("s", i)}); err != nil {
			return err
		}
	}
	rounds := 20 * b.rounds
	all, err := each(rounds,
		func(int) error { return g.call("GET", "/rbd-images/rbd/one/snapshots", nil, nil) },
		func(int) error {
			return r.with("one", func(image *rbd.Image) error {
				snaps, err := image.GetSnapshotNames()
				for _, s := range snaps {
					if _, err := image.GetSnapTimestamp(s.Id); err != nil {
						return err
					}
					if _, err := image.GetSnapshot(s.Name).IsProtected(); err != nil {
						return err
					}
				}
				return err
			})
		},
		func(round int) error {
			if round%10 > 0 {
				return nil
			}
			return rbdCommand(ctx, b.lab, "snap", "ls", "rbd/one")
		})
	if err != nil {
		return err
	}
	commands := func(t times) (out times) {
		for i := 0; i < len(t); i += 10 {
			out = append(out, t[i])
		}
		return out
	}
	compare("snapshots of an image", all[0], other{"go-ceph", all[1]}, other{"rbd snap ls", commands(all[2])})

	all, err = each(rounds,
		func(i int) error {
			_, err := g.job("POST", "/rbd-images", object{"name": fmt.Sprint("ours-", i), "pool": "rbd", "size_bytes": 1 << 30})
			return err
		},
		func(i int) error { return r.create(fmt.Sprint("raw-", i), 1<<30) },
		func(i int) error {
			if i%10 > 0 {
				return nil
			}
			return rbdCommand(ctx, b.lab, "create", "--size", "1G", fmt.Sprint("rbd/command-", i))
		})
	if err != nil {
		return err
	}
	compare("make an image (a durable job, checked)", all[0],
		other{"go-ceph", all[1]}, other{"rbd create", commands(all[2])})

	all, err = each(rounds,
		func(i int) error {
			_, err := g.job("POST", fmt.Sprintf("/rbd-images/rbd/ours-%d/snapshots", i), object{"name": "s"})
			return err
		},
		func(i int) error {
			return r.with(fmt.Sprint("raw-", i), func(image *rbd.Image) error {
				_, err := image.CreateSnapshot("s")
				return err
			})
		},
		func(i int) error {
			if i%10 > 0 {
				return nil
			}
			return rbdCommand(ctx, b.lab, "snap", "create", fmt.Sprintf("rbd/command-%d@s", i))
		})
	if err != nil {
		return err
	}
	compare("snapshot an image (a durable job, checked)", all[0], other{"go-ceph", all[1]}, other{"rbd snap create", commands(all[2])})
	return nil
}
