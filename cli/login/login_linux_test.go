package login_test

import (
	"os"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/cli"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/terminal/terminaltest"
)

// sit runs a command line on a terminal.
func (d *desk) sit(program *os.File, args ...string) chan int {
	code := make(chan int, 1)
	go func() {
		code <- cli.Main(d.Context(), args, cli.IO{
			In: program, Out: program, Err: program, Dir: d.dir, ConfigDir: d.config,
			Getenv: func(string) string { return "" },
		})
	}()
	return code
}

func TestALoginAsksForWhatItNeedsAndHidesThePassword(t *testing.T) {
	t.Parallel()
	e, d := newEdge(t), newDesk(t)
	person, program := terminaltest.Open(t)
	code := d.sit(program, "login")
	seen := terminaltest.See(t, person, "Service (edge, hypervisor, vm, lb, storage) [edge]: ")
	terminaltest.Type(t, person, "\n")
	seen += terminaltest.See(t, person, "Server [http://127.0.0.1:8080]: ")
	terminaltest.Type(t, person, e.url+"\n")
	seen += terminaltest.See(t, person, "Username (empty for a token): ")
	terminaltest.Type(t, person, "eve\n")
	seen += terminaltest.See(t, person, "Password: ")
	terminaltest.Type(t, person, "secret\n")
	seen += terminaltest.See(t, person, "in the context default.")
	if got := <-code; got != 0 {
		t.Errorf("exit code %d", got)
	}
	if !strings.Contains(seen, "eve") || strings.Contains(seen, "secret") {
		t.Errorf("the terminal showed %q", seen)
	}
	if got := d.contexts().All["default"]["edge"]; got != (client.Place{Server: e.url, Token: "session"}) {
		t.Errorf("stored %+v", got)
	}

	code = d.sit(program, "login", "edge", "--context", "second", "--server", e.url)
	terminaltest.See(t, person, "Username (empty for a token): ")
	terminaltest.Type(t, person, "\n")
	terminaltest.See(t, person, "Token: ")
	terminaltest.Type(t, person, "fixed\n")
	if seen := terminaltest.See(t, person, "in the context second."); strings.Contains(seen, "fixed") {
		t.Errorf("the terminal showed %q", seen)
	}
	if got := <-code; got != 0 || d.contexts().Current != "default" {
		t.Errorf("exit code %d, %+v", got, d.contexts())
	}
}
