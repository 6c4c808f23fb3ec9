// Package mainstay_test checks the repository's rules: which packages may import which, which
// modules the programs link in, and properties of packages, error codes and decisions. See
// docs/architecture.md.
package mainstay_test

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
	"strings"
	"testing"
	"unicode/utf8"
)

const module = "github.com/mainstay-infra/mainstay/"

type goPackage struct {
	*build.Package
	ImportPath string
}

// packages reads the tree itself. The test cache does not see what a program such as "go list"
// reads, and would repeat an outdated result.
func packages(t *testing.T) []goPackage {
	t.Helper()
	var all []goPackage
	err := filepath.WalkDir(".", func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if name := entry.Name(); dir != "." &&
			(strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil && dir != "." {
			return filepath.SkipDir
		}
		p, err := build.ImportDir(dir, 0)
		if none := new(build.NoGoError); errors.As(err, &none) {
			return nil
		}
		all = append(all, goPackage{p, module + filepath.ToSlash(dir)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("only %d packages were found", len(all))
	}
	return all
}

// room returns the part of the repository that one of our packages belongs to: kit, cli, api/edge,
// service/edge, ... It is empty for other packages.
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

// mayImport defines what each kind of room may import.
func mayImport(from, to string) bool {
	kind, _, _ := strings.Cut(from, "/")
	toKind, toName, _ := strings.Cut(to, "/")
	switch kind {
	case "cmd":
		// The helper programs are small, and use little else of the repository.
		return toKind == "app" || toKind == "cli" || from == "cmd/mainstay-guest" && to == "service/hypervisor" ||
			from == "cmd/mainstay-pam" && to == "service/vm" || from == "cmd/mainstay-ceph" && to == "service/storage"
	case "app":
		return toKind == "service" || toKind == "kit" || toKind == "web"
	case "cli":
		return toKind == "api" || toKind == "kit" || toKind == "cli"
	case "service":
		return toKind == "api" || toKind == "kit" || to == from
	case "api":
		return to == "kit/rest" || to == "kit/httpserve"
	case "kit":
		return toKind == "kit" && lower[toName] < lower[strings.TrimPrefix(from, "kit/")] || to == from
	}
	return from == to
}

// lower orders the kit's packages: a package may import only packages with a smaller number.
var lower = map[string]int{
	"backoff": 0, "durable": 0, "fault": 0, "glob": 0, "mergepatch": 0, "problem": 0, "require": 0, "reserve": 0, "routine": 0, "sparse": 0,
	"auth": 1, "cephlab": 1, "console": 1, "db": 1, "fanout": 1, "httpserve": 1, "image": 1, "kube": 1, "list": 1,
	"netlab": 1, "pki": 1, "podman": 1, "quota": 1, "telemetry": 1, "tenant": 1, "text": 1, "webhook": 1,
	"alert": 2, "audit": 2, "cephtest": 2, "config": 2, "contract": 2, "document": 2, "feed": 2, "grpcserve": 2, "jobs": 2, "keyring": 2, "kubetest": 2, "mail": 2,
	"relay": 2, "repository": 2, "rest": 2, "search": 2, "series": 2, "ticket": 2, "transfer": 2,
	"endpoint": 3, "forward": 3, "operation": 3, "session": 3,
	"shell": 4,
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
	"github.com/vishvananda":        {"kit/netlab", "service/lb", "service/hypervisor"},
	"github.com/safchain/ethtool":   {"kit/netlab"},
	"github.com/spf13/cobra":        {"cli", "app"},
	"github.com/getkin/kin-openapi": {"kit/contract"},
	"google.golang.org/grpc":        {"kit/grpcserve", "api/proto", "service/storage"},
	"github.com/msteinert/pam":      {"cmd/mainstay-pam"},
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

// bareGoroutines are the directories whose goroutines need not use package routine.
var bareGoroutines = map[string]string{
	"kit/routine":                                      "it is what the others go through",
	"service/hypervisor/guest/agent":                   "it runs in guests, which have nothing of the house's; the daemon sees its end as that of any session",
	"kit/kubetest":                                     "it is part of tests",
	"kit/podman/podmantest":                            "it is part of tests",
	"kit/podman/podmantest/testdata/web":               "it is a program that tests run in a container",
	"service/hypervisor/backend/restsocket/sockettest": "it is part of tests",
}

// A panic in a goroutine ends the process, whoever starts it. In services and the kit, the body of
// each goroutine must therefore be deferred calls, followed by a call of package routine:
//
//	go func() { done <- routine.Call(log, "name", f) }()
//	work.Go(func() {
//		defer stop()
//		routine.Keep(ctx, log, "name", loop)
//	})
func TestGoroutinesRecoverFromPanics(t *testing.T) {
	t.Parallel()
	goroutines := 0
	for _, p := range packages(t) {
		folder := strings.TrimPrefix(p.ImportPath, module)
		if kind, _, _ := strings.Cut(folder, "/"); kind != "service" && kind != "kit" || bareGoroutines[folder] != "" {
			continue
		}
		files := token.NewFileSet()
		for _, name := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				body, ok := goroutine(n)
				if !ok {
					return true
				}
				goroutines++
				if !recovers(body) {
					t.Errorf(
						"%s: a panic in this goroutine ends the process: its body must be a call of package routine, after deferred calls at most",
						files.Position(n.Pos()),
					)
				}
				return true
			})
		}
	}
	if goroutines < 20 {
		t.Errorf("only %d goroutines were found", goroutines)
	}
}

// goroutine returns the body of the goroutine that n starts, by a go statement or by a method Go
// such as that of a sync.WaitGroup. body is nil if the function is not a literal.
func goroutine(n ast.Node) (body *ast.BlockStmt, ok bool) {
	var f ast.Expr
	switch n := n.(type) {
	case *ast.GoStmt:
		f = n.Call.Fun
	case *ast.CallExpr:
		called, isMethod := n.Fun.(*ast.SelectorExpr)
		if !isMethod || called.Sel.Name != "Go" || len(n.Args) != 1 {
			return nil, false
		}
		f = n.Args[0]
	default:
		return nil, false
	}
	if literal, ok := f.(*ast.FuncLit); ok {
		body = literal.Body
	}
	return body, true
}

// recovers reports whether a body consists of deferred calls and then a call of package routine.
func recovers(body *ast.BlockStmt) bool {
	if body == nil || len(body.List) == 0 {
		return false
	}
	last := len(body.List) - 1
	for _, statement := range body.List[:last] {
		if _, ok := statement.(*ast.DeferStmt); !ok {
			return false
		}
	}
	var value ast.Expr
	switch s := body.List[last].(type) {
	case *ast.ExprStmt:
		value = s.X
	case *ast.AssignStmt:
		value = s.Rhs[0]
	case *ast.SendStmt:
		value = s.Value
	}
	// The call may be an argument, as in c.lose(routine.Call(...)).
	call, ok := value.(*ast.CallExpr)
	if !ok {
		return false
	}
	if calls(call, "routine") {
		return true
	}
	for _, argument := range call.Args {
		if inner, ok := argument.(*ast.CallExpr); ok && calls(inner, "routine") {
			return true
		}
	}
	return false
}

// calls reports whether a call is one of a function of the package.
func calls(call *ast.CallExpr, name string) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	in, ok := f.X.(*ast.Ident)
	return ok && in.Name == name
}

