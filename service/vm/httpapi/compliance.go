package httpapi

import (
	"context"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/compliance"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// ListComplianceProfiles lists profiles.
func (a *API) ListComplianceProfiles(
	context.Context, vmapi.ListComplianceProfilesRequestObject,
) (vmapi.ListComplianceProfilesResponseObject, error) {
	return vmapi.ListComplianceProfiles200JSONResponse(
		list.Each(compliance.Profiles(), func(p compliance.Profile) vmapi.ComplianceProfile {
			return vmapi.ComplianceProfile{Id: p.ID, Name: p.Name, Description: p.Description, CheckCount: p.Count()}
		}),
	), nil
}

// StartComplianceScan begins a scan.
func (a *API) StartComplianceScan(
	ctx context.Context, req vmapi.StartComplianceScanRequestObject,
) (vmapi.StartComplianceScanResponseObject, error) {
	r, err := a.store.Named(ctx, req.VmName, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	scan, err := a.scanner.Begin(ctx, r.ID, string(req.Body.ProfileId))
	if err != nil {
		return nil, err
	}
	return vmapi.StartComplianceScan202JSONResponse{
		ScanId: scan.ID, VmName: scan.VMName, ProfileId: scan.Profile, Status: vmapi.ComplianceStatus(scan.Status),
		Started: scan.StartedAt.Time, JobId: scan.Job,
	}, nil
}

// ListComplianceResults lists what scans have found.
func (a *API) ListComplianceResults(
	ctx context.Context, req vmapi.ListComplianceResultsRequestObject,
) (vmapi.ListComplianceResultsResponseObject, error) {
	q := req.Params
	out, link, err := list.Rows(ctx, q.Limit, q.Cursor, 20,
		func(before string, limit int) ([]record.Scan, error) {
			return a.store.Scans(ctx, value(q.Vm), q.Tenant, before, limit)
		},
		func(s record.Scan) string { return s.ID },
		func(s record.Scan) vmapi.ComplianceResult { return apiScan(ctx, s) })
	return vmapi.ListComplianceResults200JSONResponse{
		Body: out, Headers: vmapi.ListComplianceResults200ResponseHeaders{Link: link},
	}, err
}

func apiScan(ctx context.Context, s record.Scan) vmapi.ComplianceResult {
	return vmapi.ComplianceResult{
		ScanId: s.ID, VmId: s.VM, VmName: s.VMName, Tenant: some(s.Tenant), ProfileId: s.Profile,
		Status: vmapi.ComplianceStatus(s.Status), Passed: s.Passed, Failed: s.Failed, Skipped: s.Skipped,
		Score: float32(compliance.Score(s.Passed, s.Failed)), Started: s.StartedAt.Time, Completed: s.CompletedAt.Ptr(),
		Error: caller.From(ctx).Public(s.Error),
		Checks: list.Each(s.Findings.V, func(f record.Finding) vmapi.ComplianceCheck {
			c := compliance.CheckOf(f.Check)
			return vmapi.ComplianceCheck{
				Id: c.ID, Title: c.Title, Scope: vmapi.ComplianceCheckScope(c.Scope()),
				Status: vmapi.ComplianceCheckStatus(f.Status), Evidence: f.Evidence, Remedy: c.Remedy,
			}
		}),
	}
}
