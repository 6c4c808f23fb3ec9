// Package mainstay_test keeps the rules of the house: who may import whom, and
// that every package says what it is for. See docs/architecture.md.
package mainstay_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/mainstay-infra/mainstay/"

type goPackage struct {
	ImportPath   string
	Doc          string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Doc,GoFiles,Imports,TestImports,XTestImports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// room is the part of the house that a package of ours belongs to: kit, cli,
// api/edge, service/edge, ... It is empty for packages from elsewhere.
func room(importPath string) string {
	path, ours := strings.CutPrefix(importPath, module)
	if !ours {
		return ""
	}
	parts := strings.Split(path, "/")
	switch parts[0] {
	case "service", "api", "kit", "cmd":
		return strings.Join(parts[:min(2, len(parts))], "/")
	}
	return parts[0]
}

// mayImport is the table of the house: what each kind of room may import.
func mayImport(from, to string) bool {
	kind, _, _ := strings.Cut(from, "/")
	toKind, toName, _ := strings.Cut(to, "/")
	switch kind {
	case "cmd":
		// The program that runs inside of guests is small, and has nothing of the house's.
		return toKind == "app" || toKind == "cli" || from == "cmd/mainstay-guest" && to == "service/hypervisor"
	case "app":
		return toKind == "service" || toKind == "kit" || toKind == "web"
	case "cli":
		return toKind == "api" || toKind == "kit" || toKind == "cli"
	case "service":
		return toKind == "api" || toKind == "kit" || to == from
	case "kit":
		return toKind == "kit" && lower[toName] < lower[strings.TrimPrefix(from, "kit/")] || to == from
	}
	return from == to
}

// lower orders the kit: a package imports only packages with a smaller number.
var lower = map[string]int{
	"durable": 0, "fault": 0, "glob": 0, "require": 0,
	"auth": 1, "console": 1, "db": 1, "httpserve": 1, "image": 1, "netlab": 1, "podman": 1, "pki": 1, "telemetry": 1, "text": 1, "webhook": 1,
	"audit": 2, "config": 2, "contract": 2, "jobs": 2,
}

func TestPackagesImportOnlyWhatTheirRoomMay(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		from := room(p.ImportPath)
		for _, imported := range p.Imports {
			if to := room(imported); to != "" && to != from && !mayImport(from, to) {
				t.Errorf("%s must not import %s", p.ImportPath, imported)
			}
		}
	}
}

// confined are libraries that only some packages may use.
var confined = map[string][]string{
	"modernc.org/sqlite":            {"kit/db"},
	"github.com/jackc/pgx":          {"kit/db"},
	"github.com/pressly/goose":      {"kit/db"},
	"github.com/jmoiron/sqlx":       {"kit/db"},
	"database/sql":                  {"kit/db"},
	"k8s.io/":                       {"kit/kube", "api/crd"},
	"github.com/ceph/":              {"service/storage"},
	"github.com/cilium/ebpf":        {"service/lb"},
	"github.com/osrg/gobgp":         {"service/lb"},
	"github.com/vishvananda":        {"kit/netlab", "service/lb"},
	"github.com/safchain/ethtool":   {"kit/netlab"},
	"github.com/spf13/cobra":        {"cli", "app"},
	"github.com/getkin/kin-openapi": {"kit/contract"},
}

func TestLibrariesAreUsedWhereTheyBelong(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for library, rooms := range confined {
			for _, imported := range p.Imports {
				if imported != library && !strings.HasPrefix(imported, strings.TrimSuffix(library, "/")+"/") {
					continue
				}
				allowed := false
				for _, r := range rooms {
					allowed = allowed || room(p.ImportPath) == r
				}
				if !allowed {
					t.Errorf("%s must not import %s; only %s may", p.ImportPath, imported, strings.Join(rooms, " and "))
				}
			}
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

func TestNoPackageHasANameThatSaysNothing(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		last := p.ImportPath[strings.LastIndex(p.ImportPath, "/")+1:]
		switch last {
		case "util", "utils", "common", "shared", "helpers", "types", "base", "misc", "lib":
			t.Errorf("%s: name it for what it owns", p.ImportPath)
		}
	}
}
