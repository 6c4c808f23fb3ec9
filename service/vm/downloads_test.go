package vm_test

import (
	"bytes"
	"crypto/sha512"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/vm"
)

// mirror is a server of a distribution's images. Its fields may be changed by serve, which is called with the
// number of each request for the image.
type mirror struct {
	url string

	mu       sync.Mutex
	content  []byte
	listed   []byte // what the checksum is of; nil: content
	requests []*http.Request
	// serve answers in place of the mirror; it returns false to let the mirror answer.
	serve func(n int, w http.ResponseWriter, r *http.Request) bool
}

const (
	mirrored  = "/bookworm/latest/debian-12-generic-amd64.qcow2"
	checksums = "/bookworm/latest/SHA512SUMS"
)

func mirroring(t *testing.T) (*mirror, func(c *vm.Config)) {
	t.Helper()
	m := &mirror{content: bytes.Repeat([]byte("an image of a distribution. "), 40_000)}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	m.url = server.URL
	return m, func(c *vm.Config) {
		c.ImageDownloadMirrors, c.ImageDownloadPrivate = []string{"debian=" + server.URL}, true
	}
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch r.URL.Path {
	case checksums:
		of := m.content
		if m.listed != nil {
			of = m.listed
		}
		_, _ = fmt.Fprintf(w, "%x  debian-12-generic-arm64.qcow2\n%x  debian-12-generic-amd64.qcow2\n", sha512.Sum512(nil), sha512.Sum512(of))
	case mirrored:
		m.requests = append(m.requests, r)
		if m.serve != nil && m.serve(len(m.requests), w, r) {
			return
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha512.Sum512(m.content)))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(m.content))
	default:
		http.NotFound(w, r)
	}
}

// cut sends a part of the file, from where it is asked for, and ends the connection.
func (m *mirror) cut(w http.ResponseWriter, r *http.Request, bytes int) {
	from := 0
	if span, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
		from, _ = strconv.Atoi(strings.TrimSuffix(span, "-"))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(m.content)-1, len(m.content)))
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha512.Sum512(m.content)))
	w.Header().Set("Content-Length", strconv.Itoa(len(m.content)-from))
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	_, _ = w.Write(m.content[from : from+bytes])
	panic(http.ErrAbortHandler)
}

func (m *manager) download(token string) vmapi.Image {
	m.Helper()
	return m.image(m.call("POST", "/api/images/download", token, object{"distribution": "debian", "version": "12"}).Want(201))
}

func TestADownloadGoesOnWhereItsConnectionEnded(t *testing.T) {
	t.Parallel()
	from, change := mirroring(t)
	from.serve = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n <= 2 {
			from.cut(w, r, 100_000)
		}
		return false
	}
	m := start(t, change)
	i := m.download(m.user("uma", "user", "acme"))
	if i.State != "completed" || i.Image != "acme:debian-12" || i.Version != "12" || !i.CloudInit {
		t.Fatalf("%+v %v", i, i.Error)
	}
	if got, _ := m.daemon.Image("acme:debian-12"); !bytes.Equal(got, from.content) {
		t.Errorf("%d bytes, which are others", len(got))
	}
	if len(from.requests) != 3 || from.requests[2].Header.Get("Range") != "bytes=200000-" || from.requests[2].Header.Get("If-Range") == "" {
		t.Errorf("%d requests, the last with %v", len(from.requests), from.requests[len(from.requests)-1].Header)
	}
	if left, err := os.ReadDir(m.config.ImageFolder); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestADownloadGoesOnAfterTheServiceWasRestarted(t *testing.T) {
	t.Parallel()
	from, change := mirroring(t)
	reached, release := make(chan struct{}), make(chan struct{})
	from.serve = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha512.Sum512(from.content)))
		w.Header().Set("Content-Length", strconv.Itoa(len(from.content)))
		_, _ = w.Write(from.content[:300_000])
		w.(http.Flusher).Flush()
		close(reached)
		from.mu.Unlock()
		<-release
		from.mu.Lock()
		return true
	}
	m := start(t, change)
	a := m.call("POST", "/api/images/download", m.admin, object{"distribution": "debian", "version": "12"}).Want(201)
	<-reached
	m.eventually("a part was stored", func() bool { return m.stored() >= 300_000 })
	m.again()
	close(release)
	if i := m.image(a); i.State != "completed" {
		t.Fatalf("%+v", i)
	}
	if last := from.requests[len(from.requests)-1].Header.Get("Range"); last != "bytes=300000-" {
		t.Errorf("the last request was for %q", last)
	}
}

// stored returns the bytes of the downloads under way.
func (m *manager) stored() (bytes int64) {
	entries, err := os.ReadDir(m.config.ImageFolder)
	if err != nil {
		m.Fatal(err)
	}
	for _, e := range entries {
		if info, err := os.Stat(m.config.ImageFolder + "/" + e.Name() + "/download.part"); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}

func TestAFileThatChangesDuringItsDownloadIsFetchedAnew(t *testing.T) {
	t.Parallel()
	from, change := mirroring(t)
	from.serve = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 2 {
			from.content = bytes.Repeat([]byte("the new image. "), 50_000)
		}
		if n == 1 {
			from.cut(w, r, 100_000)
		}
		return false
	}
	m := start(t, change)
	if i := m.download(m.admin); i.State != "completed" {
		t.Fatalf("%+v %s", i, *i.Error)
	}
	if got, _ := m.daemon.Image("debian-12"); !bytes.Equal(got, from.content) {
		t.Errorf("%d bytes, which are others", len(got))
	}
}

