package driver

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
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
	// readerMemory is the memory of a VM that reads a disk of this service, in MiB.
	readerMemory = 256
	// LabelReader is the label of such a VM. It names what the VM reads.
	LabelReader = "mainstay.reader"
	// CodeNoAgent is the code of the refusal to reach an agent that is not connected.
	CodeNoAgent = "agent_not_connected"
)

// MakeReader has the daemon make a VM of an image that boots without a disk. It reads a disk that this
// service serves (ServeDisk), and has no network. The daemon removes it after life.
func (d *Driver) MakeReader(ctx context.Context, tenant, image, label string, life time.Duration) (Place, error) {
	at := Place{Tenant: tenant}
	node, err := d.hostWith(ctx, image)
	if err != nil {
		return at, err
	}
	at.Node = node
	backend, mode, vcpus, memory := hypervisorapi.BackendQemu, hypervisorapi.NetworkModeNone, 1, readerMemory
	served, seconds := true, int64(life/time.Second)
	spec := hypervisorapi.VMSpec{
		Name: "reader-" + strings.ToLower(rand.Text()[:10]), Image: &image, Backend: &backend, Vcpus: &vcpus,
		MemoryMib: &memory, Network: &hypervisorapi.Network{Mode: &mode}, ServedDisk: &served, TtlSeconds: &seconds,
		Labels: &hypervisorapi.Labels{LabelReader: label},
	}
	if tenant != "" {
		spec.Tenant = &tenant
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

// hostWith returns a host whose catalog has an image.
func (d *Driver) hostWith(ctx context.Context, image string) (string, error) {
	hosts, err := d.hosts(ctx)
	if err != nil {
		return "", err
	}
	for _, node := range hosts {
		switch _, err := d.image(ctx, Place{Node: node}, image); {
		case err == nil:
			return node, nil
		case !fault.Is(err, fault.NotFound):
			return "", err
		}
	}
	return "", fault.New(fault.Unavailable,
		"this takes the image %s in the hypervisor daemon's catalog; mainstay image build-demo makes it", image)
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

// AwaitAgent waits until the agent in a guest that boots answers, for at most limit.
func (d *Driver) AwaitAgent(ctx context.Context, at Place, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fault.New(fault.Unavailable, "the guest's agent did not answer within %v", limit))
	defer cancel()
	for {
		_, err := call[hypervisorapi.Pong](ctx, d, at, readTimeout,
			func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
				return c.PingAgent(ctx, at.ID, hypervisorapi.Nothing{})
			})
		if err == nil || codeOf(err) != CodeNoAgent {
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
