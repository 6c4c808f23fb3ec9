//go:build linux

package ceph

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

const (
	defaultWithin = 12 * time.Second
	// workWithin bounds what takes as long as an image is large, silentFor how long of that without progress what tells
	// it may be.
	workWithin = 6 * time.Hour
	silentFor  = 10 * time.Minute
	// lockedFor is how long the locks and watches of a client last that was killed.
	lockedFor = 30 * time.Second
	// atOnce is how many calls are under way at once. Their requests fit into a pipe.
	atOnce = 32
	// worksAtOnce is how many images are worked on at once.
	worksAtOnce = 4
	// maxDead is how many addresses of killed helpers are remembered until they are shut out.
	maxDead = 16
)

// Config says how a cluster is reached.
type Config struct {
	wire.Connection
	// FSID is the cluster that it must be. Empty: the first one that answers.
	FSID string
	// Program is the path of mainstay-ceph. Empty: beside this program, or in PATH.
	Program string
	// Within bounds each short call: 12 seconds unless it is set.
	Within time.Duration
	Log    *slog.Logger
}

// Driver keeps volumes in a cluster.
type Driver struct {
	cfg     Config
	breaker breaker
	slots   chan struct{}
	works   chan struct{}

	mu      sync.Mutex
	helper  *helper  // for short calls; nil: none is there
	attempt *attempt // to start it; nil: none is under way
	fsid    string
	dead    []string // addresses to shut out
	workers []string // addresses of the newest processes that do what takes long, also of those that have ended
	closed  bool
}

// Open returns a driver, which connects with its first call.
func Open(cfg Config) (*Driver, error) {
	if (cfg.ConfFile == "") == (len(cfg.MonHosts) == 0) {
		return nil, fault.New(fault.Invalid, "a cluster is reached by its monitors, or by a ceph.conf")
	}
	if cfg.User == "" || len(cfg.MonHosts) > 0 && cfg.Key == "" && cfg.Keyring == "" {
		return nil, fault.New(fault.Invalid, "a cluster takes a user and a key")
	}
	if cfg.Program == "" {
		cfg.Program = program()
	}
	if cfg.Within <= 0 {
		cfg.Within = defaultWithin
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Driver{
		cfg: cfg, fsid: cfg.FSID, breaker: breaker{now: time.Now}, slots: make(chan struct{}, atOnce),
		works: make(chan struct{}, worksAtOnce),
	}, nil
}

// program returns the path of mainstay-ceph: beside this program, or in PATH.
func program() string {
	const name = "mainstay-ceph"
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil {
			return beside
		}
	}
	if found, err := exec.LookPath(name); err == nil {
		return found
	}
	return name
}

// Close ends the connection.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.helper != nil {
		d.helper.close()
		d.helper = nil
	}
	return nil
}

// Capabilities returns what the driver can do with a cluster.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Block: true, Snapshots: true, Clone: true, Expansion: true, Replication: true}
}

// hello introduces the gateway. Only helpers for short calls give up waiting for OSDs: librbd has
// aborted on writes that timed out.
func (d *Driver) hello(short bool) wire.Hello {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := wire.Hello{Connection: d.cfg.Connection, FSID: d.fsid, Connect: d.cfg.Within / 2, Monitor: d.cfg.Within / 2}
	if short {
		h.OSD = d.cfg.Within / 2
	}
	return h
}

// begin starts a helper.
func (d *Driver) begin(ctx context.Context, short bool) (*helper, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, d.cfg.Within, errUnanswered)
	defer cancel()
	h, err := start(bounded, d.cfg.Program, d.hello(short), d.cfg.Log)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return nil, fault.Wrap(fault.Unavailable, err, "mainstay-ceph is not installed on the gateway's host")
	}
	if _, said := errors.AsType[*wire.Error](err); err != nil && !said {
		return nil, fault.Wrap(fault.Unavailable, err, "the cluster does not answer")
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.fsid {
	case "":
		d.fsid = h.welcome.FSID
	case h.welcome.FSID:
	default: // two were started at once, and one has reached another cluster
		h.kill(errClosed)
		return nil, &wire.Error{Reason: wire.Another, Message: "the cluster is another one: its fsid is " + h.welcome.FSID}
	}
	return h, nil
}

// attempt is a start of the helper for short calls that is under way.
type attempt struct {
	done   chan struct{} // closed at its end
	helper *helper       // after done
	err    error         // after done
}

var errGone = fault.New(fault.Unavailable, "the gateway has closed its connection to the cluster")