func TestTheRuleOfGoroutinesTellsThemApart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`go f()`:                  false,
		`go func() {}()`:          false,
		`go func() { f() }()`:     false,
		`work.Go(f)`:              false,
		`work.Go(func() { f() })`: false,
		`work.Go(func() { defer recover(); f() })`:                          false,
		`work.Go(func() { routine.Keep(ctx, log, "f", f); g() })`:           false,
		`work.Go(func() { g(); routine.Keep(ctx, log, "f", f) })`:           false,
		`work.Go(func() { x := 1; routine.Keep(ctx, log, "f", f) })`:        false,
		`go func() { _ = routine.Run(log, "f", f) }()`:                      true,
		`go func() { done <- routine.Call(log, "f", f) }()`:                 true,
		`work.Go(func() { defer stop(); err = routine.Call(log, "f", f) })`: true,
		`work.Go(func() { routine.Keep(ctx, log, "f", f) })`:                true,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "f.go", "package p\nfunc _() { "+text+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		ast.Inspect(file, func(n ast.Node) bool {
			if body, ok := goroutine(n); ok {
				found = true
				if got := recovers(body); got != want {
					t.Errorf("%s: %v", text, got)
				}
			}
			return true
		})
		if !found {
			t.Errorf("%s is not seen", text)
		}
	}
}

