//go:build linux

package qemu_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/qemu"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo/demotest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
)

// The agent in a real guest, over a real port: programs and files both ways, and a
// daemon that comes back.
func TestTheAgentOfARealGuestIsReached(t *testing.T) {
	t.Parallel()
	needQEMU(t)
	agent := filepath.Join(t.TempDir(), "mainstay-guest")
	build := exec.CommandContext(
		t.Context(), "go", "build", "-o", agent, "../../../../cmd/mainstay-guest",
	) //nolint:gosec // the test's own
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := machine(t, qemu.MicroVM)
	booted := demotest.GuestWith(t, agent)
	m.Kernel, m.Initrd = booted.Kernel, booted.Initrd
	p, monitor, err := qemu.Launch(soon(t), program, &m)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		monitor.Close()
		_ = p.Kill()
		ended(t, p)
		_ = p.Close()
	}()
	conn, err := net.Dial("unix", filepath.Join(m.Folder, "run", "serial.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	c := &console{T: t, Conn: conn, lines: bufio.NewScanner(conn)}
	c.await(demo.Ready)
	const secret = "a-secret-of-this-test-alone"
	c.say(
		"mkdir -p /run/mainstay-guest; (umask 077; echo -n '" + secret + "' >/run/mainstay-guest/secret); mainstay-guest & sleep 0; echo st''arted",
	)
	c.await("started")

	content := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(content) // it never fails
	for daemon := range 2 {                           // one after the other
		port, err := net.Dial("unix", filepath.Join(m.Folder, "run", "agent.sock"))
		if err != nil {
			t.Fatal(err)
		}
		client, err := guest.Connect(soon(t), port, secret)
		if err != nil {
			t.Fatalf("daemon %d: %v", daemon, err)
		}
		if err := client.Ping(soon(t)); err != nil {
			t.Fatalf("daemon %d: %v", daemon, err)
		}
		var out bytes.Buffer
		exit, err := client.Exec(soon(t), guest.Command{
			Argv:   []string{"/bin/sh", "-c", "cat; exit 3"},
			Stdin:  strings.NewReader("hello"),
			Stdout: &out,
		})
		if err != nil || exit.Code != 3 || out.String() != "hello" {
			t.Errorf("daemon %d: %+v, %v, %q", daemon, exit, err, out.String())
		}
		if daemon == 0 {
			if err := client.PutFile(
				soon(t), "/tmp/file", 0o640, int64(len(content)), bytes.NewReader(content),
			); err != nil {
				t.Error(err)
			}
		} else {
			back := sha256.New()
			if mode, size, err := client.GetFile(
				soon(t), "/tmp/file", back,
			); err != nil || mode != 0o640 || size != int64(len(content)) ||
				[32]byte(back.Sum(nil)) != sha256.Sum256(content) {
				t.Errorf("%v, %d bytes, %v", mode, size, err)
			}
		}
		_ = client.Close()
	}
}
