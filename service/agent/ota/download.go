package ota

import (
	"context"
	"crypto/sha256"
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

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

const (
	partSuffix     = ".part"      // what there is of an artifact
	tagSuffix      = ".validator" // the ETag or date that it belongs to
	stallTimeout   = time.Minute  // without a byte, the connection is given up
	progressPeriod = 5 * time.Second
	copyBuffer     = 32 << 10
)

func (m *Manager) artifact(sum string) string { return filepath.Join(m.cfg.Folder, sum) }

// errUnfit is why an artifact is given up; other errors are tried again.
type errUnfit struct{ reason string }

func (e errUnfit) Error() string { return e.reason }

// download fetches the artifact, in as many attempts as it takes.
func (m *Manager) download(ctx context.Context, u *Update) (Outcome, string, error) {
	release, err := m.holdArtifact(ctx, u.SHA256)
	if err != nil {
		return Done, "", err
	}
	defer release()
	if _, err := os.Stat(m.artifact(u.SHA256)); err == nil {
		return Done, "", nil // for another device, or before a crash
	}
	left := m.downloadTime(u)
	limited, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	retry := backoff.Backoff{Min: time.Second, Max: 5 * time.Minute, MaxAsked: m.cfg.RetryAfterMax, Rand: m.cfg.Rand}
	anew := false // it was begun anew, since the part that was there had been damaged
	for {
		before := m.partSize(u.SHA256)
		asked, resumed, err := m.fetch(limited, u)
		var unfit errUnfit
		switch {
		case err == nil:
			return Done, "", nil
		case ctx.Err() != nil:
			return Done, "", ctx.Err()
		case errors.As(err, &unfit) && resumed && !anew:
			// A loss of power can leave zeroes in the part that was downloaded before.
			m.cfg.Log.Warn(
				"the download was resumed, and the result is wrong; beginning anew", "device", u.DeviceID,
				"request", u.RequestID, "error", err,
			)
			anew = true
			if err := m.dropPart(u.SHA256); err != nil {
				return Done, "", err
			}
		case errors.As(err, &unfit):
			return Broken, clean(unfit.reason), m.dropPart(u.SHA256)
		}
		m.cfg.Log.Info("the download continues later", "device", u.DeviceID, "request", u.RequestID, "error", err)
		if m.partSize(u.SHA256) > before {
			retry.Reset() // it gets on
		}
		if !backoff.Sleep(limited, retry.Next(asked)) {
			if ctx.Err() != nil {
				return Done, "", ctx.Err()
			}
			return Broken, clean(
				fmt.Sprintf("not downloaded within %s: %v", m.cfg.DownloadTimeout, err),
			), m.dropPart(u.SHA256)
		}
	}
}

// artifactLock is held by the device that downloads or removes an artifact.
type artifactLock struct {
	held  chan struct{}
	users int // who holds it or waits for it
}

// holdArtifact lets one device at a time download an artifact.
func (m *Manager) holdArtifact(ctx context.Context, sum string) (release func(), err error) {
	m.mu.Lock()
	lock := m.artifacts[sum]
	if lock == nil {
		lock = &artifactLock{held: make(chan struct{}, 1)}
		m.artifacts[sum] = lock
	}
	lock.users++
	m.mu.Unlock()
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if lock.users--; lock.users == 0 {
			delete(m.artifacts, sum)
		}
	}
	select {
	case lock.held <- struct{}{}:
		return func() { <-lock.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

func (m *Manager) partSize(sum string) int64 {
	info, err := os.Stat(m.artifact(sum) + partSuffix)
	if err != nil {
		return 0
	}
	return info.Size()
}

func (m *Manager) dropPart(sum string) error {
	return errors.Join(durable.Remove(m.artifact(sum)+partSuffix), durable.Remove(m.artifact(sum)+tagSuffix))
}

// fetch asks for what is missing, once, and checks the artifact when it is whole.
// asked is what the server wants us to wait before the next attempt, and resumed
// tells that the answer was added to a part that was there.
func (m *Manager) fetch(ctx context.Context, u *Update) (asked time.Duration, resumed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(stallTimeout, func() { cancel(errors.New("the server sends nothing")) })
	defer stall.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.URL, nil)
	if err != nil {
		return 0, resumed, errUnfit{"the URL cannot be used"}
	}
	req.Header.Set("Accept-Encoding", "identity") // ranges are those of the artifact itself
	have := m.partSize(u.SHA256)
	tag, tagErr := os.ReadFile(m.artifact(u.SHA256) + tagSuffix)
	if have > 0 && tagErr == nil && len(tag) > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
		req.Header.Set("If-Range", string(tag))
	} else {
		have = 0
	}
	res, err := m.cfg.Client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return 0, resumed, err
	}
	defer func() { _ = res.Body.Close() }()
	switch {
	case res.StatusCode == http.StatusOK:
		have = 0
	case res.StatusCode == http.StatusPartialContent:
		resumed = have > 0
		if start, ok := rangeStart(res.Header.Get("Content-Range")); !ok || start != have {
			return 0, resumed, errors.Join(
				errors.New("the server sent another part than was asked for"), m.dropPart(u.SHA256),
			)
		}
	case res.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return 0, resumed, errors.Join(
			errors.New("the artifact is shorter than what was downloaded; beginning anew"), m.dropPart(u.SHA256),
		)
	case res.StatusCode == http.StatusRequestTimeout, res.StatusCode == http.StatusTooManyRequests, res.StatusCode >= 500:
		asked, _ := webhook.RetryAfter(res.Header, m.cfg.Now(), 24*time.Hour) // 0: it does not ask; backoff bounds it
		return asked, resumed, fmt.Errorf("the server answered %s", res.Status)
	default:
		return 0, resumed, errUnfit{"the server of the artifact answered " + res.Status}
	}
	total := u.Size
	if res.ContentLength >= 0 {
		if total > 0 && have+res.ContentLength != total {
			return 0, resumed, errUnfit{
				fmt.Sprintf("the artifact has %d bytes, not the %d that were announced", have+res.ContentLength, total),
			}
		}
		total = have + res.ContentLength
	}
	if total > m.cfg.MaxSize {
		return 0, resumed, m.tooLarge()
	}
	if err := m.receive(ctx, u, res, have, total, stall); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return 0, resumed, err
	}
	return 0, resumed, m.finish(u)
}

