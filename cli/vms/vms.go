// Package vms implements `mainstay vms`: working with VM management from the command line. Its
// VMs belong to tenants and have owners; `mainstay vm` manages the VMs of one hypervisor daemon
// below it.
//
//	vms.go        the command, and how the service is reached
//	account.go    logging in; password.go: one's own password; user.go, tenant.go, twofactor.go: who may do what
//	list.go, create.go, life.go, snapshot.go: VMs
//	guest.go      consoles, screens, programs and files, for package guest
//	image.go      images that VMs are made of
//	backup.go, policy.go: backups
//	billing.go    prices, usage, invoices
//	network.go    network policies, security groups, flows
//	webhook.go    webhooks and their deliveries
//	compliance.go checks of VMs and guests
//	job.go        work that takes long: follow it to its end
//	audit.go      the audit log
//	watch.go      follows what happens to a VM
//
// VMs are named by name: names are unique within a tenant, and --tenant says which one's.
package vms

import (
	"net/http"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// Service describes VM management to package client.
var Service = client.Service{
	Unit: "vm", Credential: "password",
	Name: "VM management", Kind: "VM management", Title: "Mainstay VM management",
	Flag: "--server", Start: "'mainstay dev' or 'mainstay serve vm'",
	Hints: map[int]string{
		http.StatusUnauthorized: "log in with 'mainstay login vm', or give a token with --token or VM_TOKEN",
		http.StatusForbidden:    "'mainstay vms whoami' shows who you are",
	},
}

var api = verb.API[*vmapi.Client]{
	Service: &Service, New: vmapi.NewClient, BasePath: vmapi.BasePath, Default: "http://127.0.0.1:3000",
	ServerEnv: []string{"VM_SERVER"}, TokenEnv: []string{"VM_TOKEN"}, DevLogin: devLogin,
}

type (
	session = verb.Session[*vmapi.Client]
	call    = verb.Call[*vmapi.Client]
)

// commands builds the commands of the group.
type commands struct {
	*session
	tenant *string // the value of --tenant
}

// decode decodes a response.
func decode[T any](a client.Answer, err error) (T, error) { return client.Decode[T](&Service, a, err) }

// New returns the command `vms` with all commands below it.
func New(env client.Environment) *cobra.Command {
	cmd := verb.Group(
		"vms", "Own virtual machines: users, tenants, VMs, snapshots, backups",
		"  mainstay vms create web --image demo && mainstay vms start web\n  mainstay vms list --state running",
	)
	cmd.Long = `Work with VM management, through which people own virtual machines: its VMs belong to tenants with quotas, and its
users have roles. 'mainstay vm' is for the VMs of one hypervisor daemon, on which VM management stands.

VMs are named by name. An admin who sees several tenants says with --tenant which one's VM is meant.

The token comes from --token, --token-file or VM_TOKEN, or from 'mainstay login vm'. If none is given and the service
runs on this machine, the command logs in as the admin whose password "mainstay dev" leaves in
.mainstay/credentials.json below the working directory.`
	s := commands{verb.NewSession(env, &api), new(string)}
	s.AddFlags(cmd)
	cmd.PersistentFlags().StringVar(s.tenant, "tenant", "", "the tenant whose VM is meant")
	cmd.AddCommand(
		s.list(), s.show(), s.create(), s.set(), s.clone(), s.delete(),
		s.start(), s.stop(), s.restart(), s.pause(), s.resume(), s.disks(), s.cd(),
		s.metrics(), s.events(), s.watch(), s.snapshots(), s.images(), s.backups(), s.network(), s.jobs(),
		s.webhooks(), s.compliance(),
		s.billing(),
		s.whoami(), s.password(), s.users(), s.tenants(), s.twoFactor(), s.audit(),
	)
	in := s.guests()
	cmd.AddCommand(in.Console(), in.VNC(), in.Run(), in.Copy())
	s.Complete(cmd)
	return cmd
}

// of returns the value of --tenant for a request, or nil if it was not given.
func (s commands) of() *string {
	if *s.tenant == "" {
		return nil
	}
	return s.tenant
}
