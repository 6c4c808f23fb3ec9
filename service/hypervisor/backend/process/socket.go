//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// InFolder calls do with a path for the socket name in a folder. The path uses a descriptor of the
// folder, so that it is short enough for a socket wherever the data is. It is valid only during the
// call. The folder must not be a symbolic link.
func InFolder(folder, name string, do func(path string) error) error {
	f, err := os.OpenFile(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only a place to begin
	return do(fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), name))
}

// Dial connects to a Unix socket in a folder. It fails unless the process listens on it; see
// CheckListener.
func Dial(ctx context.Context, folder, name string, pid int) (conn net.Conn, err error) {
	err = InFolder(folder, name, func(path string) error {
		if conn, err = (&net.Dialer{}).DialContext(ctx, "unix", path); err != nil {
			return err
		}
		if err := CheckListener(conn, pid); err != nil {
			return errors.Join(err, conn.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// CheckListener returns an error unless the process listens on the connected Unix socket. Something
// else may have been put in its place.
func CheckListener(conn net.Conn, pid int) error { return CheckPeer(conn, pid) }

// CheckPeer returns an error unless the process is at the other end of the Unix socket: who connected,
// or who listens.
func CheckPeer(conn net.Conn, pid int) error {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { //nolint:gosec // a file's number is small
		peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, credErr); err != nil {
		return err
	}
	if int(peer.Pid) != pid {
		return fmt.Errorf("process %d is at the VM's socket, not its own process %d", peer.Pid, pid)
	}
	return nil
}
