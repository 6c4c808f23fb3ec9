package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/disk"
)

func apiTransfer(t disk.Transfer) hypervisorapi.Transfer {
	out := hypervisorapi.Transfer{
		Id: t.ID, VmId: t.VM, Direction: hypervisorapi.TransferDirectionRead, SizeBytes: t.Size,
		Checkpoint: some(t.Checkpoint), Changed: t.Changed, Consistency: hypervisorapi.TransferConsistency(t.Consistency),
	}
	if t.Write {
		out.Direction = hypervisorapi.TransferDirectionWrite
	}
	return out
}

// CreateTransfer opens a transfer.
func (a *API) CreateTransfer(
	ctx context.Context, req hypervisorapi.CreateTransferRequestObject,
) (hypervisorapi.CreateTransferResponseObject, error) {
	b := req.Body
	t, err := a.disk.OpenTransfer(ctx, req.Id, disk.TransferRequest{
		Write: b.Direction == hypervisorapi.TransferDirectionWrite, Consumer: value(b.Consumer), Since: value(b.Since),
		Size: value(b.SizeBytes),
	})
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CreateTransfer201JSONResponse(apiTransfer(t)), nil
}

// GetTransfer returns a transfer.
func (a *API) GetTransfer(
	ctx context.Context, req hypervisorapi.GetTransferRequestObject,
) (hypervisorapi.GetTransferResponseObject, error) {
	t, err := a.disk.Transfer(ctx, req.Transfer)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.GetTransfer200JSONResponse(apiTransfer(t)), nil
}

// DeleteTransfer aborts a transfer.
func (a *API) DeleteTransfer(
	ctx context.Context, req hypervisorapi.DeleteTransferRequestObject,
) (hypervisorapi.DeleteTransferResponseObject, error) {
	return hypervisorapi.DeleteTransfer204Response{}, a.disk.AbortTransfer(ctx, req.Transfer)
}

// FinishTransfer ends a transfer whose data has arrived.
func (a *API) FinishTransfer(
	ctx context.Context, req hypervisorapi.FinishTransferRequestObject,
) (hypervisorapi.FinishTransferResponseObject, error) {
	t, err := a.disk.FinishTransfer(ctx, req.Transfer)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.FinishTransfer200JSONResponse(apiTransfer(t)), nil
}

// ListTransferRanges lists the ranges that a reader has to read.
func (a *API) ListTransferRanges(
	ctx context.Context, req hypervisorapi.ListTransferRangesRequestObject,
) (hypervisorapi.ListTransferRangesResponseObject, error) {
	ranges, err := a.disk.TransferRanges(ctx, req.Transfer, value(req.Params.From), orElse(req.Params.Limit, 10_000))
	if err != nil {
		return nil, err
	}
	out := make(hypervisorapi.ListTransferRanges200JSONResponse, len(ranges))
	for i, r := range ranges {
		out[i] = hypervisorapi.Range{Offset: r.Offset, Length: r.Length}
	}
	return out, nil
}

// pieceBuffer is how much of a disk is in memory for a request, in bytes.
const pieceBuffer = 512 << 10

// piece is a response with bytes of a disk, of which the first are in the buffer.
type piece struct {
	ctx            context.Context
	disk           *disk.Manager
	transfer       string
	offset, length int64
	buffer         []byte
}

// VisitReadTransferResponse implements the contract's answer.
func (p piece) VisitReadTransferResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/octet-stream")
	setLength(w, p.length)
	w.WriteHeader(http.StatusOK)
	for done := int64(0); ; {
		if _, err := w.Write(p.buffer); err != nil {
			return err
		}
		if done += int64(len(p.buffer)); done == p.length {
			return nil
		}
		p.buffer = p.buffer[:min(p.length-done, pieceBuffer)]
		if err := p.disk.ReadTransfer(p.ctx, p.transfer, p.buffer, p.offset+done); err != nil {
			panic(http.ErrAbortHandler) // so that a part does not look like the whole
		}
	}
}

// ReadTransfer sends bytes of a disk.
func (a *API) ReadTransfer(
	ctx context.Context, req hypervisorapi.ReadTransferRequestObject,
) (hypervisorapi.ReadTransferResponseObject, error) {
	length := int64(req.Params.Length)
	t, err := a.disk.Transfer(ctx, req.Transfer)
	if err != nil {
		return nil, err
	}
	if req.Params.Offset > t.Size-length {
		return nil, fault.InvalidField("offset", "%d bytes at %d are outside of the disk, which has %d",
			length, req.Params.Offset, t.Size)
	}
	p := piece{
		ctx: ctx, disk: a.disk, transfer: req.Transfer, offset: req.Params.Offset, length: length,
		buffer: make([]byte, min(length, pieceBuffer)),
	}
	if err := a.disk.ReadTransfer(ctx, req.Transfer, p.buffer, p.offset); err != nil {
		return nil, err
	}
	return p, nil
}

// WriteTransfer writes bytes of a disk. If it fails in the middle, what was written does not matter:
// the transfer is not finished.
func (a *API) WriteTransfer(
	ctx context.Context, req hypervisorapi.WriteTransferRequestObject,
) (hypervisorapi.WriteTransferResponseObject, error) {
	// The transfer is looked at first, so that a body is only taken for one that is open.
	t, err := a.disk.Transfer(ctx, req.Transfer)
	if err != nil {
		return nil, err
	}
	if !t.Write {
		return nil, fault.New(fault.Conflict, "the transfer reads the disk").WithCode("transfer_reads")
	}
	buffer := make([]byte, pieceBuffer)
	for done := int64(0); ; {
		n, err := io.ReadFull(req.Body, buffer)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		if done+int64(n) == 0 || done+int64(n) > disk.MaxTransferPiece {
			return nil, fault.InvalidField("body", "must have 1 to %d bytes", disk.MaxTransferPiece)
		}
		if n > 0 {
			if err := a.disk.WriteTransfer(ctx, req.Transfer, buffer[:n], req.Params.Offset+done); err != nil {
				return nil, err
			}
		}
		if done += int64(n); err != nil {
			return hypervisorapi.WriteTransfer204Response{}, nil // the end of the body
		}
	}
}
