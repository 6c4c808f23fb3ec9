package relay_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mainstay-infra/mainstay/kit/relay"
)

// write prints on a log.
func write(t *testing.T, l *relay.Log, text string) {
	t.Helper()
	if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
}

// reads fails the test unless a viewer reads a text next.
func reads(t *testing.T, v *relay.Viewer, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if n, err := io.ReadFull(v, b); err != nil || string(b) != want {
		t.Errorf("reads %q, want %q, %v", b[:n], want, err)
	}
}

func rest(t *testing.T, v *relay.Viewer) string {
	t.Helper()
	b, err := io.ReadAll(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestALogReplaysWhatWasPrintedLast(t *testing.T) {
	t.Parallel()
	l := relay.NewLog(8, io.Discard)
	early := l.View(relay.Position{})
	write(t, l, "abc")
	reads(t, early, "abc")
	write(t, l, "defghij")
	late := l.View(relay.Position{})
	if late.Start().Offset != 2 {
		t.Errorf("begins at %d", late.Start().Offset)
	}
	_ = l.Close()
	if got := rest(t, early); got != "defghij" {
		t.Errorf("who looked before goes on with %q", got)
	}
	if got := rest(t, late); got != "cdefghij" {
		t.Errorf("who comes later reads %q", got)
	}
	if got := rest(t, l.View(relay.Position{})); got != "cdefghij" {
		t.Errorf("after the end %q is read", got)
	}
	long := relay.NewLog(8, io.Discard)
	write(t, long, strings.Repeat("x", 100)+"abcdefgh")
	_ = long.Close()
	if v := long.View(relay.Position{}); v.Start().Offset != 100 || rest(t, v) != "abcdefgh" {
		t.Errorf("of a piece larger than the log, other than the end is kept from %d on", v.Start().Offset)
	}
}

func TestAViewerThatComesBackMissesNothingAndSeesNothingTwice(t *testing.T) {
	t.Parallel()
	l := relay.NewLog(8, io.Discard)
	write(t, l, "abcdef")
	v := l.View(relay.Position{})
	at := v.Start()
	reads(t, v, "abcdef")
	at.Offset += 6
	write(t, l, "ghi")
	back := l.View(at)
	if reads(t, back, "ghi"); back.Start() != at {
		t.Errorf("begins at %d", back.Start().Offset)
	}
	if now := l.View(relay.Position{Log: at.Log, Offset: 9}); now.Start().Offset != 9 {
		t.Errorf("who has seen everything begins at %d", now.Start().Offset)
	}
	write(t, l, "jklmnopqr")
	late := l.View(at)
	if reads(t, late, "klmnopqr"); late.Start().Offset != 10 {
		t.Errorf("who comes too late begins at %d", late.Start().Offset)
	}
	// Offsets of another log, or that there are not, say nothing.
	for _, from := range []relay.Position{
		{Log: "another", Offset: 12}, {Offset: 12}, {Log: at.Log, Offset: 19}, {Log: at.Log, Offset: -1},
	} {
		if v := l.View(from); v.Start() != (relay.Position{Log: at.Log, Offset: 10}) {
			t.Errorf("%+v: begins at %+v", from, v.Start())
		}
	}
	if another := relay.NewLog(8, io.Discard).View(at); another.Start().Log == at.Log {
		t.Error("two logs have one name")
	}
}

// Whatever is printed and read in whatever pieces, what is read from an offset is what was printed
// there.
func TestOffsetsNameTheSameBytesForEverybody(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
	const capacity = 64
	l := relay.NewLog(capacity, io.Discard)
	var all []byte
	name := l.View(relay.Position{}).Start().Log
	for range 2000 {
		piece := make([]byte, 1+random.IntN(90))
		for i := range piece {
			piece[i] = byte(random.Uint32())
		}
		write(t, l, string(piece))
		all = append(all, piece...)
		from := max(0, len(all)-random.IntN(100)) // sometimes more than is kept
		v := l.View(relay.Position{Log: name, Offset: int64(from)})
		if want := max(from, len(all)-capacity); int(v.Start().Offset) != want {
			t.Fatalf("seed %d: asked for %d of %d, begins at %d", seed, from, len(all), v.Start().Offset)
		}
		for at := int(v.Start().Offset); at < len(all); {
			b := make([]byte, 1+random.IntN(30))
			n, err := v.Read(b)
			if err != nil || n == 0 || !bytes.Equal(b[:n], all[at:at+n]) {
				t.Fatalf("seed %d: at %d: %v, %v, want %v", seed, at, b[:n], err, all[at:at+n])
			}
			at += n
		}
	}
}

func TestASlowViewerIsLetGoAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	l := relay.NewLog(8, io.Discard)
	slow, quick := l.View(relay.Position{}), l.View(relay.Position{})
	for range 100 {
		write(t, l, "abcdefgh")
		reads(t, quick, "abcdefgh")
	}
	if n, err := slow.Read(make([]byte, 10)); n != 0 || !errors.Is(err, relay.ErrBehind) {
		t.Errorf("who did not keep up reads %d bytes, %v", n, err)
	}
}

func TestViewersWaitForWhatIsPrintedUntilSomethingEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := relay.NewLog(8, io.Discard)
		one, two := l.View(relay.Position{}), l.View(relay.Position{})
		var seen [2]string
		var work sync.WaitGroup
		for i, v := range []*relay.Viewer{one, two} {
			work.Go(func() { seen[i] = rest(t, v) })
		}
		synctest.Wait()
		write(t, l, "abc")
		synctest.Wait()
		_ = one.Close()
		write(t, l, "def")
		synctest.Wait()
		_ = l.Close()
		work.Wait()
		if seen != [2]string{"abc", "abcdef"} {
			t.Errorf("%q", seen)
		}
	})
}

func TestEverybodyTypesUnlessOneHasClaimedThat(t *testing.T) {
	t.Parallel()
	var typed bytes.Buffer
	l := relay.NewLog(8, &typed)
	one, two := l.View(relay.Position{}), l.View(relay.Position{})
	types := func(v *relay.Viewer, key string) {
		t.Helper()
		if n, err := v.Write([]byte(key)); n != len(key) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	types(one, "a")
	types(two, "b")
	if !one.Claim() || two.Claim() {
		t.Error("not exactly one has claimed it")
	}
	types(one, "c")
	types(two, "x")
	two.Release() // which is not his to release
	types(two, "x")
	if !one.Claim() {
		t.Error("who has it cannot claim it again")
	}
	one.Release()
	types(two, "d")
	if !two.Claim() {
		t.Error("what was released cannot be claimed")
	}
	types(one, "x")
	_ = two.Close()
	if two.Claim() {
		t.Error("somebody who left has claimed it")
	}
	types(one, "e")
	if typed.String() != "abcde" {
		t.Errorf("%q", typed.String())
	}
}

func TestALogTakesMemoryOnlyForWhatWasPrinted(t *testing.T) {
	t.Parallel()
	l := relay.NewLog(relay.DefaultCapacity, io.Discard)
	write(t, l, "login: ")
	if got := relay.Held(l); got > 64 {
		t.Errorf("a log of seven bytes takes %d", got)
	}
	for range 3 << 10 {
		write(t, l, strings.Repeat("x", 1<<10))
	}
	_ = l.Close()
	if got := len(rest(t, l.View(relay.Position{}))); got != relay.DefaultCapacity || relay.Held(l) != got {
		t.Errorf("%d bytes are kept in %d", got, relay.Held(l))
	}
}
