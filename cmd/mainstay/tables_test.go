package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/app"
	"github.com/mainstay-infra/mainstay/cli"
)

func root() *cobra.Command {
	return cli.NewRoot(cli.IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, app.Commands()...)
}

func unitsByName() map[string]app.Unit {
	units := map[string]app.Unit{}
	for _, u := range app.Units() {
		units[u.Name] = u
	}
	return units
}

func TestEveryUnitWithAnAPIHasANoun(t *testing.T) {
	t.Parallel()
	asked := map[string]bool{}
	for _, n := range cli.Nouns() {
		asked[n.Service.Unit] = true
	}
	for _, u := range app.Units() {
		if u.API != asked[u.Name] {
			t.Errorf("%s: it has an API: %t, but a noun that asks it: %t", u.Name, u.API, asked[u.Name])
		}
	}
}

func TestEveryNounAsksAUnitWithACredentialThatDevModeMakes(t *testing.T) {
	t.Parallel()
	units := unitsByName()
	for _, n := range cli.Nouns() {
		u, ok := units[n.Service.Unit]
		if !ok {
			t.Errorf("%s: there is no unit %q", n.Name, n.Service.Unit)
			continue
		}
		switch name := n.Service.Credential; {
		case (name == "") != (u.Credentials == nil):
			t.Errorf("%s: credential %q, but %s has some in dev mode: %t", n.Name, name, u.Name, u.Credentials != nil)
		case name != "" && u.Credentials()[name] == "":
			t.Errorf("%s: dev mode makes no credential %q for %s", n.Name, name, u.Name)
		}
	}
}

func TestEveryNounIsACommandWithVerbs(t *testing.T) {
	t.Parallel()
	for _, n := range cli.Nouns() {
		cmd, _, err := root().Find([]string{n.Name})
		if err != nil || cmd.CommandPath() != "mainstay "+n.Name || !cmd.HasSubCommands() {
			t.Errorf("%s: %s, %v", n.Name, cmd.CommandPath(), err)
		}
	}
}

func TestFirstStepsAreCommandsOfNounsOfTheUnit(t *testing.T) {
	t.Parallel()
	unitOf := map[string]string{}
	for _, n := range cli.Nouns() {
		unitOf[n.Name] = n.Service.Unit
	}
	steps := 0
	for _, u := range app.Units() {
		for _, line := range u.Try {
			steps++
			words := strings.Fields(line)
			if unitOf[words[0]] != u.Name {
				t.Errorf("%s: %q asks %q", u.Name, line, unitOf[words[0]])
			}
			cmd, rest, err := root().Find(words)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil || cmd.HasSubCommands() {
				t.Errorf("%s: %q is %s, %v", u.Name, line, cmd.CommandPath(), err)
			}
		}
	}
	if steps == 0 {
		t.Error("there are no first steps")
	}
}
