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
	"github.com/mainstay-infra/mainstay/service/storage"
	"github.com/mainstay-infra/mainstay/service/vm"
)

// Unit is a service that this program can run. A nil field means that the service does not have it.
type Unit struct {
	// Name is the service's name on command lines and in credentials.json.
	Name string
	// Title is its name in a sentence.
	Title string
	// API reports whether the service has an API, and therefore commands in package cli.
	API bool
	// Credentials generates its secrets for dev mode, by name.
	Credentials func() map[string]string
	// Try lists commands, without the program's name, that dev mode suggests as first steps.
	Try []string

	prefix   string        // of its environment variables
	settings func() any    // a pointer to an empty configuration
	document func() string // the reference of its document, as Markdown

	serve   func() *cobra.Command          // `mainstay serve NAME`
	command func() *cobra.Command          // `mainstay NAME`, which needs no running service
	dev     func(devMode) (devPart, error) // its part of `mainstay dev`
	engines func() []engine                // what `mainstay doctor` looks for
}

// Units returns the services of this program, in the order in which dev mode starts them.
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
			Name: "vm", Title: "VM management", API: true,
			Credentials: newVMCredentials, Try: []string{"vms create web --image demo", "vms start web"},
			prefix: vm.EnvPrefix, settings: func() any { return &vm.Config{} },
			serve: serveVMCommand, dev: devVM,
		},
		{
			Name: "storage", Title: "the storage gateway", API: true,
			Credentials: newStorageCredentials, Try: []string{"storage volume create data --size 1GiB", "storage volume list"},
			prefix: storage.EnvPrefix, settings: func() any { return &storage.Config{} },
			serve: serveStorageCommand, command: storageCommand, dev: devStorage,
		},
		{
			Name: "agent", Title: "the site agent", API: true,
			prefix: agent.EnvPrefix, settings: func() any { return &agent.Config{} },
			command: agentCommand,
		},
	}
}

// listens returns the environment variables of the service's listening addresses.
func (u *Unit) listens() (names []string) {
	for _, s := range config.Settings(u.settings(), u.prefix) {
		if strings.HasSuffix(s.Env, "LISTEN") || strings.HasSuffix(s.Env, "GRPC_ADDR") {
			names = append(names, s.Env)
		}
	}
	return names
}

// console returns the title of the service's console.
func (u *Unit) console() string {
	title := strings.TrimPrefix(u.Title, "the ")
	return strings.ToUpper(title[:1]) + title[1:]
}

// namesOf returns the names of units, sorted alphabetically.
func namesOf(units []Unit) []string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.Name
	}
	slices.Sort(names)
	return names
}

// unitsThat returns the units for which has is true.
func unitsThat(has func(Unit) bool) []Unit {
	return slices.DeleteFunc(Units(), func(u Unit) bool { return !has(u) })
}

// logListening returns a function that logs that a module is listening.
func logListening(log *slog.Logger, service string) func(url, engine string) {
	return func(url, engine string) {
		log.Info("listening", "service", service, "url", url, "stands_on", engine)
	}
}
