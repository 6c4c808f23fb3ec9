package e2e

import (
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestDevModeSaysWhatToDoWhenAnotherProgramHasTheAddress(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	address := taken.Addr().String()
	code, output := run(
		t, []string{"EDGE_LISTEN=" + address}, "dev", "--data", filepath.Join(t.TempDir(), "state"), "--only", "edge",
	)
	if code == 0 || !strings.Contains(output, address) ||
		!strings.Contains(output, "another program listens there: stop it, or set EDGE_LISTEN") {
		t.Errorf("exit code %d: %s", code, output)
	}
}

func TestDevModeNamesOnlyCommandsForWhatItRunsByTheNameItWasStartedWith(t *testing.T) {
	t.Parallel()
	p := launch(
		t, []string{"EDGE_LISTEN=127.0.0.1:0"}, "dev", "--data", filepath.Join(t.TempDir(), "state"), "--only", "edge",
	)
	if _, ok := p.awaitOutput(regexp.MustCompile(`(?m)^  \S*/\S* edge simulate --sites 20$`)); !ok {
		t.Fatalf("dev mode did not start:\n%s", p.output)
	}
	p.stop()
	if strings.Contains(p.output.String(), "vm run") {
		t.Errorf("it names a command for a service that does not run:\n%s", p.output)
	}
}
