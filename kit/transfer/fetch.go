package transfer

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// Suffixes of the files next to a file while it is being fetched.
const (
	PartSuffix = ".part"      // the downloaded part
	TagSuffix  = ".validator" // the ETag or date that the part belongs to
)

const (
	stallTimeout = time.Minute // a connection without a byte for this long is canceled
	maxAsked     = 24 * time.Hour
	maxValidator = 1024 // bytes
)

// File is a file to fetch.
type File struct {
	URL    string
	Path   string // the target path; its directory must exist
	SHA256 string // in lower-case hex; empty: SHA512 is known
	SHA512 string // in lower-case hex
	Size   int64  // as announced, in bytes; 0: unknown
	// MaxSize is the maximum size in bytes.
	MaxSize int64
}

// PartSize returns the number of downloaded bytes of an incomplete file.
func (f *File) PartSize() int64 {
	info, err := os.Stat(f.Path + PartSuffix)
	if err != nil {
		return 0
	}
	return info.Size()
}

// DropPart removes the downloaded part of an incomplete file.
func (f *File) DropPart() error {
	return errors.Join(durable.Remove(f.Path+PartSuffix), durable.Remove(f.Path+TagSuffix))
}

// Fetcher downloads files.
type Fetcher struct {
	Client *http.Client
	Now    func() time.Time
}

// Attempt describes one attempt to fetch a file.
type Attempt struct {
	// RetryAfter is the wait that the server requested before the next attempt; 0 if none.
	RetryAfter time.Duration
	// Resumed means that the response was appended to an existing part. If the file is then Unfit,
	// that part may have been damaged, for example by a power loss.
	Resumed bool
}

// Fetch requests the missing part of a file once, and puts the file in place when it is complete.
// An Unfit error is permanent; after other errors, the next attempt continues with the existing
// part. The same file must not be fetched twice at the same time. progress, unless nil, is called
// with the bytes done and the total, which is 0 if unknown; if it returns an error, the attempt
// ends.
func (c *Fetcher) Fetch(
	ctx context.Context, f *File, progress func(done, total int64) error,
) (attempt Attempt, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(stallTimeout, func() { cancel(errors.New("the server sends nothing")) })
	defer stall.Stop()
	// A canceled context ends reading, but the read error does not contain the cause.
	why := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL, nil)
	if err != nil {
		return attempt, Unfit{"the URL cannot be used"}
	}
	req.Header.Set("Accept-Encoding", "identity") // so that ranges refer to the file itself
	have := f.PartSize()
	tag, tagErr := os.ReadFile(f.Path + TagSuffix)
	if have > 0 && tagErr == nil && len(tag) > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
		req.Header.Set("If-Range", string(tag))
	} else {
		have = 0
	}
	res, err := c.Client.Do(req)
	if err != nil {
		return attempt, why(err)
	}
	defer func() { _ = res.Body.Close() }() // read only
	if have, err = c.accept(f, res, have, &attempt); err != nil {
		return attempt, err
	}
	total := f.Size
	if res.ContentLength >= 0 {
		if total > 0 && have+res.ContentLength != total {
			return attempt, Unfit{
				fmt.Sprintf("the file has %d bytes, not the %d that were announced", have+res.ContentLength, total),
			}
		}
		total = have + res.ContentLength
	}
	if total > f.MaxSize {
		return attempt, ErrTooLarge
	}
	body := Reader(ctx, res.Body, -1, func(done int64) error {
		stall.Reset(stallTimeout)
		switch done += have; {
		case done > f.MaxSize:
			return ErrTooLarge
		case f.Size > 0 && done > f.Size:
			return Unfit{fmt.Sprintf("the file has more than the %d bytes that were announced", f.Size)}
		case progress == nil:
			return nil
		}
		return progress(done, total)
	})
	if err := f.receive(body, res.Header, have); err != nil {
		return attempt, why(err)
	}
	stall.Stop()
	return attempt, f.finish()
}

// accept checks the status of a response, and returns how much of the existing part to keep.
func (c *Fetcher) accept(f *File, res *http.Response, have int64, attempt *Attempt) (int64, error) {
	switch {
	case res.StatusCode == http.StatusOK:
		return 0, nil
	case res.StatusCode == http.StatusPartialContent:
		attempt.Resumed = have > 0
		if start, ok := rangeStart(res.Header.Get("Content-Range")); !ok || start != have {
			return 0, errors.Join(errors.New("the server sent another part than was asked for"), f.DropPart())
		}
		return have, nil
	case res.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return 0, errors.Join(
			errors.New("the file is shorter than what was downloaded; beginning anew"), f.DropPart(),
		)
	case res.StatusCode == http.StatusRequestTimeout, res.StatusCode == http.StatusTooManyRequests,
		res.StatusCode >= 500:
		attempt.RetryAfter, _ = webhook.RetryAfter(res.Header, c.Now(), maxAsked)
		return 0, fmt.Errorf("the server answered %s", res.Status)
	}
	return 0, Unfit{"the server of the file answered " + res.Status}
}

// receive appends the response's body to the existing part.
func (f *File) receive(body io.Reader, header http.Header, have int64) (err error) {
	if have == 0 {
		// The old part must not be combined with the new tag.
		if err := f.DropPart(); err != nil {
			return err
		}
		if tag := validator(header); tag != "" {
			if err := durable.Replace(f.Path+TagSuffix, []byte(tag), 0o600); err != nil {
				return err
			}
		}
	}
	part, err := os.OpenFile(f.Path+PartSuffix, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, part.Close()) }()
	if _, err := part.Seek(have, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(part, body)
	return errors.Join(err, part.Sync())
}

// finish verifies the checksum of the download and puts the file in place.
func (f *File) finish() error {
	part, err := os.Open(f.Path + PartSuffix)
	if err != nil {
		return err
	}
	defer func() { _ = part.Close() }() // nothing was written
	sum, name, want := sha256.New(), "SHA-256", f.SHA256
	if want == "" {
		sum, name, want = sha512.New(), "SHA-512", f.SHA512
	}
	n, err := io.Copy(sum, part)
	if err != nil {
		return err
	}
	if f.Size > 0 && n < f.Size {
		return io.ErrUnexpectedEOF
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return Unfit{fmt.Sprintf("the file's %s is %s, not %s", name, got, want)}
	}
	if err := os.Rename(f.Path+PartSuffix, f.Path); err != nil {
		return err
	}
	return errors.Join(durable.Remove(f.Path+TagSuffix), durable.SyncFolder(filepath.Dir(f.Path)))
}

// validator returns the value for If-Range (RFC 9110, section 13.1.5): a strong ETag, or the date
// of the last change.
func validator(h http.Header) string {
	if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) && len(tag) <= maxValidator {
		return tag
	}
	if date := h.Get("Last-Modified"); date != "" {
		if _, err := http.ParseTime(date); err == nil {
			return date
		}
	}
	return ""
}

// rangeStart parses "bytes 100-199/200".
func rangeStart(header string) (int64, bool) {
	span, ok := strings.CutPrefix(header, "bytes ")
	if !ok {
		return 0, false
	}
	first, _, ok := strings.Cut(span, "-")
	start, err := strconv.ParseInt(first, 10, 64)
	return start, ok && err == nil && start >= 0
}
