// Package console serves a service's web console: a single-page application whose built files are
// embedded in the binary.
//
// Files are served unchanged, and compressed for clients that accept gzip. The path of a page
// inside the application, which is not a file, returns index.html, so that a page can be reloaded
// and linked to. All other paths are left to the service's own handler.
//
// The console may load only its own files and talk to no other server: the Content-Security-Policy
// allows neither inline scripts nor other origins.
package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// Policy is the Content-Security-Policy of every page.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// hashed is the directory of files whose names contain a hash of their content, so browsers may
// cache them forever.
const hashed = "/assets/"

const index = "/index.html"

// Console holds the built files of one application.
type Console struct {
	files map[string]*file // by URL path
}

// file is one built file. Both forms stay in memory: all files of a console together are a few
// hundred kilobytes.
type file struct {
	name        string
	contentType string
	etag        string
	plain       []byte
	compressed  func() []byte // nil when compression does not make it smaller
}

// New reads the files of an application, which must include index.html.
func New(files fs.FS) (*Console, error) {
	c := &Console{files: map[string]*file{}}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		c.files["/"+name] = newFile(name, content)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if c.files[index] == nil {
		return nil, fmt.Errorf("the console has no index.html")
	}
	return c, nil
}

func newFile(name string, content []byte) *file {
	sum := sha256.Sum256(content)
	contentType := cmp.Or(mime.TypeByExtension(path.Ext(name)), "application/octet-stream")
	return &file{
		name:        name,
		contentType: contentType,
		etag:        hex.EncodeToString(sum[:12]),
		plain:       content,
		compressed:  sync.OnceValue(func() []byte { return compress(content) }),
	}
}

func compress(content []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is a constant
	}
	if _, err := w.Write(content); err != nil {
		panic(err) // a Buffer does not fail
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	if out.Len() >= len(content) {
		return nil
	}
	return out.Bytes()
}

// Wrap serves the console in front of next. known reports whether next has its own handler for a
// request's path, such as /metrics, which browsers request in the same way as a page.
func (c *Console) Wrap(next http.Handler, known func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		if f := c.files[r.URL.Path]; f != nil && r.URL.Path != index {
			f.serve(w, r)
			return
		}
		if r.URL.Path == "/" || isPage(r) && !known(r) {
			c.files[index].serve(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isPage distinguishes a browser's navigation from a script's or a program's request. A path with
// an extension is a file that does not exist, and /api/ paths belong to the API.
func isPage(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/html") && !strings.HasPrefix(r.URL.Path, "/api/") &&
		path.Ext(r.URL.Path) == ""
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Security-Policy", Policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Vary", "Accept-Encoding")
	if strings.HasPrefix("/"+f.name, hashed) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "no-cache") // revalidate each time; the ETag makes it cheap
	}
	body, etag := f.plain, f.etag
	if acceptsGzip(r) {
		if compressed := f.compressed(); compressed != nil {
			body, etag = compressed, etag+"-gzip"
			h.Set("Content-Encoding", "gzip")
		}
	}
	h.Set("ETag", `"`+etag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// acceptsGzip parses Accept-Encoding as browsers send it. A weight of zero, which no browser sends,
// means no.
func acceptsGzip(r *http.Request) bool {
	for offer := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		coding, weight, _ := strings.Cut(strings.TrimSpace(offer), ";")
		if strings.EqualFold(coding, "gzip") {
			q := strings.TrimSpace(weight)
			return q != "q=0" && !strings.HasPrefix(q, "q=0.000")
		}
	}
	return false
}
