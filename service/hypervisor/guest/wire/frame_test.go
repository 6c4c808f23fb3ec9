package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

// framed puts a length before JSON.
func framed(body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

func encode(t testing.TB, f wire.Frame) string {
	t.Helper()
	b, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFramesArriveAsTheyWereSentInWhateverPieces(t *testing.T) {
	t.Parallel()
	frames := []wire.Frame{
		{ID: 1, Op: wire.OpCancel},
		{ID: 1 << 63, Op: wire.OpData, Stream: wire.Errors, Data: []byte{0, 0xff, '"'}},
		{ID: 7, Op: wire.OpData, Data: bytes.Repeat([]byte{0xfe}, wire.MaxChunk)},
		{ID: 3, Op: wire.OpCredit, Credit: 4711},
		{ID: 4, Op: wire.OpExec, Secret: "s", Body: json.RawMessage(`{"argv":["\u00ff"]}`)},
	}
	var sent strings.Builder
	for _, f := range frames {
		sent.WriteString(encode(t, f))
	}
	r := wire.NewReader(iotest.OneByteReader(strings.NewReader(sent.String())))
	for _, want := range frames {
		got, err := r.Frame()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	if _, err := r.Frame(); err != io.EOF {
		t.Errorf("after the last frame: %v", err)
	}
}

// The byte that begins a preamble ends a session wherever it is, in a frame's length too.
func TestFramesOfEveryLengthArriveWithoutTheByteThatBeginsAPreamble(t *testing.T) {
	t.Parallel()
	arrives := func(f wire.Frame) {
		t.Helper()
		sent := encode(t, f)
		if strings.IndexByte(sent, wire.Magic[0]) >= 0 {
			t.Fatalf("the byte is in a frame of %d bytes, with the length % x", len(sent), sent[:4])
		}
		if got, err := wire.NewReader(strings.NewReader(sent)).Frame(); err != nil || !reflect.DeepEqual(got, f) {
			t.Fatalf("of %d bytes: %v", len(sent), err)
		}
	}
	request := func(n int) wire.Frame {
		return wire.Frame{ID: 1, Op: wire.OpExec, Body: json.RawMessage(`"` + strings.Repeat("x", n) + `"`)}
	}
	for n := range 1100 {
		arrives(request(n))
	}
	for n := wire.MaxFrame - 600; n < wire.MaxFrame-50; n += 17 {
		arrives(request(n))
	}
	content := bytes.Repeat([]byte{0xff, 0, 7}, wire.MaxChunk)
	for _, id := range []uint64{1, 10, 100, 1000} { // one of which makes the last byte of a length 0xff
		for n := 1; n < 1100; n += 3 {
			arrives(wire.Frame{ID: id, Op: wire.OpData, Data: content[:n]})
		}
		for n := 48_850; n < 49_150; n += 9 { // base64 of which is about 0xff00 bytes long
			arrives(wire.Frame{ID: id, Op: wire.OpData, Data: content[:n]})
		}
	}
}

func TestFramesThatBreakTheProtocolAreMalformed(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]string{
		"no bytes":           "\x00\x00\x00\x00",
		"too long":           "\x00\x04\x00\x01{",
		"a huge length":      "\x7f\xff\xff\xff{",
		"a preamble":         wire.Magic + "12345678",
		"a preamble inside":  "\x00\x00\x10\x00{\"id\":1" + wire.Magic,
		"a preamble in size": "\x00\x00" + wire.Magic,
		"no JSON":            framed("hello"),
		"an array":           framed("[]"),
		"no operation":       framed(`{"id":1}`),
		"a negative id":      framed(`{"id":-1,"op":"ping"}`),
		"an id too large":    framed(`{"id":1e99,"op":"ping"}`),
		"bad base64":         framed(`{"id":1,"op":"data","stream":1,"data":"*"}`),
		"no data":            framed(`{"id":1,"op":"data","stream":1,"data":""}`),
		"an unknown stream":  framed(`{"id":1,"op":"data","stream":3,"data":"AAAA"}`),
		"a negative stream":  framed(`{"id":1,"op":"data","stream":-1,"data":"AAAA"}`),
		"data in a request":  framed(`{"id":1,"op":"ping","data":"AAAA"}`),
		"too much data":      framed(`{"id":1,"op":"data","stream":1,"data":"` + strings.Repeat("AAAA", wire.MaxChunk/3+1) + `"}`),
		"deep nesting":       framed(`{"op":"ping","body":` + strings.Repeat("[", 100_000)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if f, err := wire.NewReader(strings.NewReader(sent)).Frame(); !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%v, %v", f, err)
			}
		})
	}
}

func TestAMalformedFrameDoesNotTellASecret(t *testing.T) {
	t.Parallel()
	_, err := wire.NewReader(strings.NewReader(framed(`{"op":"ping","secret":hunter2}`))).Frame()
	if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "'h'") {
		t.Error(err)
	}
}

