//go:build linux

package main

import (
	"log/slog"
	"os"
	"strings"
	"testing"
)

func TestTheKernelsLogGetsARecordALine(t *testing.T) {
	t.Parallel()
	var kmsg strings.Builder
	log := slog.New(slog.NewTextHandler(kernelLog{&kmsg}, nil))
	log.Info("session began")
	log.Warn("two\nlines")
	lines := strings.SplitAfter(kmsg.String(), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "<31>time=") || !strings.HasPrefix(lines[1], "<31>time=") {
		t.Errorf("%q", lines)
	}
}

func TestOnlyTheConsoleIsTakenForIt(t *testing.T) {
	t.Parallel()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if isConsole(null) {
		t.Error("/dev/null is taken for the console")
	}
	if logTo(false) != os.Stderr && !isConsole(os.Stderr) {
		t.Error("a log without a reason to be elsewhere is not on standard error")
	}
}
