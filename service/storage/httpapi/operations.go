package httpapi

import (
	"context"
	"slices"
	"strings"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// GetUpgradePreflight says whether this is a good time to replace the gateway by a newer version.
func (a *API) GetUpgradePreflight(
	ctx context.Context, _ storageapi.GetUpgradePreflightRequestObject,
) (storageapi.GetUpgradePreflightResponseObject, error) {
	checks, err := a.monitor.Preflight(ctx)
	out := storageapi.GetUpgradePreflight200JSONResponse{
		Ready: err == nil, Checks: []storageapi.Check{}, Blockers: []string{},
	}
	for _, c := range checks {
		out.Checks = append(out.Checks, storageapi.Check{Name: c.Name, Ok: c.OK, Detail: c.Detail})
		if !c.OK {
			out.Ready = false
			out.Blockers = append(out.Blockers, c.Name+": "+c.Detail)
		}
	}
	return out, err
}

// ListCephMetrics lists selected numbers of the Ceph clusters.
func (a *API) ListCephMetrics(
	ctx context.Context, req storageapi.ListCephMetricsRequestObject,
) (storageapi.ListCephMetricsResponseObject, error) {
	q := req.Params
	cluster, err := a.clusterOf(ctx, q.Cluster)
	if err != nil {
		return nil, err
	}
	all, err := a.store.CephSamples(ctx, cluster)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s record.Sample) bool { return !strings.HasPrefix(s.Name, value(q.Prefix)) })
	out, link, err := list.Rows(ctx, q.Limit, q.Cursor, 100,
		func(after string, limit int) ([]record.Sample, error) {
			from, _ := slices.BinarySearchFunc(all, after, func(s record.Sample, after string) int {
				if s.Key() > after {
					return 1
				}
				return -1
			})
			return all[from:min(len(all), from+limit)], nil
		},
		record.Sample.Key,
		func(s record.Sample) storageapi.Sample {
			return storageapi.Sample{Name: s.Name, Value: s.Value, Labels: s.Labels}
		})
	return storageapi.ListCephMetrics200JSONResponse{
		Body: out, Headers: storageapi.ListCephMetrics200ResponseHeaders{Link: link},
	}, err
}
