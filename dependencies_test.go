package mainstay_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the programs link in to testdata/dependencies of each")

// A new module in a program is more code to trust, and a larger program, so it must show in a
// review. Versions are not listed: they change all the time.
func TestProgramsLinkInOnlyTheModulesThatAreListed(t *testing.T) {
	t.Parallel()
	readTree(t)
	for _, program := range []string{"mainstay", "mainstay-guest", "mainstay-pam", "mainstay-ceph"} {
		folder := filepath.Join("cmd", program)
		path := filepath.Join(folder, "testdata", "dependencies")
		linked := modulesOf(t, program)
		if *update {
			writeLines(t, path, linked)
			continue
		}
		listed := readLines(t, path)
		for _, m := range without(linked, listed) {
			t.Errorf("%s links in %s, which %s does not list", program, m, path)
		}
		for _, m := range without(listed, linked) {
			t.Errorf("%s lists %s, which %s does not link in", path, m, program)
		}
		if !slices.IsSorted(listed) {
			t.Errorf("%s is not sorted", path)
		}
	}
	if t.Failed() {
		t.Log("if that is meant, run: go test -run TestProgramsLinkIn . -update")
	}
}

// readTree opens the files that the result depends on, so that the test cache sees them: the cache
// does not see what "go list" reads.
func readTree(t *testing.T) {
	t.Helper()
	_ = packages(t)
	for _, path := range []string{"go.mod", "go.sum"} {
		if _, err := os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
}

// modulesOf returns the paths of the modules that are linked into the shipped program, sorted.
func modulesOf(t *testing.T, program string) []string {
	t.Helper()
	const format = `{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}`
	cgo, tags := "CGO_ENABLED=0", ""
	switch program { // those that need cgo, see their package comments
	case "mainstay-pam":
		cgo, tags = "CGO_ENABLED=1", "pam"
	case "mainstay-ceph":
		cgo, tags = "CGO_ENABLED=1", "ceph,pacific"
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tags, "-f", format, "./cmd/"+program)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", cgo, "GOFLAGS=", "GOWORK=off")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &problems)
	}
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	return slices.Compact(modules)
}

// without returns the elements of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

func writeLines(t *testing.T, path string, lines []string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
