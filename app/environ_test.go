package app

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/service/agent"
	"github.com/mainstay-infra/mainstay/service/edge"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
	"github.com/mainstay-infra/mainstay/service/lb"
)

// People export the variables of the command line in the shell that starts the server.
func TestNoVariableOfTheCommandLineStopsAServer(t *testing.T) {
	t.Parallel()
	reads := regexp.MustCompile(`Getenv\("([A-Z]+_[A-Z_]+)"\)`)
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
	if err != nil || len(variables) < 7 {
		t.Fatalf("%v, found %v", err, variables)
	}
	for name := range variables {
		for prefix, settings := range map[string]any{edge.EnvPrefix: &edge.Config{}, agent.EnvPrefix: &agent.Config{}, lb.EnvPrefix: &lb.Config{}, hypervisor.EnvPrefix: &hypervisor.Config{}} {
			if err := config.Load(settings, prefix, config.Sources{Environ: []string{name + "=http://127.0.0.1:1"}}); err != nil && strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", prefix, err)
			}
		}
	}
}
