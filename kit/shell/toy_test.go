package shell_test

// A complete service on the kit: its contract, callers, state and operations. The other tests check
// what it received from the shell.

import (
	"context"
	_ "embed"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

//go:embed testdata/toys.yaml
var toyDocument []byte

type person struct{ name, class string }

type toys struct {
	shell  *shell.Shell[person]
	mu     sync.Mutex
	names  []string
	broken error
}

func newToys(log *slog.Logger, change func(*shell.Config[person])) (*toys, error) {
	c, err := contract.Load(toyDocument, "/v1", access.Classes())
	if err != nil {
		return nil, err
	}
	t := &toys{}
	cfg := shell.Config[person]{
		Name:        "toys",
		Contract:    c,
		Log:         log,
		Registry:    telemetry.NewRegistry(),
		Errors:      problem.Nested,
		MaxInFlight: 100,
		MaxBody:     1 << 20,
		Identify:    identify,
		Admit:       admit,
		Rates:       map[string]shell.Rate{"seldom": {}},
		Ready: []shell.Check{
			{Name: "box", Run: func(context.Context) (string, error) { return "a wooden box", t.broken }},
		},
	}
	change(&cfg)
	if t.shell, err = shell.New(cfg); err != nil {
		return nil, err
	}
	t.shell.HandleFunc("GET /v1/toys", rest.Serve(t.shell.Fail, func(in *rest.Input, q *pageOf) {
		in.Query("limit", false, &q.limit)
		in.Query("cursor", false, &q.cursor)
	}, t.list, func(a names, w http.ResponseWriter) error {
		return rest.WriteJSON(w, 200, "application/json", a.names, "Link", a.next)
	}))
	t.shell.HandleFunc(
		"POST /v1/toys",
		rest.Serve(t.shell.Fail, func(in *rest.Input, q **toy) { *q = rest.JSON[toy](in, true) },
			t.add, func(_ string, w http.ResponseWriter) error { return rest.WriteNothing(w, 201) }),
	)
	t.shell.Raw("GET /stream", func(w http.ResponseWriter, _ *http.Request, p person) error {
		return rest.WriteText(w, 200, "text/plain", p.name)
	})
	return t, nil
}

func identify(r *http.Request, _ *contract.Operation) (person, error) {
	token, _ := auth.Bearer(r)
	if token != "child" && token != "parent" {
		return person{}, fault.New(fault.Unauthenticated, "who are you?")
	}
	return person{name: "a " + token, class: token}, nil
}

// access allows parents everything that children may do.
var access = auth.NewAccess([]string{"child", "parent"}, func(p person) string { return p.class }, nil)

func admit(_ *http.Request, op *contract.Operation, p person) error {
	if access.Admits(op.Access, p) {
		return nil
	}
	return fault.New(fault.Denied, "%s may not do this", p.name)
}

type toy struct {
	Name string `json:"name"`
}

type pageOf struct {
	limit  *int
	cursor *string
}

type names struct {
	names []string
	next  *string
}

func (t *toys) list(ctx context.Context, q pageOf) (a names, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	self := func(s string) string { return s }
	a.names, a.next, err = list.Rows(ctx, q.limit, q.cursor, 2, func(after string, limit int) ([]string, error) {
		at, _ := slices.BinarySearch(t.names, after+"\x00")
		return t.names[at:min(len(t.names), at+limit)], nil
	}, self, self)
	return a, err
}

func (t *toys) add(ctx context.Context, in *toy) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	by, _ := shell.Caller[person](ctx)
	t.names = append(t.names, in.Name)
	slices.Sort(t.names)
	return by.name, nil
}
