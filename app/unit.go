package app

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/service/agent"
	"github.com/mainstay-infra/mainstay/service/edge"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
	hypervisordoc "github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/lb"
	lbdoc "github.com/mainstay-infra/mainstay/service/lb/configfile"
)

// Unit is a service that this program can run. What is nil, it does not have.
type Unit struct {
	// Name is what the service is called on command lines and in credentials.json.
	Name string
	// Title is what a sentence calls it.
	Title string
	// API tells whether programs ask it, so that it has commands in package cli.
	API bool
	// Credentials makes its secrets for dev mode, by name.
	Credentials func() map[string]string
	// Try are commands, without the program's name, that dev mode names as the first steps.
	Try []string

	prefix   string        // of its environment variables
	settings func() any    // a pointer to an empty configuration
	document func() string // what its document may hold, as Markdown

	serve   func() *cobra.Command          // `mainstay serve NAME`
	command func() *cobra.Command          // `mainstay NAME`, which needs no running service
	dev     func(devMode) (devPart, error) // its part of `mainstay dev`
	engines func() []engine                // what `mainstay doctor` looks for
}

// Units are the services of this program, in the order in which dev mode starts them.
func Units() []Unit {
	return []Unit{
		{
			Name: "edge", Title: "the edge control plane", API: true,
			Credentials: newEdgeCredentials, Try: []string{"edge simulate --sites 20"},
			prefix: edge.EnvPrefix, settings: func() any { return &edge.Config{} },
			serve: serveEdgeCommand, dev: devEdge, engines: edgeEngines,
		},
		{
			Name: "lb", Title: "the load balancer", API: true,
			Credentials: newLBCredentials,
			prefix:      lb.EnvPrefix, settings: func() any { return &lb.Config{} }, document: lbdoc.Markdown,
			serve: serveLBCommand, command: lbCommand, dev: devLB, engines: lbEngines,
		},
		{
			Name:        "hypervisor",
			Title:       "the hypervisor daemon",
			API:         true,
			Credentials: newHypervisorCredentials,
			Try:         []string{"image build-demo", "vm run demo"},
			prefix:      hypervisor.EnvPrefix,
			settings:    func() any { return &hypervisor.Config{} },
			document:    hypervisordoc.Markdown,
			serve:       serveHypervisorCommand,
			dev:         devHypervisor,
			engines:     hypervisorEngines,
		},
		{
			Name: "agent", Title: "the site agent", API: true,
			prefix: agent.EnvPrefix, settings: func() any { return &agent.Config{} },
			command: agentCommand,
		},
	}
}

// listens are the variables that name the addresses which the service listens on.
func (u *Unit) listens() (names []string) {
	for _, s := range config.Settings(u.settings(), u.prefix) {
		if strings.HasSuffix(s.Env, "LISTEN") {
			names = append(names, s.Env)
		}
	}
	return names
}

// namesOf are the names of units, sorted as people look for them.
func namesOf(units []Unit) []string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.Name
	}
	slices.Sort(names)
	return names
}

// unitsThat are those of the table for which has is true.
func unitsThat(has func(Unit) bool) []Unit {
	return slices.DeleteFunc(Units(), func(u Unit) bool { return !has(u) })
}

// logListening logs that a module listens.
func logListening(log *slog.Logger, service string) func(url, engine string) {
	return func(url, engine string) {
		log.Info("listening", "service", service, "url", url, "stands_on", engine)
	}
}
