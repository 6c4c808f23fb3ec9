package app

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestDevModeTellsOfWhatRuns(t *testing.T) {
	t.Parallel()
	a := devService{
		unit: Unit{Name: "a", API: true, Try: []string{"a one", "a two"}},
		url:  "http://x:1", engine: "sand", signIn: "the token", console: true,
	}
	b := devService{unit: Unit{Name: "b", API: true}, url: "http://x:2", engine: "rock", signIn: "no one"}
	c := devService{unit: Unit{Name: "c"}, url: "http://x:3"}
	const table = "is running. Stop it with Ctrl-C.\n\n  SERVICE  ADDRESS     STANDS ON  SIGN IN\n"
	for name, tt := range map[string]struct {
		running []devService
		want    string
	}{
		"all": {[]devService{a, b}, table +
			"  a        http://x:1  sand       the token\n  b        http://x:2  rock       no one\n" +
			"\nOpen an address for the console; the API reference is at /docs. No console yet: b.\n" +
			"Try in another terminal, in this folder:\n\n  ./prog a one && ./prog a two\n"},
		"no console": {[]devService{b}, table + "  b        http://x:2  rock       no one\n" +
			"\nThe API reference is at /docs of an address. No console is built in for b.\n"},
		"no API": {[]devService{c}, "  c        http://x:3             \n"},
	} {
		if got := devText("./prog", tt.running); !strings.HasSuffix(got, tt.want) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

func TestDevModeRunsWhatIsNamedInTheOrderOfTheTable(t *testing.T) {
	t.Parallel()
	for only, want := range map[string]string{"": "[edge lb hypervisor vm storage]", "lb,edge": "[edge lb]"} {
		units, err := devUnits(strings.FieldsFunc(only, func(r rune) bool { return r == ',' }))
		var names []string
		for _, u := range units {
			names = append(names, u.Name)
		}
		if got := fmt.Sprint(names); err != nil || got != want {
			t.Errorf("%q: %s, %v", only, got, err)
		}
	}
	const want = `there is no service "agent"; there are: edge, hypervisor, lb, storage, vm`
	if _, err := devUnits([]string{"agent"}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
}

func TestATakenAddressNamesTheVariablesOfWhatRuns(t *testing.T) {
	t.Parallel()
	for only, want := range map[string]string{
		"":     "set EDGE_LISTEN, LB_LISTEN, LB_METRICS_LISTEN, HYPERVISOR_LISTEN, VM_LISTEN, STORE_LISTEN or STORE_GRPC_ADDR to another address",
		"edge": "set EDGE_LISTEN to another address",
	} {
		units, err := devUnits(strings.Fields(only))
		if err != nil {
			t.Fatal(err)
		}
		err = addressTaken(units, fmt.Errorf("listen: %w", syscall.EADDRINUSE))
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v", only, err)
		}
	}
	if other := errors.New("other"); addressTaken(nil, other) != other {
		t.Error("another error is changed")
	}
}
