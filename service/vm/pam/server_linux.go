package pam

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

const (
	// A request is there when its connection is, so a peer that is slower holds a place for nothing.
	readTime = 5 * time.Second
	// maxConnections are open at once; further ones are closed without an answer.
	maxConnections = 64
)

// Server answers requests on a Unix socket. Each request has a connection, and a process that asks
// the stack.
type Server struct {
	// UIDs are the user ids whose processes are answered.
	UIDs []int
	// Services are the names that may be asked about.
	Services []string
	// Program is the path of mainstay-pam, and ConfDir replaces /etc/pam.d unless it is empty.
	Program, ConfDir string
	Log              *slog.Logger
}

// Listen opens the socket, which only the owner and a group may use. An old socket is replaced, but
// no other file is. A gid of -1 leaves the group as it is.
func Listen(path string, gid int) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket == 0 {
		return nil, errors.New(path + " exists and is not a socket")
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	before := unix.Umask(0o177) // nobody else gets in until the group is set
	l, err := net.Listen("unix", path)
	unix.Umask(before)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Lchown(path, -1, gid), os.Chmod(path, 0o660)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve answers requests until ctx ends, and then waits for those in progress.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var work sync.WaitGroup
	defer work.Wait()
	places := make(chan struct{}, maxConnections)
	asking := make(chan struct{}, inProgress)
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ECONNABORTED):
			s.Log.Error("a connection could not be accepted", "err", err)
			select { // descriptors come back
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		case err != nil:
			return err
		}
		select {
		case places <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		work.Go(func() {
			defer func() { <-places }()
			defer func() { _ = conn.Close() }()
			_ = routine.Run(s.Log, "pam-request", func() { s.serve(ctx, conn.(*net.UnixConn), asking) })
		})
	}
}

// serve answers one connection.
func (s *Server) serve(ctx context.Context, conn *net.UnixConn, asking chan struct{}) {
	uid, err := peer(conn)
	if err != nil || !slices.Contains(s.UIDs, uid) {
		s.Log.Warn("a process of this user may not ask", "uid", uid, "err", err)
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(readTime))
	q, err := ReadRequest(conn)
	defer clear(q.Password)
	if err != nil {
		s.Log.Warn("a request could not be read", "err", err)
		return
	}
	a := s.answer(ctx, q, asking)
	if a.Error != "" && a.Error != Denied {
		s.Log.Error("a request could not be answered",
			"op", q.Op, "service", q.Service, "username", q.Username, "class", a.Error, "err", a.Detail)
	} else {
		s.Log.Info("answered", "op", q.Op, "username", q.Username, "accepted", a.Error == "", "detail", a.Detail)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(readTime))
	if err := WriteResponse(conn, a); err != nil {
		s.Log.Warn("an answer could not be sent", "err", err)
	}
}

func (s *Server) answer(ctx context.Context, q Request, asking chan struct{}) Response {
	if err := q.Check(); err != nil {
		return Refuse(Invalid, err.Error())
	}
	if !slices.Contains(s.Services, q.Service) {
		return Refuse(Unconfigured, "this service may not be asked about")
	}
	turn := time.NewTimer(turnTime)
	defer turn.Stop()
	select {
	case asking <- struct{}{}:
		defer func() { <-asking }()
	case <-turn.C:
		return Refuse(Busy, "too many requests are in progress")
	}
	// What was begun is finished, also when the server is told to stop.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
	defer cancel()
	a, err := run(ctx, s.Program, s.ConfDir, q)
	switch {
	case errors.Is(err, ErrNotAsked):
		return Refuse(Busy, err.Error())
	case err != nil:
		return Refuse(Failed, err.Error())
	}
	return a
}

// peer returns the user id of the process at the other end.
func peer(conn *net.UnixConn) (uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var credentials *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		credentials, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return -1, err
	}
	if failed != nil {
		return -1, failed
	}
	return int(credentials.Uid), nil
}
