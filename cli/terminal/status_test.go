package terminal

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// screen returns what a terminal shows after some output: its lines, the last of which may be unfinished.
func screen(raw string) []string {
	lines := []string{""}
	for raw != "" {
		last := len(lines) - 1
		switch {
		case strings.HasPrefix(raw, erase):
			lines[last], raw = "", raw[len(erase):]
			continue
		case raw[0] == '\n':
			lines = append(lines, "")
		default:
			lines[last] += raw[:1]
		}
		raw = raw[1:]
	}
	return lines
}

func TestAStatusLineStaysWholeBelowMessagesFromAnywhere(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	s := &Status{w: &b, live: true, width: func() int { return 0 }, end: true}
	var work sync.WaitGroup
	for i := range 50 {
		work.Go(func() { s.Set(fmt.Sprintf("status %d", i)) })
		work.Go(func() { _, _ = fmt.Fprintf(s, "message %d\n", i) })
	}
	work.Wait()
	s.Set("the end")
	shown := screen(b.String())
	if len(shown) != 51 || shown[50] != "the end" {
		t.Fatalf("%d lines, the last of which is %q", len(shown), shown[len(shown)-1])
	}
	for _, line := range shown[:50] {
		if !strings.HasPrefix(line, "message ") {
			t.Errorf("%q", line)
		}
	}
	s.Close()
	if shown := screen(b.String()); shown[50] != "" {
		t.Errorf("left: %q", shown[50])
	}
}

func TestAnUnfinishedMessageIsNotErased(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	s := &Status{w: &b, live: true, width: func() int { return 0 }, end: true}
	s.Set("status")
	for _, part := range []string{"one ", "message\n"} {
		if _, err := s.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if shown := screen(b.String()); strings.Join(shown, "|") != "one message|status" {
		t.Errorf("%q", shown)
	}
}

func TestAStatusLineIsCutToTheTerminal(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	s := &Status{w: &b, live: true, width: func() int { return 10 }, end: true}
	s.Set("█ 123456789")
	if shown := screen(b.String()); shown[0] != "█ 123456…" {
		t.Errorf("%q", shown)
	}
}

func TestWithoutATerminalEveryStatusIsALine(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	s := NewStatus(&b)
	s.Set("one")
	_, _ = s.Write([]byte("message\n"))
	s.Set("two\x1b[2J")
	s.Close()
	if b.String() != "one\nmessage\ntwo\\x1b[2J\n" {
		t.Errorf("%q", b.String())
	}
}
