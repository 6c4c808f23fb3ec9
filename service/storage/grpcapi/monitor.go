package grpcapi

import (
	"context"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	storagepb "github.com/mainstay-infra/mainstay/api/proto/storage/v1"
	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/list"
)

// ListAlerts lists what needs attention.
func (s *server) ListAlerts(
	ctx context.Context, in *storagepb.ListAlertsRequest,
) (*storagepb.ListAlertsResponse, error) {
	q := storageapi.ListAlertsParams{
		State: given[storageapi.AlertState](in.State), Severity: given[storageapi.Severity](in.Severity),
		Limit: limit(in.Limit), Cursor: given[string](in.Cursor),
	}
	e, err := s.enter(ctx, "ListAlerts", "", q, nil)
	if err != nil {
		return nil, err
	}
	page, err := answer[storageapi.ListAlerts200JSONResponse](
		s.Operations.ListAlerts(e, storageapi.ListAlertsRequestObject{Params: q}))
	return &storagepb.ListAlertsResponse{
		Alerts: list.Each(page.Body, alertOf), NextCursor: next(page.Headers.Link),
	}, err
}

func alertOf(a storageapi.Alert) *storagepb.Alert {
	evidence, err := structpb.NewStruct(a.Evidence)
	if err != nil { // it came from JSON, all of which a struct holds
		evidence = nil
	}
	return &storagepb.Alert{
		Id: a.Id, Severity: string(a.Severity), Source: a.Source, Title: a.Title, Description: a.Description,
		State: string(a.State), CreatedAt: timestamppb.New(a.CreatedAt), ResourceType: a.ResourceType,
		ResourceId: a.ResourceId, Evidence: evidence, TenantId: a.TenantId, ResolvedAt: timeOf(a.ResolvedAt),
		AcknowledgedAt: timeOf(a.AcknowledgedAt), AcknowledgedBy: a.AcknowledgedBy, SilencedUntil: timeOf(a.SilencedUntil),
	}
}

// GetMetricsSummary counts what the gateway has.
func (s *server) GetMetricsSummary(
	ctx context.Context, in *storagepb.GetMetricsSummaryRequest,
) (*storagepb.GetMetricsSummaryResponse, error) {
	q := storageapi.GetSummaryParams{Cluster: given[string](in.Cluster)}
	e, err := s.enter(ctx, "GetSummary", "", q, nil)
	if err != nil {
		return nil, err
	}
	sum, err := answer[storageapi.GetSummary200JSONResponse](
		s.Operations.GetSummary(e, storageapi.GetSummaryRequestObject{Params: q}))
	return &storagepb.GetMetricsSummaryResponse{
		RawCapacityBytes: sum.RawCapacityBytes, UsedCapacityBytes: sum.UsedCapacityBytes,
		AvailableCapacityBytes: sum.AvailableCapacityBytes, Clusters: int64(sum.Clusters), Pools: int64(sum.Pools),
		Volumes: int64(sum.Volumes), Forecasts: list.Each(sum.Forecasts, forecastOf),
	}, err
}

func forecastOf(f storageapi.Forecast) *storagepb.Forecast {
	return &storagepb.Forecast{
		ClusterId: f.ClusterId, Days: int32(f.Days), GrowthBytesPerDay: f.GrowthBytesPerDay,
		ErrorBytesPerDay: f.ErrorBytesPerDay, FullAt: timeOf(f.FullAt), FullEarliestAt: timeOf(f.FullEarliestAt),
	}
}
