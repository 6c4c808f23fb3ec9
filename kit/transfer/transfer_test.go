package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/transfer"
)

var content = bytes.Repeat([]byte("firmware"), 8<<10)

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// fileOf returns a file to fetch, in its own directory.
func fileOf(t *testing.T, b []byte, url string) *transfer.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	return &transfer.File{URL: url, Path: path, SHA256: sumOf(b), Size: int64(len(b)), MaxSize: 1 << 20}
}

// server responds with f, and records the requested ranges.
func server(t *testing.T, f http.HandlerFunc) (url string, ranges func() []string) {
	t.Helper()
	var mu sync.Mutex
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Header.Get("Range"))
		mu.Unlock()
		f(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return asked
	}
}

// serves returns a handler that serves the content with a tag.
func serves(tag string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if tag != "" {
			w.Header().Set("ETag", tag)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

func fetcher() *transfer.Fetcher { return &transfer.Fetcher{Client: http.DefaultClient, Now: time.Now} }

func fetch(t *testing.T, f *transfer.File) (transfer.Attempt, error) {
	t.Helper()
	return fetcher().Fetch(t.Context(), f, nil)
}

// whole fails the test unless the file is in place, with no other files next to it.
func whole(t *testing.T, f *transfer.File) {
	t.Helper()
	got, err := os.ReadFile(f.Path)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(f.Path)); err != nil || len(entries) != 1 {
		t.Errorf("beside it are %v, %v", entries, err)
	}
}

func absent(t *testing.T, f *transfer.File) {
	t.Helper()
	if _, err := os.Stat(f.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is in its place: %v", err)
	}
}

// has creates a part of the file with a tag.
func has(t *testing.T, f *transfer.File, part []byte, tag string) {
	t.Helper()
	if err := errors.Join(
		os.WriteFile(f.Path+transfer.PartSuffix, part, 0o600), os.WriteFile(f.Path+transfer.TagSuffix, []byte(tag), 0o600),
	); err != nil {
		t.Fatal(err)
	}
}

func TestAFileIsPutInItsPlaceWithItsProgress(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{`"v1"`, ""} {
		url, _ := server(t, serves(tag))
		f := fileOf(t, content, url)
		last, size := int64(0), int64(len(content))
		attempt, err := fetcher().Fetch(t.Context(), f, func(done, total int64) error {
			if done < last || total != size {
				t.Errorf("%d of %d after %d", done, total, last)
			}
			last = done
			return nil
		})
		if err != nil || attempt != (transfer.Attempt{}) || last != size {
			t.Errorf("%+v, %d, %v", attempt, last, err)
		}
		whole(t, f)
	}
}

func TestWhatWasDownloadedIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	broken := true
	url, ranges := server(t, func(w http.ResponseWriter, r *http.Request) {
		if !broken {
			serves(`"v1"`)(w, r)
			return
		}
		broken = false
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:1000])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	f := fileOf(t, content, url)
	if _, err := fetch(t, f); err == nil || errors.As(err, new(transfer.Unfit)) {
		t.Fatalf("cut off: %v", err)
	}
	absent(t, f)
	have := f.PartSize()
	if have == 0 || have > 1000 {
		t.Fatalf("%d bytes are there", have)
	}
	if attempt, err := fetch(t, f); err != nil || !attempt.Resumed {
		t.Errorf("%+v, %v", attempt, err)
	}
	if got := ranges(); !slices.Equal(got, []string{"", fmt.Sprintf("bytes=%d-", have)}) {
		t.Errorf("asked for %q", got)
	}
	whole(t, f)
}

func TestAPartOfAnotherFileIsNotContinued(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		part       []byte
		tag, serve string
	}{
		"the server has another by now": {bytes.Repeat([]byte("hardware"), 100), `"v0"`, `"v1"`},
		"nobody knows of which it is":   {content[:100], "", `"v1"`},
		"the server does not tell":      {content[:100], `"v1"`, ""},
	} {
		url, _ := server(t, serves(c.serve))
		f := fileOf(t, content, url)
		has(t, f, c.part, c.tag)
		if attempt, err := fetch(t, f); err != nil || attempt.Resumed {
			t.Errorf("%s: %+v, %v", name, attempt, err)
		}
		whole(t, f)
	}
}

func TestADamagedPartIsToldFromAWrongFile(t *testing.T) {
	t.Parallel()
	url, _ := server(t, serves(`"v1"`))
	damaged := fileOf(t, content, url)
	has(t, damaged, make([]byte, 100), `"v1"`)
	attempt, err := fetch(t, damaged)
	if !errors.As(err, new(transfer.Unfit)) || !attempt.Resumed {
		t.Errorf("%+v, %v", attempt, err)
	}
	absent(t, damaged)
	if err := damaged.DropPart(); err != nil || damaged.PartSize() != 0 {
		t.Fatal(err)
	}
	if _, err := fetch(t, damaged); err != nil {
		t.Error(err)
	}
	whole(t, damaged)
	wrong := fileOf(t, content, url)
	wrong.SHA256 = sumOf(nil)
	attempt, err = fetch(t, wrong)
	if !errors.As(err, new(transfer.Unfit)) || attempt.Resumed || !strings.Contains(err.Error(), sumOf(content)) {
		t.Errorf("%+v, %v", attempt, err)
	}
	absent(t, wrong)
}

