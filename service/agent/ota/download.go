package ota

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/transfer"
)

// progressPeriod is the minimum time between two stored progress values.
const progressPeriod = 5 * time.Second

func (m *Manager) artifact(sum string) string { return filepath.Join(m.cfg.Folder, sum) }

// download fetches the artifact. It retries until the download time is over.
func (m *Manager) download(ctx context.Context, u *Update) (Outcome, string, error) {
	release, err := m.holdArtifact(ctx, u.SHA256)
	if err != nil {
		return Done, "", err
	}
	defer release()
	if _, err := os.Stat(m.artifact(u.SHA256)); err == nil {
		return Done, "", nil // downloaded for another device, or before a crash
	}
	file := transfer.File{
		URL: u.URL, Path: m.artifact(u.SHA256), SHA256: u.SHA256, Size: u.Size, MaxSize: m.cfg.MaxSize,
	}
	left := m.downloadTime(u)
	limited, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	retry := backoff.Backoff{Min: time.Second, Max: 5 * time.Minute, MaxAsked: m.cfg.RetryAfterMax, Rand: m.cfg.Rand}
	anew := false // the download was restarted because the part on disk was damaged
	for {
		before := file.PartSize()
		attempt, err := m.fetch(limited, u, &file)
		var unfit transfer.Unfit
		switch {
		case err == nil:
			return Done, "", nil
		case ctx.Err() != nil:
			return Done, "", ctx.Err()
		case errors.As(err, &unfit) && attempt.Resumed && !anew:
			// A power loss can leave zeros in the part that was downloaded before.
			m.cfg.Log.Warn(
				"the download was resumed, and the result is wrong; beginning anew", "device", u.DeviceID,
				"request", u.RequestID, "error", err,
			)
			anew = true
			if err := file.DropPart(); err != nil {
				return Done, "", err
			}
		case errors.Is(err, transfer.ErrTooLarge):
			return Broken, fmt.Sprintf(
				"the artifact is larger than --ota-max-size allows (%d bytes)", m.cfg.MaxSize,
			), file.DropPart()
		case errors.As(err, &unfit):
			return Broken, clean(unfit.Reason), file.DropPart()
		}
		why := reason(err)
		m.cfg.Log.Info("the download continues later", "device", u.DeviceID, "request", u.RequestID, "error", why)
		if message := clean("the download is tried again: " + why); message != u.Message {
			if err := m.progress(ctx, u, u.Progress, message); err != nil {
				m.cfg.Log.Warn("why a download waits could not be stored", "device", u.DeviceID, "error", err)
			}
		}
		if file.PartSize() > before {
			retry.Reset() // it made progress
		}
		if !backoff.Sleep(limited, retry.Next(attempt.RetryAfter)) {
			if ctx.Err() != nil {
				return Done, "", ctx.Err()
			}
			return Broken, clean(
				fmt.Sprintf("not downloaded within %s: %s", m.cfg.DownloadTimeout, why),
			), file.DropPart()
		}
	}
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// reason describes the error of an attempt. Of URLs it shows only the host, since the rest can hold
// credentials. Errors of package http quote URLs, and parts of them.
func reason(err error) string {
	var request *url.Error
	if !errors.As(err, &request) {
		return err.Error()
	}
	text := quoted.ReplaceAllString(request.Err.Error(), `"..."`)
	if u, err := url.Parse(request.URL); err == nil {
		text = u.Host + ": " + text
	}
	return text
}

// artifactLock is held while a device downloads or removes an artifact.
type artifactLock struct {
	held  chan struct{}
	users int // the number of holders and waiters
}

// holdArtifact makes sure that only one device at a time downloads an artifact.
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

// fetch makes one request for the missing part.
func (m *Manager) fetch(ctx context.Context, u *Update, file *transfer.File) (transfer.Attempt, error) {
	fetcher, told := transfer.Fetcher{Client: m.cfg.Client, Now: m.cfg.Now}, m.cfg.Now()
	return fetcher.Fetch(ctx, file, func(done, total int64) error {
		now := m.cfg.Now()
		if now.Sub(told) < progressPeriod {
			return nil
		}
		told = now
		percent := u.Progress
		if total > 0 {
			percent = int(min(99, done*100/total))
		}
		if percent == u.Progress && u.Message == "" {
			return nil
		}
		return m.progress(ctx, u, percent, "")
	})
}

// discard removes an artifact unless another update still needs it.
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
	file := transfer.File{Path: m.artifact(sum)}
	return errors.Join(durable.Remove(file.Path), file.DropPart())
}

// tidy removes files of artifacts that no update needs.
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
		if sum := strings.TrimSuffix(strings.TrimSuffix(e.Name(), transfer.PartSuffix), transfer.TagSuffix); !needed[sum] {
			if err := durable.Remove(filepath.Join(m.cfg.Folder, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
