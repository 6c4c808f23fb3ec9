package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/netlab"
)

// terminal is a person's terminal with a shell in it.
type terminal struct {
	testing.TB
	name string
	keys *os.File // what the person types goes here

	mu      sync.Mutex
	screen  strings.Builder
	changed chan struct{} // closed and replaced when something was printed
	gone    bool          // the shell has ended

	at         int  // how much of the screen the person has read
	background bool // commands were started in the background, and print when they want
}

// ready is the shell's prompt, with the exit code of the command before.
var ready = regexp.MustCompile(`<<(\d+)>>$`)

// longest is how long anything that a document tells to do may take. It is long, because
// it is spent only when a test fails.
const longest = 5 * time.Minute

// openTerminal starts a shell in a folder on a host.
func openTerminal(t testing.TB, host *netlab.Host, name, folder string, env []string) *terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unlocked(keys)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i")
	shell.Dir, shell.Env = folder, append(env, "PS1=<<$?>>", "PS2=", "TERM=xterm")
	shell.Stdin, shell.Stdout, shell.Stderr = screen, screen, screen
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := host.Start(shell); err != nil {
		t.Fatal(err)
	}
	_ = screen.Close() // the shell has it
	x := &terminal{TB: t, name: name, keys: keys, changed: make(chan struct{})}
	go x.watch()
	t.Cleanup(func() {
		_ = shell.Process.Kill() // it may be over
		_ = shell.Wait()
		_ = keys.Close()
		if t.Failed() {
			t.Logf("terminal %s shows:\n%s", name, tail(plain(x.text()), 60))
		}
	})
	x.await("the shell", func(string) bool { _, there := x.exited(); return there })
	return x
}

// unlocked makes a new pseudo-terminal usable, large, and silent about what is typed.
func unlocked(keys *os.File) (number int, err error) {
	raw, err := keys.SyscallConn() // Fd would make reads block for ever
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
			return
		}
		if err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 250}); err != nil {
			return
		}
		var settings *unix.Termios
		if settings, err = unix.IoctlGetTermios(int(fd), unix.TCGETS); err != nil {
			return
		}
		settings.Lflag &^= unix.ECHO
		if err = unix.IoctlSetTermios(int(fd), unix.TCSETS, settings); err != nil {
			return
		}
		number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})
	if controlErr != nil {
		err = controlErr
	}
	return number, err
}

