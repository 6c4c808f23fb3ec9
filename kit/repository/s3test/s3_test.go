package s3test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository"
	"github.com/mainstay-infra/mainstay/kit/repository/store"
	"github.com/mainstay-infra/mainstay/kit/repository/store/s3"
)

// gateway is the server's program, built once.
var gateway = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.TempDir(), "mainstay-versitygw-1.8.0")
	out, err := exec.Command("go", "build", "-o", path, "github.com/versity/versitygw/cmd/versitygw").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

const access, secret = "access", "secret-of-the-test"

// server starts a server with a bucket and returns how to reach it.
func server(t *testing.T) s3.Config {
	t.Helper()
	program, err := gateway()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	folder := t.TempDir()
	cmd := exec.Command(program, "--access", access, "--secret", secret, "--port", address, "--quiet",
		"posix", "--sidecar", t.TempDir(), folder)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	client, err := minio.New(address, &minio.Options{Creds: credentials.NewStaticV4(access, secret, ""), BucketLookup: minio.BucketLookupPath})
	if err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if err = client.MakeBucket(t.Context(), "backups", minio.MakeBucketOptions{}); err == nil {
			break
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatal(err, log.String())
		}
	}
	return s3.Config{
		Endpoint: "http://" + address, Bucket: "backups", Prefix: "of-mainstay/", AccessKey: access, SecretKey: secret, PathStyle: true,
	}
}

