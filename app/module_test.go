package app_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/app"
)

// diary records what modules do, in order. Run starts and stops them one by one.
type diary struct{ lines []string }

func (d *diary) module(name string, after ...string) app.Module {
	return app.Module{Name: name, After: after, Start: func(ctx context.Context) (func() error, error) {
		d.lines = append(d.lines, "start "+name)
		return func() error {
			<-ctx.Done()
			d.lines = append(d.lines, "stop "+name)
			return nil
		}, nil
	}}
}

func TestModulesStartAfterWhatTheyNeedAndStopInReverse(t *testing.T) {
	t.Parallel()
	d := &diary{}
	ctx, cancel := context.WithCancel(t.Context())
	if err := app.Run(ctx, []app.Module{d.module("c", "b"), d.module("a"), d.module("b", "a")}, cancel); err != nil {
		t.Fatal(err)
	}
	want := []string{"start a", "start b", "start c", "stop c", "stop b", "stop a"}
	if !slices.Equal(d.lines, want) {
		t.Errorf("got %v", d.lines)
	}
}

func TestAModuleThatCannotStartStopsThoseBeforeIt(t *testing.T) {
	t.Parallel()
	d := &diary{}
	boom := errors.New("boom")
	bad := app.Module{
		Name:  "bad",
		After: []string{"a"},
		Start: func(context.Context) (func() error, error) { return nil, boom },
	}
	err := app.Run(t.Context(), []app.Module{d.module("a"), bad}, func() { t.Error("ready") })
	if !errors.Is(err, boom) || !slices.Equal(d.lines, []string{"start a", "stop a"}) {
		t.Errorf("%v, %v", err, d.lines)
	}
}

func TestAModuleThatStopsByItselfStopsTheProcess(t *testing.T) {
	t.Parallel()
	d := &diary{}
	boom := errors.New("boom")
	brief := app.Module{Name: "brief", After: []string{"a"}, Start: func(context.Context) (func() error, error) {
		return func() error { return boom }, nil
	}}
	if err := app.Run(t.Context(), []app.Module{d.module("a"), brief}, func() {}); !errors.Is(err, boom) {
		t.Errorf("err = %v", err)
	}
}

func TestCirclesAndUnknownModulesAreRefused(t *testing.T) {
	t.Parallel()
	d := &diary{}
	for want, modules := range map[string][]app.Module{
		"circle":             {d.module("a", "b"), d.module("b", "a")},
		"there is no module": {d.module("a", "x")},
	} {
		if err := app.Run(t.Context(), modules, func() {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if len(d.lines) > 0 {
		t.Errorf("something was started: %v", d.lines)
	}
}
