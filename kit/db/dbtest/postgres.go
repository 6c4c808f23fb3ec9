package dbtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mainstay-infra/mainstay/kit/require"
)

type postgres struct {
	socket    string    // folder of the Unix socket
	stdin     io.Closer // the guard's standard input; held so that it stays open
	databases atomic.Int64
}

var start = sync.OnceValues(newPostgres)

// startPostgres starts the server on the first call. The server stops when the test process ends
// (see newPostgres).
func startPostgres(t testing.TB) *postgres {
	t.Helper()
	bin := binaries()
	if bin == "" {
		require.Missing(t, "PostgreSQL is not installed (apt-get install postgresql)")
	}
	server, err := start()
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	return server
}

// binaries returns the directory of initdb and postgres, which Debian does not put on PATH.
func binaries() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is well formed
	slices.Sort(found)
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1])
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	return ""
}

func newPostgres() (*postgres, error) {
	dir, err := os.MkdirTemp("", "mainstay-pg-")
	if err != nil {
		return nil, err
	}
	attr, err := unprivileged(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	bin := binaries()
	initdb := exec.Command(
		filepath.Join(bin, "initdb"), "-D", data, "-U", "test", "-A", "trust", "--no-sync", "-E", "UTF8",
		"--locale=C.UTF-8",
	)
	initdb.SysProcAttr, initdb.Dir = attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	// The shell outlives a test process that is killed: it waits until its standard input closes,
	// then stops the server and removes the directory.
	const guard = `"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c max_connections=300 -c shared_buffers=64MB >"$2/log" 2>&1 & pid=$!; read _; kill -INT $pid; wait $pid; rm -rf "$2"`
	server := exec.Command("/bin/sh", "-c", guard, "sh", bin, dir)
	server.SysProcAttr, server.Dir = attr, dir
	stdin, err := server.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	p := &postgres{socket: dir, stdin: stdin}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if err = p.exec("SELECT 1"); err == nil {
			return p, nil
		}
		time.Sleep(20 * time.Millisecond) // another process is starting; there is no signal to wait for
	}
	log, _ := os.ReadFile(filepath.Join(dir, "log"))
	return nil, fmt.Errorf("%w\n%s", err, bytes.TrimSpace(log))
}

// unprivileged allows a test that runs as root to start PostgreSQL, which refuses to run as root.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return &syscall.SysProcAttr{}, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(dir, uid, gid); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
		Setpgid:    true,
	}, nil //nolint:gosec // ids from the password file fit
}

func (p *postgres) url(database string) string {
	return "postgres://test@/" + database + "?host=" + url.QueryEscape(p.socket)
}

func (p *postgres) exec(query string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.url("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, query)
	if closeErr := conn.Close(ctx); err == nil {
		err = closeErr
	}
	return err
}
