package pam

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
)

// Limits of what goes over the wire.
const (
	// MaxPassword is the length of the longest password in bytes. PAM itself takes 512 and less.
	MaxPassword = 1024
	// maxRequest and maxResponse are the bytes of a frame without its length. A response holds at
	// most maxGroups names.
	maxRequest  = 4 << 10
	maxResponse = 256 << 10
	maxGroups   = 512
)

// Op is what a request asks for.
type Op string

// The operations. Both check that the account may be used now: it has not expired, for example.
const (
	Authenticate Op = "authenticate" // is the password right, and who is it?
	Groups       Op = "groups"       // which account is it?
)

// Request is a question to the program. Password is empty for Groups.
type Request struct {
	Op       Op     `json:"op"`
	Service  string `json:"service"`
	Username string `json:"username"`
	Password []byte `json:"password,omitempty"`
}

var (
	servicePattern  = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)
	usernamePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
)

// Check returns why a request cannot be answered, or nil. The error does not repeat the password.
func (r Request) Check() error {
	switch {
	case r.Op != Authenticate && r.Op != Groups:
		return errors.New("the operation is unknown")
	case !servicePattern.MatchString(r.Service):
		return errors.New("the name of the service is not valid")
	// Modules make file names of usernames.
	case !usernamePattern.MatchString(r.Username), r.Username == ".", r.Username == "..":
		return errors.New("the username is not valid")
	case r.Op == Authenticate && len(r.Password) == 0:
		return errors.New("the password is empty")
	case len(r.Password) > MaxPassword:
		return errors.New("the password is too long")
	case slices.Contains(r.Password, 0): // C would stop there
		return errors.New("the password contains a zero byte")
	}
	return nil
}

// Class says why there is no account in a response.
type Class string

// The classes.
const (
	// Denied: the stack says no. The password is wrong, or the account is unknown, locked or expired.
	Denied Class = "denied"
	// Invalid: the request cannot be answered as it is, see Request.Check.
	Invalid Class = "invalid"
	// Unconfigured: the service is not one that may be asked about, or has no file.
	Unconfigured Class = "unconfigured"
	// Busy: too many requests are in progress.
	Busy Class = "busy"
	// Failed: the stack cannot say, took too long or crashed.
	Failed Class = "failed"
)

// Account is an account of the host.
type Account struct {
	// Username is the host's own spelling, which may differ from the one that was asked for.
	Username string `json:"username"`
	// UID is the user id; 0 is root.
	UID int `json:"uid"`
	// Groups are the names of the groups that the account is in, its own one included.
	Groups []string `json:"groups"`
}

// Response is the answer of the program. Error is empty if there is an account. Detail is for the
// log.
type Response struct {
	Account *Account `json:"account,omitempty"`
	Error   Class    `json:"error,omitempty"`
	Detail  string   `json:"detail,omitempty"`
}

// Refuse returns a response without an account.
func Refuse(class Class, detail string) Response { return Response{Error: class, Detail: detail} }

// Accept returns a response with an account. Groups beyond the first 512 are left out, since nobody
// is in as many.
func Accept(a Account) Response {
	a.Groups = a.Groups[:min(len(a.Groups), maxGroups)]
	return Response{Account: &a}
}

// ReadRequest reads a request, and does not check it.
func ReadRequest(r io.Reader) (Request, error) {
	var q Request
	return q, read(r, maxRequest, &q)
}

// WriteRequest writes a request.
func WriteRequest(w io.Writer, q Request) error { return write(w, maxRequest, q) }

// ReadResponse reads a response.
func ReadResponse(r io.Reader) (Response, error) {
	var a Response
	if err := read(r, maxResponse, &a); err != nil {
		return Response{}, err
	}
	if (a.Account == nil) == (a.Error == "") {
		return Response{}, errors.New("the response is neither an account nor an error")
	}
	return a, nil
}

// WriteResponse writes a response.
func WriteResponse(w io.Writer, a Response) error { return write(w, maxResponse, a) }

func read(r io.Reader, limit uint32, into any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n == 0 || n > limit {
		return fmt.Errorf("a frame has %d bytes, and at most %d are taken", n, limit)
	}
	body := make([]byte, n)
	defer clear(body)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		// Its text may repeat parts of the body.
		return errors.New("a frame is not valid JSON of the expected shape")
	}
	return nil
}

func write(w io.Writer, limit int, value any) error {
	body, err := json.Marshal(value)
	defer clear(body)
	if err != nil {
		return errors.New("a frame cannot be written as JSON")
	}
	if len(body) > limit {
		return fmt.Errorf("a frame has %d bytes, and at most %d are taken", len(body), limit)
	}
	// One write, so that nothing is asked unless all of it has arrived.
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	frame = append(frame, body...)
	defer clear(frame)
	_, err = w.Write(frame)
	return err
}
