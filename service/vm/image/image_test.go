package image

import (
	"archive/tar"
	"errors"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/service/vm/record"
)

func TestListsOfChecksumsInAllFormsAreRead(t *testing.T) {
	t.Parallel()
	a, b := strings.Repeat("a", 64), strings.Repeat("B", 128)
	for list, want := range map[string]checksum{
		a + "  one.qcow2\n" + b + " *two.qcow2\n":                        {"two.qcow2", strings.ToLower(b), true},
		"# one.qcow2: 12 bytes\nSHA256 (one.qcow2) = " + a + "\r\n":      {"one.qcow2", a, false},
		a + "  ./one.qcow2\n":                                            {"one.qcow2", a, false},
		a + "  v-1.9.qcow2\n" + a + "  v-1.10.qcow2\n" + a + "  x.iso\n": {"v-1.10.qcow2", a, false},
	} {
		if got, err := findChecksum(list, "*.qcow2"); err != nil || got != want {
			t.Errorf("%q: %+v, %v", list, got, err)
		}
	}
	for _, list := range []string{"", "one.qcow2", a + "  ../one.qcow2", a + "  a/one.qcow2", a[1:] + "  one.qcow2", a + "  one.qcow2 two", "\x00"} {
		if got, err := findChecksum(list, "*.qcow2"); err == nil {
			t.Errorf("%q: %+v", list, got)
		}
	}
}

func FuzzFindChecksum(f *testing.F) {
	f.Add(strings.Repeat("a", 64)+"  one.qcow2\n", "*.qcow2")
	f.Add("SHA512 (one.iso) = "+strings.Repeat("0", 128), "one.iso")
	f.Fuzz(func(t *testing.T, list, pattern string) {
		got, err := findChecksum(list, pattern)
		if err != nil {
			return
		}
		if ok, err := path.Match(pattern, got.file); err != nil || !ok || strings.ContainsAny(got.file, "/ ") ||
			len(got.sum) != map[bool]int{false: 64, true: 128}[got.sha512] {
			t.Errorf("%+v", got)
		}
	})
}

func TestTheSourcesAreComplete(t *testing.T) {
	t.Parallel()
	seen, distributed := map[string]bool{}, map[string]bool{}
	for _, s := range sources {
		key := s.Distribution + s.Version + s.Format
		if seen[key] || s.Title == "" || s.Checksums == "" || !strings.HasPrefix(s.Base, "https://") || s.Format != "qcow2" && s.Format != "iso" {
			t.Errorf("%+v", s)
		}
		if _, err := path.Match(s.File, ""); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
		seen[key], distributed[s.Distribution] = true, true
	}
	for name := range distributions {
		if !distributed[name] {
			t.Errorf("there is nothing to download of %s", name)
		}
	}
}

// The arguments of every distribution's tool hold the packages, and nothing that begins like an option comes from
// a user.
func TestEveryDistributionHasACommand(t *testing.T) {
	t.Parallel()
	for name, d := range distributions {
		spec := record.ImageSpec{Distribution: name, Packages: []string{"hello"}, CloudInit: true}
		b, err := bootstrapOf(&spec, "/images/one/guest/root", "/images/one", map[string]string{name: "https://mirror.example.com/x"})
		if err != nil {
			t.Fatal(err)
		}
		args, files := b.command(b)
		all := strings.Join(args, "\n")
		for _, f := range files {
			all += f
		}
		for _, want := range []string{"hello", "cloud-init", "/images/one/guest/root", "https://mirror.example.com/x"} {
			if !strings.Contains(all, want) {
				t.Errorf("%s: there is no %s in %s", name, want, all)
			}
		}
		if d.hint == "" || d.tool == "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestTheOverlayHoldsEachFolderBeforeItsFilesAndBelongsToRoot(t *testing.T) {
	t.Parallel()
	files := guestFiles(&record.ImageSpec{Agent: true, Autologin: true, CloudInit: true}, "web", "uuid")
	r, err := overlay(files, "")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{".": true}
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if seen[name] || !seen[path.Dir(name)] || h.Uid != 0 || h.Gid != 0 || path.IsAbs(name) {
			t.Errorf("%+v", h)
		}
		seen[name] = true
	}
	for name := range files {
		if !seen[name] {
			t.Errorf("there is no %s", name)
		}
	}
	if plain := guestFiles(&record.ImageSpec{}, "web", "uuid"); len(plain) != len(files)-5 {
		t.Errorf("%d files without agent, autologin and cloud-init; %d with", len(plain), len(files))
	}
}

func TestMirrorsThatAreNotValidAreRefused(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{
		"debian", "debian=", "debian=ftp://x", "debian=https://", "gentoo=https://x", "debian=https://u:p@x", "debian=https://x/ y",
		"debian=https://x?y", "=https://x", "debian=[trusted=yes] https://x",
	} {
		if _, err := ParseMirrors("setting", []string{entry}); err == nil {
			t.Errorf("%q is taken", entry)
		}
	}
	got, err := ParseMirrors("setting", []string{"debian=http://127.0.0.1:1/debian", "debian-security=https://x/y", "ubuntu-iso=https://z"})
	if err != nil || len(got) != 3 {
		t.Errorf("%v, %v", got, err)
	}
}
