package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/transfer"
)

// Source is a local file that is sent.
type Source struct {
	file *os.File
	p    *Progress

	mu   sync.Mutex // the transport reads beside what waits for the answer
	hash hash.Hash
	sent int64

	Size int64
	Mode fs.FileMode
}

// OpenSource opens a regular file to send it.
func (c *Call) OpenSource(path string) (*Source, error) {
	info, err := os.Stat(path) // before it is opened: opening a pipe would wait
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, exit.Usagef("%s is not a file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &Source{file: file, p: c.Progress(), hash: sha256.New(), Size: info.Size(), Mode: info.Mode().Perm()}, nil
}

// Read implements io.Reader.
func (s *Source) Read(b []byte) (int, error) {
	n, err := s.file.Read(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hash.Write(b[:n]) // a hash takes everything
	s.sent += int64(n)
	s.p.Bytes(s.sent, s.Size)
	return n, err
}

// Close ends the progress line and closes the file. The transport may close it more than
// once, and while the request is still answered.
func (s *Source) Close() error {
	s.p.Done()
	err := s.file.Close()
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}

// Sum is the SHA-256 of what was read, in hexadecimal.
func (s *Source) Sum() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return hex.EncodeToString(s.hash.Sum(nil))
}

// Prepare makes a request say how large its body is, and wait until the daemon wants it:
// what is refused is not sent.
func (s *Source) Prepare() rest.Editor {
	return func(_ context.Context, r *http.Request) error {
		r.ContentLength = s.Size
		if s.Size == 0 {
			r.Body = http.NoBody // a body of length 0 would be sent as one of unknown length
			return nil
		}
		r.Header.Set("Expect", "100-continue")
		return nil
	}
}

// Save writes the body of an answer to a file, whole or not at all, in place of one that
// is there, and returns its size.
func (c *Call) Save(r *http.Response, path string, mode fs.FileMode) (n int64, err error) {
	defer func() { _ = r.Body.Close() }() // it was only read
	file, err := os.CreateTemp(filepath.Dir(path), ".mainstay-*")
	if err != nil {
		return 0, err
	}
	defer func() {
		_ = file.Close() // was closed, or is of no use
		_ = os.Remove(file.Name())
	}()
	if n, err = c.copyBody(file, r); err != nil {
		return n, err
	}
	// The folder is a person's, so other programs may read along: the mode is set before
	// the file has its name.
	if err := errors.Join(file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return n, err
	}
	return n, os.Rename(file.Name(), path)
}

// vacant fails when there is a file that may not be replaced: before it is fetched.
func vacant(path string, replace bool) error {
	if _, err := os.Lstat(path); err == nil && !replace {
		return exit.Hinted(fmt.Errorf("%s is there already", path), "--force replaces it")
	}
	return nil
}

// Print writes the body of an answer to the standard output.
func (c *Call) Print(r *http.Response) error {
	defer func() { _ = r.Body.Close() }() // it was only read
	_, err := c.copyBody(c.Cmd.OutOrStdout(), r)
	return err
}

func (c *Call) copyBody(w io.Writer, r *http.Response) (int64, error) {
	p := c.Progress()
	defer p.Done()
	body := transfer.Reader(r.Request.Context(), r.Body, -1, func(done int64) error {
		p.Bytes(done, r.ContentLength)
		return nil
	})
	n, err := io.Copy(w, body)
	if err != nil {
		return n, fmt.Errorf("after %d bytes: %w", n, Service.Explain(err))
	}
	return n, nil
}

// Export fetches a file to path, or to the standard output if that is -, and says so.
func (c *Call) Export(path string, mode fs.FileMode, replace bool, r func() (*http.Response, error)) error {
	if path == "-" {
		answer, err := c.Open(r())
		if err != nil {
			return err
		}
		return c.Print(answer)
	}
	if err := vacant(path, replace); err != nil {
		return err
	}
	answer, err := c.Open(r())
	if err != nil {
		return err
	}
	n, err := c.Save(answer, path, mode)
	if err != nil {
		return err
	}
	return c.Say("%s has %s.", path, Bytes(n))
}