func TestProseHasAtMostAHundredColumns(t *testing.T) {
	t.Parallel()
	var paths []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		code := false
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			if code || strings.HasPrefix(line, "    ") || strings.HasPrefix(strings.TrimSpace(line), "|") {
				continue // code, and tables
			}
			if n := utf8.RuneCountInString(line); n > 100 {
				t.Errorf("%s:%d has %d columns", path, i+1, n)
			}
		}
	}
	if len(paths) < 35 {
		t.Errorf("only %d documents were found", len(paths))
	}
}

func TestEveryDecisionSaysWhenToThinkAgain(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("docs/decisions/[0-9]*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\n\nThink again when ") {
			t.Errorf("%s has no paragraph that begins with \"Think again when\"", path)
		}
	}
	if len(paths) < 27 {
		t.Errorf("only %d decisions were found", len(paths))
	}
}

// Every error code that exists, and no other, is documented in docs/errors.md, with its meaning and
// remedy.
func TestEveryErrorCodeIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if first, _, is := strings.Cut(strings.TrimPrefix(line, "|"), "|"); is && strings.HasPrefix(line, "|") {
			for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(first, -1) {
				told[m[1]] = true
			}
		}
	}
	given := regexp.MustCompile(`(?:WithCode\(|(?i:code)\w* += )"([a-z_]+)"`)
	kinds := regexp.MustCompile(`\{"([a-z_]+)", http\.Status`)
	literal := regexp.MustCompile(`"([a-z_]+)"`)
	known := map[string]bool{}
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			source, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range literal.FindAllStringSubmatch(string(source), -1) {
				known[m[1]] = true
			}
			if room(p.ImportPath) != "kit/fault" && !strings.HasPrefix(room(p.ImportPath), "service") &&
				!strings.HasPrefix(room(p.ImportPath), "kit") {
				continue
			}
			codes := given.FindAllStringSubmatch(string(source), -1)
			if room(p.ImportPath) == "kit/fault" {
				codes = append(codes, kinds.FindAllStringSubmatch(string(source), -1)...)
			}
			for _, m := range codes {
				code := m[1]
				if !strings.HasSuffix(code, "_") && !told[code] && !told["agent_"+code] {
					t.Errorf("%s/%s: docs/errors.md does not tell of the code %s", p.Dir, name, code)
				}
			}
		}
	}
	if len(told) < 80 {
		t.Fatalf("only %d codes are in docs/errors.md", len(told))
	}
	for code := range told {
		if !known[code] && !known[strings.TrimPrefix(code, "agent_")] && !known[strings.TrimPrefix(code, "no_")] {
			t.Errorf("docs/errors.md tells of the code %s, which nothing gives", code)
		}
	}
}

// fronts are the files of a service that may use HTTP: they translate, identify and listen.
var fronts = regexp.MustCompile(`^(http(_\w+)?|access|gate|listen)\.go$`)

// The domain of a service is called by its API today and by a queue, a command or a test tomorrow,
// so it must not use requests and response writers. The API translates, and leaves the database to
// the domain.
func TestTheDomainKnowsNoHTTPAndTheAPINoSQL(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, p := range packages(t) {
		folder := strings.TrimPrefix(p.ImportPath, module)
		if kind, name, _ := strings.Cut(folder, "/"); kind != "service" || strings.Contains(name, "/") {
			continue
		}
		files := token.NewFileSet()
		for _, name := range p.GoFiles {
			path := filepath.Join(folder, name)
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			checked++
			front := fronts.MatchString(name)
			ast.Inspect(file, func(n ast.Node) bool {
				selector, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				pkg, ok := selector.X.(*ast.Ident)
				switch {
				case !ok:
				case !front && pkg.Name == "http" && (selector.Sel.Name == "ResponseWriter" || selector.Sel.Name == "HandlerFunc"):
					t.Errorf(
						"%s: http.%s belongs into a file that translates, such as http.go", files.Position(n.Pos()),
						selector.Sel.Name,
					)
				case strings.HasPrefix(name, "http") && pkg.Name == "db" && (selector.Sel.Name == "Tx" || selector.Sel.Name == "Querier"):
					t.Errorf("%s: transactions belong into the domain", files.Position(n.Pos()))
				}
				return true
			})
			if !strings.HasPrefix(name, "http") {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && sql.MatchString(s.Value) {
					t.Errorf("%s: SQL belongs into the domain", files.Position(n.Pos()))
				}
				return true
			})
		}
	}
	if checked < 50 {
		t.Errorf("only %d files were looked at", checked)
	}
}

var sql = regexp.MustCompile("^[\"`](SELECT|INSERT|UPDATE|DELETE) ")

