//go:build linux

package host

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func TestASerialLogKeepsTheNewestAndStaysSmall(t *testing.T) {
	t.Parallel()
	h := &Host{data: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	folder := h.Folder("one")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if raw, err := h.ReadConsoleLog("one", 100); err != nil || len(raw) != 0 {
		t.Errorf("a log that is not there: %q, %v", raw, err)
	}
	var all bytes.Buffer
	for run := range 3 { // the daemon is restarted
		c := h.ConsoleLog("one")
		for i := range 3000 {
			line := fmt.Appendf(nil, "%d %d %s\n", run, i, bytes.Repeat([]byte("x"), i%1000))
			all.Write(line)
			if n, err := c.Write(line); n != len(line) || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
		}
		huge := bytes.Repeat([]byte("flood"), 1<<20)
		all.Write(huge)
		_, _ = c.Write(huge) // it never fails
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var size int64
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if err != nil || len(entries) != 2 || size > MaxConsoleLog || size <= consoleMost {
		t.Errorf("%d files of %d bytes, %v", len(entries), size, err)
	}
	for _, most := range []int{1, 1000, consoleMost - 1, consoleMost, consoleMost + 1, MaxConsoleLog, 1 << 30} {
		raw, err := h.ReadConsoleLog("one", most)
		if err != nil || !bytes.HasSuffix(all.Bytes(), raw) || len(raw) != int(min(int64(most), size)) {
			t.Errorf("the last %d bytes: %d, %v", most, len(raw), err)
		}
	}
	// A link in its place leads nowhere, and what is printed is not lost on others.
	other := filepath.Join(h.data, "other")
	for _, name := range []string{consoleFile, consoleOld} {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(other, filepath.Join(folder, consoleFile)); err != nil {
		t.Fatal(err)
	}
	if n, err := h.ConsoleLog("one").Write([]byte("text")); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("a link was followed")
	}
}
