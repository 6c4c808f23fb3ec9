package driver

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sort"
	"sync"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

const (
	// transferPiece is how much is asked of the daemon at once, in bytes, and pieceAlign what the
	// edges of such pieces are multiples of.
	transferPiece = 4 << 20
	pieceAlign    = 256 << 10
	// piecesKept is how many pieces a reader keeps in memory.
	piecesKept = 8
	// rangesPage is the most ranges that the daemon answers at once.
	rangesPage = 10_000
	// keepAlive is how often a transfer is asked for that nobody uses. The daemon ends it after two
	// minutes.
	keepAlive = 30 * time.Second
	// dataTimeout bounds one request for data.
	dataTimeout = 2 * time.Minute
)

// The codes of faults with which the daemon ends a transfer. The VM's disk is as it was, and a new
// transfer may succeed.
const (
	CodeTransferOver   = "transfer_over"
	CodeTransferFailed = "transfer_failed"
)

// Range is a part of a disk, in bytes.
type Range struct{ Offset, Length int64 }

// Transfer is an open transfer of a VM's disk from the daemon or to it. ReadAt is safe for
// concurrent use. It must end with Finish or Abort.
type Transfer struct {
	Size        int64
	Changed     bool   // Ranges are what changed since the checkpoint
	Checkpoint  string // for the next transfer, once this one is finished
	Consistency string
	Ranges      []Range // what has to be read, in order

	ctx    context.Context // the transfer's, since io.ReaderAt has none
	d      *Driver
	at     Place
	id     string
	stop   context.CancelFunc // ends the keepalive
	pieces pieces
}

// ReadDisk begins to read a VM's disk as it is now. since is the checkpoint of the last finished
// transfer of a consumer; empty: read everything. The context bounds the whole transfer.
func (d *Driver) ReadDisk(ctx context.Context, at Place, consumer, since string) (*Transfer, error) {
	spec := hypervisorapi.TransferSpec{Direction: hypervisorapi.TransferDirectionRead, Consumer: &consumer}
	if since != "" {
		spec.Since = &since
	}
	t, err := d.open(ctx, at, spec)
	if err != nil {
		return nil, err
	}
	for from := int64(0); ; {
		page, err := call[[]hypervisorapi.Range](ctx, d, at, readTimeout,
			func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
				limit := rangesPage
				return c.ListTransferRanges(ctx, t.id, &hypervisorapi.ListTransferRangesParams{From: &from, Limit: &limit})
			})
		if err != nil {
			t.Abort()
			return nil, err
		}
		for _, r := range page {
			if r.Offset < from || r.Length <= 0 || r.Offset > t.Size || r.Length > t.Size-r.Offset {
				t.Abort()
				return nil, fault.New(fault.Unavailable, "the hypervisor daemon names ranges that are not of the disk")
			}
			t.Ranges, from = append(t.Ranges, Range{r.Offset, r.Length}), r.Offset+r.Length
		}
		if len(page) < rangesPage {
			return t, nil
		}
	}
}

// WriteDisk begins to write the disk of a stopped VM, which gets size bytes. Until Finish, the VM
// keeps the disk that it has. What is not written reads as zeros.
func (d *Driver) WriteDisk(ctx context.Context, at Place, size int64) (*Transfer, error) {
	return d.open(ctx, at, hypervisorapi.TransferSpec{
		Direction: hypervisorapi.TransferDirectionWrite, SizeBytes: &size,
	})
}

func (d *Driver) open(ctx context.Context, at Place, spec hypervisorapi.TransferSpec) (*Transfer, error) {
	opened, err := call[hypervisorapi.Transfer](ctx, d, at, workTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.CreateTransfer(ctx, at.ID, spec)
		})
	if err != nil {
		return nil, err
	}
	t := &Transfer{
		Size: opened.SizeBytes, Changed: opened.Changed, Checkpoint: deref(opened.Checkpoint),
		Consistency: string(opened.Consistency), d: d, at: at, id: opened.Id,
	}
	t.ctx, t.stop = context.WithCancel(ctx)
	t.pieces.cells = map[int64]*piece{}
	routine.Go(nil, "disk transfer", t.keep)
	return t, nil
}

// keep keeps the transfer open while what was read is stored.
func (t *Transfer) keep() {
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-ticker.C:
			// If it is over, the next request says so.
			_, _ = t.call(func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
				return c.GetTransfer(ctx, t.id)
			})
		}
	}
}

func (t *Transfer) call(
	send func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error),
) (hypervisorapi.Transfer, error) {
	return call[hypervisorapi.Transfer](t.ctx, t.d, t.at, dataTimeout, send)
}

// Finish ends a transfer whose data has arrived.
func (t *Transfer) Finish() error {
	defer t.stop()
	_, err := call[hypervisorapi.Transfer](t.ctx, t.d, t.at, workTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.FinishTransfer(ctx, t.id, hypervisorapi.Nothing{})
		})
	return err
}

