//go:build linux

package datapath

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// longAgo is a deadline in the past.
var longAgo = time.Unix(1, 0)

// startConnecting creates a TCP socket in the thread's network namespace and starts to connect it.
func startConnecting(from uint16, to netip.AddrPort) (fd int, err error) {
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	// A port that was used recently for another backend may be used again.
	err = errors.Join(
		os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)),
		os.NewSyscallError("bind", unix.Bind(fd, socketAddress(netip.AddrPortFrom(unspecified(to.Addr()), from)))),
	)
	if err == nil {
		if err = unix.Connect(fd, socketAddress(to)); errors.Is(err, unix.EINPROGRESS) {
			return fd, nil
		}
		err = os.NewSyscallError("connect", err)
	}
	if err != nil {
		_ = unix.Close(fd) // the first error matters more
		return -1, err
	}
	return fd, nil
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func socketAddress(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// awaitConnected waits until a socket has connected or failed, or its write deadline has passed.
func awaitConnected(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			result = os.NewSyscallError("getsockopt", err)
		case code != 0:
			result = os.NewSyscallError("connect", unix.Errno(code))
		default:
			_, err := unix.Getpeername(int(fd))
			return err == nil // if not, it is still connecting: wait until it is writable
		}
		return true
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return errors.Join(err, result)
}