func TestNoMoreIsStoredThanIsTaken(t *testing.T) {
	t.Parallel()
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(content); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		size, most int64
		serve      http.HandlerFunc
		want       string
	}{
		"larger than is taken, as it says":  {0, 1000, serves(""), "larger than is taken"},
		"larger than is taken, without end": {0, 1000, endless, "larger than is taken"},
		"larger than was announced":         {1000, 1 << 20, serves(""), "not the 1000 that were announced"},
		"more than was announced":           {1000, 1 << 20, endless, "more than the 1000 bytes that were announced"},
		"smaller than was announced":        {1 << 19, 1 << 20, serves(""), "not the 524288 that were announced"},
	} {
		url, _ := server(t, c.serve)
		f := fileOf(t, content, url)
		f.Size, f.MaxSize = c.size, c.most
		_, err := fetch(t, f)
		if !errors.As(err, new(transfer.Unfit)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, transfer.ErrTooLarge) != (c.most == 1000) {
			t.Errorf("%s: %v", name, err)
		}
		if f.PartSize() > 1000 {
			t.Errorf("%s: %d bytes are stored", name, f.PartSize())
		}
		absent(t, f)
	}
}

func TestAnswersThatAreNotTheFile(t *testing.T) {
	t.Parallel()
	status := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
		}
	}
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		unfit bool
		after time.Duration
		part  int64 // of 100 bytes that stays
	}{
		"none":             {status(404), true, 0, 100},
		"busy":             {status(503, "Retry-After", "7"), false, 7 * time.Second, 100},
		"too many":         {status(429, "Retry-After", "999999999"), false, 24 * time.Hour, 100},
		"too slow":         {status(408), false, 0, 100},
		"shorter":          {status(416), false, 0, 0},
		"another part":     {status(206, "Content-Range", "bytes 5-9/10"), false, 0, 0},
		"a part of no end": {status(206, "Content-Range", "everything"), false, 0, 0},
	} {
		url, _ := server(t, c.serve)
		f := fileOf(t, content, url)
		has(t, f, content[:100], `"v1"`)
		attempt, err := fetch(t, f)
		if err == nil || errors.As(err, new(transfer.Unfit)) != c.unfit || attempt.RetryAfter != c.after ||
			f.PartSize() != c.part {
			t.Errorf("%s: %+v, %v; %d bytes are left", name, attempt, err, f.PartSize())
		}
		absent(t, f)
	}
	f := fileOf(t, content, "http://[::1")
	if _, err := fetch(t, f); !errors.As(err, new(transfer.Unfit)) {
		t.Errorf("no URL: %v", err)
	}
}

func TestAnAttemptEndsWithWhoIsToldOfItsProgress(t *testing.T) {
	t.Parallel()
	url, _ := server(t, serves(`"v1"`))
	f := fileOf(t, content, url)
	full := errors.New("the database is full")
	if _, err := fetcher().Fetch(t.Context(), f, func(int64, int64) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	absent(t, f)
}

// silent is a server that sends a few bytes now and then, and then nothing.
type silent struct{ pieces int }

func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	body := io.MultiReader(readFunc(func(b []byte) (int, error) {
		if s.pieces--; s.pieces < 0 {
			return 0, io.EOF
		}
		time.Sleep(50 * time.Second)
		return copy(b, "firm"), nil
	}), readFunc(func([]byte) (int, error) {
		<-r.Context().Done()
		return 0, r.Context().Err()
	}))
	return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{}, Body: io.NopCloser(body)}, nil
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

func TestAServerThatSendsNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := fileOf(t, content, "http://silent.example")
		began := time.Now()
		c := transfer.Fetcher{Client: &http.Client{Transport: &silent{4}}, Now: time.Now}
		_, err := c.Fetch(t.Context(), f, nil)
		if took := time.Since(began); took != 4*50*time.Second+time.Minute || err == nil ||
			!strings.Contains(err.Error(), "sends nothing") || f.PartSize() != 16 {
			t.Errorf("after %s: %v; %d bytes", took, err, f.PartSize())
		}
	})
}

func TestAReaderIsBoundedAndCounted(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]error{-1: nil, 8: nil, 9: nil, 7: transfer.ErrTooLarge, 0: transfer.ErrTooLarge} {
		var last int64
		r := transfer.Reader(t.Context(), iotest.OneByteReader(strings.NewReader("firmware")), limit, func(done int64) error {
			last = done
			return nil
		})
		got, err := io.ReadAll(r)
		if !errors.Is(err, want) || int64(len(got)) != last {
			t.Errorf("limit %d: %q, told of %d, %v", limit, got, last, err)
		}
	}
	if got, err := io.ReadAll(transfer.Reader(t.Context(), strings.NewReader(""), 0, nil)); len(got) > 0 || err != nil {
		t.Errorf("nothing, of which nothing is taken: %q, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := io.ReadAll(transfer.Reader(ctx, strings.NewReader("firmware"), -1, nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
