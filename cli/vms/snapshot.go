package vms

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) snapshots() *cobra.Command {
	cmd := verb.Group("snapshot", "Snapshots of a VM: create, list, tree, revert, delete",
		"  mainstay vms snapshot create web before-upgrade\n  mainstay vms snapshot revert web before-upgrade", "snapshots")
	cmd.AddCommand(
		s.snapshotCreate(), s.snapshotList(), s.snapshotShow(), s.snapshotTree(), s.snapshotRevert(), s.snapshotDelete(),
	)
	return cmd
}

// snapshotID returns the id of a VM's snapshot that is given by its name or id.
func (s commands) snapshotID(ctx context.Context, c *call) (string, error) {
	all, err := decode[[]vmapi.Snapshot](c.Send(
		c.API.ListSnapshots(ctx, c.Args[0], &vmapi.ListSnapshotsParams{Tenant: s.of()})))
	if err != nil {
		return "", err
	}
	for _, snapshot := range all {
		if snapshot.Id == c.Args[1] || snapshot.Name == c.Args[1] {
			return snapshot.Id, nil
		}
	}
	return "", &exit.Error{Code: exit.NotFound, Err: fmt.Errorf("%s has no snapshot %s", c.Args[0], c.Args[1])}
}

func (s commands) snapshotCreate() *cobra.Command {
	var full bool
	var description string
	cmd := s.Change(verb.Verb{
		Use: "create VM NAME", Short: "Keep a VM's disk as it is now, and with --full its memory too",
		Example: "  mainstay vms snapshot create web before-upgrade\n  mainstay vms snapshot create web warm --full",
	}, "Made the snapshot %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		spec := vmapi.SnapshotSpec{Name: c.Args[1], Description: verb.Given(c, "description", description)}
		if full {
			spec.SnapshotType = new(vmapi.SnapshotTypeFull)
		}
		return c.Slow.CreateSnapshot(ctx, c.Args[0], &vmapi.CreateSnapshotParams{Tenant: s.of()}, spec)
	})
	cmd.Flags().BoolVar(&full, "full", false, "keep the memory and the devices too; takes a VM that runs")
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	return cmd
}

func (s commands) snapshotList() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "list VM", Short: "List a VM's snapshots, oldest first", Example: "  mainstay vms snapshot list web",
	}, output.Columns[vmapi.Snapshot]{
		Heads: []string{"NAME", "TYPE", "CURRENT", "MEMORY", "CREATED", "DESCRIPTION", "ID"},
		Row: func(v vmapi.Snapshot) []any {
			return []any{v.Name, v.SnapshotType, v.Current, verb.Bytes(v.SizeBytes), v.Created, v.Description, v.Id}
		},
	}, func(ctx context.Context, c *call, _ verb.Page) (*http.Response, error) {
		return c.API.ListSnapshots(ctx, c.Args[0], &vmapi.ListSnapshotsParams{Tenant: s.of()})
	})
}

func (s commands) snapshotShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show VM NAME", Short: "Show one snapshot", Example: "  mainstay vms snapshot show web before-upgrade",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		id, err := s.snapshotID(ctx, c)
		if err != nil {
			return nil, err
		}
		return c.API.GetSnapshot(ctx, c.Args[0], id, &vmapi.GetSnapshotParams{Tenant: s.of()})
	})
}

func (s commands) snapshotTree() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "tree VM", Short: "Show what each snapshot was taken after", Example: "  mainstay vms snapshot tree web",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.GetSnapshotTree(ctx, c.Args[0], &vmapi.GetSnapshotTreeParams{Tenant: s.of()}))
		roots, err := decode[[]vmapi.SnapshotNode](a, err)
		if err != nil {
			return err
		}
		return c.Out.ObjectAs(a.Body, func() error { return printTree(c, roots, 0) })
	})
}

func printTree(c *call, nodes []vmapi.SnapshotNode, depth int) error {
	for _, n := range nodes {
		mark := ""
		if n.Snapshot.Current {
			mark = "  (the VM stands on this one)"
		}
		line := strings.Repeat("  ", depth) + output.Escape(n.Snapshot.Name) + mark
		if _, err := fmt.Fprintln(c.Out.Out, line); err != nil {
			return err
		}
		if err := printTree(c, n.Children, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (s commands) snapshotRevert() *cobra.Command {
	var yes bool
	cmd := s.Command(verb.Verb{
		Use: "revert VM NAME", Short: "Return a VM to a snapshot",
		Long:    "Return a VM to a snapshot: what it did since is lost. A disk snapshot takes a VM that is stopped.",
		Example: "  mainstay vms snapshot revert web before-upgrade --yes",
	}, func(ctx context.Context, c *call) error {
		id, err := s.snapshotID(ctx, c)
		if err != nil {
			return err
		}
		question := "Return " + c.Args[0] + " to the snapshot " + c.Args[1] + "? What it did since is lost."
		if err := c.Confirm(question, yes); err != nil {
			return err
		}
		of := vmapi.RevertSnapshotParams{Tenant: s.of()}
		a, err := c.Send(c.Slow.RevertSnapshot(ctx, c.Args[0], id, &of, vmapi.Nothing{}))
		if err != nil {
			return err
		}
		return c.Done(a, "%s is as in the snapshot %s.", c.Args[0], c.Args[1])
	})
	verb.YesFlag(cmd, &yes)
	return cmd
}

func (s commands) snapshotDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete VM NAME", Short: "Remove a snapshot; those that were taken after it stay",
		Example: "  mainstay vms snapshot delete web before-upgrade --yes",
	}, "Delete the snapshot %s?", "Deleted the snapshot %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		id, err := s.snapshotID(ctx, c)
		if err != nil {
			return nil, err
		}
		return c.Slow.DeleteSnapshot(ctx, c.Args[0], id, &vmapi.DeleteSnapshotParams{Tenant: s.of()})
	})
}