func open(t *testing.T, c s3.Config) *s3.S3 {
	t.Helper()
	s, err := s3.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAStoreOfS3KeepsItsPromises(t *testing.T) {
	t.Parallel()
	s := open(t, server(t))
	ctx := t.Context()
	large := make([]byte, 17<<20)
	for i := range large {
		large[i] = byte(rand.Uint32())
	}
	for name, content := range map[string][]byte{"a/empty": {}, "a/small": []byte("small"), "a/large": large} {
		if err := s.Put(ctx, name, content); err != nil {
			t.Fatal(name, err)
		}
		if err := s.Put(ctx, name, []byte("other")); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s was put twice: %v", name, err)
		}
		if got, err := s.Get(ctx, name, 20<<20); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if info, err := s.Stat(ctx, name); err != nil || info.Size != int64(len(content)) {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	part := make([]byte, 1000)
	if err := s.GetRange(ctx, "a/large", 9<<20, part); err != nil || !bytes.Equal(part, large[9<<20:9<<20+1000]) {
		t.Errorf("a range: %v", err)
	}
	for _, offset := range []int64{17<<20 - 999, 17 << 20, 18 << 20} {
		if err := s.GetRange(ctx, "a/large", offset, part); !fault.Is(err, fault.Invalid) {
			t.Errorf("a range beyond the end, from %d on: %v", offset, err)
		}
	}
	if _, err := s.Get(ctx, "a/large", 1<<20); !fault.Is(err, fault.TooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, err := s.Get(ctx, "a/none", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	if _, err := s.Stat(ctx, "a/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	for range 2 {
		if err := s.Delete(ctx, "a/small"); err != nil {
			t.Error(err)
		}
	}
	var names []string
	for info, err := range s.List(ctx, "a/") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	if len(names) != 2 {
		t.Errorf("%v", names)
	}
	if err := store.Probe(ctx, s, "probe/x"); err != nil {
		t.Error(err)
	}
}

func TestListsOfS3HaveSeveralPages(t *testing.T) {
	t.Parallel()
	s := open(t, server(t))
	const n = 2300
	var putters sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		putters.Go(func() {
			for i := next.Add(1); i <= n; i = next.Add(1) {
				if err := s.Put(t.Context(), fmt.Sprintf("many/%05d", i), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	putters.Wait()
	seen := map[string]bool{}
	for info, err := range s.List(t.Context(), "many/") {
		if err != nil {
			t.Fatal(err)
		}
		seen[info.Name] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d", len(seen), n)
	}
}

func TestOfManyPutsOfOneNameOneWins(t *testing.T) {
	t.Parallel()
	s := open(t, server(t))
	for round := range 20 {
		var won atomic.Int64
		var putters sync.WaitGroup
		for i := range 8 {
			putters.Go(func() {
				switch err := s.Put(t.Context(), fmt.Sprintf("raced/%d", round), fmt.Appendf(nil, "writer %d", i)); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, fs.ErrExist):
					t.Error(err)
				}
			})
		}
		putters.Wait()
		if won.Load() != 1 {
			t.Errorf("%d won", won.Load())
		}
	}
}

func TestABackupOnS3ComesBack(t *testing.T) {
	t.Parallel()
	s := open(t, server(t))
	ctx := t.Context()
	r, err := repository.Create(ctx, s, repository.CreateOptions{}, repository.Options{Cache: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 40<<20)
	for i := range content[:36<<20] {
		content[i] = byte(rand.Uint32())
	}
	var last *repository.ID
	for round := range 2 {
		w, err := r.Begin(ctx, repository.Info{Tenant: "a"}, last, nil)
		if err != nil {
			t.Fatal(err)
		}
		content[10<<20] = byte(round)
		if err := w.Disk(repository.Disk{
			Name: "root", Size: 40 << 20, Reader: bytes.NewReader(content), Whole: last == nil,
			Changed: []repository.Range{{Offset: 10 << 20, Length: 1}},
		}); err != nil {
			t.Fatal(err)
		}
		b, err := w.Commit()
		if err != nil {
			t.Fatal(err)
		}
		last = &b.ID
	}
	again, err := repository.Open(ctx, s, repository.Key{Master: r.MasterKey()}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := again.View(ctx, "a", *last)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	item, err := v.Item("root")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "restored"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Truncate(40<<20), item.WriteTo(ctx, f, repository.RestoreOptions{})); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, content) {
		t.Errorf("it came back differently: %v", err)
	}
	if report, err := again.Verify(ctx, repository.VerifyOptions{Full: true}); err != nil || len(report.Problems) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if _, err := again.Prune(ctx, repository.PruneOptions{}); err != nil {
		t.Error(err)
	}
}

// faulty fails some requests before they reach the server and loses some answers after.
type faulty struct {
	to    string
	count atomic.Int64
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	n := f.count.Add(1)
	if n%5 == 0 {
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	out := q.Clone(q.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", f.to, ""
	answer, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	if n%7 == 0 {
		panic(http.ErrAbortHandler) // done, and the answer is lost
	}
	for k, v := range answer.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(answer.StatusCode)
	var body bytes.Buffer
	_, _ = body.ReadFrom(answer.Body)
	_, _ = w.Write(body.Bytes())
}

func TestLostAnswersAndBusyServersAreTriedAgain(t *testing.T) {
	t.Parallel()
	c := server(t)
	proxy := &faulty{to: c.Endpoint[len("http://"):]}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: proxy}
	go func() { _ = web.Serve(l) }()
	t.Cleanup(func() { _ = web.Close() })
	// The signature covers the name of the host, so the proxy keeps it: the client signs for itself.
	c.Endpoint = "http://" + l.Addr().String()
	s := open(t, c)
	for i := range 40 {
		name, content := fmt.Sprintf("x/%d", i), fmt.Appendf(nil, "content %d", i)
		if err := s.Put(t.Context(), name, content); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(t.Context(), name, 100); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%s, %v", got, err)
		}
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	t.Parallel()
	good := server(t)
	for field, change := range map[string]func(c *s3.Config){
		"endpoint": func(c *s3.Config) { c.Endpoint = "127.0.0.1" },
		"bucket":   func(c *s3.Config) { c.Bucket = "none" },
		"prefix":   func(c *s3.Config) { c.Prefix = "no-slash" },
		"ca_file":  func(c *s3.Config) { c.CAFile = "/nonexistent" },
	} {
		c := good
		change(&c)
		_, err := s3.Open(context.Background(), c)
		f := fault.From(err)
		if f == nil || f.Kind != fault.Invalid || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	c := good
	c.SecretKey = "wrong"
	if _, err := s3.Open(context.Background(), c); !fault.Is(err, fault.Unreachable) {
		t.Errorf("a wrong key: %v", err)
	}
}
