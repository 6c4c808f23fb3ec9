//go:build linux

package ceph_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// fakeName is the name under which the program of these tests is a helper without a cluster. How it
// behaves is told by its user, and what it was asked is written to its keyring.
const fakeName = "mainstay-ceph-of-tests"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == fakeName {
		fake(os.Stdin, os.Stdout)
		return
	}
	os.Exit(m.Run())
}

func fake(in io.Reader, out io.Writer) {
	var hello wire.Hello
	if wire.Receive(in, &hello) != nil {
		return
	}
	if hello.User == "mute" {
		_, _ = io.Copy(io.Discard, in)
		return
	}
	welcome := wire.Welcome{FSID: "the-cluster", Address: fmt.Sprintf("10.0.0.1:0/%d", os.Getpid())}
	if hello.User == "changing" {
		welcome.FSID = uuid.NewString()
	}
	_ = wire.Send(out, &welcome)
	for {
		var r wire.Request
		if wire.Receive(in, &r) != nil {
			return
		}
		if f, err := os.OpenFile(hello.Keyring, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			_, _ = fmt.Fprintf(f, "%s %s\n", r.Op, r.Address)
			_ = f.Close()
		}
		switch {
		case r.Op == wire.Fence:
		case hello.User == "silent", r.Op == wire.ExpandVolume:
			continue
		case r.Op == wire.DeleteVolume, hello.User == "changing":
			os.Exit(1)
		case hello.User == "confused":
			r.ID += 7
		case hello.User == "long":
			_, _ = out.Write([]byte{255, 255, 255, 255})
			continue
		case hello.User == "empty":
			_ = wire.Send(out, &wire.Response{ID: r.ID})
			continue
		}
		_ = wire.Send(out, &wire.Response{ID: r.ID, Volume: &wire.Image{Name: r.Volume, Size: mib, State: wire.Ready}})
	}
}

// faked returns a driver of a helper without a cluster, and the path of what that was asked.
func faked(t *testing.T, user string, within time.Duration) (d *ceph.Driver, asked string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), fakeName)
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	asked = filepath.Join(t.TempDir(), "asked")
	return opened(t, ceph.Config{
		Connection: wire.Connection{MonHosts: []string{"192.0.2.1"}, User: user, Keyring: asked},
		Program:    program, Within: within, Log: slogOf(t),
	}), asked
}

func some() driver.Name { return driver.Name{Pool: "p", Native: driver.VolumeName(uuid.NewString())} }

func TestACallWithoutAnAnswerEndsTheHelperAndTheOthersFailAtOnce(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"silent", "mute"} {
		const within = 500 * time.Millisecond
		d, _ := faked(t, user, within)
		begun := time.Now()
		failed := make(chan error, 4)
		for range cap(failed) {
			go func() {
				_, err := d.Volume(t.Context(), some())
				failed <- err
			}()
		}
		for range cap(failed) {
			if err := <-failed; !fault.Is(err, fault.Unavailable) {
				t.Error(err)
			}
		}
		if took := time.Since(begun); took < within || took > within+5*time.Second {
			t.Errorf("it took %s", took)
		}
		begun = time.Now()
		_, err := d.Volume(t.Context(), some())
		if f := fault.From(err); f == nil || f.RetryAfter <= 0 || time.Since(begun) > within/2 {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
	}
}

func TestAHelperThatEndsIsReplacedAndShutOut(t *testing.T) {
	t.Parallel()
	d, asked := faked(t, "fine", 20*time.Second)
	n := some()
	for range 3 {
		if v, err := d.Volume(t.Context(), n); err != nil || v.Name != n {
			t.Fatalf("%+v, %v", v, err)
		}
		if err := d.DeleteVolume(t.Context(), n); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a helper that ends: %v", err)
		}
	}
	text, err := os.ReadFile(asked)
	if err != nil || strings.Count(string(text), "fence 10.0.0.1:0/") != 2 {
		t.Errorf("%s, %v", text, err)
	}
}

func TestCallersWhoGiveUpEndNothing(t *testing.T) {
	t.Parallel()
	d, asked := faked(t, "fine", 20*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := d.ExpandVolume(ctx, some(), mib); !fault.Is(err, fault.Unavailable) {
		t.Error(err)
	}
	if _, err := d.Volume(t.Context(), some()); err != nil {
		t.Errorf("the next call: %v", err)
	}
	if text, err := os.ReadFile(asked); err != nil || strings.Contains(string(text), "fence") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestAnotherClusterAtTheSameAddressIsRefused(t *testing.T) {
	t.Parallel()
	d, _ := faked(t, "changing", 20*time.Second)
	if _, err := d.Volume(t.Context(), some()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a helper that ends: %v", err)
	}
	for range 2 {
		if _, err := d.Volume(t.Context(), some()); !fault.Is(err, fault.Conflict) {
			t.Errorf("another fsid: %v", err)
		}
	}
}

func TestAHelperThatMakesNoSenseIsNotBelieved(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"confused", "long", "empty"} {
		d, _ := faked(t, user, 20*time.Second)
		if _, err := d.Volume(t.Context(), some()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", user, err)
		}
	}
}

func TestTheHelperMayBeMissing(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"/nonexistent/mainstay-ceph", "no-such-mainstay-ceph"} {
		d := opened(t, ceph.Config{
			Connection: wire.Connection{ConfFile: "/etc/ceph/ceph.conf", User: "admin"}, Program: program, Log: slogOf(t),
		})
		_, err := d.Inspect(t.Context())
		if f := fault.From(err); f == nil || f.Kind != fault.Unavailable || !strings.Contains(f.Message, "not installed") {
			t.Error(err)
		}
	}
	for _, c := range []wire.Connection{
		{}, {User: "admin", Key: "k"}, {User: "admin", MonHosts: []string{"h"}}, {ConfFile: "/c"},
		{MonHosts: []string{"h"}, ConfFile: "/c", User: "admin"},
	} {
		if _, err := ceph.Open(ceph.Config{Connection: c}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	var frame bytes.Buffer
	full := wire.Response{ID: 7, Error: &wire.Error{Reason: wire.Full, Message: "full"}}
	if err := wire.Send(&frame, full); err != nil {
		f.Fatal(err)
	}
	f.Add(frame.Bytes())
	f.Add([]byte{255, 255, 255, 255, '{'})
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Fuzz(func(t *testing.T, text []byte) {
		var r wire.Response
		if wire.Receive(bytes.NewReader(text), &r) != nil {
			return
		}
		var again bytes.Buffer
		if err := wire.Send(&again, &r); err != nil {
			t.Error(err)
		}
	})
}
