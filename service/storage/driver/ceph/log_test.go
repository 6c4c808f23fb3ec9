//go:build linux

package ceph_test

import (
	"log/slog"
	"strings"
	"testing"
)

// slogOf logs to a test.
func slogOf(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(line(func(text string) { t.Log(strings.TrimSpace(text)) }), nil))
}

type line func(text string)

func (l line) Write(text []byte) (int, error) {
	l(string(text))
	return len(text), nil
}
