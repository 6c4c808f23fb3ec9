package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/kit/cephlab"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// cephPool is the pool for images.
const cephPool = "rbd"

func cephUp(ctx context.Context, c *call, dir string, want newCluster) error {
	if err := needsRoot(c); err != nil {
		return err
	}
	if err := cephPrograms(ctx, c, want.install); err != nil {
		return err
	}
	l, err := cephlab.Open(dir)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err == nil {
		if err := sameCluster(c, l, want); err != nil {
			return err
		}
		if k := describe(ctx, l); k.State == cephRunning && k.Health != "" {
			c.Note("The cluster in %s runs already.", l.Dir)
			return upTold(c, &k, dir)
		}
	}
	if l, err = cephlab.Up(ctx, dir, cephlab.Settings{
		Name: want.name, OSDs: want.osds, OSDBytes: want.bytes(), Manager: true, Gateway: true, Pool: cephPool,
	}, func(step string) { c.Note("%s", step) }); err != nil {
		return err
	}
	if _, err := exec.LookPath("mainstay-ceph"); err != nil && !besideUs("mainstay-ceph") {
		c.Note("The gateway needs the program mainstay-ceph, too: apt-get install librados-dev librbd-dev, and 'make build'.")
	}
	k := describe(ctx, l)
	return upTold(c, &k, dir)
}

// besideUs reports whether a program is in the folder of this one.
func besideUs(name string) bool {
	self, err := os.Executable()
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(filepath.Dir(self), name))
	return err == nil
}

// upTold prints the cluster, and for people also what comes next.
func upTold(c *call, k *cluster, dir string) error {
	if err := k.print(c); err != nil || !c.Table() {
		return err
	}
	return k.next(c, filepath.Clean(dir) == commands{c.Session}.in(""))
}

// sameCluster refuses flags for a new cluster that contradict the one that is there.
func sameCluster(c *call, l *cephlab.Lab, want newCluster) error {
	const hint = "leave the flag out, or remove the cluster with 'mainstay storage dev-ceph down --purge'"
	var err error
	switch changed := c.Cmd.Flags().Changed; {
	case changed("osds") && want.osds != l.OSDs:
		err = exit.Usagef("--osds: the cluster in %s has %d", l.Dir, l.OSDs)
	case changed("osd-size") && want.bytes() != l.OSDBytes:
		err = exit.Usagef("--osd-size: the OSDs of the cluster in %s have %d bytes", l.Dir, l.OSDBytes)
	case changed("backend") && want.name != l.Name:
		err = exit.Usagef("--backend: the cluster in %s is named %s", l.Dir, l.Name)
	default:
		return nil
	}
	return exit.Hinted(err, hint)
}

// cephPrograms makes sure that the programs of Ceph are there.
func cephPrograms(ctx context.Context, c *call, install bool) error {
	missing := cephlab.Missing()
	if len(missing) == 0 {
		return nil
	}
	line := "apt-get install -y --no-install-recommends " + strings.Join(missing, " ")
	if !install {
		return exit.Hinted(fmt.Errorf("programs of Ceph are missing: %s", strings.Join(missing, ", ")),
			"run '"+line+"', or repeat the command with --install")
	}
	for _, step := range []string{"apt-get update", line} {
		c.Note("+ %s", step)
		args := strings.Fields(step)
		cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the names of packages are ours
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = c.Cmd.ErrOrStderr(), c.Cmd.ErrOrStderr()
		// Without an answer from the network, the lists that are there may do.
		if err := cmd.Run(); err != nil && step == line {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	if missing = cephlab.Missing(); len(missing) > 0 {
		return fmt.Errorf("the packages are installed, but programs of %s are still missing", strings.Join(missing, ", "))
	}
	return nil
}

func cephDown(ctx context.Context, c *call, dir string, purge, yes bool) error {
	if err := needsRoot(c); err != nil {
		return err
	}
	l, err := cephlab.Open(dir)
	if fault.Is(err, fault.NotFound) {
		return c.Say("There is no cluster in %s.", dir)
	}
	if err != nil {
		return err
	}
	if !purge {
		if err := l.Down(ctx); err != nil {
			return err
		}
		return c.Say("Stopped the cluster in %s. Its data stays.", l.Dir)
	}
	if err := c.Confirm(fmt.Sprintf("Remove the cluster in %s with all its data?", l.Dir), yes); err != nil {
		return err
	}
	kept, err := l.Purge(ctx)
	if err != nil {
		return err
	}
	if len(kept) > 0 {
		return c.Say("Removed the cluster in %s. What it did not make stays there: %s.", l.Dir, strings.Join(kept, ", "))
	}
	return c.Say("Removed the cluster in %s.", l.Dir)
}

func cephStatus(ctx context.Context, c *call, dir string) error {
	l, err := cephlab.Open(dir)
	if errors.Is(err, os.ErrPermission) {
		return needsRoot(c)
	}
	k := cluster{Dir: dir, State: cephNone, Daemons: []daemon{}, Problems: []string{}}
	if err == nil {
		k = describe(ctx, l)
	} else if !fault.Is(err, fault.NotFound) {
		return err
	}
	return k.print(c)
}

// describe tells what is known of a cluster. One that does not answer is told without its health.
func describe(ctx context.Context, l *cephlab.Lab) cluster {
	k := cluster{
		Dir: l.Dir, Daemons: []daemon{}, Problems: []string{},
		cephFacts: cephFacts{Name: l.Name, FSID: l.FSID, Pool: l.Pool, Conf: l.Conf(), ObjectGateway: l.URL()},
		Settings: map[string]string{
			"STORE_CEPH_CLUSTERS": l.Clusters(), "STORE_OBJECT_GATEWAYS": l.Gateways(),
		},
	}
	alive := 0
	for _, d := range l.Daemons() {
		one := daemon{Name: d.Name}
		if pids := l.PIDs(d); len(pids) > 0 {
			one.PID = pids[0]
			alive++
		}
		k.Daemons = append(k.Daemons, one)
	}
	switch {
	case !l.Ready():
		k.State = cephUnfinished
	case alive == 0:
		k.State = cephStopped
	case alive < len(k.Daemons):
		k.State = cephPartial
	default:
		k.State = cephRunning
	}
	if k.Daemons[0].PID == 0 {
		return k // the monitor would have to answer
	}
	s, err := l.Status(ctx)
	if err != nil {
		k.Problems = append(k.Problems, "the cluster does not answer")
		return k
	}
	k.Health, k.Problems = s.Health, append(k.Problems, s.Problems...)
	k.Raw, k.Used, k.Free = s.Raw, s.Used, s.Free
	return k
}
