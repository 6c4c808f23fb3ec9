package hypervisor_test

import (
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const own = "github.com/mainstay-infra/mainstay/service/hypervisor"

// arrows are the rooms of the daemon, and which others each may import. A room stands below those
// that import it: what is missing here is a cycle, or soon will be one.
var arrows = map[string]string{
	".": "admission agent backend backend/cloudhypervisor backend/firecracker backend/qemu backend/sandbox " +
		"caller catalog configfile disk fleet host httpapi life machine migrate operation plan policy record recovery " +
		"template usage vm",
	"httpapi": "agent backend caller catalog configfile disk fleet guest life machine migrate netpolicy network operation plan " +
		"policy record template vm",

	"recovery": "backend caller catalog disk host life machine record template vm",
	"migrate": "backend caller catalog fleet guest/wire host image life machine netpolicy operation placement plan " +
		"record storage vm",
	"usage":  "backend record",
	"policy": "caller host netpolicy network record",
	"disk": "admission backend caller catalog host image life machine nbd operation plan record " +
		"storage vm",
	"life":     "agent backend caller host machine operation plan record storage template vm",
	"template": "backend caller catalog guest guest/wire host machine operation plan record storage vm",
	"agent":    "backend caller guest guest/wire host machine record",
	"plan":     "accel admission backend caller catalog configfile guest/wire host record seed storage vm",
	"host": "admission backend backend/process caller catalog cgroup configfile image netpolicy network record seed " +
		"storage",
	"catalog":   "admission backend/sandbox caller configfile demo image operation record",
	"operation": "caller record",
	"machine":   "backend guest record",
	"record":    "admission caller netpolicy vm",
	"fleet":     "placement",

	// These know nothing of the daemon's.
	"caller": "", "vm": "", "admission": "", "placement": "",
	"accel": "", "cgroup": "", "image": "", "nbd": "", "netpolicy": "", "network": "netpolicy", "qmp": "", "seed": "",
	"demo": "", "demo/demotest": "demo",
	"guest": "guest/wire", "guest/agent": "guest/wire", "guest/wire": "", "guest/volumes": "",
	"backend": "", "configfile": "backend", "storage": "backend",
	"backend/cloudhypervisor": "backend backend/process backend/restsocket guest/agent",
	"backend/firecracker":     "backend backend/restsocket guest/agent",
	"backend/process":         "backend", "backend/sandbox": "backend backend/process",
	"backend/qemu":                  "accel backend backend/process qmp",
	"backend/restsocket":            "backend backend/process",
	"backend/restsocket/sockettest": "backend backend/process guest guest/agent",
}

// rooms are the packages of the service by their folders. The tree itself is read, since what a
// program such as "go list" reads is not seen by the test cache.
func rooms(t *testing.T) map[string]*build.Package {
	t.Helper()
	all := map[string]*build.Package{}
	err := filepath.WalkDir(".", func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if entry.Name() == "testdata" {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.SkipDir
		}
		p, err := build.ImportDir(dir, 0)
		if none := new(build.NoGoError); errors.As(err, &none) {
			return nil
		}
		all[filepath.ToSlash(dir)] = p
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRoomsImportOnlyThoseBelowThem(t *testing.T) {
	t.Parallel()
	found := rooms(t)
	for room, p := range found {
		allowed, known := arrows[room]
		if !known {
			t.Errorf("the room %s is not in the table of arrows", room)
		}
		for _, imported := range p.Imports {
			if to, ours := strings.CutPrefix(imported, own+"/"); ours && !slices.Contains(strings.Fields(allowed), to) {
				t.Errorf("%s must not import %s", room, to)
			}
		}
		for _, to := range strings.Fields(allowed) {
			if !slices.Contains(p.Imports, own+"/"+to) {
				t.Errorf("%s does not import %s any more: take the arrow away", room, to)
			}
		}
	}
	for room := range arrows {
		if found[room] == nil {
			t.Errorf("there is no room %s any more", room)
		}
	}
}

var statement = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE) `)

// What the root of the house demands of the files of a service, rooms keep too: SQL and transactions
// belong to those who own rows, and requests with their writers to the one who translates.
func TestOnlyRecordKnowsSQLAndOnlyTheAPIKnowsHTTP(t *testing.T) {
	t.Parallel()
	statements, writers := 0, 0
	for room, p := range rooms(t) {
		if strings.Contains(room, "/") {
			continue // programs that tests talk to, and clients
		}
		for _, name := range p.GoFiles {
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					text, err := strconv.Unquote(literal.Value)
					if err == nil && statement.MatchString(text) {
						statements++
						if room != "record" && room != "fleet" {
							t.Errorf("%s: SQL belongs to package record", files.Position(n.Pos()))
						}
					}
				}
				selector, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				pkg, ok := selector.X.(*ast.Ident)
				switch name := selector.Sel.Name; {
				case !ok:
				case pkg.Name == "http" && (name == "ResponseWriter" || name == "HandlerFunc"):
					writers++
					if room != "httpapi" {
						t.Errorf("%s: http.%s belongs to package httpapi", files.Position(n.Pos()), name)
					}
				case pkg.Name == "db" && (name == "Tx" || name == "Querier") && room == "httpapi":
					t.Errorf("%s: transactions belong to the rooms", files.Position(n.Pos()))
				}
				return true
			})
		}
	}
	if statements < 30 || writers < 10 {
		t.Errorf("only %d statements and %d writers were found", statements, writers)
	}
}