func TestAFrameThatIsTooLargeIsNotSent(t *testing.T) {
	t.Parallel()
	f := wire.With(1, wire.OpExec, wire.Exec{Argv: []string{strings.Repeat("x", wire.MaxFrame)}})
	if _, err := f.Encode(); err == nil {
		t.Error("no error")
	}
}

func TestAPreambleIsFoundAfterWhateverIsBeforeIt(t *testing.T) {
	t.Parallel()
	nonce := wire.Nonce{1, 2, 3, 4, 5, 6, 7, 8}
	other := wire.Nonce{9}
	preamble := string(nonce.Preamble())
	half := encode(t, wire.Frame{ID: 1, Op: wire.OpData, Data: make([]byte, 100)})[:50]
	for name, before := range map[string]string{
		"nothing":           "",
		"one byte":          "x",
		"half a frame":      half,
		"half a preamble":   preamble[:5],
		"nearly one":        preamble[:15],
		"half a nonce":      preamble[:11],
		"only first bytes":  strings.Repeat("\xff", 33),
		"another's answer":  string(other.Preamble()) + half,
		"a lot":             strings.Repeat("garbage", 10_000),
		"a malformed frame": "\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := wire.NewReader(
				iotest.HalfReader(strings.NewReader(before + preamble + encode(t, wire.Frame{Op: wire.OpHello}))),
			)
			if got, err := r.Preamble(&nonce, wire.MaxStale); err != nil || got != nonce {
				t.Fatalf("%v, %v", got, err)
			}
			if f, err := r.Frame(); err != nil || f.Op != wire.OpHello {
				t.Errorf("%v, %v", f, err)
			}
		})
	}
}

func TestAPreambleEndsAFrameWhereverItCutsIt(t *testing.T) {
	t.Parallel()
	frame := encode(t, wire.Frame{ID: 1, Op: wire.OpData, Stream: 1, Data: []byte("some data")})
	nonce := wire.Nonce{42}
	for cut := range len(frame) {
		r := wire.NewReader(strings.NewReader(frame[:cut] + string(nonce.Preamble())))
		if f, err := r.Frame(); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("cut at %d: %v, %v", cut, f, err)
		}
		if got, err := r.Preamble(nil, 0); err != nil || got != nonce {
			t.Errorf("cut at %d: %v, %v", cut, got, err)
		}
	}
}

func TestTheSearchForAnAnswerIsBounded(t *testing.T) {
	t.Parallel()
	r := wire.NewReader(endless{})
	if _, err := r.Preamble(&wire.Nonce{}, 1<<20); !errors.Is(err, wire.ErrMalformed) {
		t.Error(err)
	}
}

// endless is a stream without end, of which nothing is a preamble.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = wire.Magic[0]
	}
	return len(b), nil
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte(`{"id":1,"op":"data","stream":1,"data":"AAAA"}`))
	f.Add([]byte(`{"id":01,"op":"data","stream":1,"data":"AAAA"}`))
	f.Add([]byte(`{"id":1,"op":"data","stream":1,"data":"AA\nAA"}`))
	f.Add([]byte(`{"id":1,"op":"exec","secret":"x","body":{"argv":["ls"]}}`))
	f.Add([]byte(`{"id":1,"op":"credit","credit":-5}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := wire.NewReader(strings.NewReader(framed(string(body)))).Frame()
		if err != nil {
			return
		}
		// What the short way accepts is what JSON says.
		var want wire.Frame
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("accepted %q, which is not JSON of a frame: %v", body, err)
		}
		if got.ID != want.ID || got.Op != want.Op || got.Stream != want.Stream || !bytes.Equal(got.Data, want.Data) ||
			got.Credit != want.Credit {
			t.Fatalf("%q was read as %v, not %v", body, got, want)
		}
		b, err := got.Encode()
		if err != nil {
			return // JSON can be longer when it is written anew
		}
		again, err := wire.NewReader(bytes.NewReader(b)).Frame()
		if err != nil || again.ID != got.ID || again.Op != got.Op || !bytes.Equal(again.Data, want.Data) {
			t.Fatalf("%v came back as %v, %v", want, again, err)
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(wire.Magic + "12345678" + framed(`{"op":"hello"}`)))
	f.Add([]byte("\x00\x00\x00\x03{" + wire.Magic))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := wire.NewReader(bytes.NewReader(stream))
		// Each round takes something of the stream, so this ends.
		for range len(stream) + 1 {
			if _, err := r.Preamble(nil, 0); err != nil {
				return
			}
			for {
				if _, err := r.Frame(); err != nil {
					break
				}
			}
		}
		t.Fatal("the reader goes round in circles")
	})
}
