package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Limits of the protocol.
const (
	Proto     = 1         // the version that hello names
	MaxFrame  = 256 << 10 // bytes of JSON in a frame
	MaxChunk  = 64 << 10  // bytes of data in a frame
	Window    = 512 << 10 // bytes of data that a call may have on their way in one direction
	MaxCalls  = 64        // that a host opens at once
	MaxStale  = 8 << 20   // bytes before the answer to a preamble
	MaxPath   = 4096      // bytes
	MaxSecret = 1024      // bytes
)

// Streams of data from the agent. Data from the host has the stream Input.
const (
	Input  = 0
	Output = 1 // standard output, or a file
	Errors = 2 // standard error
)

const header = 4 // bytes of the length

// ErrMalformed is returned for frames that violate the protocol.
var ErrMalformed = errors.New("malformed frame")

// Frame is everything that is sent except the preamble; doc.go describes which Op uses what.
type Frame struct {
	ID     uint64          `json:"id"`
	Op     string          `json:"op"`
	Secret string          `json:"secret,omitempty"`
	Stream int             `json:"stream,omitempty"`
	Data   []byte          `json:"data,omitempty"`
	Credit int             `json:"credit,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
}

// With returns a frame with v as its body. It panics if v cannot be encoded, which is a bug.
func With(id uint64, op string, v any) Frame {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return Frame{ID: id, Op: op, Body: body}
}

// Encode returns the bytes of f, preceded by their length. It fails only if the frame is larger
// than MaxFrame.
func (f *Frame) Encode() ([]byte, error) {
	if f.Op == OpData {
		return f.encodeData(), nil
	}
	body, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	if len(body) > MaxFrame {
		return nil, fmt.Errorf("a request of %d bytes is too large, at most %d can be sent", len(body), MaxFrame)
	}
	return measured(append(make([]byte, header, header+len(body)+1), body...)), nil
}

// measured sets the length in front of a frame. If the length contains the first byte of Magic, it
// is changed by appending spaces to the JSON: at most 257, and never beyond MaxFrame.
func measured(b []byte) []byte {
	for {
		binary.BigEndian.PutUint32(b, uint32(len(b)-header))
		if bytes.IndexByte(b[:header], Magic[0]) < 0 {
			return b
		}
		b = append(b, ' ')
	}
}

// Nearly all frames are data frames, and a guest may be slow. They are therefore encoded and
// decoded without encoding/json. Only exactly what is encoded this way is decoded this way.
const (
	dataHead   = `{"id":`
	dataStream = `,"op":"data","stream":`
	dataData   = `,"data":"`
	dataTail   = `"}`
)

func (f *Frame) encodeData() []byte {
	b := make([]byte, header, header+96+base64.StdEncoding.EncodedLen(len(f.Data)))
	b = strconv.AppendUint(append(b, dataHead...), f.ID, 10)
	b = strconv.AppendInt(append(b, dataStream...), int64(f.Stream), 10)
	b = base64.StdEncoding.AppendEncode(append(b, dataData...), f.Data)
	return measured(append(b, dataTail...))
}

// decodeData decodes what encodeData encoded. The data is stored in room.
func decodeData(b, room []byte) (f Frame, ok bool) {
	b, ok1 := bytes.CutPrefix(b, []byte(dataHead))
	b, ok2 := bytes.CutSuffix(bytes.TrimRight(b, " "), []byte(dataTail))
	id, b, ok3 := bytes.Cut(b, []byte(dataStream))
	stream, b, ok4 := bytes.Cut(b, []byte(dataData))
	if !ok1 || !ok2 || !ok3 || !ok4 || len(stream) != 1 || bytes.IndexByte(b, '\n') >= 0 ||
		bytes.IndexByte(b, '\r') >= 0 {
		return f, false
	}
	var err error
	if f.ID, err = strconv.ParseUint(string(id), 10, 64); err != nil || id[0] == '+' || len(id) > 1 && id[0] == '0' {
		return f, false
	}
	f.Op, f.Stream = OpData, int(stream[0]-'0')
	if f.Data, err = base64.StdEncoding.AppendDecode(room[:0], b); err != nil {
		return f, false
	}
	return f, f.validData() == nil
}

func (f *Frame) validData() error {
	if len(f.Data) == 0 || len(f.Data) > MaxChunk || f.Stream < Input || f.Stream > Errors {
		return fmt.Errorf("%w: data of %d bytes for stream %d", ErrMalformed, len(f.Data), f.Stream)
	}
	return nil
}

// decode decodes a frame. Its data may be stored in room.
func decode(b, room []byte) (Frame, error) {
	if f, ok := decodeData(b, room); ok {
		return f, nil
	}
	var f Frame
	if err := json.Unmarshal(b, &f); err != nil {
		// The text of err may quote what was sent, which may contain a secret.
		return Frame{}, fmt.Errorf("%w: not JSON of the expected form", ErrMalformed)
	}
	if f.Op == OpData {
		return f, f.validData()
	}
	if f.Op == "" || len(f.Data) > 0 {
		return Frame{}, fmt.Errorf("%w: no operation, or data where none belongs", ErrMalformed)
	}
	return f, nil
}
