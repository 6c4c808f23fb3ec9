package httpapi

import (
	"context"
	"io"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/migrate"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

func apiMigration(a record.Arrival) hypervisorapi.Migration {
	return hypervisorapi.Migration{
		Id: a.ID, VmId: a.VM, Name: a.Name, Tenant: a.Tenant, Node: a.Node,
		State: hypervisorapi.MigrationState(a.State), CreatedAt: a.CreatedAt.Time,
	}
}

// MigrateVM starts to move a VM to another host.
func (a *API) MigrateVM(
	ctx context.Context, req hypervisorapi.MigrateVMRequestObject,
) (hypervisorapi.MigrateVMResponseObject, error) {
	b := req.Body
	grace := a.cfg.StopGrace
	if b.GraceSeconds != nil {
		grace = time.Duration(*b.GraceSeconds) * time.Second
	}
	op, err := a.operate.Once(ctx, value(req.Params.IdempotencyKey), []any{"MigrateVM", req.Id, b},
		func(ctx context.Context) (record.Operation, error) {
			return a.migrate.Send(ctx, req.Id, migrate.Request{Node: value(b.Node), Restart: value(b.Restart), Grace: grace})
		})
	if err != nil {
		return nil, err
	}
	return hypervisorapi.MigrateVM202JSONResponse(apiOperation(op)), nil
}

// TakeBackVM keeps a VM that was handed over.
func (a *API) TakeBackVM(
	ctx context.Context, req hypervisorapi.TakeBackVMRequestObject,
) (hypervisorapi.TakeBackVMResponseObject, error) {
	r, err := a.migrate.TakeBack(ctx, req.Id, value(req.Body.Lost))
	if err != nil {
		return nil, err
	}
	return hypervisorapi.TakeBackVM200JSONResponse(a.apiVM(r)), nil
}

// ListMigrations lists the VMs that are on their way to this host.
func (a *API) ListMigrations(
	ctx context.Context, _ hypervisorapi.ListMigrationsRequestObject,
) (hypervisorapi.ListMigrationsResponseObject, error) {
	all, err := a.migrate.Arrivals(ctx)
	out := make(hypervisorapi.ListMigrations200JSONResponse, len(all))
	for i, one := range all {
		out[i] = apiMigration(one)
	}
	return out, err
}

// OfferMigration takes a VM that another host offers.
func (a *API) OfferMigration(
	ctx context.Context, req hypervisorapi.OfferMigrationRequestObject,
) (hypervisorapi.OfferMigrationResponseObject, error) {
	one, needed, err := a.migrate.Offer(ctx, req.Body)
	if err != nil {
		return nil, err
	}
	out := apiMigration(one)
	out.Needed = &needed
	return hypervisorapi.OfferMigration201JSONResponse(out), nil
}

// WriteMigration writes a piece of a file. It is read completely before it is written, so that a sum is that of
// whole pieces.
func (a *API) WriteMigration(
	ctx context.Context, req hypervisorapi.WriteMigrationRequestObject,
) (hypervisorapi.WriteMigrationResponseObject, error) {
	piece, err := io.ReadAll(io.LimitReader(req.Body, migrate.MaxPiece+1))
	if err != nil {
		return nil, err
	}
	if len(piece) == 0 || len(piece) > migrate.MaxPiece {
		return nil, fault.InvalidField("body", "must have 1 to %d bytes", migrate.MaxPiece)
	}
	err = a.migrate.Write(ctx, req.Migration, req.File, req.Params.Offset, piece)
	return hypervisorapi.WriteMigration204Response{}, err
}

// PrepareMigration makes an offered VM durable.
func (a *API) PrepareMigration(
	ctx context.Context, req hypervisorapi.PrepareMigrationRequestObject,
) (hypervisorapi.PrepareMigrationResponseObject, error) {
	one, err := a.migrate.Prepare(ctx, req.Migration, *req.Body)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.PrepareMigration200JSONResponse(apiMigration(one)), nil
}

// CommitMigration makes a prepared VM this host's.
func (a *API) CommitMigration(
	ctx context.Context, req hypervisorapi.CommitMigrationRequestObject,
) (hypervisorapi.CommitMigrationResponseObject, error) {
	one, err := a.migrate.Commit(ctx, req.Migration, value(req.Body.Start))
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CommitMigration200JSONResponse(apiMigration(one)), nil
}

// AbortMigration aborts a migration to this host.
func (a *API) AbortMigration(
	ctx context.Context, req hypervisorapi.AbortMigrationRequestObject,
) (hypervisorapi.AbortMigrationResponseObject, error) {
	return hypervisorapi.AbortMigration204Response{}, a.migrate.Abort(ctx, req.Migration)
}
