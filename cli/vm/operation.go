package vm

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

func (s commands) operations() *cobra.Command {
	cmd := verb.Group(
		"operation", "What takes long: backups, restores, clones, new images",
		"  mainstay vm operation list\n  mainstay vm operation cancel OPERATION", "operations", "op",
	)
	cmd.AddCommand(
		verb.List(
			s.Session,
			verb.Verb{
				Use:     "list",
				Short:   "List operations under way, and those that ended within a day, newest first",
				Example: "  mainstay vm operation list",
			},
			output.Columns[hypervisorapi.Operation]{
				Heads: []string{"ID", "KIND", "STATE", "PROGRESS", "ABOUT", "CREATED", "ERROR"},
				Row: func(v hypervisorapi.Operation) []any {
					return []any{
						v.Id, v.Kind, v.State, fmt.Sprintf("%.0f%%", v.Progress*100), about(v), v.CreatedAt,
						v.Error,
					}
				},
			},
			func(ctx context.Context, c *daemon.Call, p verb.Page) (*http.Response, error) {
				return c.API.ListOperations(ctx, &hypervisorapi.ListOperationsParams{Limit: p.Limit, Cursor: p.Cursor})
			},
		),
		s.Object(
			verb.Verb{
				Use: "show OPERATION", Short: "Show one operation", Example: "  mainstay vm operation show OPERATION",
			},
			func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
				return c.API.GetOperation(ctx, c.Args[0], &hypervisorapi.GetOperationParams{})
			},
		),
		s.Change(
			verb.Verb{
				Use:     "cancel OPERATION",
				Short:   "Ask an operation to end; what it did so far is undone",
				Example: "  mainstay vm operation cancel OPERATION",
			},
			"Asked the operation %s to end.",
			func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
				return c.API.CancelOperation(ctx, c.Args[0], hypervisorapi.Nothing{})
			},
		),
	)
	return cmd
}

// about returns the image or the VM of an operation.
func about(op hypervisorapi.Operation) any {
	switch {
	case op.Image != nil:
		return *op.Image
	case op.VmId != nil:
		return output.Ref{Kind: "VM", ID: *op.VmId}
	}
	return ""
}
