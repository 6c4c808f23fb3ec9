//go:build linux

package hypervisor_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// qemuImg runs qemu-img.
func qemuImg(t *testing.T, args ...string) {
	t.Helper()
	need(t, "qemu-img")
	if out, err := exec.CommandContext(
		t.Context(),
		"qemu-img",
		args...).CombinedOutput(); err != nil { //nolint:gosec // the test's own
		t.Fatalf("%v: %s", err, out)
	}
}

// rawImage writes a file that begins with a text.
func rawImage(t *testing.T, text string, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAnImageIsKeptByWhatItHoldsUnderAnyNumberOfNames(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	path := rawImage(t, "hello", 4<<20)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": "one", "path": path}))
	d.finished(d.call("POST", "/v1/images/catalog/two/upload", adminToken, raw))
	one, two := contracttest.As[hypervisorapi.Image](
		d.call("GET", "/v1/images/catalog/one", adminToken, nil).Want(200),
	), contracttest.As[hypervisorapi.Image](d.call("GET", "/v1/images/catalog/two", adminToken, nil).Want(200))
	if one.Sha256 != hex.EncodeToString(sum[:]) || two.Sha256 != one.Sha256 || one.VirtualSizeBytes != 4<<20 ||
		one.SizeBytes >= 4<<20 ||
		one.SignatureValid != nil ||
		one.Source != path {
		t.Errorf("%+v\n%+v", one, two)
	}
	contents := func() int {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(d.cfg.Data, "images", "content", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	if n := contents(); n != 1 {
		t.Errorf("%d contents for one image", n)
	}
	d.call("POST", "/v1/images/catalog", adminToken, object{"name": "one", "path": path}).Refused(
		409, "name_taken", "",
	)
	d.call("POST", "/v1/images/catalog/one/clone", adminToken, object{"name": "two"}).Refused(409, "name_taken", "")
	d.call("POST", "/v1/images/catalog/one/rename", adminToken, object{"name": "two"}).Refused(
		409, "name_taken", "",
	)
	d.call("POST", "/v1/images/catalog/one/clone", adminToken, object{"name": "three"}).Want(201)
	d.call("POST", "/v1/images/catalog/one/rename", adminToken, object{"name": "uno"}).Want(200)
	d.call("GET", "/v1/images/catalog/one", adminToken, nil).Refused(404, "not_found", "")
	// What is protected stays as it is.
	d.call("POST", "/v1/images/catalog/uno/read-only", adminToken, object{"read_only": true}).Want(200)
	d.call("DELETE", "/v1/images/catalog/uno", adminToken, nil).Refused(409, "image_read_only", "")
	d.call("POST", "/v1/images/catalog/uno/rename", adminToken, object{"name": "one"}).Refused(
		409, "image_read_only", "",
	)
	d.call("POST", "/v1/images/catalog/uno/read-only", adminToken, object{}).Refused(400, "invalid", "read_only")
	d.call("POST", "/v1/images/catalog/nope/read-only", adminToken, object{"read_only": true}).Refused(
		404, "not_found", "",
	)
	// What is locked makes no VMs.
	vm := object{"name": "vm", "image": "two", "memory_mib": 64}
	d.call("POST", "/v1/images/catalog/two/lock", adminToken, nil).Want(200)
	d.call("POST", "/v1/vms", adminToken, vm).Refused(409, "image_locked", "")
	d.call("POST", "/v1/images/catalog/two/unlock", adminToken, nil).Want(200)
	made := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, vm).Want(201))
	if info, err := os.Stat(filepath.Join(d.cfg.Data, "vms", made.Id, "disk.qcow2")); err != nil ||
		info.Size() > 1<<20 {
		t.Errorf("the VM's disk takes %v, %v", info, err)
	}
	// Names go one by one, what they stand for when no VM needs it any more.
	d.call("POST", "/v1/images/catalog/uno/read-only", adminToken, object{"read_only": false}).Want(200)
	for _, name := range []string{"uno", "two", "three"} {
		d.call("DELETE", "/v1/images/catalog/"+name, adminToken, nil).Want(204)
	}
	if gone := contracttest.As[hypervisorapi.Cleaned](
		d.call("POST", "/v1/images/clean", adminToken, nil).Want(200),
	); gone.Files != 0 ||
		contents() != 1 {
		t.Errorf("%+v while a VM stands on it", gone)
	}
	d.call("DELETE", "/v1/vms/"+made.Id, adminToken, nil).Want(204)
	if gone := contracttest.As[hypervisorapi.Cleaned](
		d.call("POST", "/v1/images/clean", adminToken, nil).Want(200),
	); gone.Files != 1 || gone.Bytes == 0 ||
		contents() != 0 {
		t.Errorf("%+v", gone)
	}
}

func TestAnExportedImageIsTheOneThatWasAdded(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	path := rawImage(t, "exported", 8<<20)
	d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": "one", "path": path}))
	a := d.call("GET", "/v1/images/catalog/one/export", adminToken, nil).Want(200)
	back := filepath.Join(t.TempDir(), "one.qcow2")
	if err := os.WriteFile(back, []byte(a.Body), 0o600); err != nil {
		t.Fatal(err)
	}
	qemuImg(t, "compare", "-f", "raw", "-F", "qcow2", path, back)
	if disposition := a.Header.Get("Content-Disposition"); !strings.Contains(disposition, "one.qcow2") {
		t.Errorf("%s", disposition)
	}
}

func TestAHostileImageReadsNoFileOfTheHostAndFillsNoDisk(t *testing.T) {
	t.Parallel()
	d := start(t, "[images]\nmax_gib = 1\n")
	dir := t.TempDir()
	secret := rawImage(t, "TOP SECRET", 1<<20)
	path := func(name string) string { return filepath.Join(dir, name) }
	qemuImg(t, "create", "-q", "-f", "qcow2", "-b", secret, "-F", "raw", path("backing.qcow2"))
	qemuImg(
		t, "create", "-q", "-f", "qcow2", "-o", "data_file="+path("data")+",data_file_raw=on", path("data.qcow2"), "1M",
	)
	qemuImg(t, "create", "-q", "-f", "qcow2", path("huge.qcow2"), "4T")
	qemuImg(t, "create", "-q", "-f", "vmdk", path("other.vmdk"), "1M")
	for name, want := range map[string]string{"backing.qcow2": "backing", "data.qcow2": "another file", "huge.qcow2": "are allowed", "other.vmdk": "vmdk"} {
		if why := d.failed(
			d.call("POST", "/v1/images/catalog", adminToken, object{"name": "bad", "path": path(name)}),
		); !strings.Contains(strings.ToLower(why), want) ||
			strings.Contains(why, "SECRET") {
			t.Errorf("%s: %s", name, why)
		}
		a := d.call("POST", "/v1/vms", adminToken, object{"name": "bad", "image": path(name)})
		if a.Status != 400 || !strings.Contains(strings.ToLower(a.Body), want) {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
		raw, err := os.ReadFile(path(name))
		if err != nil {
			t.Fatal(err)
		}
		if why := d.failed(d.call("POST", "/v1/images/catalog/bad/upload", adminToken, raw)); !strings.Contains(
			strings.ToLower(why), want,
		) {
			t.Errorf("%s, uploaded: %s", name, why)
		}
	}
	for _, place := range []string{"vms", "images/content", "images/incoming"} {
		if left, err := filepath.Glob(filepath.Join(d.cfg.Data, place, "*")); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", place, left, err)
		}
	}
}

func TestSignaturesAreHeldAgainstTheConfiguredKeys(t *testing.T) {
	t.Parallel()
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, stranger, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := public.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSpace(string(key[bytes.LastIndexByte(bytes.TrimSpace(key), '\n')+1:]))
	d := start(t, fmt.Sprintf("[images]\nrequire_signed = true\npublic_keys = [%q]\n", line))
	path := rawImage(t, "signed", 1<<20)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// As minisign does it, over the hash of the message.
	sign := func(key minisign.PrivateKey) string {
		t.Helper()
		r := minisign.NewReader(bytes.NewReader(raw))
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Fatal(err)
		}
		return string(r.SignWithComments(key, "timestamp:1700000000\tfile:disk.raw", "signature"))
	}
	good, bad := sign(private), sign(stranger)
	if err := os.WriteFile(path+".minisig", []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	d.finished(d.call("POST", "/v1/images/catalog", adminToken, object{"name": "beside", "path": path}))
	d.finished(d.call("POST", "/v1/images/catalog/uploaded/upload?signature="+url.QueryEscape(good), adminToken, raw))
	d.finished(d.call("POST", "/v1/images/catalog/strange/upload?signature="+url.QueryEscape(bad), adminToken, raw))
	d.finished(d.call("POST", "/v1/images/catalog/unsigned/upload", adminToken, raw))
	d.finished(
		d.call(
			"POST", "/v1/images/catalog/changed/upload?signature="+url.QueryEscape(good), adminToken,
			append([]byte("x"), raw[1:]...),
		),
	)
	if why := d.failed(
		d.call("POST", "/v1/images/catalog/garbage/upload?signature=x", adminToken, raw),
	); !strings.Contains(why, "minisign") {
		t.Errorf("%s", why)
	}
	yes, no := true, false
	for name, want := range map[string]*bool{"beside": &yes, "uploaded": &yes, "strange": &no, "changed": &no, "unsigned": nil} {
		i := contracttest.As[hypervisorapi.Image](d.call("GET", "/v1/images/catalog/"+name, adminToken, nil).Want(200))
		if (i.SignatureValid == nil) != (want == nil) || want != nil && *i.SignatureValid != *want {
			t.Errorf("%s: %v", name, i.SignatureValid)
		}
		if want != nil && (i.SignedAt == nil || i.SignedAt.Unix() != 1700000000) {
			t.Errorf("%s: signed at %v", name, i.SignedAt)
		}
		a := d.call("POST", "/v1/vms", adminToken, object{"name": name, "image": name, "memory_mib": 64})
		if want != nil && *want {
			a.Want(201)
		} else {
			a.Limited(400, "policy_limit", "image", "images.require_signed")
		}
	}
	d.call("POST", "/v1/vms", adminToken, object{"name": "path", "image": path, "memory_mib": 64}).Refused(
		400, "invalid", "image",
	)
}

func TestCleaningUpDoesNotHoldUpOthersBehindAnImageThatIsTakenIn(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	// An upload that continues as long as the test wants.
	in, out := io.Pipe()
	uploaded := make(chan int, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"/v1/images/catalog/slow/upload", in)
		if err != nil {
			uploaded <- 0
			return
		}
		req.Header.Set("Authorization", "Bearer "+adminToken)
		req.Header.Set("Content-Type", "application/octet-stream")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			uploaded <- 0
			return
		}
		_ = res.Body.Close()
		uploaded <- res.StatusCode
	}()
	if _, err := out.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	d.call("POST", "/v1/images/clean", adminToken, nil).Want(200)
	d.call("POST", "/v1/vms", adminToken, object{"name": "vm", "memory_mib": 64}).Want(201)
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if status := <-uploaded; status != 202 {
		t.Errorf("the upload: %d", status)
	}
}

