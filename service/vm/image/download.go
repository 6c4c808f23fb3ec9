package image

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/transfer"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

const (
	// attempts is how often a download is tried without any progress.
	attempts = 6
	// renewals is how often a download begins anew because the file is not what it should be.
	renewals = 2
	// maxList is the most bytes of a list of checksums.
	maxList      = 1 << 20
	maxRedirects = 5
	// maxPause is the longest pause between two attempts.
	maxPause = 30 * time.Second
)

// Download begins to download an image.
func (m *Manager) Download(ctx context.Context, r Request) (record.Image, error) {
	if _, err := m.source(r.Spec.Distribution, r.Spec.Version, r.Spec.Format); err != nil {
		return record.Image{}, err
	}
	if r.Name == "" {
		r.Name = r.Spec.Distribution + "-" + r.Spec.Version
		if r.Spec.Format == record.ImageISO {
			r.Name += "-iso"
		}
	}
	r.Spec.CloudInit = r.Spec.Format != record.ImageISO
	return m.begin(ctx, record.JobImageDownload, r)
}

// client returns a client that reaches only what the guard lets it.
func (m *Manager) client() *http.Client {
	guard := webhook.Guard{AllowPrivate: m.cfg.AllowPrivate}
	dialer := net.Dialer{Timeout: 15 * time.Second, Control: guard.Control}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: time.Minute,
			MaxResponseHeaderBytes: 64 << 10, DisableCompression: true, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return errors.New("too many redirects")
			}
			if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
				return errors.New("a redirect leads from https to " + r.URL.Scheme)
			}
			_, err := guard.CheckURL(r.URL.String())
			return err
		},
	}
}

// download fetches an image with its checksum, and returns its path.
func (m *Manager) download(ctx context.Context, w *work) (string, error) {
	spec := &w.image.Spec.V
	source, err := m.source(spec.Distribution, spec.Version, spec.Format)
	if err != nil {
		return "", err
	}
	if _, err := (webhook.Guard{AllowPrivate: m.cfg.AllowPrivate}).CheckURL(source.URL(source.Checksums)); err != nil {
		return "", publicTarget(err)
	}
	d := download{m: m, w: w, source: source, fetch: transfer.Fetcher{Client: m.client(), Now: m.cfg.Now}}
	d.file = transfer.File{Path: filepath.Join(w.folder, "download"), MaxSize: m.cfg.MaxSize}
	if _, err := os.Stat(d.file.Path); err == nil {
		return d.file.Path, nil // the job was interrupted after the checksum was verified
	}
	var last error
	for failures := 0; ; {
		had := d.file.PartSize()
		told, err := d.attempt(ctx)
		if err == nil {
			w.log.say("The checksum is right")
			return d.file.Path, nil
		}
		if ctx.Err() != nil {
			return "", outOfTime(ctx, last)
		}
		if last = publicTarget(err); errors.Is(err, webhook.ErrBlockedTarget) {
			return "", last
		}
		if failures++; d.file.PartSize() > had {
			failures = 1
		}
		if err := d.judge(err, failures); err != nil {
			return "", err
		}
		w.log.say("Trying again: %v", err)
		if pause(ctx, max(told.RetryAfter, m.cfg.Pause<<failures)) != nil {
			return "", outOfTime(ctx, last)
		}
	}
}

// publicTarget says of an address that the guard refuses which setting is about it.
func publicTarget(err error) error {
	if !errors.Is(err, webhook.ErrBlockedTarget) {
		return err
	}
	return fault.Wrap(fault.Unavailable, err, "the address of the download is not public; set image-download-private on "+
		"the server if a mirror inside the network is meant").WithCode("target_blocked")
}

// outOfTime returns why a download ended with its context, and what failed last.
func outOfTime(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	if last == nil || errors.Is(cause, context.Canceled) {
		return cause
	}
	f := fault.From(cause)
	return fault.Wrap(f.Kind, cause, "%s; the last attempt failed: %v", f.Message, last).WithCode(f.PublicCode())
}

// download is a download under way.
type download struct {
	m       *Manager
	w       *work
	source  Source
	fetch   transfer.Fetcher
	file    transfer.File
	aimed   bool // file has the URL and the checksum
	renewed int  // how often the download began anew
}

// attempt fetches what is missing.
func (d *download) attempt(ctx context.Context) (told transfer.Attempt, err error) {
	if !d.aimed {
		list, err := d.m.checksums(ctx, d.fetch.Client, d.source.URL(d.source.Checksums))
		if err != nil {
			return told, err
		}
		if err := aim(&d.file, &d.source, list); err != nil {
			return told, err
		}
		d.aimed = true
		d.w.log.say("Downloading %s", d.file.URL)
	}
	return d.fetch.Fetch(ctx, &d.file, func(done, total int64) error {
		if total > 0 {
			const share = 0.85 // of the job
			d.w.progress(share * float64(done) / float64(total))
		}
		return nil
	})
}

// judge returns nil if another attempt makes sense after an error, and otherwise the fault.
func (d *download) judge(err error, failures int) error {
	var unfit transfer.Unfit
	switch {
	case errors.Is(err, transfer.ErrTooLarge):
		return d.m.tooLarge()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return err
	case errors.As(err, &unfit) && d.renewed < renewals:
		// A part may be damaged, or the distribution has published a newer file meanwhile.
		d.renewed, d.aimed = d.renewed+1, false
		return d.file.DropPart()
	case unfit.Reason != "", failures >= attempts:
		return fault.Wrap(fault.Unavailable, err, "%s cannot be downloaded: %v", d.source.URL(d.source.File), err).
			WithCode("image_download_failed")
	}
	return nil
}

// aim sets what is to be fetched, by the list of checksums.
func aim(file *transfer.File, source *Source, list string) error {
	c, err := findChecksum(list, source.File)
	if err != nil {
		return err
	}
	file.URL, file.SHA256, file.SHA512 = source.URL(c.file), c.sum, ""
	if c.sha512 {
		file.SHA256, file.SHA512 = "", c.sum
	}
	return nil
}

// checksums reads a list of checksums.
func (m *Manager) checksums(ctx context.Context, client *http.Client, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }() // it was only read
	if res.StatusCode != http.StatusOK {
		return "", errors.New("the server answered " + res.Status)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxList+1))
	if err == nil && len(text) > maxList {
		err = errors.New("the list of checksums is too long")
	}
	return string(text), err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(min(d, maxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
