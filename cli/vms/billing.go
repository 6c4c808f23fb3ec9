package vms

import (
	"bytes"
	"context"
	"math"
	"net/http"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

func (s commands) billing() *cobra.Command {
	cmd := verb.Group("billing", "Prices, what VMs have used, and invoices",
		"  mainstay vms billing usage\n  mainstay vms billing invoice create acme")
	pricing := verb.Group("pricing", "What usage costs", "  mainstay vms billing pricing show")
	pricing.AddCommand(s.pricingShow(), s.pricingSet())
	invoice := verb.Group("invoice", "Invoices of months", "  mainstay vms billing invoice list", "invoices")
	invoice.AddCommand(s.invoiceCreate(), s.invoiceList(), s.invoiceShow())
	cmd.AddCommand(pricing, s.usage(), invoice)
	return cmd
}

func (s commands) pricingShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show", Short: "Show what usage costs now", Example: "  mainstay vms billing pricing show",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetPricing(ctx) })
}

func (s commands) pricingSet() *cobra.Command {
	var p vmapi.PricingSpec
	cmd := s.Command(verb.Verb{
		Use: "set", Short: "Change what usage costs from now on",
		Long: `Change what usage costs from now on. What was used before keeps its price. A GB is 2^30 bytes. The currency stays once
usage was priced in it.`,
		Example:  "  mainstay vms billing pricing set --cpu 0.02 --memory 0.005 --disk 0.0001 --egress 0.05 --currency EUR",
		Required: []string{"cpu", "memory", "disk", "egress", "currency"},
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.SetPricing(ctx, p))
		if err != nil {
			return err
		}
		return c.Done(a, "The prices hold from now on.")
	})
	f := cmd.Flags()
	f.Float64Var(&p.CpuPerHour, "cpu", 0, "a processor for an hour")
	f.Float64Var(&p.MemoryGbPerHour, "memory", 0, "a GB of memory for an hour")
	f.Float64Var(&p.DiskGbPerHour, "disk", 0, "a GB of disk for an hour")
	f.Float64Var(&p.NetworkEgressPerGb, "egress", 0, "a GB that a VM has sent")
	f.StringVar(&p.Currency, "currency", "", "the currency, such as EUR (ISO 4217)")
	return cmd
}

func (s commands) usage() *cobra.Command {
	var from, to input.Moment
	var vm string
	var csv bool
	var limit verb.Limit
	params := func(c *call, page verb.Page) *vmapi.ListUsageParams {
		return &vmapi.ListUsageParams{
			Limit: page.Limit, Cursor: page.Cursor, From: from.At, To: to.At, Vm: verb.Given(c, "vm", vm), Tenant: s.of(),
		}
	}
	columns := output.Columns[vmapi.UsageRecord]{
		Heads: []string{"VM", "TENANT", "CPU HOURS", "MEMORY GB-HOURS", "DISK GB-HOURS", "EGRESS GB", "COST", "CURRENCY"},
		Row: func(u vmapi.UsageRecord) []any {
			return []any{
				u.VmName, u.TenantId, u.CpuHours, u.MemoryGbHours, u.DiskGbHours, u.NetworkEgressGb, u.TotalCost, u.Currency,
			}
		},
	}
	cmd := s.Command(verb.Verb{
		Use: "usage", Short: "Show what VMs have used, and what it costs",
		Long: `Show what VMs have used in a period, and what it costs: this month until now, unless --from and --to say otherwise.
--tenant - selects the VMs without a tenant. --csv prints everything as CSV with the columns of FOCUS 1.0.`,
		Example: "  mainstay vms billing usage\n  mainstay vms billing usage --vm web --from 24h\n" +
			"  mainstay vms billing usage --from 2026-10-01T00:00:00Z --to 2026-11-01T00:00:00Z --csv",
		Check: limit.Filtered,
	}, func(ctx context.Context, c *call) error {
		if csv {
			return printCSV(c, func(page verb.Page) (*http.Response, error) {
				p := params(c, page)
				p.Format = new(vmapi.ListUsageParamsFormat("csv"))
				return c.API.ListUsage(ctx, p)
			})
		}
		l := output.NewList(c.Out, columns)
		more, err := c.Pages(limit.Next(0, math.MaxInt), l.Page, func(page verb.Page) (*http.Response, error) {
			return c.API.ListUsage(ctx, params(c, page))
		})
		if err != nil {
			return err
		}
		if more {
			defer c.More()
		}
		return l.Close()
	})
	f := cmd.Flags()
	f.Var(&from, "from", "where the period begins: a time, or a span such as 24h, which means that long ago")
	f.Var(&to, "to", "where the period ends, in the same form")
	f.StringVar(&vm, "vm", "", "only the VM with this name or id")
	f.BoolVar(&csv, "csv", false, "print CSV")
	limit.AddFlags(cmd)
	return cmd
}

