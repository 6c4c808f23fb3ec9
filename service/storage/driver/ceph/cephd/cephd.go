//go:build ceph

// Package cephd is what the program mainstay-ceph does: it holds a connection to one cluster and
// answers requests of package wire.
//
//	cephd.go      Run: the conversation, and how requests take turns
//	cluster.go    the connection, commands of monitors, errors
//	image.go      images, and the mark that says how far each is
//	volume.go     makes, expands and deletes volumes
//	trash.go      volumes that were deleted and can be brought back
//	page.go       lists images
//	snapshot.go   snapshots and clones
//	group.go      groups of images
//	data.go       reads the content of snapshots, and fills new volumes
//	image_work.go limits, and what takes as long as an image is large
//	mirror.go     images that are mirrored between clusters
//	mirror_copies.go  the snapshots by which they are
//
// # Marks
//
// The image of a volume carries its state in its metadata, under a key that holds the image's name,
// since clones inherit metadata:
//
//	(no mark) --> ready --> deleted --> (gone)
//
// An image without a mark is not complete: it is removed and made again by the next attempt. One that
// is deleted has snapshots, or clones hang on them; its own data is cut off, and it goes with the last
// of them. With "deleted" goes the name of the image that it was cloned from.
//
// A volume that is kept after its deletion is in Ceph's own trash, under its native name and with the mark that it had.
//
// An image whose name users have chosen is made under the native name of its volume, marked for its
// name to come, and renamed. With "ready" goes the native name. To delete it, it is renamed back.
//
// # Invariants
//
//   - Only images are changed whose names are those of gateways, or that have the mark of a volume, and only snapshots
//     that the pool's index names.
//   - Requests for the same image or snapshot run one after the other, so that a request whose caller
//     has given up ends before the next one sees the image.
//   - It ends when its input ends, whatever librados waits for. If requests are under way then, it first has the
//     cluster shut it out: otherwise the locks and watches that it leaves would last for half a minute.
//   - The key is neither logged nor in errors, and other users' debuggers do not see this process.
package cephd

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// atOnce is how many requests run at once.
const atOnce = 16

// server answers requests.
type server struct {
	*cluster
	turns turns
	slots chan struct{}
	data  data

	mu  sync.Mutex // of out
	out io.Writer
}

// Run answers requests from in until it ends.
func Run(in io.Reader, out io.Writer) error {
	// Neither core dumps nor debuggers of other users see the key.
	if err := errors.Join(
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0), unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
	); err != nil {
		return err
	}
	var hello wire.Hello
	if err := wire.Receive(in, &hello); err != nil {
		return err
	}
	requests := make(chan wire.Request)
	var serving atomic.Pointer[server]
	var underWay atomic.Int64 // requests
	// While librados connects, the end of the input must be seen, too.
	go func() {
		defer os.Exit(0) // calls of librados cannot be broken off
		_ = routine.Run(nil, "requests of the gateway", func() {
			read(in, requests, &underWay)
			if s := serving.Load(); s != nil && underWay.Load() > 0 {
				s.leave()
			}
		})
	}()
	c, err := connect(hello)
	if err != nil {
		return errors.Join(wire.Send(out, &wire.Welcome{Error: reasonOf(err)}))
	}
	if err := wire.Send(out, &wire.Welcome{FSID: c.fsid, Address: c.address}); err != nil {
		return err
	}
	s := &server{cluster: c, slots: make(chan struct{}, atOnce), out: out}
	s.turns.busy = map[string]chan struct{}{}
	serving.Store(s)
	for r := range requests {
		go func() {
			_ = routine.Run(nil, "request of the gateway", func() {
				defer underWay.Add(-1)
				s.answer(r)
			})
		}()
	}
	return nil
}

// leaveWithin is how long the cluster may take to shut a process out that ends with requests under way.
const leaveWithin = 5 * time.Second

// leave has the cluster shut this process out.
func (s *server) leave() {
	time.AfterFunc(leaveWithin, func() { os.Exit(1) })
	_ = s.fence(s.address) // it ends anyway
}

// read passes requests on until the end of the input, and counts them.
func read(in io.Reader, to chan<- wire.Request, count *atomic.Int64) {
	for {
		var r wire.Request
		if wire.Receive(in, &r) != nil {
			return
		}
		count.Add(1)
		to <- r
	}
}

