package qmp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestDecodeTellsTheKindsOfLinesApart(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian"}, "capabilities": ["oob"]}}`: "greeting 7.2.22 (Debian)",
		`{"return": {}, "id": 4}`:                                             "result {}",
		`{"return": null, "id": 4}`:                                           "result null",
		`{"id": 4, "error": {"class": "C", "desc": "no"}}`:                    "refusal no (C)",
		`{"event": "STOP", "timestamp": {"seconds": -1, "microseconds": -1}}`: "event STOP",
		`garbage`:          "is not QMP",
		``:                 "is not QMP",
		`{}`:               "is not QMP",
		`null`:             "is not QMP",
		`[]`:               "is not QMP",
		`{"return": {}} x`: "is not QMP",
		`{"return": {}}`:   "has no id",
		`{"QMP": {}}`:      "no version",
		`{"return": 1, "id": 1, "event": "STOP"}`:                          "is not QMP",
		`{"return": 1, "id": "1"}`:                                         "is not QMP",
		`{"return": 1, "id": -1}`:                                          "is not QMP",
		`{"return": 1, "id": 18446744073709551616}`:                        "is not QMP",
		`{"error": {"class": "GenericError", "desc": "JSON parse error"}}`: "does not understand a command: JSON parse error",
		`{"event": "E", "data": "` + strings.Repeat("x", maxEvent) + `"}`:  "an event is longer",
	} {
		m, err := decode([]byte(line))
		got := "nothing"
		switch {
		case err != nil:
			got = err.Error()
		case m.greeting != nil:
			got = "greeting " + m.greeting.String()
		case m.event != nil:
			got = "event " + m.event.Name
		case m.answer.err != nil:
			got = "refusal " + m.answer.err.Error()
		case m.answer != nil:
			got = "result " + string(m.answer.result)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%.80s: %s, want %s", line, got, want)
		}
	}
}

func TestTheWordsOfARefusalAreBounded(t *testing.T) {
	t.Parallel()
	m, err := decode(
		[]byte(`{"id": 1, "error": {"class": "GenericError", "desc": "` + strings.Repeat("ä", maxDescription) + `"}}`),
	)
	if err != nil {
		t.Fatal(err)
	}
	if d := m.answer.err.Description; len(d) > maxDescription+4 || !strings.HasSuffix(d, "ä ...") {
		t.Errorf("%d bytes, ending in %q", len(d), d[len(d)-8:])
	}
}

func TestLinesAreReadAsWrittenHoweverTheyArrive(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	for name, arrives := range map[string]func(io.Reader) io.Reader{
		"at once":       func(r io.Reader) io.Reader { return r },
		"byte by byte":  iotest.OneByteReader,
		"with its end":  iotest.DataErrReader,
		"half by half ": iotest.HalfReader,
	} {
		r := bufio.NewReader(arrives(strings.NewReader("a\r\n\n" + long + "\n" + long + "y\nrest")))
		for _, want := range []string{"a\r", "", long} {
			if got, err := readLine(r, len(long)); err != nil || string(got) != want {
				t.Errorf("%s: %.20q, %v, want %.20q", name, got, err, want)
			}
		}
		if _, err := readLine(r, len(long)); err == nil || !strings.Contains(err.Error(), "longer than 10000") {
			t.Errorf("%s: a line that is too long: %v", name, err)
		}
	}
	r := bufio.NewReader(strings.NewReader("whole\npart"))
	if got, err := readLine(r, 10); err != nil || string(got) != "whole" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := readLine(r, 10); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("part of a line: %v", err)
	}
	if _, err := readLine(r, 10); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}

func FuzzDecodedLinesAreOfOneKindAndKeepTheirContent(f *testing.F) {
	for _, line := range []string{
		`{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}}`,
		`{"return": [{"x": 9007199254740993}], "id": 18446744073709551615}`,
		`{"id": 1, "error": {"class": "GenericError", "desc": "no"}}`,
		`{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "SHUTDOWN", "data": {"guest": false, "reason": "host-qmp-quit"}}`,
		`{"return": {}, "event": "X"}`, "\x00", `{"RETURN": 1, "Id": 1}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		m, err := decode(line)
		if !bytes.Equal(before, line) {
			t.Fatal("the line was changed")
		}
		kinds := 0
		for _, there := range []bool{m.greeting != nil, m.event != nil, m.answer != nil} {
			if there {
				kinds++
			}
		}
		if err != nil {
			if kinds != 0 {
				t.Fatalf("refused with %v, and yet decoded", err)
			}
			return
		}
		if kinds != 1 || !json.Valid(line) {
			t.Fatalf("%d kinds in %q", kinds, line)
		}
		var raw json.RawMessage
		switch {
		case m.event != nil:
			raw = m.event.Data
		case m.answer != nil && m.answer.err == nil:
			if raw = m.answer.result; raw == nil {
				t.Fatal("neither result nor error")
			}
		}
		clear(line) // what was decoded must not point into the line
		var value any
		if raw != nil {
			if !bytes.Contains(before, raw) {
				t.Fatalf("%q is not in %q", raw, before)
			}
			if err := decodeValue(raw, &value); err != nil {
				t.Fatalf("%q: %v", raw, err)
			}
		}
	})
}
