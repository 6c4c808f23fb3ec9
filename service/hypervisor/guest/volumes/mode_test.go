//go:build linux

package volumes

import (
	"io/fs"
	"testing"
)

func TestModesAreShownAsByLs(t *testing.T) {
	t.Parallel()
	for mode, want := range map[fs.FileMode]string{
		0o644:                              "-rw-r--r--",
		fs.ModeDir | 0o750:                 "drwxr-x---",
		fs.ModeSymlink | 0o777:             "lrwxrwxrwx",
		fs.ModeDevice | 0o660:              "brw-rw----",
		fs.ModeDevice | fs.ModeCharDevice:  "c---------",
		fs.ModeNamedPipe | 0o600:           "prw-------",
		fs.ModeSocket | 0o755:              "srwxr-xr-x",
		fs.ModeDir | fs.ModeSticky | 0o777: "drwxrwxrwt",
		fs.ModeDir | fs.ModeSticky | 0o770: "drwxrwx--T",
		fs.ModeSetuid | 0o755:              "-rwsr-xr-x",
		fs.ModeSetgid | fs.ModeSetuid:      "---S--S---",
		fs.ModeDir | 0o777 | fs.ModeSetgid | fs.ModeSetuid | fs.ModeSticky: "drwsrwsrwt",
		fs.ModeIrregular: "?---------",
	} {
		if got := modeText(mode); got != want {
			t.Errorf("%v: %s, want %s", mode, got, want)
		}
	}
}
