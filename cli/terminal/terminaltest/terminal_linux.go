// Package terminaltest is a terminal for tests of commands that ask people.
package terminaltest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a test waits for what a terminal shows.
const patience = 20 * time.Second

// Open opens a pseudo-terminal: the user's side and the program's side.
func Open(t testing.TB) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	raw, err := person.SyscallConn() // Fd would make reads immune to deadlines
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if controlErr := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// See reads the terminal until it shows a text, and returns everything that it showed.
func See(t testing.TB, person *os.File, want string) string {
	t.Helper()
	if err := person.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	for buffer := make([]byte, 1024); !strings.Contains(seen.String(), want); {
		n, err := person.Read(buffer)
		seen.Write(buffer[:n])
		if err != nil {
			t.Fatalf("no %q in %q: %v", want, seen.String(), err)
		}
	}
	return seen.String()
}

// Type presses keys.
func Type(t testing.TB, person *os.File, keys string) {
	t.Helper()
	if _, err := io.WriteString(person, keys); err != nil {
		t.Fatal(err)
	}
}
