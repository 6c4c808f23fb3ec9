package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// postgres is a PostgreSQL that runs for the benchmark alone.
type postgres struct {
	cmd *exec.Cmd
	dir string
	url string
}

// startPostgres makes and starts a database server on a Unix socket. It has the settings of the
// package, except for shared_buffers: 512 MB are modest for a machine with such a database.
func startPostgres(ctx context.Context) (*postgres, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return nil, errors.Join(err, errors.New("PostgreSQL is not installed (apt-get install postgresql)"))
	}
	bin := filepath.Dir(found[len(found)-1])
	dir, err := os.MkdirTemp("", "mainstay-pg-")
	if err != nil {
		return nil, err
	}
	attr := &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 { // which PostgreSQL refuses
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, err
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			return nil, err
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.SysProcAttr, cmd.Dir = attr, dir
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8").
		CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	p := &postgres{dir: dir, url: "postgres://bench@/postgres?host=" + url.QueryEscape(dir)}
	p.cmd = command("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "shared_buffers=512MB",
		"-c", "max_wal_size=4GB", "-c", "maintenance_work_mem=512MB")
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for begin := time.Now(); time.Since(begin) < 30*time.Second && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if d, err := db.Open(ctx, db.Config{URL: p.url}); err == nil {
			return p, d.Close()
		}
	}
	return nil, errors.Join(errors.New("PostgreSQL does not answer"), ctx.Err(), p.stop())
}

// stop ends the server and deletes its data.
func (p *postgres) stop() error {
	err := p.cmd.Process.Signal(syscall.SIGINT)
	var ended *exec.ExitError
	if waited := p.cmd.Wait(); waited != nil && !errors.As(waited, &ended) {
		err = errors.Join(err, waited)
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}
