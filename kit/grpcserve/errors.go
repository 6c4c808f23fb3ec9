package grpcserve

import (
	"context"
	"errors"
	"log/slog"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
)

// toStatus returns an error as a status with details. Statuses of gRPC itself, such as those of the health service,
// stay as they are.
func (c *calls) toStatus(ctx context.Context, log *slog.Logger, id string, err error) error {
	if err == nil {
		return nil
	}
	if f := (*fault.Error)(nil); !errors.As(err, &f) {
		if s, ok := status.FromError(err); ok {
			return s.Err()
		}
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	f := fault.From(err)
	logFault(ctx, log, f)
	s := status.New(codes.Code(f.Kind.GRPCCode()), httpserve.PublicMessage(f, id))
	if detailed, err := s.WithDetails(details(f, c.domain, c.codes, id)...); err == nil {
		s = detailed
	}
	return s.Err()
}

func details(f *fault.Error, domain string, body problem.Body, id string) []protoadapt.MessageV1 {
	info := &errdetails.ErrorInfo{Reason: body.Code(f.PublicCode()), Domain: domain}
	if f.Limit != "" {
		info.Metadata = map[string]string{"limit": f.Limit}
	}
	all := []protoadapt.MessageV1{info, &errdetails.RequestInfo{RequestId: id}}
	if f.Field != "" {
		all = append(all, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: f.Field, Description: f.Message},
		}})
	}
	if f.RetryAfter > 0 {
		all = append(all, &errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryAfter)})
	}
	return all
}

// logFault logs what the caller is not told.
func logFault(ctx context.Context, log *slog.Logger, f *fault.Error) {
	level := slog.LevelError
	switch {
	case f.Kind == fault.Internal, f.Kind == fault.StorageFailed:
	case (f.Kind == fault.Unavailable || f.Kind == fault.Unreachable || f.Kind == fault.Timeout) && f.Unwrap() != nil:
		level = slog.LevelWarn
	default:
		return
	}
	log.Log(ctx, level, "call failed", "code", f.PublicCode(), "err", f.Error())
}
