//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// PortName is the virtio-serial port on which the daemon is.
	PortName = "org.mainstay.guest.0"
	// VsockPort is where the daemon finds the agent by vsock.
	VsockPort = 7071

	maxStreams = 16 // sessions at once of a listener
)

// FindPort returns the device of the virtio-serial port with this name. It does not need udev. It
// fails with fs.ErrNotExist if the guest has no such port.
func FindPort(name string) (string, error) { return findPort("/sys/class/virtio-ports", name) }

func findPort(class, name string) (string, error) {
	names, err := filepath.Glob(filepath.Join(class, "*", "name"))
	if err != nil {
		return "", err
	}
	for _, file := range names {
		if b, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(b)) == name {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(file))), nil
		}
	}
	return "", fmt.Errorf("virtio-serial port %s: %w", name, os.ErrNotExist)
}

// busyLimit is how long to wait for a port that another process has open.
const busyLimit = 30 * time.Second

// ServeVirtio serves the port until ctx ends.
func (a *Agent) ServeVirtio(ctx context.Context, device string) error {
	port, err := untilFree(ctx, func() (*os.File, error) { return os.OpenFile(device, os.O_RDWR, 0) })
	if err != nil {
		return err
	}
	a.config.Log.Info("serving a virtio-serial port", "device", device)
	return a.ServePort(ctx, port)
}

// untilFree opens a port. Only one process can have it open, and a killed agent holds it until its
// last thread has exited.
func untilFree(ctx context.Context, open func() (*os.File, error)) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, busyLimit)
	defer cancel()
	for {
		port, err := open()
		if !errors.Is(err, unix.EBUSY) {
			return port, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// ServeUnix serves a Unix socket until ctx ends.
func (a *Agent) ServeUnix(ctx context.Context, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	a.config.Log.Info("serving a Unix socket", "path", path)
	return a.listen(ctx, func() (io.ReadWriteCloser, error) { return l.Accept() })
}

// ServeVsock serves connections of the host to VsockPort until ctx ends.
func (a *Agent) ServeVsock(ctx context.Context) error {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("vsock: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "vsock")
	defer socket.Close()
	if err := unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: VsockPort}); err != nil {
		return fmt.Errorf("vsock port %d: %w", VsockPort, err)
	}
	if err := unix.Listen(fd, maxStreams); err != nil {
		return fmt.Errorf("vsock port %d: %w", VsockPort, err)
	}
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	a.config.Log.Info("serving vsock", "port", VsockPort)
	return a.listen(ctx, func() (io.ReadWriteCloser, error) { return acceptVsock(socket) })
}

// acceptVsock returns the next connection from the host and closes all others.
func acceptVsock(socket *os.File) (io.ReadWriteCloser, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	for {
		var fd int
		var from unix.Sockaddr
		var acceptErr error
		err := raw.Read(func(s uintptr) bool {
			fd, from, acceptErr = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return !errors.Is(acceptErr, unix.EAGAIN)
		})
		if err = errors.Join(err, acceptErr); err != nil {
			return nil, err
		}
		if vm, ok := from.(*unix.SockaddrVM); ok && vm.CID == unix.VMADDR_CID_HOST {
			return os.NewFile(uintptr(fd), "vsock connection"), nil
		}
		unix.Close(fd)
	}
}

// listen serves what accept returns, at most maxStreams at once, until ctx ends.
func (a *Agent) listen(ctx context.Context, accept func() (io.ReadWriteCloser, error)) error {
	places := make(chan struct{}, maxStreams)
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		places <- struct{}{}
		conn, err := accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return ctx.Err()
		}
		if err != nil {
			// Out of files, or a connection that was broken off: others may succeed.
			a.config.Log.Warn("accept", "error", err)
			<-places
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		serving.Go(func() {
			defer func() { <-places }()
			if err := a.Serve(ctx, conn); err != nil && ctx.Err() == nil {
				a.config.Log.Warn("connection", "error", err)
			}
		})
	}
}
