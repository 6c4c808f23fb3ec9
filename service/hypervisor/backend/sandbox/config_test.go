//go:build linux

package sandbox

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

var update = flag.Bool("update", false, "write testdata anew")

func spec() *backend.Spec {
	return &backend.Spec{
		ID:        "00000000-0000-4000-8000-000000000001",
		Name:      "web,1",
		Folder:    "/vms/1",
		VCPUs:     3,
		MemoryMiB: 512,
		RootFS:    "/images/busybox",
		Agent:     true,
	}
}

// The whole configuration is reviewed when it changes: go test -run TestConfiguration -update.
func TestConfigurationIsTheReviewedOne(t *testing.T) {
	t.Parallel()
	const golden = "testdata/config.json"
	got, err := config(spec(), "/usr/lib/mainstay/mainstay-guest", true)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(want)) != string(got) {
		t.Errorf("it is\n%s", got)
	}
}

func TestConfigurationHasTheSecretOnlyIfThereIsOneAndBoundsMemory(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		memory int
		secret bool
		size   string
	}{{1, false, "size=1m"}, {512, true, "size=256m"}, {4096, false, "size=2048m"}} {
		s := spec()
		s.MemoryMiB = test.memory
		text, err := config(s, "/agent", test.secret)
		if err != nil {
			t.Fatal(err)
		}
		var c ociConfig
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(err)
		}
		if c.Linux.Resources.Memory.Limit != int64(test.memory)<<20 || c.Linux.Resources.CPU.Quota != 300_000 {
			t.Errorf("%+v", c.Linux.Resources)
		}
		secret := slices.IndexFunc(c.Mounts, func(m ociMount) bool { return m.Destination == guestSecret })
		if secret >= 0 != test.secret ||
			secret >= 0 &&
				(c.Mounts[secret].Source != "/vms/1/secret" || !slices.Contains(c.Mounts[secret].Options, "ro")) {
			t.Errorf("with a secret %v: mount %d of %+v", test.secret, secret, c.Mounts)
		}
		for _, m := range c.Mounts {
			if m.Type == "tmpfs" && m.Destination != "/dev" && !slices.Contains(m.Options, test.size) {
				t.Errorf("%s is not bounded: %q", m.Destination, m.Options)
			}
			if m.Type == "bind" && !slices.Contains(m.Options, "ro") {
				t.Errorf("%s of the host can be written", m.Source)
			}
		}
	}
}

func TestWhatRunscSaidIsCutAndPrintable(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"":                                  "it said nothing",
		" a\n\tb \xff\n":                    "a b ?",
		"begin" + strings.Repeat("x", 5000): "begin" + strings.Repeat("x", 995),
	} {
		if got := words([]byte(said)); got != want {
			t.Errorf("%.20q: %q", said, got)
		}
	}
}
