package inventory_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/drivertest"
	"github.com/mainstay-infra/mainstay/service/storage/driver/inventory"
)

const sample = `
id: array-7
name: Array 7
health: warning
summary: a fan is broken
pools:
  - {name: gold, capacity_bytes: 1000, used_bytes: 400}
  - {name: tape, capacity_bytes: 500, used_bytes: 0, health: error}
volumes:
  - name: LUN 17
    pool: gold
    size_bytes: 300
    used_bytes: 100
    created_at: 2026-01-31T12:00:00Z
  - {name: share, pool: gold, kind: filesystem, size_bytes: 50}
`

func write(t *testing.T, path, text string) string {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "array")
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, text string) *inventory.Driver {
	t.Helper()
	d, err := inventory.Open(write(t, "", text), "")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTheDriver(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) drivertest.Backend {
		return drivertest.Backend{Driver: open(t, sample), Pool: "gold", Kind: driver.Block}
	})
}

// A Driver has no methods that change anything.
func TestNothingCanBeChanged(t *testing.T) {
	t.Parallel()
	var d any = open(t, sample)
	if _, ok := d.(driver.Volumes); ok {
		t.Error("it makes volumes")
	}
	if _, ok := d.(driver.Snapshots); ok {
		t.Error("it makes snapshots")
	}
	if _, ok := d.(driver.Copier); ok {
		t.Error("it copies")
	}
	if can := d.(driver.Driver).Capabilities(); can != (driver.Capabilities{}) {
		t.Errorf("%+v", can)
	}
}

func TestYAMLAndJSONTellTheSame(t *testing.T) {
	t.Parallel()
	inJSON := "{\n\t\"id\": \"array-7\", \"name\": \"Array 7\", \"health\": \"warning\", \"summary\": \"a fan is broken\",\n" +
		"\t\"pools\": [{\"name\": \"gold\", \"capacity_bytes\": 1000, \"used_bytes\": 400},\n" +
		"\t\t{\"name\": \"tape\", \"capacity_bytes\": 500, \"used_bytes\": 0, \"health\": \"error\"}],\n" +
		"\t\"volumes\": [\n\t\t{\"name\": \"LUN 17\", \"pool\": \"gold\", \"size_bytes\": 300, \"used_bytes\": 100,\n" +
		"\t\t\"created_at\": \"2026-01-31T12:00:00Z\"},\n" +
		"\t\t{\"name\": \"share\", \"pool\": \"gold\", \"kind\": \"filesystem\", \"size_bytes\": 50}]\n}\n"
	for name, text := range map[string]string{"YAML": sample, "JSON": inJSON} {
		d := open(t, text)
		c, err := d.Inspect(t.Context())
		if err != nil || c.NativeID != "array-7" || c.Name != "Array 7" || c.Health != driver.Warning ||
			c.Summary != "a fan is broken" || c.Raw != 1500 || c.Used != 400 || c.Available != 1100 || len(c.Pools) != 2 ||
			c.Pools[0].Health != driver.Warning || c.Pools[1].Health != driver.Critical || c.Pools[0].Kind != driver.PoolOther {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		var all []driver.Volume
		if err := d.EachVolume(t.Context(), func(v driver.Volume) error { all = append(all, v); return nil }); err != nil {
			t.Error(err)
		}
		want := []driver.Volume{
			{
				Name: driver.Name{Pool: "gold", Native: "LUN 17"}, Kind: driver.Block, Size: 300, Used: 100, Enforced: true,
				Foreign: true, CreatedAt: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
			},
			{
				Name: driver.Name{Pool: "gold", Native: "share"}, Kind: driver.Filesystem, Size: 50, Used: -1, Enforced: true,
				Foreign: true,
			},
		}
		if fmt.Sprint(all) != fmt.Sprint(want) {
			t.Errorf("%s: %+v", name, all)
		}
	}
}

func TestWhatIsWrongWithAFileIsNamed(t *testing.T) {
	t.Parallel()
	replaced := func(old, with string) string {
		if !strings.Contains(sample, old) {
			t.Fatalf("the sample has no %q", old)
		}
		return strings.Replace(sample, old, with, 1)
	}
	for _, c := range []struct{ text, want string }{
		{"", "it is empty"},
		{"{", "neither YAML nor JSON"},
		{"[]", "must be an object"},
		{"a: &x 1\nb: *x", "id: is missing"},
		{sample + "---\nid: x\n", "something follows"},
		{replaced("id: array-7", "id: "), "id: must be a text"},
		{replaced("id: array-7", "id: [x]"), "id: must be a text"},
		{replaced("id: array-7\n", ""), "id: is missing"},
		{replaced("id: array-7", "id: array-7\nid: b"), "id: is there twice"},
		{replaced("id: array-7", `id: "a\nb"`), "id: must be a text"},
		{replaced("id: array-7", "id: "+strings.Repeat("x", 254)), "id: must be a text"},
		{replaced("health: warning", "health: fine"), "health: must be ok or warning"},
		{replaced("summary:", "sum:"), "sum: there is no such field"},
		{replaced("capacity_bytes: 1000", "capacity_bytes: 1.5"), "pools[0].capacity_bytes: must be a whole number"},
		{replaced("capacity_bytes: 1000", "capacity_bytes: '1000'"), "pools[0].capacity_bytes: must be a whole number"},
		{replaced("capacity_bytes: 1000", "capacity_bytes: -1"), "pools[0].capacity_bytes: must be a whole number"},
		{replaced("capacity_bytes: 1000", "capacity_bytes: 9223372036854775807"), "pools[0].capacity_bytes: must be a whole"},
		{replaced("capacity_bytes: 1000", "capacity_bytes: 399"), "pools[0].used_bytes: is more than capacity_bytes"},
		{replaced("used_bytes: 400", "x: 400"), "pools[0].used_bytes: is missing"},
		{replaced("name: tape", "name: gold"), "pools[1].name: there are two pools"},
		{replaced("pool: gold\n    size", "pool: lead\n    size"), "volumes[0].pool: there is no such pool"},
		{replaced("size_bytes: 300", "size_bytes: many"), "volumes[0].size_bytes: must be a whole number"},
		{replaced("size_bytes: 50", "sizes: 50"), "volumes[1].size_bytes: is missing"},
		{replaced("kind: filesystem", "kind: object"), "volumes[1].kind: must be block or filesystem"},
		{replaced("name: share", "name: LUN 17"), "volumes[1].name: there are two volumes"},
		{replaced("created_at: 2026-01-31T12:00:00Z", "created_at: yesterday"), "volumes[0].created_at: must be a time"},
		{replaced("volumes:", "volumes: 5\nothers:"), "volumes: must be a list"},
		{replaced("- {name: share, pool: gold, kind: filesystem, size_bytes: 50}", "- 5"), "volumes[1]: must be an object"},
		{"id: x\npools: []\nvolumes: [" + strings.Repeat("{},", 100_001) + "]", "volumes: has more than 100000 entries"},
		{"id: x\n" + strings.Repeat("# comment\n", 4<<20), "larger than"},
	} {
		path := write(t, "", c.text)
		_, err := inventory.Open(path, "")
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.From(err).Message, c.want) ||
			strings.Contains(fault.From(err).Message, path) {
			t.Errorf("%.60q: %.300v; want %q", c.text, err, c.want)
		}
	}
	_, err := inventory.Open("/none/at/all", "")
	if !fault.Is(err, fault.Unavailable) || strings.Contains(fault.From(err).Message, "/none") {
		t.Errorf("%v", err)
	}
}

