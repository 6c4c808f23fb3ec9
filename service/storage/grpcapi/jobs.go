package grpcapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	storagepb "github.com/mainstay-infra/mainstay/api/proto/storage/v1"
	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/operation"
)

// GetJob shows one job.
func (s *server) GetJob(ctx context.Context, in *storagepb.GetJobRequest) (*storagepb.GetJobResponse, error) {
	e, err := s.enter(ctx, "GetJob", in.Id, nil, nil)
	if err != nil {
		return nil, err
	}
	j, err := answer[storageapi.GetJob200JSONResponse](
		s.Operations.GetJob(e, storageapi.GetJobRequestObject{Id: in.Id}))
	return &storagepb.GetJobResponse{Job: jobOf(storageapi.Job(j))}, err
}

var errEnding = fault.New(fault.Unavailable, "the gateway is ending; go on with the id of the last event").
	WithRetryAfter(time.Second)

// WatchJob sends a job as it changes, until it has ended.
func (s *server) WatchJob(
	in *storagepb.WatchJobRequest, stream grpc.ServerStreamingServer[storagepb.WatchJobResponse],
) error {
	params := storageapi.WatchJobParams{LastEventID: given[string](in.LastEventId)}
	e, err := s.enter(stream.Context(), "WatchJob", in.Id, params, nil)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(e)
	defer leave()
	ctx = httpserve.EndWhen(ctx, func() bool {
		err := e.still()
		return fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Denied)
	})
	ended := false
	err = operation.Follow(ctx, s.Ending,
		func(ctx context.Context, wait time.Duration) (j storageapi.Job, _ bool, err error) {
			j, ended, err = s.Operations.AwaitJob(ctx, in.Id, wait)
			return j, ended, err
		},
		func(j storageapi.Job) error {
			event, err := eventOf(jobOf(j))
			if err != nil || event.EventId == in.LastEventId {
				return err
			}
			return stream.Send(event)
		},
		func() error { return nil }) // the connection has pings
	switch {
	case err == nil && ended:
		return nil
	case s.Ending.Err() != nil || stream.Context().Err() == nil && err == nil:
		return errEnding
	case stream.Context().Err() == nil && ctx.Err() != nil:
		return e.still()
	}
	return err
}

// eventOf returns a job as an event. Its id is a sum of the job, so that every replica gives the same one to a job in
// the same state.
func eventOf(j *storagepb.Job) (*storagepb.WatchJobResponse, error) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(j)
	sum := sha256.Sum256(raw)
	return &storagepb.WatchJobResponse{EventId: base64.RawURLEncoding.EncodeToString(sum[:12]), Job: j}, err
}
