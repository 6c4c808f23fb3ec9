package wire

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// Operations that open a call.
const (
	OpPing         = "ping"
	OpExec         = "exec"
	OpPutFile      = "put-file"
	OpGetFile      = "get-file"
	OpNetwork      = "network-info"
	OpShutdown     = "shutdown"
	OpFreeze       = "fs-freeze"
	OpThaw         = "fs-thaw"
	OpRotateSecret = "rotate-secret"
	OpPersonalize  = "personalize"
)

// Operations within a session and a call.
const (
	OpHello  = "hello"
	OpHead   = "head"
	OpData   = "data"
	OpEnd    = "end"
	OpCredit = "credit"
	OpCancel = "cancel"
	OpResult = "result"
	OpError  = "error"
)

// Code is a machine-readable reason why an agent refused a request.
type Code string

// Codes of an Error.
const (
	Denied      Code = "denied"      // the secret is wrong; nothing was done
	Invalid     Code = "invalid"     // the request makes no sense
	NotFound    Code = "not_found"   // the file or the program is not there
	Busy        Code = "busy"        // too many calls, or already frozen
	Frozen      Code = "frozen"      // writing would wait for fs-thaw
	Cancelled   Code = "cancelled"   // as the host asked
	Unsupported Code = "unsupported" // not an operation of this agent, or not of this guest
	Failed      Code = "failed"      // the guest's system refused
)

// Error is the body of an error frame. The message is the guest's text.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// Errorf returns an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Hello describes an agent. Capabilities are the operations that it supports.
type Hello struct {
	Proto        int      `json:"proto"`
	Version      string   `json:"version"`
	Capabilities []string `json:"caps"`
}

// Exec is the body of exec. With Detach, the process gets no input, its output is discarded, it
// outlives the session, and the call ends once it has started.
type Exec struct {
	Argv      []string `json:"argv"`
	Env       []string `json:"env,omitempty"` // KEY=value, beside PATH and HOME
	Dir       string   `json:"cwd,omitempty"`
	Stdin     bool     `json:"stdin,omitempty"` // data will follow, and an end
	TimeoutMS int64    `json:"timeout_ms,omitempty"`
	MaxOutput int64    `json:"max_output,omitempty"` // bytes; the rest is thrown away
	Detach    bool     `json:"detach,omitempty"`
}

// Exit is the result of exec.
type Exit struct {
	PID       int    `json:"pid"`
	Code      int    `json:"exit_code"`           // -1 if a signal ended it
	Signal    string `json:"signal,omitempty"`    // as in SIGKILL
	TimedOut  bool   `json:"timed_out,omitempty"` // it was killed for that
	Truncated bool   `json:"truncated,omitempty"` // there was more than MaxOutput
}

// PutFile is the body of put-file; data follows, and an end with a Sum.
type PutFile struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"` // permissions
	Size int64  `json:"size"`
}

// GetFile is the body of get-file.
type GetFile struct {
	Path string `json:"path"`
}

// Head precedes the data of get-file. Size is -1 if the file has content but no size, as in /proc.
type Head struct {
	Mode uint32 `json:"mode"`
	Size int64  `json:"size"`
}

// Sum is the size and the SHA-256, in hexadecimal, of a transferred file: the body of the end of
// put-file and the result of get-file.
type Sum struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Network is the result of network-info.
type Network struct {
	Interfaces []Interface `json:"interfaces"`
}

// Interface is a network interface as reported by the guest.
type Interface struct {
	Name      string         `json:"name"`
	MAC       string         `json:"mac,omitempty"`
	MTU       int            `json:"mtu"`
	Up        bool           `json:"up"`
	Addresses []netip.Prefix `json:"addresses"`
}

// Shutdown is the body of shutdown.
type Shutdown struct {
	Mode string `json:"mode"`
}

// The modes of Shutdown.
const (
	PowerOff = "poweroff"
	Reboot   = "reboot"
)

// Freeze is the body of fs-freeze. File systems thaw on their own after the limit.
type Freeze struct {
	LimitMS int64 `json:"limit_ms"`
}

// Frozens is the result of fs-freeze and fs-thaw: the number of affected file systems.
type Frozens struct {
	FileSystems int `json:"file_systems"`
}

// RotateSecret is the body of rotate-secret.
type RotateSecret struct {
	New string `json:"new"`
}

// Rotated is the result of rotate-secret: whether the new secret is also on disk.
type Rotated struct {
	Stored bool `json:"stored"`
}

// Sizes of a Personalize's Seed in bytes.
const (
	MinSeed = 32
	MaxSeed = 512
)

// Personalize is the body of personalize: a guest that began with the memory of another one gets
// an identity of its own.
type Personalize struct {
	Secret    string `json:"secret"`  // of the agent from now on
	Seed      []byte `json:"seed"`    // for the kernel's random numbers
	TimeNS    int64  `json:"time_ns"` // nanoseconds since 1970
	Hostname  string `json:"hostname"`
	MachineID string `json:"machine_id"` // 32 lower-case hexadecimal digits
	// MACs are the addresses that network interfaces get, by those that they have.
	MACs map[string]string `json:"macs,omitempty"`
}

// ValidSecret fails unless s has 1 to MaxSecret bytes of printable ASCII, so that it fits on one
// line of a file.
func ValidSecret(s string) error {
	if s == "" || len(s) > MaxSecret {
		return Errorf(Invalid, "a secret has 1 to %d bytes, not %d", MaxSecret, len(s))
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return Errorf(Invalid, "a secret is of printable ASCII without spaces")
		}
	}
	return nil
}

// Body decodes the body of a frame into v.
func Body(body json.RawMessage, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: its body is not as expected", ErrMalformed)
	}
	return nil
}