// unscoped are the functions that may read rows of all orgs, or rows that were already limited to
// the caller's scope, with the reason.
var unscoped = map[string]string{
	"alert.go alertRules":                        "a sweep is the control plane's own; alerts have the org of what they are about",
	"alert.go findViolations":                    "a sweep judges all deployments",
	"campaign.go CampaignDevices":                "of a campaign that was found in the caller's scope",
	"deployment.go ownDeployment":                "it compares the site and the org of the agent that calls itself",
	"desired.go policyChanged":                   "a pack for the fleet binds all sites; nothing of them is shown",
	"device.go RegisterDevice":                   "an id that another site has is a conflict, whoever owns it",
	"key.go disableUnreadable":                   "a lost key concerns the secrets of all orgs",
	"org.go holdRoutesOf":                        "the routes of an org that is deleted",
	"site.go keepSite":                           "the site of the agent that calls",
	"campaign_rollout.go candidates":             "within the campaign's org, by the campaign's own condition",
	"campaign_rollout.go requestCampaignDevices": "devices of a campaign, which has one org",
	"campaign_rollout.go advanceCampaigns":       "a sweep of all campaigns",
	"certificate.go RotateCertificate":           "the site of the agent that calls",
	"deadletter.go replayable":                   "the route of a dead letter that the caller was found to own",
	"deadletter.go ReplayDeadLetters":            "of a route that the caller was found to own",
	"deadletter.go runBulkReplay":                "a job of a route whose owner asked for it",
	"deployment.go addSites":                     "the sites of deployments in the caller's scope",
	"event.go writeEvents":                       "the bound on the backlog is that of all orgs",
	"event.go insertEvents":                      "the numbers of the events that it has just stored",
	"eventsearch.go firstEventSince":             "where in the sequence a time is; the events are read in the caller's scope",
	"heartbeat.go writeHeartbeats":               "the sites of the agents that call",
	"key.go keyFits":                             "any secret of any org tells whether the key is right",
	"maintenance.go retentionCut":                "retention is of all orgs",
	"org.go abortCampaignsOf":                    "of an org that is deleted",
	"policy.go policiesOf":                       "the packs of a site that its callers have looked up",
	"policy.go AgentPolicyPacks":                 "the site of the agent that calls",
	"route.go current":                           "events of all orgs are routed by one table",
	"site.go enrollmentOrg":                      "the token says which org it is of",
	"site.go markOffline":                        "a sweep of all sites",
	"token.go findToken":                         "who calls is not known before",
}

// A query without a scope can show one tenant's rows to another. So a function of the control plane
// that reads a table with the column org_id must take the caller's scope, or be listed above.
func TestQueriesOnTablesOfTenantsAreScoped(t *testing.T) {
	t.Parallel()
	tables := tenantTables(t, "service/edge/migrations")
	if len(tables) < 10 {
		t.Fatalf("only the tables %v have the column org_id", tables)
	}
	reads := regexp.MustCompile(`(?s)^.SELECT .*\b(?:FROM|JOIN) (?:` + strings.Join(tables, "|") + `)\b`)
	known, scoped := map[string]bool{}, 0
	paths, err := filepath.Glob("service/edge/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			f, is := declared.(*ast.FuncDecl)
			if !is {
				continue
			}
			var query *ast.BasicLit
			asks := false
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					if n.Kind == token.STRING && reads.MatchString(n.Value) {
						query = n
					}
				case *ast.SelectorExpr:
					asks = asks || n.Sel.Name == "scope" || n.Sel.Name == "sees"
				}
				return true
			})
			name := filepath.Base(path) + " " + f.Name.Name
			switch {
			case query == nil:
			case asks:
				scoped++
			case unscoped[name] == "":
				t.Errorf("%s: %s reads a table of tenants without the caller's scope", files.Position(query.Pos()), f.Name.Name)
			default:
				known[name] = true
			}
		}
	}
	for name := range unscoped {
		if !known[name] {
			t.Errorf("%s reads no table of tenants without a scope; take it off the list", name)
		}
	}
	if scoped < 15 {
		t.Errorf("only %d functions ask for a scope", scoped)
	}
}

// tenantTables returns the tables of a service that have the column org_id.
func tenantTables(t *testing.T, folder string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.sql"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?s)CREATE TABLE (\w+) \((.*?)\n\);`).FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[2], " org_id ") {
				names = append(names, m[1])
			}
		}
	}
	return names
}
