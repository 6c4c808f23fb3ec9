package app

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/config"
)

// People export the variables of the command line in the shell that starts the server.
func TestNoVariableOfTheCommandLineStopsAServer(t *testing.T) {
	t.Parallel()
	reads := regexp.MustCompile(`"((?:EDGE|LB|VM|HYPERVISOR|STORE)_[A-Z_]+)"`)
	variables := map[string]bool{}
	err := filepath.WalkDir("../cli", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range reads.FindAllSubmatch(source, -1) {
			variables[string(match[1])] = true
		}
		return err
	})
	if err != nil || len(variables) < 9 {
		t.Fatalf("%v, found %v", err, variables)
	}
	for name := range variables {
		for _, u := range Units() {
			if err := config.Load(
				u.settings(),
				u.prefix,
				config.Sources{Environ: []string{name + "=http://127.0.0.1:1"}},
			); err != nil &&
				strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", u.Name, err)
			}
		}
	}
}
