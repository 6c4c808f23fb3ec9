// Package problem writes and reads the error bodies of all API contracts. The content of an error
// is the same everywhere; each contract chooses one of the body shapes. Servers write their
// contract's shape, and clients can parse any of them.
package problem

import (
	"cmp"
	"encoding/json"
	"io"
	"strings"
)

// Problem is the content of an API error response.
type Problem struct {
	// Code is a stable word for programs, for example "not_found".
	Code string
	// Message is for people.
	Message string
	// Field is the offending part of the request, empty if there is none.
	Field string
	// Limit names the setting or quota that the request exceeds, empty if there is none.
	Limit string
	// RequestID identifies the request in the server's log.
	RequestID string
}

// Body is the shape of a contract's error body.
type Body uint8

// The body shapes. A shape without a place for a part of the problem omits that part.
const (
	Nested  Body = iota // {"error": {"code", "message", "field", "limit", "request_id"}}
	Flat                // {"error": message, "code", "field", "limit", "request_id"}
	Bare                // {"error": message}
	Detail              // {"detail": message}
	Wrapped             // {"success": false, "data": null, "error": message}
	// Capitals is Nested with codes in capital letters, of which that of invalid input is VALIDATION_ERROR.
	Capitals
)

type nested struct {
	Error struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		Field     string `json:"field,omitempty"`
		Limit     string `json:"limit,omitempty"`
		RequestID string `json:"request_id"`
	} `json:"error"`
}

type flat struct {
	Error     string `json:"error"`
	Code      string `json:"code"`
	Field     string `json:"field,omitempty"`
	Limit     string `json:"limit,omitempty"`
	RequestID string `json:"request_id"`
}

type bare struct {
	Error string `json:"error"`
}

type detail struct {
	Detail string `json:"detail"`
}

type wrapped struct {
	Success bool   `json:"success"`
	Data    any    `json:"data"`
	Error   string `json:"error"`
}

// Encode writes the problem as JSON.
func (b Body) Encode(w io.Writer, p Problem) error {
	return json.NewEncoder(w).Encode(b.of(p))
}

// Code returns a code as the body shows it.
func (b Body) Code(code string) string {
	switch {
	case b != Capitals:
		return code
	case code == "invalid":
		return "VALIDATION_ERROR"
	}
	return strings.ToUpper(code)
}

func (b Body) of(p Problem) any {
	switch b {
	case Flat:
		return flat{p.Message, p.Code, p.Field, p.Limit, p.RequestID}
	case Bare:
		return bare{p.Message}
	case Detail:
		return detail{p.Message}
	case Wrapped:
		return wrapped{Error: p.Message}
	}
	p.Code = b.Code(p.Code)
	var n nested
	n.Error.Code, n.Error.Message, n.Error.Field = p.Code, p.Message, p.Field
	n.Error.Limit, n.Error.RequestID = p.Limit, p.RequestID
	return n
}

// Parse reads an error body of any shape. ok is false if text is not an error body, for example a
// proxy's error page.
func Parse(text []byte) (p Problem, ok bool) {
	var n nested
	if json.Unmarshal(text, &n) == nil && n.Error.Message != "" {
		e := n.Error
		return Problem{e.Code, e.Message, e.Field, e.Limit, e.RequestID}, true
	}
	var f struct {
		flat
		detail
	}
	if json.Unmarshal(text, &f) != nil {
		return Problem{}, false
	}
	p = Problem{f.Code, cmp.Or(f.Error, f.Detail), f.Field, f.Limit, f.RequestID}
	return p, p.Message != ""
}