func (x *terminal) watch() {
	buffer := make([]byte, 4096)
	for {
		n, err := x.keys.Read(buffer)
		x.mu.Lock()
		x.screen.Write(buffer[:n])
		x.gone = err != nil
		close(x.changed)
		x.changed = make(chan struct{})
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.screen.String()
}

// unread is what was printed since the person has looked.
func (x *terminal) unread() string { return plain(x.text()[x.at:]) }

func (x *terminal) read() { x.at = len(x.text()) }

// await waits until what is unread is as it should be.
func (x *terminal) await(what string, is func(unread string) bool) {
	x.Helper()
	for deadline := time.After(longest); ; {
		x.mu.Lock()
		changed, gone := x.changed, x.gone
		x.mu.Unlock()
		if is(x.unread()) {
			return
		}
		if gone {
			x.Fatalf("terminal %s: %s: the shell has ended", x.name, what)
		}
		select {
		case <-changed:
		case <-deadline:
			x.Fatalf("terminal %s: %s: not within %s", x.name, what, longest)
		}
	}
}

// exited is the exit code of the command that was typed, once the prompt is back.
func (x *terminal) exited() (code string, back bool) {
	// A job of the background may print after the prompt.
	for _, line := range strings.Split(x.unread(), "\n") {
		if m := ready.FindStringSubmatch(line); m != nil {
			return m[1], true
		}
		if m := regexp.MustCompile(`<<(\d+)>>`).FindStringSubmatch(line); m != nil && x.background {
			return m[1], true
		}
	}
	return "", false
}

func (x *terminal) typed(keys string) {
	x.Helper()
	if _, err := x.keys.WriteString(keys); err != nil {
		x.Fatal(err)
	}
}

// lines are what is unread, without prompts.
func (x *terminal) lines() (lines []string) {
	text := regexp.MustCompile(`<<\d+>>`).ReplaceAllString(x.unread(), "")
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// inner is the prompt of a program that is typed into, as a document shows it.
var inner = regexp.MustCompile(`^(\w+# )(.+)$`)

// do types a command and waits for its end, or if it stays, until it has printed what is
// shown; and holds what it printed against what is shown.
func (x *terminal) do(c typing, stays bool) {
	x.Helper()
	what := strings.SplitN(c.text, "\n", 2)[0]
	if c.text != "" {
		x.read()
		x.background = x.background || strings.HasSuffix(strings.TrimSpace(c.text), "&")
		x.typed(c.text + "\n")
	} else {
		what = c.shown[0]
	}
	answered := 0 // how many inner prompts were answered
	for _, line := range c.shown {
		if m := inner.FindStringSubmatch(line); m != nil {
			x.await(line, func(unread string) bool { return strings.Count(unread, "\n"+m[1]) > answered })
			x.typed(m[2] + "\r")
			answered++
		}
	}
	loose := x.background || c.text == ""
	if stays || c.text == "" {
		missing := "anything"
		defer func() {
			if missing != "" {
				x.Logf("terminal %s: %s: %q is missing", x.name, what, missing)
			}
		}()
		x.await(what, func(string) bool {
			if code, back := x.exited(); back && c.text != "" {
				x.Fatalf("terminal %s: %s: ended with exit code %s", x.name, what, code)
			}
			missing = follows(x.lines(), append(c.shown, "..."), loose)
			return missing == ""
		})
		return
	}
	x.await(what, func(string) bool { _, back := x.exited(); return back })
	if code, _ := x.exited(); code != "0" {
		x.Fatalf("terminal %s: %s: exit code %s", x.name, what, code)
	}
	if len(c.shown) == 0 {
		return // nothing is said of what it prints
	}
	if missing := follows(x.lines(), c.shown, loose); missing != "" {
		x.Errorf(
			"terminal %s: %s: printed other than is shown: %q is missing in\n%s", x.name, what, missing,
			strings.Join(x.lines(), "\n"),
		)
	}
}

// plain is what a terminal shows in the end of what was printed. It knows what programs
// here use: back to the line's begin, up some lines, erase the rest of the line.
func plain(text string) string {
	lines, row, column := [][]rune{nil}, 0, 0
	for i := 0; i < len(text); {
		if m := escape.FindStringSubmatch(text[i:]); m != nil {
			i += len(m[0])
			switch m[2] {
			case "A":
				up, _ := strconv.Atoi(m[1]) // without a number it is 1
				row = max(row-max(up, 1), 0)
			case "K":
				lines[row] = lines[row][:min(column, len(lines[row]))]
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		switch r {
		case '\r':
			column = 0
		case '\n':
			row, column = row+1, 0
			if row == len(lines) {
				lines = append(lines, nil)
			}
		default:
			for len(lines[row]) <= column {
				lines[row] = append(lines[row], ' ')
			}
			lines[row][column] = r
			column++
		}
	}
	var out strings.Builder
	for i, line := range lines {
		if i > 0 {
			out.WriteByte('\n')
		}
		out.WriteString(string(line))
	}
	return out.String()
}

var escape = regexp.MustCompile(`^\x1b\[([0-9;?]*)([A-Za-z])`)

func TestATerminalShowsWhatIsLeftOfWhatWasPrinted(t *testing.T) {
	t.Parallel()
	for printed, want := range map[string]string{
		"a\r\nb\r\n":                   "a\nb\n",
		"\r\x1b[K1 of 2\r\x1b[K2 of 2": "2 of 2",
		"long\rno\x1b[K":               "no",
		"one\x1b[K\ntwo\x1b[K\n\x1b[2Aone!\x1b[K\nt\x1b[K\n": "one!\nt\n",
		"\x1b[1mbold\x1b[0m ▇░":                              "bold ▇░",
	} {
		if got := plain(printed); got != want {
			t.Errorf("%q: %q, want %q", printed, got, want)
		}
	}
}
