package vms

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) compliance() *cobra.Command {
	cmd := verb.Group("compliance", "Check how VMs and their guests are set up",
		"  mainstay vms compliance scan web\n  mainstay vms compliance report web")
	cmd.AddCommand(s.complianceProfiles(), s.complianceScan(), s.complianceResults(), s.complianceReport())
	return cmd
}

func (s commands) complianceProfiles() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "profiles", Short: "List the profiles that VMs can be checked against",
		Example: "  mainstay vms compliance profiles",
	}, output.Columns[vmapi.ComplianceProfile]{
		Heads: []string{"ID", "NAME", "CHECKS", "DESCRIPTION"},
		Row: func(p vmapi.ComplianceProfile) []any {
			return []any{p.Id, p.Name, p.CheckCount, p.Description}
		},
	}, func(ctx context.Context, c *call, _ verb.Page) (*http.Response, error) {
		return c.API.ListComplianceProfiles(ctx)
	})
}

// newest returns the newest result of a VM.
func (s commands) newest(ctx context.Context, c *call) (vmapi.ComplianceResult, error) {
	limit := 1
	found, err := decode[[]vmapi.ComplianceResult](c.Send(c.API.ListComplianceResults(ctx,
		&vmapi.ListComplianceResultsParams{Vm: &c.Args[0], Tenant: s.of(), Limit: &limit})))
	switch {
	case err != nil:
		return vmapi.ComplianceResult{}, err
	case len(found) == 0:
		return vmapi.ComplianceResult{}, &exit.Error{
			Code: exit.NotFound, Err: fmt.Errorf("%s was not scanned; 'mainstay vms compliance scan %s' does", c.Args[0], c.Args[0]),
		}
	}
	return found[0], nil
}

func (s commands) complianceScan() *cobra.Command {
	var profile string
	cmd := s.Command(verb.Verb{
		Use: "scan VM", Short: "Check a running VM and its guest, and say how many checks passed",
		Example: "  mainstay vms compliance scan web\n  mainstay vms compliance scan web --profile level-2",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.StartComplianceScan(ctx, c.Args[0], &vmapi.StartComplianceScanParams{Tenant: s.of()},
			vmapi.ComplianceScanSpec{ProfileId: vmapi.ComplianceScanSpecProfileId(profile)}))
		scan, err := decode[vmapi.ComplianceScan](a, err)
		if err != nil {
			return err
		}
		if c.NoWait() {
			return c.Done(a, "%s is being scanned by the job %s.", c.Args[0], scan.JobId)
		}
		if err := follow(ctx, c, "Scanning "+c.Args[0], scan.JobId); err != nil {
			return err
		}
		r, err := s.newest(ctx, c)
		if err != nil {
			return err
		}
		return c.Done(a, "%s: %d passed, %d failed, %d skipped; score %.1f%%. "+
			"'mainstay vms compliance report %s' shows the checks.", c.Args[0], r.Passed, r.Failed, r.Skipped, r.Score, c.Args[0])
	})
	cmd.Flags().StringVar(&profile, "profile", "level-1", "profile to check against: level-1 or level-2")
	verb.NoWaitFlag(cmd)
	return cmd
}

func (s commands) complianceResults() *cobra.Command {
	var vm string
	cmd := verb.List(s.session, verb.Verb{
		Use: "results", Short: "List scans, newest first",
		Example: "  mainstay vms compliance results\n  mainstay vms compliance results --vm web",
	}, output.Columns[vmapi.ComplianceResult]{
		Heads: []string{"SCAN", "VM", "PROFILE", "STATUS", "PASSED", "FAILED", "SKIPPED", "SCORE", "STARTED", "ERROR"},
		Row: func(r vmapi.ComplianceResult) []any {
			return []any{
				r.ScanId, r.VmName, r.ProfileId, r.Status, r.Passed, r.Failed, r.Skipped, fmt.Sprintf("%.1f%%", r.Score), r.Started,
				r.Error,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		const most = 100 // of a page
		if p.Limit != nil {
			*p.Limit = min(*p.Limit, most)
		}
		return c.API.ListComplianceResults(ctx, &vmapi.ListComplianceResultsParams{
			Limit: p.Limit, Cursor: p.Cursor, Vm: verb.Given(c, "vm", vm), Tenant: s.of(),
		})
	})
	cmd.Flags().StringVar(&vm, "vm", "", "only those of the VM with this name")
	return cmd
}

func (s commands) complianceReport() *cobra.Command {
	var failed bool
	cmd := s.Command(verb.Verb{
		Use: "report VM", Short: "Show the checks of the newest scan of a VM, with what was found and what to do",
		Example: "  mainstay vms compliance report web\n  mainstay vms compliance report web --failed",
	}, func(ctx context.Context, c *call) error {
		r, err := s.newest(ctx, c)
		if err != nil {
			return err
		}
		l := output.NewList(c.Out, output.Columns[vmapi.ComplianceCheck]{
			Heads: []string{"STATUS", "SCOPE", "CHECK", "TITLE", "EVIDENCE", "REMEDY"},
			Row: func(k vmapi.ComplianceCheck) []any {
				return []any{k.Status, k.Scope, k.Id, k.Title, k.Evidence, k.Remedy}
			},
		})
		var shown []json.RawMessage
		for _, k := range r.Checks {
			if failed && k.Status != vmapi.ComplianceCheckStatusFailed {
				continue
			}
			raw, err := json.Marshal(k)
			if err != nil {
				return err
			}
			shown = append(shown, raw)
		}
		if err := l.Page(shown); err != nil {
			return err
		}
		return l.Close()
	})
	cmd.Flags().BoolVar(&failed, "failed", false, "only checks that have failed")
	return cmd
}
