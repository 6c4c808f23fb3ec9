// Package agent keeps the sessions with the agents in guests, and does in a guest what callers ask
// for: it runs programs, and writes and reads files.
//
//	agent.go    a Keeper, and what callers ask for
//	session.go  the session with an agent, for as long as its VM runs
//	secret.go   new secrets
//
// # Invariants
//
//   - What is done in a guest is in the audit log before it is done.
//   - No call of an agent is without an end: the guest is an enemy, and may answer nothing.
//   - A secret is replaced only once the new one is known to work; both are tried until then.
//
// It imports record, host, machine, backend and guest.
package agent

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// Config is what a Keeper stands on.
type Config struct {
	Store    *record.Store
	Machines *machine.Set
	Host     *host.Host
	Log      *slog.Logger
}

// Keeper keeps the sessions with agents.
type Keeper struct {
	store    *record.Store
	machines *machine.Set
	host     *host.Host
	log      *slog.Logger
}

// New makes a Keeper.
func New(c Config) *Keeper { return &Keeper{c.Store, c.Machines, c.Host, c.Log} }

// session is the session with a VM's agent, for who may see the VM. Without one the error
// is a conflict.
func (k *Keeper) session(ctx context.Context, id string) (*guest.Client, error) {
	r, err := k.store.VM(ctx, id)
	if err != nil {
		return nil, err
	}
	if !r.State.HasProcess() {
		return nil, fault.New(fault.Conflict, "the VM is %s; its agent can be reached while it runs", r.State).
			WithCode("wrong_state")
	}
	if !r.Spec.V.Agent {
		return nil, fault.New(fault.Conflict, "the VM was made without an agent").WithCode("no_agent")
	}
	return k.machines.Get(id).Session()
}

// note writes the audit entry of a call to an agent, before the call: what was done in a guest must
// not go unrecorded because its answer was lost.
func (k *Keeper) note(ctx context.Context, id, action, message string) error {
	r, err := k.store.VM(ctx, id)
	if err != nil {
		return err
	}
	e := audit.Entry{Action: action, Target: id, Tenant: r.Tenant, Message: r.Name + ": " + message}
	return k.store.Note(ctx, e)
}

// pingPatience is how long an agent may take to answer a ping of a caller's.
const pingPatience = 10 * time.Second

// Ping asks a guest's agent for an answer, and says how long that took.
func (k *Keeper) Ping(ctx context.Context, id string) (version string, took time.Duration, err error) {
	client, err := k.session(ctx, id)
	if err != nil {
		return "", 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, pingPatience)
	defer cancel()
	began := time.Now()
	err = client.Ping(ctx)
	return client.Version(), time.Since(began), explained(err)
}

// Program is a program that may be run in a guest.
type Program struct {
	client  *guest.Client
	command guest.Command
}

// execSlack is how much longer than a program's own time its end may take to be told.
const execSlack = 15 * time.Second

// Program notes that a caller runs a program in a guest, with variables beside those of the agent.
func (k *Keeper) Program(
	ctx context.Context, id string, c guest.Command, env map[string]string,
) (*Program, error) {
	client, err := k.session(ctx, id)
	if err != nil {
		return nil, err
	}
	for key, value := range env {
		if key == "" || strings.ContainsAny(key, "=\x00") {
			return nil, fault.InvalidField("env", "%q is not a valid name of a variable", key)
		}
		c.Env = append(c.Env, key+"="+value)
	}
	slices.Sort(c.Env)
	// Only the program's name: arguments may hold secrets.
	return &Program{client, c}, k.note(ctx, id, "vm.exec", c.Argv[0])
}

// Run runs the program, with what it prints going to stdout and stderr; at most so many bytes of it
// unless most is 0.
func (p *Program) Run(ctx context.Context, stdout, stderr io.Writer, most int64) (guest.Exit, error) {
	ctx, cancel := context.WithTimeout(ctx, p.command.Timeout+execSlack)
	defer cancel()
	c := p.command
	c.Stdout, c.Stderr, c.MaxOutput = stdout, stderr, most
	exit, err := p.client.Exec(ctx, c)
	return exit, explained(err)
}

// PutFile writes a file of a size in a guest.
func (k *Keeper) PutFile(ctx context.Context, id, path string, mode fs.FileMode, size int64, r io.Reader) error {
	client, err := k.session(ctx, id)
	if err != nil {
		return err
	}
	if err := k.note(ctx, id, "vm.put_file", path); err != nil {
		return err
	}
	return explained(client.PutFile(ctx, path, mode, size, r))
}

// File is a file of a guest that may be read.
type File struct {
	client *guest.Client
	path   string
}

// File notes that a caller reads a file of a guest.
func (k *Keeper) File(ctx context.Context, id, path string) (*File, error) {
	client, err := k.session(ctx, id)
	if err != nil {
		return nil, err
	}
	return &File{client, path}, k.note(ctx, id, "vm.get_file", path)
}

// Read hands the file to what begin returns, which is called once the file is known to be there.
func (f *File) Read(ctx context.Context, begin func(guest.File) (io.Writer, error)) (n int64, err error) {
	n, err = f.client.GetFileTo(ctx, f.path, begin)
	return n, explained(err)
}

// codeSilent is the code of a fault about an agent that does not answer.
const codeSilent = "agent_silent"

// explained is what a caller is told of a call to an agent that failed.
func explained(err error) error {
	if err == nil {
		return nil
	}
	refusal := (*guest.Refusal)(nil)
	switch {
	case errors.As(err, &refusal):
		kind := map[wire.Code]fault.Kind{
			wire.Invalid: fault.Invalid, wire.NotFound: fault.Invalid, wire.Denied: fault.Conflict,
			wire.Busy: fault.TooMany, wire.Frozen: fault.Conflict, wire.Unsupported: fault.Conflict,
		}[refusal.Code]
		if kind == fault.Internal {
			kind = fault.Conflict
		}
		return fault.Wrap(kind, err, "the guest refuses: %s", refusal.Message).WithCode("agent_" + string(refusal.Code))
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, err, "the guest's agent did not answer in time").WithCode(codeSilent)
	case fault.From(err).Kind != fault.Internal:
		return err
	}
	return fault.Wrap(fault.Timeout, err, "the guest's agent broke off").WithCode(codeSilent)
}
