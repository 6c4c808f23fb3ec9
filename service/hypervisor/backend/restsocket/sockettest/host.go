//go:build linux

package sockettest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// Host is what the tests of a backend stand on.
type Host struct {
	// Fakes are the programs by their names. They answer with their exit status.
	Fakes map[string]func(args []string) int
	// Backend runs the programs of a folder.
	Backend func(programs string) backend.Backend
	// Spec is a VM with an agent; its files lie in the folder.
	Spec func(folder string) *backend.Spec
	// First is the first call that changes something, and Last the one that starts the VM.
	First, Last string
	// HalfStart launches the program of a VM and makes no call.
	HalfStart func(b backend.Backend, s *backend.Spec) error
	// Jail matches the jails in the folder of the programs. It is empty if there are none.
	Jail string
	// Environment is for the test binary when it is a daemon.
	Environment []string
}

// Settings are what a fake does.
type Settings struct {
	// Refuse is the path of a call that is answered with 400 and a text of its own.
	Refuse string
	// Mode is how it misbehaves: silent, deaf (no API socket) and early (it ends at once)
	// from the start; garbage, huge and endless in its answers to GET.
	Mode string
}

// Secret is that of the agent in a fake's guest.
const Secret = "a-secret-of-the-tests-alone"

const (
	settingsFile = "settings.json"
	secretFile   = "secret"
)

// Limit is for what takes a fraction of a second on a machine that has nothing else to do.
const Limit = time.Minute

// daemonVM makes a test binary a daemon that starts the VM in the folder and waits for its
// end, with the programs in the other folder.
const (
	daemonVM       = "MAINSTAY_SOCKETTEST_VM"
	daemonPrograms = "MAINSTAY_SOCKETTEST_PROGRAMS"
)

// Main is the test binary's, whichever program it is called as.
func (h Host) Main(m *testing.M) {
	if fake := h.Fakes[filepath.Base(os.Args[0])]; fake != nil {
		os.Exit(fake(os.Args[1:]))
	}
	if folder := os.Getenv(daemonVM); folder != "" {
		i, err := h.Backend(os.Getenv(daemonPrograms)).Start(context.Background(), h.Spec(folder))
		if err != nil {
			_, _ = fmt.Fprintln(os.Stdout, err)
			os.Exit(1)
		}
		_, _ = fmt.Fprintln(os.Stdout, i.PID())
		select {}
	}
	os.Exit(m.Run())
}

// Install puts the fakes into a folder of their own.
func (h Host) Install(t testing.TB, s Settings) string {
	t.Helper()
	folder := Folder(t)
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{settingsFile: text, secretFile: []byte(Secret + "\n")} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name := range h.Fakes {
		if os.Link(own, filepath.Join(folder, name)) == nil {
			continue
		}
		program, err := os.ReadFile(own) //nolint:gosec // this program
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), program, 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	// Programs may be run by others than root.
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	return folder
}

// Folder is one that is gone after the test.
func Folder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "vm") // short, whatever the test is called
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// settings are those of the fake that runs, whose program is not in a jail yet.
func settings() (s Settings, folder string, err error) {
	folder = filepath.Dir(os.Args[0])
	text, err := os.ReadFile(filepath.Join(folder, settingsFile)) //nolint:gosec // the test's own
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, folder, err
}
