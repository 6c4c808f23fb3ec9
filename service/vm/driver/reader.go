package driver

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

const (
	// LabelReader is the label of such a VM. It names what the VM reads.
	LabelReader = "mainstay.reader"
	// labelReplica is the label of such a VM that names the replica that made it.
	labelReplica = "mainstay.reader-of"
	// CodeNoAgent is the code of the refusal to reach an agent that is not connected.
	CodeNoAgent = "agent_not_connected"
	// codeAgentSilent is the code for an agent that is connected and did not answer in time.
	codeAgentSilent = "agent_silent"
)

// Reader is a VM that reads a disk of this service, without a network.
type Reader struct {
	Tenant string
	For    string // what it reads: its label LabelReader
	// Kernel is an image of a kernel that it boots; empty: it boots the disk.
	Kernel       string
	CPUs, Memory int           // the memory is in MiB
	Life         time.Duration // after which the daemon removes it
}

// MakeReader has the daemon make a Reader. It does not start it. It fails with NotFound if no host has
// the image. RemoveReader ends its use.
func (d *Driver) MakeReader(ctx context.Context, r Reader) (Place, error) {
	at := Place{Tenant: r.Tenant}
	name := "reader-" + strings.ToLower(rand.Text()[:10])
	d.setReader(name, "") // before the daemon has it, so that SweepReaders does not take it for one of the past
	at, err := d.makeReader(ctx, at, name, r)
	if at.ID == "" {
		d.forgetReader("", name)
	} else {
		d.setReader(name, at.ID)
	}
	return at, err
}

func (d *Driver) setReader(name, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readers[name] = id
}

// forgetReader ends the use of a reader that is given by its id or its name.
func (d *Driver) forgetReader(id, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.readers, func(n, i string) bool { return n == name || i == id && id != "" })
}

// RemoveReader removes a reader. If the daemon does not do it now, SweepReaders does later.
func (d *Driver) RemoveReader(ctx context.Context, at Place) error {
	d.forgetReader(at.ID, "")
	return d.Delete(ctx, at)
}

// SweepReaders removes the readers of this replica that are not in use: those of a process that was killed,
// and those that could not be removed when their use ended.
func (d *Driver) SweepReaders(ctx context.Context) error {
	hosts, err := d.hosts(ctx)
	if err != nil {
		return err
	}
	var errs []error
	labels := []string{labelReplica + "=" + d.cfg.Replica}
	for _, node := range hosts {
		found, err := call[[]hypervisorapi.VM](ctx, d, Place{Node: node}, readTimeout,
			func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
				return c.ListVMs(ctx, &hypervisorapi.ListVMsParams{Label: &labels})
			})
		errs = append(errs, err)
		for i := range found {
			d.mu.Lock()
			_, used := d.readers[found[i].Name]
			d.mu.Unlock()
			if !used {
				errs = append(errs, d.Delete(ctx, Place{Node: node, ID: found[i].Id, Tenant: found[i].Tenant}))
			}
		}
	}
	return errors.Join(errs...)
}

func (d *Driver) makeReader(ctx context.Context, at Place, name string, r Reader) (Place, error) {
	var err error
	if at.Node, err = d.hostWith(ctx, r.Kernel); err != nil {
		return at, err
	}
	backend, mode := hypervisorapi.BackendQemu, hypervisorapi.NetworkModeNone
	served, seconds := true, int64(r.Life/time.Second)
	spec := hypervisorapi.VMSpec{
		Name: name, Image: some(r.Kernel), Backend: &backend, Vcpus: &r.CPUs,
		MemoryMib: &r.Memory, Network: &hypervisorapi.Network{Mode: &mode}, ServedDisk: &served, TtlSeconds: &seconds,
		Labels: &hypervisorapi.Labels{LabelReader: r.For, labelReplica: d.cfg.Replica}, Tenant: some(r.Tenant),
	}
	vm, err := call[hypervisorapi.VM](ctx, d, at, workTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.CreateVM(ctx, spec)
		})
	if at.ID = vm.Id; err == nil && !deref(vm.ServedDisk) {
		err = errors.Join(fault.New(fault.Unavailable, "the hypervisor daemon is of an earlier version, without served_disk"),
			d.Delete(ctx, at))
	}
	return at, err
}

