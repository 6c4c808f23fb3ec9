package grpcapi

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	storagepb "github.com/mainstay-infra/mainstay/api/proto/storage/v1"
	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/grpcserve"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/storage/gate"
)

// Domain is that of the errors.
const Domain = "storage.mainstay"

// Operations are those of the contract.
type Operations interface {
	storageapi.Server
	// AwaitJob returns one job as soon as it has ended, or after wait, and whether it has ended.
	AwaitJob(ctx context.Context, id string, wait time.Duration) (storageapi.Job, bool, error)
	// Version says which version of the gateway this is.
	Version() storageapi.Version
}

// Config holds the dependencies of the API.
type Config struct {
	Contract   *contract.Contract
	Gate       *gate.Gate
	Operations Operations
	Ending     context.Context // done when the service ends
}

type server struct {
	storagepb.UnimplementedStorageGatewayServer
	Config
}

// Register registers the API with a server.
func Register(at grpc.ServiceRegistrar, c Config) {
	storagepb.RegisterStorageGatewayServer(at, &server{Config: c})
}

// entry is a call that was let in.
type entry struct {
	context.Context              // in which the caller acts
	still           func() error // returns an error if the caller's token holds no more
}

// enter lets a call in to an operation with the parameters id and params, and with body.
func (s *server) enter(ctx context.Context, operation, id string, params, body any) (entry, error) {
	op := s.Contract.Named(operation)
	r, err := op.NewRequest(ctx, id, params, body)
	if err != nil {
		return entry{}, err
	}
	grpcserve.Attach(r)
	c, err := s.Gate.Identify(r, op)
	if err != nil {
		return entry{}, err
	}
	if err := s.Gate.Admit(r, op, c); err != nil {
		return entry{}, err
	}
	return entry{shell.Within(ctx, c, r), func() error { return s.Gate.Still(r, c) }}, op.CheckMade(r)
}

// beside lets a call in to what is not an operation that is served.
func (s *server) beside(ctx context.Context, id, access string) error {
	op := &contract.Operation{ID: id, Access: access}
	r := grpcserve.RequestOf(ctx)
	c, err := s.Gate.Identify(r, op)
	if err != nil {
		return err
	}
	return s.Gate.Admit(r, op, c)
}

// Health says that the gateway answers.
func (s *server) Health(ctx context.Context, _ *storagepb.HealthRequest) (*storagepb.HealthResponse, error) {
	if err := s.beside(ctx, "Health", "open"); err != nil {
		return nil, err
	}
	v := s.Operations.Version()
	return &storagepb.HealthResponse{Status: string(storageapi.HealthStatusOk), Version: v.Version, Api: v.Api}, nil
}

// word returns the caller's word for a request that it may repeat; nil: none.
func word(ctx context.Context) (*string, error) {
	switch given := metadata.ValueFromIncomingContext(ctx, "idempotency-key"); len(given) {
	case 0:
		return nil, nil
	case 1:
		return &given[0], nil
	}
	return nil, fault.InvalidField("Idempotency-Key", "is given twice")
}

// given returns a field of a request that may be left empty; nil: it was.
func given[T ~string](field string) *T {
	if field == "" {
		return nil
	}
	return new(T(field))
}

// limit returns the limit of a page; nil: the usual one.
func limit(field int32) *int {
	if field == 0 {
		return nil
	}
	return new(int(field))
}