func TestAnUploadThatIsBrokenOffIsTheClientsFault(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	for name, body := range map[string]string{
		"a length that does not come": "Content-Length: 100\r\n\r\nabc",
		"a chunk that does not come":  "Transfer-Encoding: chunked\r\n\r\n64\r\nabc",
		"what is not a chunk":         "Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
	} {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, err = fmt.Fprintf(c, "POST /v1/images/catalog/one/upload HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/octet-stream\r\n%s", adminToken, body)
		if err == nil {
			err = c.(*net.TCPConn).CloseWrite()
		}
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, res.StatusCode, text)
		}
	}
}

func TestAnUploadThatTheDaemonsEndInterruptedIsTakenInWhenItIsBack(t *testing.T) {
	t.Parallel()
	need(t, "qemu-img")
	d := start(t, "")
	content := make([]byte, 96<<20)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	op := contracttest.As[hypervisorapi.Operation](d.call("POST", "/v1/images/catalog/one/upload", adminToken, content).Want(202))
	d.restart(nil)
	op = contracttest.As[hypervisorapi.Operation](d.call("GET", "/v1/operations/"+op.Id+"?wait=120", adminToken, nil).Want(200))
	if op.State != "succeeded" {
		t.Fatalf("%+v", op)
	}
	sum := sha256.Sum256(content)
	if i := contracttest.As[hypervisorapi.Image](
		d.call("GET", "/v1/images/catalog/one", adminToken, nil).Want(200),
	); i.Sha256 != hex.EncodeToString(sum[:]) {
		t.Errorf("%+v", i)
	}
	if left, err := filepath.Glob(filepath.Join(d.cfg.Data, "images", "incoming", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