// answer answers a request, also if what it does panics.
func (s *server) answer(r wire.Request) {
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	response := wire.Response{}
	told := rateLimit(func(done float64) { s.send(wire.Response{ID: r.ID, Progress: &done}) })
	err := routine.Call(nil, "request of the gateway", func() (err error) {
		response, err = s.do(&r, told)
		return err
	})
	if err != nil {
		response = wire.Response{Error: reasonOf(err)}
	}
	response.ID = r.ID
	s.send(response)
	if errno(err) == unix.ESHUTDOWN {
		os.Exit(1) // the cluster has shut this connection out for good
	}
}

// send sends a response.
func (s *server) send(r wire.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wire.Send(s.out, &r) != nil {
		os.Exit(1) // the gateway has gone
	}
}

// progressEvery is the least time between two reports of progress.
const progressEvery = time.Second

// rateLimit returns a function that reports progress, not more often than progressEvery.
func rateLimit(report func(float64)) func(float64) {
	var mu sync.Mutex
	var last time.Time
	return func(done float64) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(last) >= progressEvery {
			last = now
			report(done)
		}
	}
}

func (s *server) do(r *wire.Request, progress func(float64)) (wire.Response, error) {
	switch r.Op {
	case wire.Ask:
		return s.ask(r)
	case wire.Fence:
		return wire.Response{}, s.fence(r.Address)
	case wire.ChangeOSD:
		return wire.Response{}, s.changeOSD(r)
	case wire.Extents, wire.Read, wire.Refill, wire.Write, wire.Refilled, wire.Unfilled:
		return s.data.do(s.cluster, r)
	case wire.GroupSnap, wire.GroupLook, wire.GroupSnapRm, wire.GroupRevert, wire.GroupRm:
		return s.group(r, progress)
	}
	io, err := s.open(r.Pool)
	if err != nil {
		return wire.Response{}, err
	}
	defer io.Destroy()
	for _, name := range []string{r.Volume, r.Snapshot} {
		if name != "" {
			defer s.turns.take(r.Pool + "/" + name)()
		}
	}
	p := &pool{IOContext: io, name: r.Pool}
	switch r.Op {
	case wire.Page:
		return p.page(r)
	case wire.Volume:
		return p.volume(r)
	case wire.CreateVolume:
		return p.createVolume(r)
	case wire.ExpandVolume:
		return p.expandVolume(r)
	case wire.DeleteVolume:
		return p.deleteVolume(s.cluster, r)
	case wire.Discard:
		return wire.Response{}, p.discard(r)
	case wire.Undelete:
		return p.undelete(r)
	case wire.Replace:
		return wire.Response{}, p.replace(r)
	case wire.Collect:
		return wire.Response{}, p.collect(r.Volume)
	case wire.CreateSnapshot:
		return p.createSnapshot(r)
	case wire.Snapshot:
		return p.snapshot(r)
	case wire.DeleteSnapshot:
		return p.deleteSnapshot(r)
	case wire.CloneSnapshot:
		return p.cloneSnapshot(r)
	case wire.ListSnapshots:
		return p.listSnapshots(r)
	case wire.Limit:
		return wire.Response{}, p.limit(r)
	case wire.Flatten:
		return wire.Response{}, p.flatten(r)
	case wire.Shrink:
		return p.shrink(r, progress)
	case wire.Revert:
		return wire.Response{}, p.revert(r)
	case wire.Used:
		return p.used(r, progress)
	case wire.MirrorPool, wire.MirrorPeer, wire.MirrorOn, wire.MirrorOff, wire.MirrorLook, wire.MirrorPage,
		wire.MirrorSnap, wire.Promote, wire.Demote, wire.Resync, wire.Digest:
		return s.mirror(r, p, progress)
	case wire.Move, wire.MoveBack:
		return wire.Response{}, s.moved(r, p)
	}
	return wire.Response{}, &wire.Error{
		Reason: wire.Failed, Message: "the helper does not know the request " + string(r.Op),
	}
}

// moved moves an image to another pool, or back.
func (s *server) moved(r *wire.Request, p *pool) error {
	io, err := s.open(r.To)
	if err != nil {
		return err
	}
	defer io.Destroy()
	to := &pool{IOContext: io, name: r.To}
	if r.Op == wire.MoveBack {
		return p.moveBack(r, to)
	}
	return p.move(r, to)
}

// turns lets those who need the same thing wait for each other.
type turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // closed when it is free again
}

// take waits until something is free, and takes it. Who needs two things takes the volume first.
func (t *turns) take(name string) (free func()) {
	for {
		t.mu.Lock()
		other, taken := t.busy[name]
		if !taken {
			mine := make(chan struct{})
			t.busy[name] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.busy, name)
				t.mu.Unlock()
				close(mine)
			}
		}
		t.mu.Unlock()
		<-other
	}
}
