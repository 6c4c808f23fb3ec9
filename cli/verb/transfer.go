package verb

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

// Source is a local file to upload.
type Source struct {
	file *os.File
	p    *Progress

	mu   sync.Mutex // the transport reads concurrently with the code that waits for the response
	hash hash.Hash
	sent int64

	Size int64
	Mode fs.FileMode
}

// OpenSource opens a regular file for upload.
func (c *Call[A]) OpenSource(path string) (*Source, error) {
	info, err := os.Stat(path) // before opening: opening a pipe would block
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
	s.hash.Write(b[:n]) // never fails
	s.sent += int64(n)
	s.p.Bytes(s.sent, s.Size)
	return n, err
}

// Close ends the progress line and closes the file. The transport may close it more than once, and
// before the response is complete.
func (s *Source) Close() error {
	s.p.Done()
	err := s.file.Close()
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}

// Sum returns the SHA-256 of the data read so far, in hexadecimal.
func (s *Source) Sum() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return hex.EncodeToString(s.hash.Sum(nil))
}

// Prepare returns an Editor that sets the size of the body and makes the client wait until the
// daemon wants it, so that a refused body is not sent.
func (s *Source) Prepare() rest.Editor {
	return func(_ context.Context, r *http.Request) error {
		r.ContentLength = s.Size
		if s.Size == 0 {
			r.Body = http.NoBody // otherwise a body of length 0 would be sent as one of unknown length
			return nil
		}
		r.Header.Set("Expect", "100-continue")
		return nil
	}
}

// Save writes the body of a response to a file, atomically, replacing an existing file. It returns
// the size.
func (c *Call[A]) Save(r *http.Response, path string, mode fs.FileMode) (n int64, err error) {
	defer func() { _ = r.Body.Close() }() // read only
	file, err := os.CreateTemp(filepath.Dir(path), ".mainstay-*")
	if err != nil {
		return 0, err
	}
	defer func() {
		_ = file.Close() // already closed, or useless
		_ = os.Remove(file.Name())
	}()
	if n, err = c.copyBody(file, r); err != nil {
		return n, err
	}
	// Other programs may be able to read the user's directory, so the mode is set before the file
	// gets its name.
	if err := errors.Join(file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return n, err
	}
	return n, os.Rename(file.Name(), path)
}

// vacant fails if there is a file that may not be replaced. It is called before the download.
func vacant(path string, replace bool) error {
	if _, err := os.Lstat(path); err == nil && !replace {
		return exit.Hinted(fmt.Errorf("%s is there already", path), "--force replaces it")
	}
	return nil
}

// Print writes the body of a response to standard output.
func (c *Call[A]) Print(r *http.Response) error {
	defer func() { _ = r.Body.Close() }() // read only
	_, err := c.copyBody(c.Cmd.OutOrStdout(), r)
	return err
}

func (c *Call[A]) copyBody(w io.Writer, r *http.Response) (int64, error) {
	p := c.Progress()
	defer p.Done()
	body := transfer.Reader(r.Request.Context(), r.Body, -1, func(done int64) error {
		p.Bytes(done, r.ContentLength)
		return nil
	})
	n, err := io.Copy(w, body)
	if err != nil {
		return n, fmt.Errorf("after %d bytes: %w", n, c.api.Service.Explain(err))
	}
	return n, nil
}

// Export downloads a file to path, or to standard output if path is -, and reports it.
func (c *Call[A]) Export(path string, mode fs.FileMode, replace bool, r func() (*http.Response, error)) error {
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