// current returns the helper for short calls, and starts it if it is not running. All callers wait for
// the same start, each as long as its context allows.
func (d *Driver) current(ctx context.Context) (*helper, error) {
	d.mu.Lock()
	h, a := d.helper, d.attempt
	alive := h != nil && !h.gone()
	switch {
	case d.closed:
		d.mu.Unlock()
		return nil, errGone
	case alive:
	case a == nil:
		a = &attempt{done: make(chan struct{})}
		d.attempt, d.helper = a, nil
		whole := context.WithoutCancel(ctx)
		go func() {
			defer close(a.done)
			a.err = routine.Call(d.cfg.Log, "start of mainstay-ceph", func() (err error) {
				a.helper, err = d.replace(whole, h)
				return err
			})
		}()
	}
	d.mu.Unlock()
	if alive {
		d.shutOut(ctx, h)
		return h, nil
	}
	select {
	case <-a.done:
		return a.helper, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// replace starts a helper in the place of one that has ended.
func (d *Driver) replace(ctx context.Context, old *helper) (*helper, error) {
	d.bury(old)
	h, err := d.begin(ctx, true)
	if err == nil {
		d.shutOut(ctx, h)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attempt = nil
	if err == nil && d.closed {
		h.kill(errClosed)
		h, err = nil, errGone
	}
	d.helper = h
	return h, err
}

// bury remembers a helper that has not ended by itself, so that it is shut out.
func (d *Driver) bury(h *helper) {
	if h == nil || errors.Is(h.reason(), errClosed) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := h.welcome.Address; a != "" && len(d.dead) < maxDead && !slices.Contains(d.dead, a) {
		d.dead = append(d.dead, a)
	}
}

// shutOut has the cluster shut out the helpers that were killed.
func (d *Driver) shutOut(ctx context.Context, h *helper) {
	d.mu.Lock()
	dead := d.dead
	d.dead = nil
	d.mu.Unlock()
	for i, address := range dead {
		_, err := d.ask(ctx, h, wire.Request{Op: wire.Fence, Address: address}, d.cfg.Within, nil)
		if _, said := errors.AsType[*wire.Error](err); err != nil && !said { // the next helper does it
			d.mu.Lock()
			d.dead = append(d.dead, dead[i:]...)
			d.mu.Unlock()
			return
		}
		if err != nil {
			d.cfg.Log.Warn(
				"a helper that was killed is not shut out of the cluster; its locks end within 30 seconds", "address",
				address, "error", err,
			)
		}
	}
}

// ask sends a request and waits for its answer, for the end of ctx or for that of the helper.
func (d *Driver) ask(
	ctx context.Context, h *helper, r wire.Request, within time.Duration, told func(float64),
) (wire.Response, error) {
	c, err := h.send(r, within, told)
	if err != nil {
		return wire.Response{}, err
	}
	select {
	case answer := <-c.answer:
		return answer, answered(answer)
	case <-ctx.Done():
		return wire.Response{}, context.Cause(ctx)
	case <-h.ended:
	}
	select {
	case answer := <-c.answer: // it has answered before it ended
		return answer, answered(answer)
	default:
	}
	return wire.Response{}, h.reason()
}

func answered(r wire.Response) error {
	if r.Error == nil {
		return nil // not a nil *wire.Error
	}
	return r.Error
}

// call makes a short call.
func (d *Driver) call(ctx context.Context, r wire.Request) (wire.Response, error) {
	if ctx.Err() != nil {
		return wire.Response{}, given(ctx)
	}
	if err := d.breaker.allow(); err != nil {
		return wire.Response{}, err
	}
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		d.breaker.undecided()
		return wire.Response{}, given(ctx)
	}
	h, err := d.current(ctx)
	if err != nil {
		return wire.Response{}, d.judgeStart(ctx, err)
	}
	within := d.cfg.Within
	if locks[r.Op] {
		within += lockedFor
	}
	answer, err := d.ask(ctx, h, r, within, nil)
	if err != nil {
		return wire.Response{}, d.judge(ctx, err)
	}
	d.breaker.answered()
	return answer, nil
}

// judgeStart turns the error of a helper that could not connect into a fault, and tells the breaker.
func (d *Driver) judgeStart(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		d.breaker.undecided()
		return given(ctx)
	}
	f := fault.From(err)
	if e, said := errors.AsType[*wire.Error](err); said {
		f = faultOf(e)
	}
	d.breaker.silent(f)
	return f
}

// judge turns the error of a call into a fault, and tells the breaker.
func (d *Driver) judge(ctx context.Context, err error) error {
	if e, said := errors.AsType[*wire.Error](err); said {
		f := faultOf(e)
		if e.Reason == wire.Silent {
			d.breaker.silent(f)
		} else {
			d.breaker.answered()
		}
		return f
	}
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		d.breaker.undecided()
		return given(ctx)
	}
	if errors.Is(err, errUnanswered) {
		f := fault.Wrap(fault.Unavailable, err, "the cluster has not answered within %s", d.cfg.Within)
		d.breaker.silent(f)
		return f
	}
	d.breaker.undecided() // a helper that was killed says nothing about the cluster
	return fault.Wrap(fault.Unavailable, err, "the connection to the cluster was lost")
}

