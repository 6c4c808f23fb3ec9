package host

import (
	"errors"
	"net"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// servedSocket is the socket in a VM's folder on which its process finds the disk that a client
// serves. The process runs in that folder.
const servedSocket = "served.sock"

// ListenServed listens for the process of a VM with a served disk. Closing the listener removes its
// socket. One that a killed daemon left is replaced.
func (h *Host) ListenServed(r *record.VM) (listener net.Listener, err error) {
	folder := h.Folder(r.ID)
	path := filepath.Join(folder, servedSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	err = process.InFolder(folder, servedSocket, func(short string) error {
		l, err := net.Listen("unix", short)
		if err != nil {
			return err
		}
		// The short path is no longer valid when the listener is closed.
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		listener = removing{l, path}
		return nil
	})
	if err != nil {
		return nil, err
	}
	uid, gid := h.Owner(r)
	if err := errors.Join(os.Chmod(path, 0o600), chown(path, uid, gid)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// removing is a listener that removes its socket.
type removing struct {
	net.Listener
	path string
}

func (r removing) Close() error { return errors.Join(r.Listener.Close(), os.Remove(r.path)) }
