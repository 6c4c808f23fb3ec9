//go:build linux

package cephlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// maxDir is the most bytes of a folder's path: the paths of sockets below it have little room.
const maxDir = 80

// Up makes the cluster of a folder, or starts what does not run of it. s is for one that there is not yet. told, which
// may be nil, gets a line for each step. Up returns when the cluster reads and writes.
//
// A folder that holds something else is a fault of kind Conflict, as is another Up or Down that is under way.
func Up(ctx context.Context, dir string, s Settings, told func(step string)) (*Lab, error) {
	if told == nil {
		told = func(string) {}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if len(dir) > maxDir || strings.ContainsAny(dir, " \t\r\n#;\"'\\$%=") {
		return nil, fault.InvalidField("dir", "%q is longer than %d bytes, or has characters that Ceph does not take in paths",
			dir, maxDir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := ownFolder(dir); err != nil {
		return nil, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	l, err := Open(dir)
	if fault.Is(err, fault.NotFound) {
		l, err = record(dir, s)
	}
	if err != nil {
		return nil, err
	}
	return l, l.up(ctx, told)
}

// lock keeps others from a folder.
func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err = durable.Lock(f); errors.Is(err, durable.ErrLocked) {
		err = fault.New(fault.Conflict, "another process starts or stops the cluster in %s", dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = durable.Unlock(f) }, nil // nothing was written
}

// ownFolder returns a fault unless a folder is that of a cluster, or empty but for what killed processes have left.
func ownFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	other := ""
	for _, e := range entries {
		switch name := e.Name(); {
		case name == recordFile:
			return nil
		case name != lockFile && !unfinished(name):
			other = name
		}
	}
	if other != "" {
		return fault.New(fault.Conflict, "%s holds something else than a cluster: %s", dir, other)
	}
	return nil
}

// record decides what a new cluster is.
func record(dir string, s Settings) (l *Lab, err error) {
	l = &Lab{Dir: dir, Settings: s, FSID: uuid.NewString(), CreatedAt: time.Now().UTC()}
	for range s.OSDs {
		l.OSDIDs = append(l.OSDIDs, uuid.NewString())
	}
	for _, port := range []*int{&l.MonPort, &l.GatewayPort} {
		if *port, err = freePort(); err != nil {
			return nil, err
		}
	}
	raw, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := durable.Create(filepath.Join(dir, recordFile), append(raw, '\n'), 0o600); err != nil {
		return nil, err
	}
	return Open(dir)
}

// freePort returns a port that nothing listens on. It is not one of those that the kernel gives to connections, so that
// it is still free after a reboot.
func freePort() (int, error) {
	const first, count, tries = 20000, 10000, 100
	for range tries {
		port := first + rand.IntN(count) //nolint:gosec // no secret
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, err
		}
		return port, l.Close()
	}
	return 0, fault.New(fault.Unavailable, "no port is free from %d on", first)
}

func (l *Lab) up(ctx context.Context, told func(string)) error {
	start := time.Now()
	step := func(format string, args ...any) {
		told(fmt.Sprintf("%5.1fs  ", time.Since(start).Seconds()) + fmt.Sprintf(format, args...))
	}
	for _, folder := range []string{"log", "run"} {
		if err := os.Mkdir(l.path(folder), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := durable.Replace(l.Conf(), []byte(l.conf()), 0o600); err != nil {
		return err
	}
	if err := l.clean(); err != nil {
		return err
	}
	if err := l.monitor(ctx, step); err != nil {
		return err
	}
	if l.Manager {
		step("the manager starts")
		if err := l.Start(Daemon{Name: "mgr.x", Program: "ceph-mgr"}); err != nil {
			return err
		}
	}
	if err := l.osds(ctx, step); err != nil {
		return err
	}
	if !l.Ready() {
		step("the pool %s is made", l.Pool)
		if err := l.AddPool(ctx, l.Pool); err != nil {
			return err
		}
	}
	if l.Gateway {
		step("the object gateway starts")
		if err := l.StartGateway(ctx); err != nil {
			return err
		}
	}
	if err := l.settle(ctx); err != nil {
		return err
	}
	step("the cluster is ready")
	return durable.Create(l.path(readyFile), nil, 0o600)
}

// begun marks the names of what is being made.
const begun = ".new-"

// clean removes what processes that were killed have begun. One of Ceph's programs that still runs then fails.
func (l *Lab) clean() error {
	left, err := filepath.Glob(l.path("*" + begun + "*"))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// make makes a folder, whose content fill makes, unless it is there.
func (l *Lab) make(name string, fill func(folder string) error) error {
	if _, err := os.Stat(l.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	folder, err := os.MkdirTemp(l.Dir, name+begun+"*")
	if err != nil {
		return err
	}
	if err := fill(folder); err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	if err := os.Rename(folder, l.path(name)); err != nil {
		return err
	}
	return durable.SyncFolder(l.Dir)
}

// monitor makes and starts the monitor. The cluster begins with it, and it knows all keys from its beginning.
func (l *Lab) monitor(ctx context.Context, step func(string, ...any)) error {
	if err := l.make("mon", func(folder string) error {
		step("the monitor is made")
		if err := durable.Replace(l.path(keyringFile), []byte(l.keyring()), 0o600); err != nil {
			return err
		}
		// Beside the monitor's data, which must be empty.
		monmap, err := os.MkdirTemp(l.Dir, "monmap"+begun+"*")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(monmap) }() // or the next Up does
		file := filepath.Join(monmap, "monmap")
		if _, err := run(ctx, nil, "monmaptool", "--create", "--fsid", l.FSID, "--addv", "m",
			strings.Replace(l.Monitor(), "/0", "", 1), file); err != nil {
			return err
		}
		_, err = l.Run(ctx, nil, "ceph-mon", "--mkfs", "-i", "m", "--mon-data", folder, "--monmap", file,
			"--keyring", l.path(keyringFile))
		return err
	}); err != nil {
		return err
	}
	step("the monitor starts")
	mon := l.Daemons()[0]
	if err := l.Start(mon); err != nil {
		return err
	}
	return l.Await(ctx, "the monitor answers", []Daemon{mon}, func(ctx context.Context) error {
		_, err := l.Run(ctx, nil, "ceph", "--connect-timeout", "5", "mon", "stat")
		return err
	})
}

// osds makes and starts the OSDs.
func (l *Lab) osds(ctx context.Context, step func(string, ...any)) error {
	if err := os.MkdirAll(l.path("mgr"), 0o700); err != nil {
		return err
	}
	var daemons []Daemon
	var made []<-chan error
	for i, id := range l.OSDIDs {
		name := "osd." + strconv.Itoa(i)
		daemons = append(daemons, Daemon{Name: name, Program: "ceph-osd"})
		if _, err := os.Stat(l.path(name)); err == nil {
			continue
		}
		step("%s is made", name)
		number, err := l.Run(ctx, nil, "ceph", "osd", "new", id)
		if err == nil && number != strconv.Itoa(i) {
			err = fault.New(fault.Conflict, "the cluster has other OSDs: %s has the number %s", name, number)
		}
		if err != nil {
			made = append(made, failed(err))
			break
		}
		made = append(made, routine.Start(nil, "ceph OSD", func() error {
			return l.make(name, func(folder string) error {
				_, err := l.Run(ctx, nil, "ceph-osd", "-n", name, "--mkfs", "--osd-uuid", id, "--osd-data", folder)
				return err
			})
		}))
	}
	var err error
	for _, m := range made {
		err = errors.Join(err, <-m)
	}
	if err != nil {
		return err
	}
	step("%d OSDs start", l.OSDs)
	// The monitor may believe of one that died that it is up, and clients would wait for it.
	down := []string{"osd", "down"}
	for i, d := range daemons {
		if len(l.PIDs(d)) == 0 {
			down = append(down, strconv.Itoa(i))
		}
	}
	if len(down) > 2 && l.Ready() {
		if _, err := l.Run(ctx, nil, "ceph", down...); err != nil {
			return err
		}
	}
	for _, d := range daemons {
		if err := l.Start(d); err != nil {
			return err
		}
	}
	return l.Await(ctx, "the OSDs are up", daemons, func(ctx context.Context) error {
		var stat struct {
			Up int `json:"num_up_osds"`
		}
		if err := l.ask(ctx, &stat, "osd", "stat"); err != nil {
			return err
		}
		if stat.Up != l.OSDs {
			return fault.New(fault.Unavailable, "%d of %d are up", stat.Up, l.OSDs)
		}
		return nil
	})
}

// failed is the result of something that did not begin.
func failed(err error) <-chan error {
	done := make(chan error, 1)
	done <- err
	return done
}

// AddPool makes a pool for images, unless it is there.
func (l *Lab) AddPool(ctx context.Context, name string) error {
	if _, err := l.Run(ctx, nil, "ceph", "osd", "pool", "create", name, "8"); err != nil {
		return err
	}
	return l.Await(ctx, "the pool takes writes", nil, func(ctx context.Context) error {
		_, err := l.Run(ctx, nil, "rbd", "pool", "init", name)
		return err
	})
}

// settle waits until all data can be read and written and, with a manager, the cluster tells how full it is.
func (l *Lab) settle(ctx context.Context) error {
	return l.Await(ctx, "all data can be used", l.Daemons(), func(ctx context.Context) error {
		s, err := l.Status(ctx)
		if err == nil && (s.Inactive || l.Manager && (s.Raw == 0 || s.Free == 0)) {
			err = fault.New(fault.Unavailable, "its health is %s: %s", s.Health, strings.Join(s.Problems, "; "))
		}
		if err == nil { // what is told may be older than the daemons
			_, err = l.Run(ctx, nil, "rbd", "ls", l.Pool)
		}
		return err
	})
}

// Down stops the cluster. Without Memory, its data stays.
func (l *Lab) Down(ctx context.Context) error {
	unlock, err := lock(l.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	return l.down(ctx)
}

// down ends the daemons in the order in which they need each other.
func (l *Lab) down(ctx context.Context) error {
	for _, program := range []string{"radosgw", "ceph-osd", "ceph-mgr", "ceph-mon"} {
		var daemons []Daemon
		for _, d := range l.Daemons() {
			if d.Program == program {
				daemons = append(daemons, d)
			}
		}
		if err := l.Stop(ctx, daemons...); err != nil {
			return err
		}
	}
	l.reap()
	return nil
}
