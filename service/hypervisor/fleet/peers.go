package fleet

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/placement"
)

const (
	lookUpTimeout = 10 * time.Second
	// pieceTimeout is the timeout for a piece of a file, prepareTimeout for everything that the other host does
	// with complete files.
	pieceTimeout   = 2 * time.Minute
	prepareTimeout = time.Hour
	decideTimeout  = time.Minute
	maxMigration   = 64 << 10
	maxNodes       = 4 << 20
)

// Peers is how a node reaches the other nodes of its fleet. It asks the registry for their addresses.
type Peers struct {
	self     string
	token    string
	http     *http.Client
	registry *hypervisorapi.Client
}

// NewPeers returns the Peers of a node, with the settings of its Reporter.
func NewPeers(cfg ReporterConfig) (*Peers, error) {
	client, err := newHTTPClient(cfg.HTTP, cfg.CAFile)
	if err != nil {
		return nil, err
	}
	registry, err := hypervisorapi.NewClient(strings.TrimRight(cfg.Registry, "/")+hypervisorapi.BasePath,
		rest.WithHTTPClient(client), rest.WithEditor(authorize(cfg.Token)))
	return &Peers{self: cfg.Name, token: cfg.Token, http: client, registry: registry}, err
}

// Self is the name of this node.
func (p *Peers) Self() string { return p.self }

// Choose returns the name of the node that a VM moves to: the one of the given name, which must be healthy and
// able to run it, or the one with most room.
func (p *Peers) Choose(ctx context.Context, name string, r placement.Request) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	if name == p.self {
		return "", fault.InvalidField("node", "the VM is at this host")
	}
	var all []hypervisorapi.Node
	res, err := p.registry.ListNodes(ctx)
	if err == nil {
		err = read(res, http.StatusOK, maxNodes, &all)
	}
	if err != nil {
		return "", registryFault(err)
	}
	nodes := []placement.Node{}
	for _, n := range all {
		if n.Name == p.self || name != "" && n.Name != name {
			continue
		}
		one := placement.Node{
			Name: n.Name, Healthy: n.Healthy, Cordoned: n.Cordoned && name == "", Labels: n.Labels,
			Total: placement.Resources{VCPUs: n.Vcpus, MemoryMiB: n.MemoryMib},
			Free:  placement.Resources{VCPUs: n.FreeVcpus, MemoryMiB: n.FreeMemoryMib},
		}
		for _, b := range n.Backends {
			one.Backends = append(one.Backends, string(b))
		}
		nodes = append(nodes, one)
	}
	if len(nodes) == 0 && name != "" {
		return "", fault.InvalidField("node", "the fleet has no host %s", name)
	}
	return placement.Choose(nodes, r)
}

// registryFault returns the fault for an error of the registry.
func registryFault(err error) error {
	var r *refusal
	if errors.As(err, &r) {
		return r.fault()
	}
	return fault.Wrap(fault.Unavailable, err, "the fleet's registry is unreachable: %s", explain(err)).
		WithCode("registry_unreachable")
}

// Peer is a client for migrations to another node.
type Peer struct {
	name string
	api  *hypervisorapi.Client
}

// Peer returns a client for a node of the fleet.
func (p *Peers) Peer(ctx context.Context, name string) (*Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	var node hypervisorapi.Node
	res, err := p.registry.GetNode(ctx, name)
	if err == nil {
		err = read(res, http.StatusOK, maxVM, &node)
	}
	if err != nil {
		return nil, registryFault(err)
	}
	if err := checkURL("url", node.Url); err != nil {
		return nil, unreachable(name, "its address is not valid", err)
	}
	api, err := hypervisorapi.NewClient(strings.TrimRight(node.Url, "/")+hypervisorapi.BasePath,
		rest.WithHTTPClient(p.http), rest.WithEditor(authorize(p.token)))
	return &Peer{name, api}, err
}

// Offer offers a VM and returns the names of the files that the node needs.
func (p *Peer) Offer(
	ctx context.Context, offer hypervisorapi.MigrationOffer,
) ([]hypervisorapi.MigrationFileName, error) {
	m, err := p.ask(ctx, decideTimeout, http.StatusCreated, offer.Id, func(ctx context.Context) (*http.Response, error) {
		return p.api.OfferMigration(ctx, offer)
	})
	if err != nil || m.Needed == nil {
		return nil, err
	}
	for _, name := range *m.Needed {
		if !slices.ContainsFunc(offer.Files, func(f hypervisorapi.MigrationFile) bool { return f.Name == name }) {
			return nil, p.fault(garbage("it needs a file that it was not offered"))
		}
	}
	return *m.Needed, nil
}

// Write writes a piece of a file, at most 8 MiB.
func (p *Peer) Write(
	ctx context.Context, id string, file hypervisorapi.MigrationFileName, offset int64, piece []byte,
) error {
	ctx, cancel := context.WithTimeout(ctx, pieceTimeout)
	defer cancel()
	res, err := p.api.WriteMigrationWithBody(ctx, id, file, &hypervisorapi.WriteMigrationParams{Offset: offset},
		"application/octet-stream", bytes.NewReader(piece))
	if err == nil {
		err = read(res, http.StatusNoContent, 0, nil)
	}
	return p.fault(err)
}

// Prepare tells the node that all files are there.
func (p *Peer) Prepare(ctx context.Context, id string, sums hypervisorapi.MigrationSums) error {
	_, err := p.ask(ctx, prepareTimeout, http.StatusOK, id, func(ctx context.Context) (*http.Response, error) {
		return p.api.PrepareMigration(ctx, id, sums)
	})
	return err
}

// Commit makes the VM the node's. It may be repeated.
func (p *Peer) Commit(ctx context.Context, id string, start bool) error {
	m, err := p.ask(ctx, decideTimeout, http.StatusOK, id, func(ctx context.Context) (*http.Response, error) {
		return p.api.CommitMigration(ctx, id, hypervisorapi.MigrationCommit{Start: &start})
	})
	if err == nil && m.State != hypervisorapi.MigrationStateCommitted {
		err = p.fault(garbage("it did not commit the migration"))
	}
	return err
}

// Abort aborts a migration.
func (p *Peer) Abort(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	res, err := p.api.AbortMigration(ctx, id)
	if err == nil {
		err = read(res, http.StatusNoContent, 0, nil)
	}
	return p.fault(err)
}

// ask sends a request about a migration and returns what the node says of it.
func (p *Peer) ask(
	ctx context.Context, limit time.Duration, want int, id string, send func(context.Context) (*http.Response, error),
) (m hypervisorapi.Migration, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	res, err := send(ctx)
	if err == nil {
		err = read(res, want, maxMigration, &m)
	}
	if err == nil && m.Id != id {
		err = garbage("it answers with another migration than was asked for")
	}
	return m, p.fault(err)
}

func (p *Peer) fault(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return passOn(p.name, err)
}
