//go:build linux

package restsocket

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

func TestAConnectionToTheGuestBeginsAfterTheAnswer(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"OK 1073741824\nfirst words": "",
		"":                           "nothing in the guest listens",
		"OK":                         "nothing in the guest listens",
		"NO \x1b[2J\n":               "instead of OK",
		strings.Repeat("y", 100):     "instead of OK",
	} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			go func() {
				line := make([]byte, len("CONNECT 7071\n"))
				if _, err := io.ReadFull(theirs, line); err != nil || string(line) != "CONNECT 7071\n" {
					t.Errorf("%q, %v", line, err)
				}
				_, _ = io.WriteString(theirs, answer)
				_ = theirs.Close()
			}()
			defer func() { _ = ours.Close() }()
			err := connectGuest(t.Context(), ours, 7071)
			if want != "" {
				if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsRune(err.Error(), 0x1b) {
					t.Errorf("%q: %v", answer, err)
				}
				return
			}
			if rest, readErr := io.ReadAll(ours); err != nil || string(rest) != "first words" {
				t.Errorf("%v, %v, %q", err, readErr, rest)
			}
		})
	}
}

func TestAGuestThatDoesNotAnswerIsNotWaitedForWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer func() { _ = ours.Close(); _ = theirs.Close() }()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		began := time.Now()
		if err := connectGuest(t.Context(), ours, 7071); err != context.DeadlineExceeded ||
			time.Since(began) != vsockLimit {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestARefusalHasTheProgramsWordsMadeHarmless(t *testing.T) {
	t.Parallel()
	v := &VM{name: "Program"}
	for text, want := range map[string]string{
		`{"fault_message":"the drive is not there"}`: "the drive is not there",
		`["Internal Server Error","cause","deeper"]`: "Internal Server Error: cause: deeper",
		"plain \x1b[2J\n\xff text":                   "plain  [2J ? text",
		strings.Repeat("z", 5000):                    strings.Repeat("z", 1000) + "...",
		"{":                                          "{",
	} {
		err := v.refusal(Call{Method: http.MethodPut, Path: "/x"}, http.StatusBadRequest, []byte(text))
		if f := fault.From(err); f.Kind != fault.Conflict || f.Message != "Program refused PUT /x (400): "+want {
			t.Errorf("%q: %v", text, err)
		}
		if err := v.refusal(Call{}, http.StatusInternalServerError, []byte(text)); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%v", err)
		}
	}
}

func TestOnlyANamedPipeIsOpenedAsOne(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file, link, pipe := filepath.Join(folder, "file"), filepath.Join(folder, "link"), filepath.Join(folder, "pipe")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := MakePipe(pipe, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, filepath.Join(folder, "nothing")} {
		if f, err := HoldPipe(path); err == nil {
			_ = f.Close()
			t.Errorf("%s was opened", path)
		}
	}
	if f, err := HoldPipe(pipe); err != nil {
		t.Error(err)
	} else if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestOfALogTheEndIsKept(t *testing.T) {
	t.Parallel()
	var s sayings
	if s.lastWords() != "nothing" {
		t.Errorf("%q", s.lastWords())
	}
	for range 100 {
		if _, err := s.Write([]byte(strings.Repeat("early ", 100))); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = s.Write([]byte("\x1b[31mlast\n"))
	if words := s.lastWords(); len(s.String()) != 4096 || len(words) > 900 || !strings.HasSuffix(words, "[31mlast") ||
		strings.ContainsRune(words, 0x1b) {
		t.Errorf("%d bytes, %q", len(s.String()), words)
	}
}

func TestAProgramThatIsNoneSaysNoVersion(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"true", "false", "/nowhere/program"} {
		if version, err := Version(t.Context(), program, "Program v"); err == nil {
			t.Errorf("%s: %q", program, version)
		}
	}
}

func TestTheUseOfAProcessIsTold(t *testing.T) {
	t.Parallel()
	if m, err := Usage(os.Getpid()); err != nil || m.MemoryBytes == 0 {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := Usage(1 << 22); err == nil {
		t.Errorf("%+v of a process that is not there", m)
	}
}
