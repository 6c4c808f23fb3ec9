//go:build linux

package agent_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/agent"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

// A request that is right would be carried out on the machine that runs the tests: its success is tested
// in real guests, by package hypervisor.
func TestARequestForAnIdentityThatIsNotCompleteChangesNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*wire.Personalize){
		"a short seed":    func(p *wire.Personalize) { p.Seed = make([]byte, wire.MinSeed-1) },
		"a long seed":     func(p *wire.Personalize) { p.Seed = make([]byte, wire.MaxSeed+1) },
		"no time":         func(p *wire.Personalize) { p.TimeNS = 0 },
		"no host name":    func(p *wire.Personalize) { p.Hostname = "" },
		"a line's end":    func(p *wire.Personalize) { p.Hostname = "a\nb" },
		"a path":          func(p *wire.Personalize) { p.Hostname = "../a" },
		"no machine id":   func(p *wire.Personalize) { p.MachineID = "" },
		"a long id":       func(p *wire.Personalize) { p.MachineID = strings.Repeat("0", 33) },
		"an id with more": func(p *wire.Personalize) { p.MachineID = strings.Repeat("0", 31) + "\n" },
		"a MAC":           func(p *wire.Personalize) { p.MACs = map[string]string{"52:54:00:00:00:01": "x"} },
		"an old MAC":      func(p *wire.Personalize) { p.MACs = map[string]string{"": "52:54:00:00:00:01"} },
		"a long MAC":      func(p *wire.Personalize) { p.MACs = map[string]string{"52:54:00:00:00:01": "02:00:5e:10:00:00:00:01"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAgent(t, nil)
			c := s.client(t, secret)
			p := wire.Personalize{
				Secret: "a-new-secret", Seed: make([]byte, 64), TimeNS: time.Now().UnixNano(), Hostname: "one",
				MachineID: strings.Repeat("0", 32),
			}
			change(&p)
			if _, err := c.Personalize(t.Context(), p); !guest.IsRefusal(err, wire.Invalid) {
				t.Fatal(err)
			}
			if err := c.Ping(t.Context()); err != nil {
				t.Errorf("the old secret: %v", err)
			}
			if raw, err := os.ReadFile(s.file); err != nil || string(raw) != secret+"\n" {
				t.Errorf("%q, %v", raw, err)
			}
		})
	}
}

func TestOnlyWhoHasTheSecretGivesAnIdentity(t *testing.T) {
	t.Parallel()
	s := newAgent(t, nil)
	if _, err := s.client(t, "wrong").Personalize(t.Context(), wire.Personalize{Secret: "x"}); !guest.IsRefusal(err, wire.Denied) {
		t.Error(err)
	}
}

// tree makes a folder with files.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func read(t *testing.T, root, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestTheHostNameIsReplacedWhereTheGuestHasStoredIt(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"etc/hostname": "old\n",
		"etc/hosts":    "127.0.0.1 localhost\n127.0.1.1 old.example.org old # comment\n10.0.0.1 older\n",
	})
	if err := agent.Rename(root, "new"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, root, "etc/hostname"); got != "new\n" {
		t.Errorf("%q", got)
	}
	if got := read(t, root, "etc/hosts"); got != "127.0.0.1 localhost\n127.0.1.1\told.example.org\tnew\t#\tcomment\n10.0.0.1 older\n" {
		t.Errorf("%q", got)
	}
	if err := agent.Rename(tree(t, nil), "new"); err != nil {
		t.Errorf("a guest that stores none: %v", err)
	}
}

func TestTheMachineIDIsReplacedWhereTheGuestHasOne(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"etc/machine-id": "old\n", "var/lib/dbus/other": ""})
	if err := os.Chmod(filepath.Join(root, "etc/machine-id"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/machine-id", filepath.Join(root, "var/lib/dbus/machine-id")); err != nil {
		t.Fatal(err)
	}
	if err := agent.SetMachineID(root, "new"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(root, "etc/machine-id"))
	if err != nil || info.Mode().Perm() != 0o444 || read(t, root, "etc/machine-id") != "new\n" {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Readlink(filepath.Join(root, "var/lib/dbus/machine-id")); err != nil {
		t.Error(err)
	}
	none := tree(t, map[string]string{"etc/passwd": ""})
	if err := agent.SetMachineID(none, "new"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(none, "etc/machine-id")); err == nil {
		t.Error("a guest without a machine id got one")
	}
}

func TestSeedsThatAreStoredForTheNextBootAreReplaced(t *testing.T) {
	t.Parallel()
	old := strings.Repeat("x", 512)
	root := tree(t, map[string]string{"var/lib/systemd/random-seed": old})
	if err := agent.RenewStoredSeeds(root); err != nil {
		t.Fatal(err)
	}
	if now := read(t, root, "var/lib/systemd/random-seed"); now == old || len(now) != 512 {
		t.Errorf("%q", now)
	}
}

func TestHostKeysAreMadeAnewInTheKindsThatThereWere(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		require.Missing(t, "ssh-keygen is not installed")
	}
	root := tree(t, map[string]string{
		"etc/ssh/ssh_host_ed25519_key": "old", "etc/ssh/ssh_host_ed25519_key.pub": "old",
		"etc/ssh/ssh_host_dsa_key": "old", "etc/ssh/ssh_host_ed25519_key-cert.pub": "old", "etc/ssh/sshd_config": "mine",
	})
	if err := agent.RenewHostKeys(t.Context(), root, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	var names []string
	if err := fs.WalkDir(os.DirFS(filepath.Join(root, "etc/ssh")), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(names, " "); got != "ssh_host_ed25519_key ssh_host_ed25519_key.pub sshd_config" {
		t.Error(got)
	}
	info, err := os.Stat(filepath.Join(root, "etc/ssh/ssh_host_ed25519_key"))
	if err != nil || info.Mode().Perm() != 0o600 || !bytes.HasPrefix([]byte(read(t, root, "etc/ssh/ssh_host_ed25519_key")), []byte("-----BEGIN OPENSSH")) {
		t.Errorf("%v, %v", info, err)
	}
	if err := agent.RenewHostKeys(t.Context(), tree(t, nil), slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("a guest without keys: %v", err)
	}
}
