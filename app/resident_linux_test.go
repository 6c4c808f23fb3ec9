package app

import (
	"bufio"
	"slices"
	"strings"
	"testing"
)

func TestOnlyWhatTheFileHoldsUnchangedIsGivenBack(t *testing.T) {
	t.Parallel()
	const smaps = `00400000-01347000 r-xp 00000000 fe:00 99 /usr/bin/mainstay
Rss:               12572 kB
Anonymous:             0 kB
01347000-024f9000 r--p 00f47000 fe:00 99 /usr/bin/mainstay
Anonymous:            48 kB
024f9000-025d8000 rw-p 020f9000 fe:00 99 /usr/bin/mainstay
Anonymous:             0 kB
7fc15c791000-7fc15c8e7000 r-xp 00026000 fe:00 32 /usr/lib/libc.so.6
Anonymous:             0 kB
7fc15c8e7000-7fc15c8e8000 r--p 00000000 00:00 0
Anonymous:             0 kB
025d8000-025d9000 r--p 00000000 fe:00 99 /usr/bin/mainstay
Anonymous:             0 kB
`
	got := unchanged(bufio.NewScanner(strings.NewReader(smaps)), "/usr/bin/mainstay")
	if want := []mapping{{0x400000, 0x1347000}, {0x25d8000, 0x25d9000}}; !slices.Equal(got, want) {
		t.Errorf("%x", got)
	}
}

func TestAProgramThatGivesMemoryBackGoesOn(t *testing.T) {
	t.Parallel()
	for range 3 {
		if err := releaseUnused(); err != nil {
			t.Fatal(err)
		}
	}
}
