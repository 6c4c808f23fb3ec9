package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

// fileIdle is the timeout for progress of a file transfer. The guest's disk, or what replaces it,
// may never answer.
const fileIdle = time.Minute

var errIdle = fmt.Errorf(
	"the guest has sent or taken nothing of the file for %v: %w",
	fileIdle,
	context.DeadlineExceeded,
)

// idleTimer cancels a call that makes no progress.
type idleTimer struct{ *time.Timer }

func (call *call) idle() idleTimer {
	return idleTimer{time.AfterFunc(fileIdle, func() { call.cancel(errIdle) })}
}

// pause is called before waiting for the caller's side, and progress after it.
func (t idleTimer) pause()    { t.Stop() }
func (t idleTimer) progress() { t.Reset(fileIdle) }

// PutFile writes exactly size bytes of r to a file in the guest and replaces an existing one. path
// is absolute, and its folder must exist; only the permissions of mode are used. When PutFile
// returns, the file is complete and on disk. After an error it does not exist, unless the response
// was lost (ErrLost, or the end of ctx). It fails if the guest makes no progress for a minute.
func (c *Client) PutFile(ctx context.Context, path string, mode fs.FileMode, size int64, r io.Reader) error {
	if size < 0 {
		return wire.Errorf(wire.Invalid, "a file cannot have %d bytes", size)
	}
	call, err := c.open(ctx, wire.OpPutFile, wire.PutFile{Path: path, Mode: uint32(mode.Perm()), Size: size})
	if err != nil {
		return err
	}
	idle := call.idle()
	defer idle.pause()
	hash := sha256.New()
	read := timedReader{io.TeeReader(io.LimitReader(r, size), hash), idle}
	n, err := c.sender.Copy(call.sending, call.id, wire.Input, read, call.budget)
	if err == nil && n != size {
		err = fmt.Errorf("%w: the file has %d bytes instead of %d", io.ErrUnexpectedEOF, n, size)
	}
	if err == nil {
		end := wire.With(call.id, wire.OpEnd, wire.Sum{Size: n, SHA256: hex.EncodeToString(hash.Sum(nil))})
		err = c.sender.Send(call.sending, end)
	}
	if err != nil && call.sending.Err() == nil {
		return c.abandon(call, err)
	}
	var done struct{}
	return c.wait(call, &done)
}

// File is what the guest reports about a file before its content.
type File struct {
	Mode fs.FileMode // permissions only
	Size int64       // -1 if it has content but no size, as in /proc
}

// GetFile copies a file of the guest to w and returns its permissions and size. After an error, w
// may contain a part of it.
func (c *Client) GetFile(ctx context.Context, path string, w io.Writer) (fs.FileMode, int64, error) {
	var file File
	n, err := c.GetFileTo(ctx, path, func(f File) (io.Writer, error) {
		file = f
		return w, nil
	})
	return file.Mode, n, err
}

// GetFileTo is like GetFile, but first calls open with the file's properties and writes the content
// to the returned writer. An error of open ends the call. It returns the number of bytes, which is
// the announced Size unless that was -1. It fails if the guest sends nothing for a minute.
func (c *Client) GetFileTo(ctx context.Context, path string, open func(File) (io.Writer, error)) (int64, error) {
	call, err := c.open(ctx, wire.OpGetFile, wire.GetFile{Path: path}, wire.Output)
	if err != nil {
		return 0, err
	}
	idle := call.idle()
	defer idle.pause()
	var body json.RawMessage
	select {
	case body = <-call.head:
	case <-call.sending.Done(): // refused, or over
		select {
		case body = <-call.head: // or a file so small that its end is here with its head
		default:
			if err := c.wait(call, &wire.Sum{}); err != nil {
				return 0, err
			}
			return 0, c.breach(violation("a file without a head"))
		}
	}
	var head wire.Head
	if wire.Body(body, &head) != nil || head.Size < -1 || head.Mode > 0o777 {
		return 0, c.breach(violation("a head that no file can have"))
	}
	w, err := open(File{fs.FileMode(head.Mode), head.Size})
	if err != nil {
		return 0, c.abandon(call, err)
	}
	hash := sha256.New()
	counter := &counted{w: io.MultiWriter(w, hash), idle: idle}
	if err := c.receive(call, head.Size, [...]io.Writer{nil, counter, nil}); err != nil {
		return counter.n, err
	}
	var sum wire.Sum
	if err := c.wait(call, &sum); err != nil {
		return counter.n, err
	}
	if head.Size >= 0 && counter.n != head.Size {
		return counter.n, c.breach(violation("a file of %d bytes instead of the %d it said", counter.n, head.Size))
	}
	if sum.Size != counter.n || sum.SHA256 != hex.EncodeToString(hash.Sum(nil)) {
		return counter.n, c.breach(violation("a file that is not what its checksum says"))
	}
	return counter.n, nil
}

// counted counts the written bytes. The time that w takes does not count as idle.
type counted struct {
	w    io.Writer
	n    int64
	idle idleTimer
}

func (c *counted) Write(b []byte) (int, error) {
	c.idle.pause()
	defer c.idle.progress()
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// timedReader reads what is sent to the guest. The time that the reader takes does not count as
// idle.
type timedReader struct {
	io.Reader
	idle idleTimer
}

func (r timedReader) Read(b []byte) (int, error) {
	r.idle.pause()
	defer r.idle.progress()
	return r.Reader.Read(b)
}
