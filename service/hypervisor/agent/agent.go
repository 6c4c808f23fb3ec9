// Package agent maintains the sessions with the agents in guests, and performs callers' requests in
// guests: it runs programs, and writes and reads files.
//
//	agent.go    a Keeper, and the requests of callers
//	session.go  the session with an agent, while its VM runs
//	secret.go   rotation of secrets
//
// # Invariants
//
//   - Actions in a guest are in the audit log before they are performed.
//   - Every call to an agent has a timeout: the guest is untrusted and may never answer.
//   - A secret is replaced only once the new one is known to work. Until then both are tried.
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

// Config holds the dependencies of a Keeper.
type Config struct {
	Store    *record.Store
	Machines *machine.Set
	Host     *host.Host
	Log      *slog.Logger
}

// Keeper maintains the sessions with agents.
type Keeper struct {
	store    *record.Store
	machines *machine.Set
	host     *host.Host
	log      *slog.Logger
}

// New returns a Keeper.
func New(c Config) *Keeper { return &Keeper{c.Store, c.Machines, c.Host, c.Log} }

// session returns the session with the agent of a VM that the caller may see. It fails with a
// conflict if there is no session.
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

// note writes the audit entry of a call to an agent before the call: an action in a guest must be
// recorded even if its response is lost.
func (k *Keeper) note(ctx context.Context, id, action, message string) error {
	r, err := k.store.VM(ctx, id)
	if err != nil {
		return err
	}
	e := audit.Entry{Action: action, Target: id, Tenant: r.Tenant, Message: r.Name + ": " + message}
	return k.store.Note(ctx, e)
}

// pingPatience is the timeout for a caller's ping of an agent.
const pingPatience = 10 * time.Second

// Ping pings a guest's agent and returns its version and the round-trip time.
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

// execSlack is how long the response may take beyond the program's own timeout.
const execSlack = 15 * time.Second

// Program records that a caller runs a program in a guest, and returns it. env is added to the
// agent's environment.
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
	if !c.Fits() {
		return nil, fault.InvalidField("argv", "has more than %d KiB together with env; send what is long as stdin or as a file",
			guest.MaxCommand>>10)
	}
	// Only the program's name is recorded: arguments may contain secrets.
	return &Program{client, c}, k.note(ctx, id, "vm.exec", c.Argv[0])
}

// Run runs the program and writes its output to stdout and stderr, at most most bytes unless most
// is 0.
func (p *Program) Run(ctx context.Context, stdout, stderr io.Writer, most int64) (guest.Exit, error) {
	ctx, cancel := context.WithTimeout(ctx, p.command.Timeout+execSlack)
	defer cancel()
	c := p.command
	c.Stdout, c.Stderr, c.MaxOutput = stdout, stderr, most
	exit, err := p.client.Exec(ctx, c)
	return exit, explained(err)
}

// PutFile writes a file of size bytes in a guest.
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

// File records that a caller reads a file of a guest, and returns it.
func (k *Keeper) File(ctx context.Context, id, path string) (*File, error) {
	client, err := k.session(ctx, id)
	if err != nil {
		return nil, err
	}
	return &File{client, path}, k.note(ctx, id, "vm.get_file", path)
}

// Read copies the file to the writer that begin returns. It calls begin once the file is known to
// exist.
func (f *File) Read(ctx context.Context, begin func(guest.File) (io.Writer, error)) (n int64, err error) {
	n, err = f.client.GetFileTo(ctx, f.path, begin)
	return n, explained(err)
}

// codeSilent is the fault code for an agent that does not answer.
const codeSilent = "agent_silent"

// explained translates the error of a call to an agent into the fault that the caller gets.
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