// hostWith returns a host whose catalog has an image, or fails with NotFound. Without an image, it
// returns any host.
func (d *Driver) hostWith(ctx context.Context, image string) (string, error) {
	hosts, err := d.hosts(ctx)
	if err != nil {
		return "", err
	}
	for _, node := range hosts {
		if image == "" {
			return node, nil
		}
		switch _, err := d.image(ctx, Place{Node: node}, image); {
		case err == nil:
			return node, nil
		case !fault.Is(err, fault.NotFound):
			return "", err
		}
	}
	return "", fault.New(fault.NotFound, "the hypervisor daemon's catalog has no image %s", image)
}

// maxSocketMessage is the largest message that is sent on a socket, in bytes. The daemon takes 1 MiB.
const maxSocketMessage = 256 << 10

// ServeDisk opens the connection on which this service serves the disk of a VM that MakeReader has
// made. The VM reads once it has started. The context bounds the connection.
func (d *Driver) ServeDisk(ctx context.Context, at Place) (net.Conn, error) {
	limited, cancel := context.WithTimeout(forTenant(ctx, at.Tenant), readTimeout)
	defer cancel()
	as := &http.Request{Header: http.Header{}}
	if err := d.authorize(limited, as); err != nil {
		return nil, err
	}
	conn, answer, err := websocket.Dial(limited, d.base(at.Node)+"/v1/vms/"+url.PathEscape(at.ID)+"/served-disk",
		&websocket.DialOptions{HTTPClient: d.http, HTTPHeader: as.Header, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		if answer != nil && answer.StatusCode != http.StatusSwitchingProtocols {
			if _, refused := rest.Read(answer, nil); refused != nil {
				err = refused
			}
		}
		return nil, d.translate(limited, at, err)
	}
	conn.SetReadLimit(64 << 20) // a message holds many requests
	return inPieces{websocket.NetConn(ctx, conn, websocket.MessageBinary)}, nil
}

// inPieces is a connection that sends long writes as several messages.
type inPieces struct{ net.Conn }

func (c inPieces) Write(p []byte) (n int, err error) {
	for {
		some := p[:min(len(p), maxSocketMessage)]
		m, err := c.Conn.Write(some)
		n, p = n+m, p[len(some):]
		if err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// pingPause is the time between two attempts to reach an agent that is not connected yet.
const pingPause = 100 * time.Millisecond

// errSilent is the fault for a guest whose agent did not answer.
var errSilent = errors.New("the guest's agent did not answer")

// Unbootable reports whether an error of AwaitAgent says something about the guest: that its agent did not
// answer in time, or that the guest has ended. Other errors are about the way to it.
func Unbootable(err error) bool { return errors.Is(err, errSilent) || fault.Is(err, fault.Conflict) }

// AwaitAgent waits until the agent in a guest that boots answers, for at most limit.
func (d *Driver) AwaitAgent(ctx context.Context, at Place, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fault.Wrap(fault.Unavailable, errSilent, "the guest's agent did not answer within %v", limit))
	defer cancel()
	for {
		_, err := call[hypervisorapi.Pong](ctx, d, at, readTimeout,
			func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
				return c.PingAgent(ctx, at.ID, hypervisorapi.Nothing{})
			})
		if err == nil || codeOf(err) != CodeNoAgent && codeOf(err) != codeAgentSilent {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pingPause):
		}
	}
}

// ReadFile reads a file of a guest. The caller must close it.
func (d *Driver) ReadFile(ctx context.Context, at Place, path string) (io.ReadCloser, error) {
	c, err := d.at(at.Node)
	if err != nil {
		return nil, err
	}
	answer, err := c.GetFile(forTenant(ctx, at.Tenant), at.ID, hypervisorapi.GetFile{Path: path})
	if err == nil && answer.StatusCode != http.StatusOK {
		_, err = rest.Read(answer, nil)
	}
	if err != nil {
		return nil, d.translate(ctx, at, err)
	}
	return answer.Body, nil
}
