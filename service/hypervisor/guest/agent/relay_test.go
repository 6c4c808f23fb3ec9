//go:build linux

package agent_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/agent"
)

func TestARelayWaitsForTheAgentAndPassesBothWays(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp("", "relay") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, "socket")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	in, theirs := io.Pipe()
	defer theirs.Close()
	var out strings.Builder
	relayed := make(chan error, 1)
	go func() { relayed <- agent.Relay(ctx, path, in, &out) }()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(theirs, "question"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("question"))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "question" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := io.WriteString(conn, "answer"); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := <-relayed; err != nil || out.String() != "answer" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestARelayWithoutAnAgentSaysSo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := agent.Relay(ctx, "/nowhere/socket", strings.NewReader(""), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "/nowhere/socket") ||
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestOnlyTheFirstProcessIsInit(t *testing.T) {
	t.Parallel()
	if err := agent.Init(t.Context(), nil); err == nil {
		t.Error("a test is not an init")
	}
}
