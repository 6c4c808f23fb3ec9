//go:build linux

package sockettest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/agent"
)

// Guest is what a fake has in the place of a guest.
type Guest struct {
	Settings Settings
	// Print shows bytes on the console, or loses them.
	Print func([]byte)
	// End ends the fake: by the guest's power off, or by a fault of the program's own.
	End func(clean bool)

	agent *agent.Agent
}

// NewGuest is the guest of the fake that runs. It is made before the fake has a jail.
func NewGuest() (*Guest, error) {
	s, folder, err := settings()
	if err != nil {
		return nil, err
	}
	a, err := agent.New(agent.Config{
		Version: "fake", SecretFile: filepath.Join(folder, secretFile), Log: slog.New(slog.DiscardHandler),
		Mounts: func() ([]agent.Mount, error) { return nil, nil }, Shutdown: func(string) error { return nil },
	})
	return &Guest{Settings: s, agent: a}, err
}

// Type does what is typed on the console: say TEXT, flood BYTES, poweroff, crash.
func (g *Guest) Type(keyboard io.Reader) {
	for lines := bufio.NewScanner(keyboard); lines.Scan(); {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "say":
			g.Print([]byte(rest + "\r\n"))
		case "flood":
			n, _ := strconv.Atoi(rest)
			for ; n > 0; n -= 1000 {
				g.Print([]byte(strings.Repeat("x", min(n, 1000))))
			}
		case "poweroff":
			g.End(true)
		case "crash":
			g.End(false)
		}
	}
}

// ServeVsock listens as the hybrid vsock does, and passes connections to the agent's port on.
func (g *Guest) ServeVsock(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go g.pass(conn)
		}
	}()
	return nil
}

func (g *Guest) pass(conn net.Conn) {
	var line []byte
	for b := make([]byte, 1); len(line) < 32; {
		if _, err := conn.Read(b); err != nil || b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	if string(line) != fmt.Sprintf("CONNECT %d", agent.VsockPort) {
		_ = conn.Close() // nothing listens on that port
		return
	}
	if _, err := fmt.Fprintf(conn, "OK %d\n", 1<<30); err == nil {
		_ = g.agent.Serve(context.Background(), conn)
	}
}
