package seed_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"

	"github.com/mainstay-infra/mainstay/service/hypervisor/seed"
)

func TestTheDiskHoldsWhatCloudInitAndTheAgentLookForAndTheSecretIsItsOwnersOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	agent := filepath.Join(dir, "agent")
	program := bytes.Repeat([]byte("program "), 500_000)
	if err := os.WriteFile(agent, program, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "seed.iso")
	c := seed.Content{
		InstanceID:        "i-1",
		Hostname:          "web",
		UserData:          "#cloud-config\npackages: [nginx]\n",
		SSHAuthorizedKeys: []string{"ssh-ed25519 AAAA a@b"},
		Secret:            "s3cret",
		Agent:             agent,
	}
	for range 2 { // the second in place of the first
		if err := seed.Write(path, c); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".seed-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	iso := open(t, path)
	if label := strings.TrimSpace(iso.Label()); label != seed.Label {
		t.Errorf("label %q", label)
	}
	for name, want := range map[string]string{"meta-data": `{"instance-id":"i-1","local-hostname":"web","public-keys":["ssh-ed25519 AAAA a@b"]}` + "\n", "user-data": c.UserData, seed.SecretFile: "s3cret\n", "mainstay-guest": string(program)} {
		f, err := iso.OpenFile(name, os.O_RDONLY)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := io.ReadAll(f); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v: %.100q", name, len(got), err, got)
		}
		info, err := f.Stat()
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func open(t *testing.T, path string) *iso9660.FileSystem {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	iso, err := iso9660.Read(file.New(f, true), info.Size(), 0, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return iso
}

func TestWithoutAnAgentThereIsNoSecret(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "seed.iso")
	if err := seed.Write(path, seed.Content{InstanceID: "i-1", Hostname: "web"}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil || bytes.Contains(raw, []byte(seed.SecretFile)) || !bytes.Contains(raw, []byte("#cloud-config")) {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
}

func TestHostnamesAreThoseOfRFC1123(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"web": true, "web-1.example": true, "": false, "-a": false, "a-": false, "a..b": false, "a_b": false, strings.Repeat("a", 64): false} {
		if got := seed.ValidHostname(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
