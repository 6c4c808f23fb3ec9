package vm_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/cli/vm/daemon/daemontest"
)

func TestAFileGoesIntoAGuestAndBackWithItsBytesAndMode(t *testing.T) {
	t.Parallel()
	content := make([]byte, 3<<20)
	_, _ = rand.Read(content) // it does not fail
	var stored []byte
	var mode string
	s := daemontest.Serve(t, map[string]http.HandlerFunc{
		"PutFile": func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength != int64(len(content)) || r.Header.Get("Content-Type") != "application/octet-stream" {
				t.Errorf("length %d, type %s", r.ContentLength, r.Header.Get("Content-Type"))
			}
			stored, _ = io.ReadAll(r.Body)
			mode = r.URL.Query().Get("mode")
			sum := sha256.Sum256(stored)
			daemontest.Answer(
				200,
				fmt.Sprintf(
					`{"path":%q,"size":%d,"mode":%q,"sha256":%q}`,
					r.URL.Query().Get("path"),
					len(stored),
					mode,
					hex.EncodeToString(sum[:]),
				),
			)(w, r)
		},
		"GetFile": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("X-File-Mode", mode)
			_, _ = w.Write(stored)
		},
	})
	from := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(from, content, 0o751); err != nil {
		t.Fatal(err)
	}
	run := daemontest.Run{URL: s.URL}
	run.OK(t, "vm", "cp", from, "web:/srv/")
	if q := s.Last().Query; !strings.Contains(q, "path=%2Fsrv%2Fbig") {
		t.Error(q)
	}
	to := filepath.Join(t.TempDir(), "back")
	run.OK(t, "vm", "cp", "web:/srv/big", to)
	got, err := os.ReadFile(to)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(content) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if info, err := os.Stat(to); err != nil || info.Mode() != 0o751 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestWhatArrivesOtherwiseThanItWasSentIsAnError(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, nil) // answers the sum of "hello", whatever is sent
	got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), "vm", "cp", writeFile(t, "f", "help!"), "web:/f")
	if got.Code != 1 || !strings.Contains(got.Err, "is not what was sent") {
		t.Errorf("%d %s", got.Code, got.Err)
	}
	daemontest.Run{URL: s.URL}.OK(t, "vm", "cp", writeFile(t, "f", "hello"), "web:/f")
}

func TestAnEmptyFileIsSentWithItsLength(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"PutFile": func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
			t.Errorf("length %d, encoding %s", r.ContentLength, r.TransferEncoding)
		}
		sum := sha256.Sum256(nil)
		daemontest.Answer(
			200,
			fmt.Sprintf(`{"path":"/f","size":0,"mode":"0640","sha256":%q}`, hex.EncodeToString(sum[:])),
		)(w, r)
	}})
	daemontest.Run{URL: s.URL}.OK(t, "vm", "cp", writeFile(t, "f", ""), "web:/f")
}

func TestAFileThatBreaksOffLeavesWhatWasThere(t *testing.T) {
	t.Parallel()
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "only this")
	}
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"GetFile": cut, "ExportImage": cut})
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"vm cp web:/f " + path, "image export demo --force " + path, "vm cp web:/f -"} {
		if got := (daemontest.Run{URL: s.URL}).Do(
			t,
			t.Context(),
			strings.Fields(line)...); got.Code != 1 ||
			!strings.Contains(got.Err, "after 9 bytes") {
			t.Errorf("%s: %d %s", line, got.Code, got.Err)
		}
	}
	entries, err := os.ReadDir(dir)
	old, _ := os.ReadFile(path)
	if err != nil || len(entries) != 1 || string(old) != "old" {
		t.Errorf("%v %v %q", entries, err, old)
	}
}

// backupID has the form of an ID, so it is not looked up.
const backupID = "01a1fde9-de24-70d8-8d39-beba54f45acc"

func TestAnExportReplacesAFileOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, nil)
	path := writeFile(t, "b1", "old")
	got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), "vm", "backup", "export", backupID, path)
	if got.Code != 1 || !strings.Contains(got.Err, "--force replaces it") || s.Called() != "" {
		t.Errorf("%d %s; called %s", got.Code, got.Err, s.Called())
	}
	daemontest.Run{URL: s.URL}.OK(t, "vm", "backup", "export", "b1", path, "--force")
	if b, err := os.ReadFile(path); err != nil || string(b) != daemontest.FileContent {
		t.Errorf("%q %v", b, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if got := (daemontest.Run{URL: s.URL}).OK(
		t, "vm", "backup", "export", "b1", "-",
	); got.Out != daemontest.FileContent {
		t.Errorf("%q", got.Out)
	}
}

func TestAnImportSendsTheSignatureThatLiesBesideTheFile(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, nil)
	path := writeFile(t, "disk.img", "bytes")
	daemontest.Run{URL: s.URL}.OK(t, "image", "import", "a", path)
	if r := s.Requests()[0]; r.Query != "" || r.Body != "bytes" {
		t.Errorf("%+v", r)
	}
	if err := os.WriteFile(path+".minisig", []byte("sig"), 0o600); err != nil {
		t.Fatal(err)
	}
	daemontest.Run{URL: s.URL}.OK(t, "image", "import", "a", path)
	if r := s.Requests()[2]; r.Query != "signature=sig" {
		t.Errorf("%+v", r)
	}
}

func TestAnUploadThatIsRefusedIsNotSent(t *testing.T) {
	t.Parallel()
	s, read := refusing(t)
	path := filepath.Join(t.TempDir(), "big.img")
	if err := os.WriteFile(path, make([]byte, 32<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	got := daemontest.Run{URL: s}.Do(t, t.Context(), "image", "import", "a", path)
	if got.Code != 1 || !strings.Contains(got.Err, "there is one already (code name_taken") {
		t.Errorf("%d %s", got.Code, got.Err)
	}
	if n := <-read; n != 0 {
		t.Errorf("%d bytes were sent", n)
	}
}