// Abort ends a transfer as if it had never been. The daemon does that by itself later if it cannot
// be reached now.
func (t *Transfer) Abort() {
	defer t.stop()
	ctx, cancel := context.WithTimeout(forTenant(context.WithoutCancel(t.ctx), t.at.Tenant), readTimeout)
	defer cancel()
	c, err := t.d.at(t.at.Node)
	if err == nil {
		_, _ = rest.Read(c.DeleteTransfer(ctx, t.id))
	}
}

// WriteAt writes to the disk. It is safe for concurrent use.
func (t *Transfer) WriteAt(p []byte, offset int64) (n int, err error) {
	c, err := t.d.at(t.at.Node)
	if err != nil {
		return 0, err
	}
	for len(p) > 0 {
		some := p[:min(len(p), transferPiece)]
		if err := t.write(c, some, offset); err != nil {
			return n, err
		}
		p, n, offset = p[len(some):], n+len(some), offset+int64(len(some))
	}
	return n, nil
}

func (t *Transfer) write(c *hypervisorapi.Client, p []byte, offset int64) error {
	ctx, cancel := context.WithTimeout(forTenant(t.ctx, t.at.Tenant), dataTimeout)
	defer cancel()
	_, err := rest.Read(c.WriteTransferWithBody(ctx, t.id, &hypervisorapi.WriteTransferParams{Offset: offset},
		"application/octet-stream", bytes.NewReader(p)))
	return t.d.translate(ctx, t.at, err)
}

// pieces are what a transfer has read ahead: parts of cells of transferPiece bytes.
type pieces struct {
	mu    sync.Mutex
	cells map[int64]*piece // by their numbers
	order []int64          // oldest first
}

type piece struct {
	once  sync.Once
	begin int64
	data  []byte
	err   error
}

// ReadAt reads from the disk. It asks the daemon for pieces as large as what has to be read allows.
func (t *Transfer) ReadAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 || offset > t.Size {
		return 0, fault.InvalidField("offset", "is outside of the disk")
	}
	if left := t.Size - offset; int64(len(p)) > left {
		p, err = p[:left], io.EOF
	}
	for len(p) > 0 {
		number := offset / transferPiece
		part := p[:min(int64(len(p)), (number+1)*transferPiece-offset)]
		if failed := t.readIn(number, part, offset); failed != nil {
			return n, failed
		}
		p, n, offset = p[len(part):], n+len(part), offset+int64(len(part))
	}
	return n, err
}

// readIn reads a part of one cell.
func (t *Transfer) readIn(number int64, p []byte, offset int64) error {
	begin, end := t.span(number)
	if offset < begin || offset+int64(len(p)) > end {
		return t.fetch(p, offset) // nobody has said that this has to be read
	}
	cell := t.pieces.cell(number)
	cell.once.Do(func() {
		cell.begin, cell.data = begin, make([]byte, end-begin)
		cell.err = t.fetch(cell.data, begin)
	})
	if cell.err != nil {
		return cell.err
	}
	copy(p, cell.data[offset-cell.begin:])
	return nil
}

func (s *pieces) cell(number int64) *piece {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.cells[number]
	if found == nil {
		if len(s.order) >= piecesKept {
			delete(s.cells, s.order[0])
			s.order = s.order[1:]
		}
		found = &piece{}
		s.cells[number], s.order = found, append(s.order, number)
	}
	return found
}

// span returns the part of a cell from the first to the last byte that has to be read.
func (t *Transfer) span(number int64) (begin, end int64) {
	low, high := number*transferPiece, min((number+1)*transferPiece, t.Size)
	first := sort.Search(len(t.Ranges), func(i int) bool { return t.Ranges[i].Offset+t.Ranges[i].Length > low })
	last := sort.Search(len(t.Ranges), func(i int) bool { return t.Ranges[i].Offset >= high }) - 1
	if first > last {
		return low, low
	}
	begin = max(low, t.Ranges[first].Offset) / pieceAlign * pieceAlign
	end = min(high, t.Ranges[last].Offset+t.Ranges[last].Length)
	return begin, min(high, (end+pieceAlign-1)/pieceAlign*pieceAlign)
}

// fetch fills p from the daemon.
func (t *Transfer) fetch(p []byte, offset int64) error {
	c, err := t.d.at(t.at.Node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(forTenant(t.ctx, t.at.Tenant), dataTimeout)
	defer cancel()
	r, err := c.ReadTransfer(ctx, t.id, &hypervisorapi.ReadTransferParams{Offset: offset, Length: len(p)})
	if err == nil && r.StatusCode != http.StatusOK {
		_, err = rest.Read(r, nil)
	} else if err == nil {
		_, err = io.ReadFull(r.Body, p)
		_ = r.Body.Close() // it was only read
	}
	return t.d.translate(ctx, t.at, err)
}
