package httpapi

import (
	"context"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// GetSummary returns the capacity of the clusters, and how many things there are.
func (a *API) GetSummary(
	ctx context.Context, req storageapi.GetSummaryRequestObject,
) (storageapi.GetSummaryResponseObject, error) {
	cluster, err := a.clusterOf(ctx, req.Params.Cluster)
	if err != nil {
		return nil, err
	}
	t, err := a.store.Totals(ctx, cluster)
	if err != nil {
		return nil, err
	}
	forecasts, err := a.store.Forecasts(ctx, cluster)
	out := storageapi.GetSummary200JSONResponse{
		RawCapacityBytes: t.Raw, UsedCapacityBytes: t.Used, AvailableCapacityBytes: t.Available, Clusters: int(t.Clusters),
		Pools: int(t.Pools), Volumes: int(t.Volumes), Forecasts: []storageapi.Forecast{},
	}
	for _, f := range forecasts {
		out.Forecasts = append(out.Forecasts, storageapi.Forecast{
			ClusterId: f.ClusterID, Days: int(f.Days), GrowthBytesPerDay: f.Growth, ErrorBytesPerDay: f.Error,
			FullAt: f.FullAt.Ptr(), FullEarliestAt: f.Earliest.Ptr(),
		})
	}
	return out, err
}

// usualPoints is how many points a history has if nothing is said.
const usualPoints = 120

// GetCapacityHistory returns how full clusters were.
func (a *API) GetCapacityHistory(
	ctx context.Context, req storageapi.GetCapacityHistoryRequestObject,
) (storageapi.GetCapacityHistoryResponseObject, error) {
	now := a.cfg.Now()
	since := orElse(req.Params.Since, now.Add(-24*time.Hour))
	w, err := series.NewWindow(since, now, orElse(req.Params.Points, usualPoints))
	if err != nil {
		return nil, err
	}
	cluster, err := a.clusterOf(ctx, req.Params.Cluster)
	if err != nil {
		return nil, err
	}
	all, err := a.store.CapacityHistory(ctx, cluster, w.From, w.To, w.Step)
	return storageapi.GetCapacityHistory200JSONResponse{
		Now: now, From: w.From, To: w.To, StepSeconds: int(w.Step / time.Second), Points: together(all, w.Step),
	}, err
}

// together adds the clusters up in steps of a length: of each, the last of a step, and of all, the worst health. A step
// without a cluster that was there before has no point: the sum would show a drop that was none.
func together(all []record.Capacity, step time.Duration) []storageapi.CapacityPoint {
	points := []storageapi.CapacityPoint{}
	known := map[string]bool{}
	for len(all) > 0 {
		at, worst := begin(all[0], step), record.Capacity{}
		last := map[string]record.Capacity{}
		for len(all) > 0 && begin(all[0], step).Equal(at) {
			c := all[0]
			worst.Rank = max(worst.Rank, c.Rank)
			last[c.ClusterID], known[c.ClusterID] = c, true
			all = all[1:]
		}
		if len(last) < len(known) {
			continue
		}
		p := storageapi.CapacityPoint{At: at, Health: storageapi.Condition(worst.Health())}
		for _, c := range last {
			p.RawCapacityBytes += c.Raw
			p.UsedCapacityBytes += c.Used
		}
		points = append(points, p)
	}
	return points
}

// begin returns when the step of a length begins that a sample is in: at a multiple of it since 1970.
func begin(c record.Capacity, step time.Duration) time.Time {
	micros := c.At.UnixMicro()
	return time.UnixMicro(micros - micros%step.Microseconds()).UTC()
}
