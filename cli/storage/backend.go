package storage

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) backends() *cobra.Command {
	cmd := verb.Group("backend", "Storage systems that volumes are in: create, list, discover, cordon",
		"  mainstay storage backend list\n  mainstay storage backend discover local", "backends")
	cmd.AddCommand(
		s.backendList(), s.backendShow(), s.backendCreate(), s.backendDiscover(), s.backendCordon(), s.backendUncordon(),
	)
	return cmd
}

func (s commands) backendList() *cobra.Command {
	var kind string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List backends, oldest first",
		Example: "  mainstay storage backend list\n  mainstay storage backend list --type nfs -o json",
	}, output.Columns[storageapi.Backend]{
		Heads: []string{"NAME", "TYPE", "MODE", "STATUS", "CAN", "CONNECTION", "DISCOVERED", "LAST ERROR"},
		Row: func(b storageapi.Backend) []any {
			return []any{
				b.Name, b.BackendType, b.Mode, b.Status, can(&b.Capabilities), b.ConnectionRef, b.DiscoveredAt, b.LastError,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListBackends(ctx, &storageapi.ListBackendsParams{
			Limit: p.Limit, Cursor: p.Cursor, BackendType: verb.Given(c, "type", storageapi.BackendType(kind)),
		})
	})
	cmd.Flags().StringVar(&kind, "type", "", "only those of this type, such as nfs or ceph")
	return cmd
}

// can names what a storage system can do.
func can(c *storageapi.Capabilities) []string {
	var names []string
	for _, one := range []struct {
		name string
		can  bool
	}{
		{"block", c.Block}, {"file", c.File}, {"object", c.Object}, {"snapshots", c.Snapshots}, {"clone", c.Clone},
		{"expansion", c.Expansion}, {"replication", c.Replication},
	} {
		if one.can {
			names = append(names, one.name)
		}
	}
	return names
}

func (s commands) backendShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show BACKEND", Short: "Show one backend", Example: "  mainstay storage backend show local",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetBackend(ctx, c.Args[0]) })
}

func (s commands) backendCreate() *cobra.Command {
	var kind, mode, connection string
	cmd := s.Change(verb.Verb{
		Use: "create NAME", Short: "Register a storage system, which changes nothing in it",
		Long: `Register a storage system, which changes nothing in it. --connection names an entry of the gateway's settings that says
how to reach it; for the type nfs, one of --directories of 'mainstay serve storage'.`,
		Example: "  mainstay storage backend create exports --type nfs\n" +
			"  mainstay storage backend create archive --type nfs --connection exports --mode read_only",
		Required: []string{"type"},
	}, "Registered the backend %s; 'mainstay storage policy set' has volumes made in it.",
		func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.CreateBackend(ctx, storageapi.BackendSpec{
				Name: c.Args[0], BackendType: new(storageapi.BackendType(kind)),
				Mode: verb.Given(c, "mode", storageapi.BackendMode(mode)), ConnectionRef: verb.Given(c, "connection", connection),
			})
		})
	f := cmd.Flags()
	f.StringVar(&kind, "type", "", "type, such as nfs: a folder of the gateway's host")
	f.StringVar(&mode, "mode", "", "managed_rook, external or read_only; default: external")
	f.StringVar(&connection, "connection", "", "entry of the gateway's settings; default: the one with the backend's name")
	return cmd
}

func (s commands) backendDiscover() *cobra.Command {
	var noWait bool
	cmd := s.Command(verb.Verb{
		Use: "discover BACKEND", Short: "Look at what a backend has, now rather than within a minute",
		Example: "  mainstay storage backend discover local",
	}, func(ctx context.Context, c *call) error {
		return c.While(ctx, "Looking at "+c.Typed[0], func() error {
			for {
				a, err := c.Send(c.Slow.DiscoverBackend(ctx, c.Args[0], storageapi.Nothing{}))
				d, err := decode[storageapi.Discovery](a, err)
				switch of := d.Summary; {
				case err != nil:
					return err
				case d.State == storageapi.DiscoveryStateSucceeded:
					return c.Done(a, "%s has %d volumes: %d are new, %d are missing.", c.Typed[0], of.Volumes, of.New, of.Missing)
				case noWait:
					return c.Done(a, "%s has at least %d volumes; the gateway goes on looking.", c.Typed[0], of.Volumes)
				}
			}
		})
	})
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the end of a pass that takes long")
	return cmd
}

func (s commands) backendCordon() *cobra.Command {
	return s.Change(verb.Verb{
		Use: "cordon BACKEND", Short: "Make nothing new in a backend; what it has stays usable",
		Example: "  mainstay storage backend cordon exports",
	}, "Nothing new is made in %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.CordonBackend(ctx, c.Args[0], storageapi.Nothing{})
	})
}

func (s commands) backendUncordon() *cobra.Command {
	return s.Change(verb.Verb{
		Use: "uncordon BACKEND", Short: "Use a backend for new things again", Example: "  mainstay storage backend uncordon exports",
	}, "Volumes are made in %s again.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.UncordonBackend(ctx, c.Args[0], storageapi.Nothing{})
	})
}
