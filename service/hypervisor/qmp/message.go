package qmp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// maxDescription limits QEMU's texts in errors, in bytes, since they end up in logs.
const maxDescription = 4 << 10

// maxEvent limits the line of an event, in bytes. QEMU's own have a few hundred.
const maxEvent = 64 << 10

// Version is the version of a QEMU.
type Version struct {
	Major, Minor, Micro int
	// Package is the build, as the distribution names it; it may be empty.
	Package string
}

func (v Version) String() string {
	s := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro)
	if v.Package != "" {
		s += " (" + v.Package + ")"
	}
	return s
}

// Error is QEMU's refusal of a command.
type Error struct {
	// Class is GenericError, CommandNotFound, DeviceNotFound, DeviceNotActive or
	// KVMMissingCap.
	Class string
	// Description is a sentence for people; it may change between versions.
	Description string
}

func (e *Error) Error() string {
	if e.Class == "GenericError" {
		return e.Description
	}
	return e.Description + " (" + e.Class + ")"
}

// message is one line from QEMU: a greeting, an answer or an event.
type message struct {
	greeting *Version
	event    *Event
	answer   *answer
}

type answer struct {
	id     uint64
	result json.RawMessage // if err is nil
	err    *Error
}

// wire is a line as encoded. The fields that are present determine its type.
type wire struct {
	QMP       *wireGreeting   `json:"QMP"`
	Event     *string         `json:"event"`
	Data      json.RawMessage `json:"data"`
	Timestamp struct {
		Seconds      int64 `json:"seconds"`
		Microseconds int64 `json:"microseconds"`
	} `json:"timestamp"`
	ID     *uint64         `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

type wireGreeting struct {
	Version struct {
		QEMU struct {
			Major int `json:"major"`
			Minor int `json:"minor"`
			Micro int `json:"micro"`
		} `json:"qemu"`
		Package string `json:"package"`
	} `json:"version"`
}

// decode decodes one line. The result does not reference the line.
func decode(line []byte) (message, error) {
	var w wire
	if err := json.Unmarshal(line, &w); err != nil {
		return message{}, fmt.Errorf("a line is not QMP: %w", err)
	}
	kinds := 0
	for _, there := range []bool{w.QMP != nil, w.Event != nil, w.Return != nil, w.Error != nil} {
		if there {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return message{}, errors.New("a line is not QMP: it must be one of greeting, event, return and error")
	case w.QMP != nil:
		v := w.QMP.Version
		if v.QEMU.Major <= 0 {
			return message{}, errors.New("a greeting has no version")
		}
		return message{
			greeting: &Version{Major: v.QEMU.Major, Minor: v.QEMU.Minor, Micro: v.QEMU.Micro, Package: v.Package},
		}, nil
	case w.Event != nil:
		if len(line) > maxEvent {
			return message{}, fmt.Errorf("an event is longer than %d bytes", maxEvent)
		}
		at := time.Unix(w.Timestamp.Seconds, 0).Add(time.Duration(w.Timestamp.Microseconds) * time.Microsecond)
		return message{event: &Event{Name: *w.Event, Time: at, Data: w.Data}}, nil
	case w.ID == nil && w.Error != nil:
		// This is how QEMU answers what it cannot parse.
		return message{}, fmt.Errorf("QEMU does not understand a command: %s", clip(w.Error.Desc))
	case w.ID == nil:
		return message{}, errors.New("an answer has no id")
	}
	a := &answer{id: *w.ID, result: w.Return}
	if w.Error != nil {
		a.err = &Error{Class: w.Error.Class, Description: clip(w.Error.Desc)}
	}
	return message{answer: a}, nil
}

func clip(description string) string {
	if len(description) <= maxDescription {
		return description
	}
	return strings.ToValidUTF8(description[:maxDescription], "") + " ..."
}

// readLine reads up to the next line feed and drops that. A line without one is
// io.ErrUnexpectedEOF. Long lines get their own memory, so that one long response is not kept for
// the client's lifetime.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(bytes.TrimSuffix(part, []byte("\n"))) > limit {
			return nil, fmt.Errorf("a line is longer than %d bytes", limit)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// decodeValue decodes a result or an event's data without rounding numbers.
func decodeValue(raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}