func TestWhatAMirrorLiesAboutDoesNotGetIntoTheCatalog(t *testing.T) {
	t.Parallel()
	for what, lie := range map[string]struct {
		serve  func(m *mirror) func(n int, w http.ResponseWriter, r *http.Request) bool
		listed []byte
		want   string
	}{
		"checksum": {listed: []byte("another"), want: "SHA-512"},
		"range": {want: "cannot be downloaded", serve: func(m *mirror) func(int, http.ResponseWriter, *http.Request) bool {
			return func(n int, w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Range") == "" {
					m.cut(w, r, 1000)
				}
				w.Header().Set("Content-Range", "bytes 5-10/11")
				w.WriteHeader(http.StatusPartialContent)
				return true
			}
		}},
		"size": {want: "image-max-gib", serve: func(*mirror) func(int, http.ResponseWriter, *http.Request) bool {
			return func(_ int, w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Content-Length", strconv.FormatInt(3<<40, 10))
				return true
			}
		}},
		"redirects": {want: "redirects", serve: func(m *mirror) func(int, http.ResponseWriter, *http.Request) bool {
			return func(_ int, w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, m.url+mirrored, http.StatusFound)
				return true
			}
		}},
		"metadata service": {want: "is not public", serve: func(*mirror) func(int, http.ResponseWriter, *http.Request) bool {
			return func(_ int, w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
				return true
			}
		}},
		"nothing": {want: "404", serve: func(*mirror) func(int, http.ResponseWriter, *http.Request) bool {
			return func(_ int, w http.ResponseWriter, r *http.Request) bool { http.NotFound(w, r); return true }
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			from, change := mirroring(t)
			from.listed = lie.listed
			if lie.serve != nil {
				from.serve = lie.serve(from)
			}
			m := start(t, change)
			i := m.download(m.admin)
			if i.State != "failed" || !strings.Contains(*i.Error, lie.want) {
				t.Errorf("%s: %v", i.State, *i.Error)
			}
			if _, ok := m.daemon.Image("debian-12"); ok {
				t.Error("it is in the catalog")
			}
			if left, err := os.ReadDir(m.config.ImageFolder); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

func TestPrivateMirrorsAreNotReachedUnlessASettingSaysSo(t *testing.T) {
	t.Parallel()
	from, change := mirroring(t)
	m := start(t, change, func(c *vm.Config) { c.ImageDownloadPrivate = false })
	if i := m.download(m.admin); i.State != "failed" || !strings.Contains(*i.Error, "set image-download-private") {
		t.Errorf("%v", *i.Error)
	}
	if len(from.requests) != 0 {
		t.Error("the mirror was reached")
	}
}

func TestADownloadThatRunsOutOfTimeSaysWhatFailed(t *testing.T) {
	t.Parallel()
	from, change := mirroring(t)
	from.listed = []byte("another")
	from.serve = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return true
	}
	m := start(t, change, func(c *vm.Config) { c.ImageMaxTime = time.Second })
	i := m.download(m.user("ada", "admin", "acme"))
	if !strings.Contains(*i.Error, "image-max-time") || !strings.Contains(*i.Error, "503") {
		t.Errorf("%v", *i.Error)
	}
	own := contracttest.As[vmapi.Image](m.call("GET", "/api/images/"+i.Id.String(), m.login("ada", "password of ada"), nil).Want(200))
	if strings.Contains(*own.Error, "(path)") {
		t.Errorf("to an admin of a tenant: %s", *own.Error)
	}
}

func TestADownloadThatIsCancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	from, change := mirroring(t)
	reached := make(chan struct{})
	from.serve = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", strconv.Itoa(len(from.content)))
		_, _ = io.WriteString(w, "some")
		w.(http.Flusher).Flush()
		close(reached)
		<-r.Context().Done()
		return true
	}
	m := start(t, change)
	a := m.call("POST", "/api/images/download", m.admin, object{"distribution": "debian", "version": "12"}).Want(201)
	<-reached
	made := contracttest.As[vmapi.Image](a)
	m.call("POST", "/api/jobs/"+*made.JobId+"/cancel", m.admin, nil).Want(200)
	if i := m.image(a); i.State != "cancelled" || i.Error != nil {
		t.Errorf("%+v", i)
	}
	log := m.log(made)
	if !strings.Contains(log, "Cancelled") || strings.Contains(log, "internal error") {
		t.Errorf("the log says %q", log)
	}
	if left, err := os.ReadDir(m.config.ImageFolder); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	m.call("DELETE", "/api/images/"+made.Id.String(), m.admin, nil).Want(204)
}
