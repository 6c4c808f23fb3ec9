package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// memories holds the memory of templates, by their ids, from their first use on. Each is a file in
// memory that was compared with its digest and then sealed: the processes of VMs map it privately, and
// none can change what the others start from, although QEMU opens it for writing.
type memories struct {
	mu   sync.Mutex
	byID map[string]*memory
}

type memory struct {
	once sync.Once
	file *os.File
	err  error
}

// TemplateMemory returns the memory of a template. The first call reads all of it. The caller must
// close the file.
func (h *Host) TemplateMemory(ctx context.Context, t *record.Template) (*os.File, error) {
	h.images.mu.Lock()
	m := h.images.byID[t.ID]
	if m == nil {
		m = &memory{}
		if h.images.byID == nil {
			h.images.byID = map[string]*memory{}
		}
		h.images.byID[t.ID] = m
	}
	h.images.mu.Unlock()
	m.once.Do(func() {
		m.file, m.err = sealed(context.WithoutCancel(ctx), h.TemplateFolder(t.ID), t)
	})
	h.images.mu.Lock()
	defer h.images.mu.Unlock()
	if m.err != nil {
		if h.images.byID[t.ID] == m {
			delete(h.images.byID, t.ID) // so that the next call tries again
		}
		return nil, m.err
	}
	if h.images.byID[t.ID] != m {
		return nil, errDeleted
	}
	fd, err := unix.FcntlInt(m.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "template memory"), nil
}

// forget lets go of the memory of a template. VMs that map it keep it.
func (m *memories) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found := m.byID[id]; found != nil {
		found.once.Do(func() { found.err = errDeleted }) // waits for who reads it
		if found.file != nil {
			_ = found.file.Close() // it was only read
		}
		delete(m.byID, id)
	}
}

// TemplateState opens the state of a template's devices, which must have its digest. The caller must
// close the file.
func (h *Host) TemplateState(t *record.Template) (_ *os.File, err error) {
	f, err := openFile(h.TemplateFolder(t.ID), templateState)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // it was only read
		}
	}()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return nil, err
	}
	if hex.EncodeToString(hash.Sum(nil)) != t.StateSHA256 {
		return nil, damaged(nil, templateState)
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

var errDeleted = fault.New(fault.Conflict, "it was deleted")

// ErrTemplateFile is wrapped by errors about a file of a template that is missing or is not what it was.
var ErrTemplateFile = errors.New("a file of the template is not as it was")

func damaged(err error, name string) error {
	return fault.Wrap(fault.Conflict, errors.Join(ErrTemplateFile, err), "its file %s is damaged", name)
}

// TemplateMarks returns a text that changes when the files of a template do: their sizes and times.
func (h *Host) TemplateMarks(id string) (marks string) {
	for _, name := range []string{templateMemory, templateState} {
		info, err := os.Stat(filepath.Join(h.TemplateFolder(id), name))
		if err != nil {
			marks += "missing "
			continue
		}
		marks += fmt.Sprintf("%d %d ", info.Size(), info.ModTime().UnixNano())
	}
	return marks
}

// openFile opens a file of a template.
func openFile(folder, name string) (*os.File, error) {
	f, err := os.Open(filepath.Join(folder, name)) //nolint:gosec // our own folder
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(fault.Conflict, errors.Join(ErrTemplateFile, err), "its file %s is missing", name)
	}
	return f, err
}

// chunk is what is read at once. What is only zeros in it takes no memory.
const chunk = 64 << 10

// sealed copies the memory of a template to memory, compares it with the digest, and seals it.
func sealed(ctx context.Context, folder string, t *record.Template) (_ *os.File, err error) {
	from, err := openFile(folder, templateMemory)
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }() // it was only read
	to, err := newMemory(t.ID)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = to.Close() // it is nobody's
		}
	}()
	size := int64(t.MemoryMiB) << 20
	if err = to.Truncate(size); err != nil {
		return nil, err
	}
	hash, buffer, zeros := sha256.New(), make([]byte, chunk), make([]byte, chunk)
	for at := int64(0); at < size; at += chunk {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if _, err = from.ReadAt(buffer, at); err != nil {
			return nil, damaged(err, templateMemory)
		}
		_, _ = hash.Write(buffer) // it never fails
		if bytes.Equal(buffer, zeros) {
			continue
		}
		if _, err = to.WriteAt(buffer, at); err != nil {
			return nil, err
		}
	}
	if hex.EncodeToString(hash.Sum(nil)) != t.MemorySHA256 {
		return nil, damaged(nil, templateMemory)
	}
	return to, seal(to)
}

// settle makes a file the daemon's own, writes it to the disk, and returns its digest.
func settle(ctx context.Context, path string) (sum string, err error) {
	if os.Geteuid() == 0 {
		if err := os.Lchown(path, 0, 0); err != nil {
			return "", err
		}
	}
	f, err := os.Open(path) //nolint:gosec // our own folder
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	hash, buffer := sha256.New(), make([]byte, chunk)
	for {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		n, err := f.Read(buffer)
		_, _ = hash.Write(buffer[:n]) // it never fails
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), f.Sync()
}

// allocated returns what a file takes on disk.
func allocated(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	const block = 512
	return info.Sys().(*syscall.Stat_t).Blocks * block, nil
}