func (m *Manager) tooLarge() error {
	return errUnfit{fmt.Sprintf("the artifact is larger than --ota-max-size allows (%d bytes)", m.cfg.MaxSize)}
}

// receive appends the answer's body to what there is.
func (m *Manager) receive(
	ctx context.Context, u *Update, res *http.Response, have, total int64, stall *time.Timer,
) (err error) {
	path := m.artifact(u.SHA256)
	if have == 0 {
		// The old part must not be taken for one of the new tag.
		if err := m.dropPart(u.SHA256); err != nil {
			return err
		}
		if tag := validator(res.Header); tag != "" {
			if err := durable.Replace(path+tagSuffix, []byte(tag), 0o600); err != nil {
				return err
			}
		}
	}
	f, err := os.OpenFile(path+partSuffix, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Seek(have, io.SeekStart); err != nil {
		return err
	}
	buffer, told := make([]byte, copyBuffer), m.cfg.Now()
	for {
		n, readErr := res.Body.Read(buffer)
		stall.Reset(stallTimeout)
		if have += int64(n); have > m.cfg.MaxSize {
			return m.tooLarge()
		}
		if u.Size > 0 && have > u.Size {
			return errUnfit{fmt.Sprintf("the artifact has more than the %d bytes that were announced", u.Size)}
		}
		if _, err := f.Write(buffer[:n]); err != nil {
			return err
		}
		if now := m.cfg.Now(); total > 0 && now.Sub(told) >= progressPeriod {
			told = now
			if percent := int(min(99, have*100/total)); percent != u.Progress {
				if err := m.progress(ctx, u, percent); err != nil {
					return err
				}
			}
		}
		switch {
		case errors.Is(readErr, io.EOF):
			return f.Sync()
		case readErr != nil:
			return errors.Join(readErr, f.Sync())
		}
	}
}

// finish checks the sum of what was downloaded and puts it in place.
func (m *Manager) finish(u *Update) error {
	path := m.artifact(u.SHA256)
	f, err := os.Open(path + partSuffix)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	sum := sha256.New()
	n, err := io.CopyBuffer(sum, f, make([]byte, copyBuffer))
	if err != nil {
		return err
	}
	if u.Size > 0 && n < u.Size {
		return io.ErrUnexpectedEOF
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != u.SHA256 {
		return errUnfit{fmt.Sprintf("the artifact's SHA-256 is %s, not %s", got, u.SHA256)}
	}
	if err := os.Rename(path+partSuffix, path); err != nil {
		return err
	}
	return durable.Remove(path + tagSuffix) // makes the renaming durable, too
}

// validator is what If-Range needs (RFC 9110, section 13.1.5): a strong ETag, or
// the date of the last change.
func validator(h http.Header) string {
	if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) && len(tag) <= 1024 {
		return tag
	}
	if date := h.Get("Last-Modified"); date != "" {
		if _, err := http.ParseTime(date); err == nil {
			return date
		}
	}
	return ""
}

// rangeStart reads "bytes 100-199/200".
func rangeStart(header string) (int64, bool) {
	span, ok := strings.CutPrefix(header, "bytes ")
	if !ok {
		return 0, false
	}
	first, _, ok := strings.Cut(span, "-")
	start, err := strconv.ParseInt(first, 10, 64)
	return start, ok && err == nil && start >= 0
}

// discard removes an artifact that no update needs any more.
func (m *Manager) discard(ctx context.Context, sum string) error {
	release, err := m.holdArtifact(ctx, sum)
	if err != nil {
		return err
	}
	defer release()
	updates, err := m.active(ctx)
	if err != nil {
		return err
	}
	for _, u := range updates {
		if u.SHA256 == sum {
			return nil
		}
	}
	return errors.Join(durable.Remove(m.artifact(sum)), m.dropPart(sum))
}

// tidy removes what is left of artifacts that no update needs.
func (m *Manager) tidy(ctx context.Context) error {
	updates, err := m.active(ctx)
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, u := range updates {
		needed[u.SHA256] = true
	}
	entries, err := os.ReadDir(m.cfg.Folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if sum := strings.TrimSuffix(strings.TrimSuffix(e.Name(), partSuffix), tagSuffix); !needed[sum] {
			if err := durable.Remove(filepath.Join(m.cfg.Folder, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