// printCSV prints the pages of a list as one CSV, with one line of heads.
func printCSV(c *call, send func(verb.Page) (*http.Response, error)) error {
	size := 1000
	for page, first := (verb.Page{Limit: &size}), true; ; first = false {
		a, err := c.Send(send(page))
		if err != nil {
			return err
		}
		text := a.Body
		if !first {
			_, text, _ = bytes.Cut(text, []byte("\n"))
		}
		if _, err := c.Out.Out.Write(text); err != nil {
			return err
		}
		next := rest.NextCursor(a.Header)
		if next == "" {
			return nil
		}
		page.Cursor = &next
	}
}

func (s commands) invoiceCreate() *cobra.Command {
	var period string
	cmd := s.Command(verb.Verb{
		Use: "create TENANT", Short: "Make the invoice of a tenant for a month",
		Long: `Make the invoice of a tenant for a month: the present one, unless --period says otherwise. Of a month that is not over,
it is a draft without a number, which is not stored. The invoice of a month that is over never changes: making it again
shows the same one. The tenant - stands for the VMs without a tenant.`,
		Example: "  mainstay vms billing invoice create acme\n  mainstay vms billing invoice create acme --period 2026-10",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.CreateInvoice(ctx, c.Args[0], vmapi.InvoiceSpec{Period: verb.Given(c, "period", period)}))
		v, err := decode[vmapi.Invoice](a, err)
		if err != nil {
			return err
		}
		if v.Status == vmapi.InvoiceStatusDraft {
			return c.Done(a, "A draft, since %s: %s owes %.2f %s for %s.",
				v.Reason, c.Args[0], v.Total, v.Currency, v.PeriodStart.UTC().Format("2006-01"))
		}
		return c.Done(a, "The invoice %s: %s owes %.2f %s for %s.",
			v.InvoiceId, c.Args[0], v.Total, v.Currency, v.PeriodStart.UTC().Format("2006-01"))
	})
	cmd.Flags().StringVar(&period, "period", "", "the month, such as 2026-10")
	return cmd
}

func (s commands) invoiceList() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "list", Short: "List stored invoices, newest first",
		Example: "  mainstay vms billing invoice list\n  mainstay vms billing invoice list --tenant acme",
	}, output.Columns[vmapi.Invoice]{
		Heads: []string{"ID", "TENANT", "MONTH", "TOTAL", "CURRENCY", "CREATED"},
		Row: func(v vmapi.Invoice) []any {
			return []any{v.InvoiceId, v.TenantId, v.PeriodStart.UTC().Format("2006-01"), v.Total, v.Currency, v.Created}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListInvoices(ctx, &vmapi.ListInvoicesParams{Limit: p.Limit, Cursor: p.Cursor, Tenant: s.of()})
	})
}

func (s commands) invoiceShow() *cobra.Command {
	var csv bool
	cmd := s.Command(verb.Verb{
		Use: "show INVOICE", Short: "Show a stored invoice",
		Long:    "Show a stored invoice with its lines. --csv prints it with the columns of FOCUS 1.0.",
		Example: "  mainstay vms billing invoice show INV-000001\n  mainstay vms billing invoice show INV-000001 --csv",
	}, func(ctx context.Context, c *call) error {
		if csv {
			return printCSV(c, func(verb.Page) (*http.Response, error) {
				return c.API.GetInvoice(ctx, c.Args[0], &vmapi.GetInvoiceParams{Format: new(vmapi.GetInvoiceParamsFormat("csv"))})
			})
		}
		a, err := c.Send(c.API.GetInvoice(ctx, c.Args[0], nil))
		if err != nil {
			return err
		}
		return c.Out.Object(a.Body)
	})
	cmd.Flags().BoolVar(&csv, "csv", false, "print CSV")
	return cmd
}