// The file may be something else altogether, and messages are seen by more people than files.
func TestNothingOfAFileThatIsNoInventoryIsRepeated(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"root: $6$secret:20228:0:99999:7:::\ndaemon: secret\n", "id: x\nAPI_KEY: secret\nsecret-of-mine: 1\n",
		"a: *secret\n", "a: 'secret\n", "- secret\n", "secret: 1\nsecret: 2\n\"Secret value\": 1\n\"Secret value\": 2\n",
		"[secret\n", "key: !secret x\n", "id: x\npools: [{name: x, kind: secret}]\nvolumes: [{name: a, pool: secret, kind: secret}]\n",
	} {
		_, err := inventory.Open(write(t, "", text), "")
		if err == nil {
			t.Errorf("%q was taken", text)
			continue
		}
		// The name of an unknown field is told if it may be one that was misspelled: "secret" alone may be one.
		said := strings.ReplaceAll(strings.ReplaceAll(err.Error(), "secret: there is no such field", ""), "secret: is there twice", "")
		if strings.Contains(strings.ToLower(said), "secret") || strings.Contains(said, "20228") {
			t.Errorf("%q: %s", text, said)
		}
	}
}

func TestTheFileIsReadAnew(t *testing.T) {
	t.Parallel()
	path := write(t, "", sample)
	d, err := inventory.Open(path, "array-7")
	if err != nil {
		t.Fatal(err)
	}
	count := func() (n int, err error) {
		err = d.EachVolume(t.Context(), func(driver.Volume) error { n++; return nil })
		return n, err
	}
	write(t, path, strings.Replace(sample, "  - {name: share, pool: gold, kind: filesystem, size_bytes: 50}\n", "", 1))
	if n, err := count(); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	write(t, path, "broken")
	if n, err := count(); n != 0 || !fault.Is(err, fault.Unavailable) {
		t.Errorf("%d, %v", n, err)
	}
	write(t, path, strings.Replace(sample, "array-7", "array-8", 1))
	if _, err := d.Inspect(t.Context()); !fault.Is(err, fault.Conflict) {
		t.Errorf("another storage system: %v", err)
	}
	if _, err := inventory.Open(path, "array-7"); !fault.Is(err, fault.Conflict) {
		t.Errorf("another storage system: %v", err)
	}
}