// given is the fault of a call whose caller has given up.
func given(ctx context.Context) error {
	return fault.Wrap(fault.Unavailable, context.Cause(ctx), "the cluster has not answered in time")
}

// kinds are the faults of what helpers say.
var kinds = map[wire.Reason]fault.Kind{
	wire.NotFound: fault.NotFound, wire.Invalid: fault.Invalid, wire.Conflict: fault.Conflict,
	wire.Silent: fault.Unavailable, wire.Refused: fault.Unavailable, wire.Another: fault.Conflict,
	wire.Full: fault.StorageFailed, wire.Failed: fault.Unavailable,
}

func faultOf(e *wire.Error) *fault.Error {
	kind, known := kinds[e.Reason]
	if !known {
		kind = fault.Unavailable
	}
	return fault.Wrap(kind, e, "%s", e.Message)
}

// work has a process of its own do what takes long. told gets the part that is done; nil: nobody asks.
func (d *Driver) work(ctx context.Context, r wire.Request, told func(float64)) (out wire.Response, err error) {
	err = d.session(ctx, told, func(ask func(wire.Request) (wire.Response, error)) (err error) {
		out, err = ask(r)
		return err
	})
	return out, err
}

// session gives do a process of its own for requests that take long. ask may be called by several goroutines, and
// returns faults.
func (d *Driver) session(
	ctx context.Context, told func(float64), do func(ask func(wire.Request) (wire.Response, error)) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, workWithin)
	defer cancel()
	select {
	case d.works <- struct{}{}:
		defer func() { <-d.works }()
	case <-ctx.Done():
		return given(ctx)
	}
	if err := d.breaker.allow(); err != nil {
		return err
	}
	h, err := d.begin(ctx, false)
	if err != nil {
		return d.judgeStart(ctx, err)
	}
	d.breaker.answered() // it has connected
	d.employ(h.welcome.Address)
	d.shutOut(ctx, h)
	var broken atomic.Bool
	err = do(func(r wire.Request) (wire.Response, error) {
		within := silentFor
		if endless[r.Op] {
			within = 0
		}
		answer, err := d.ask(ctx, h, r, within, told)
		if err == nil {
			return answer, nil
		}
		if _, said := errors.AsType[*wire.Error](err); !said {
			broken.Store(true)
		}
		return answer, d.judge(ctx, err)
	})
	if broken.Load() {
		h.kill(errUnanswered)
		d.bury(h)
	} else {
		h.close()
	}
	return err
}

// maxWorkers is how many addresses of processes are remembered. What one that was killed had open looks open for half a
// minute.
const maxWorkers = 256

// employ remembers the address of a process.
func (d *Driver) employ(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.workers) >= maxWorkers {
		d.workers = slices.Delete(d.workers, 0, 1)
	}
	d.workers = append(d.workers, address)
}

// ours returns the addresses of the driver's own processes.
func (d *Driver) ours() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.Clone(d.workers)
	if d.helper != nil {
		all = append(all, d.helper.welcome.Address)
	}
	return all
}

// locks are the short requests that take the lock of an image. They may have to wait for that of a client that was
// killed, which says nothing about the cluster: if that hangs, other requests find out.
var locks = map[wire.Op]bool{
	wire.CreateVolume: true, wire.ExpandVolume: true, wire.DeleteVolume: true, wire.Discard: true, wire.Undelete: true,
	wire.CreateSnapshot: true, wire.DeleteSnapshot: true, wire.CloneSnapshot: true, wire.Limit: true,
}

// endless are the requests that tell nothing until they are done, however large an image is.
var endless = map[wire.Op]bool{
	wire.Collect: true, wire.Replace: true, wire.Flatten: true, wire.Revert: true, wire.Move: true, wire.MoveBack: true,
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Volumes   = (*Driver)(nil)
	_ driver.Snapshots = (*Driver)(nil)
	_ driver.Cloner    = (*Driver)(nil)
	_ driver.Images    = (*Driver)(nil)
	_ driver.Reverter  = (*Driver)(nil)
	_ driver.Copier    = (*Driver)(nil)
	_ driver.Groups    = (*Driver)(nil)
	_ driver.Mirrors   = (*Driver)(nil)
)
