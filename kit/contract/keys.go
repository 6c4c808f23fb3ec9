package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// encoding/json matches a struct's field whatever the case of the key, and takes the last of
// duplicate keys. The contract is checked by exact names. Without the check in this file,
// {"RETRY_MAX": -1} would be an unknown field for the contract and a value for the handler.

// keys describes the keys that the contract allows in a JSON value. It is nil for values that the
// contract does not describe further, such as payloads, whose keys the caller chooses.
type keys struct {
	names  map[string]*keys  // declared properties
	folded map[string]string // fold(name) -> name
	others *keys             // values of keys that are not declared
	items  *keys             // of an array
	object bool              // keys are checked; false for arrays
	text   bool              // a text, which must not hold NUL: PostgreSQL cannot store it
}

// plainText are the keys of texts.
var plainText = &keys{text: true}

// exactKeysExtension marks a schema of which the contract does not describe the keys, but in which no key may be
// given twice, at any depth.
const exactKeysExtension = "x-exact-keys"

// nulExtension marks a text that may hold NUL, since it is not stored: what a program reads, for example.
const nulExtension = "x-nul"

// keysOf reads a schema. known holds the schemas read so far, since schemas may contain themselves.
func keysOf(ref *openapi3.SchemaRef, known map[*openapi3.Schema]*keys) *keys {
	if ref == nil || ref.Value == nil {
		return nil
	}
	if k, ok := known[ref.Value]; ok {
		return k
	}
	k := &keys{names: map[string]*keys{}, folded: map[string]string{}}
	known[ref.Value] = k
	if v := ref.Value; v.Type.Is("string") && v.Format != "byte" && v.Format != "binary" &&
		v.Extensions[nulExtension] != true {
		return plainText
	}
	if ref.Value.Extensions[exactKeysExtension] == true {
		k.object, k.others, k.items = true, k, k
		return k
	}
	k.add(ref.Value, known)
	if !k.object && k.items == nil {
		known[ref.Value] = nil
		return nil
	}
	return k
}

func (k *keys) add(schema *openapi3.Schema, known map[*openapi3.Schema]*keys) {
	for name, property := range schema.Properties {
		k.object = true
		k.names[name], k.folded[fold([]byte(name))] = keysOf(property, known), name
	}
	if values := schema.AdditionalProperties.Schema; values != nil {
		k.object, k.others = true, keysOf(values, known)
	}
	if items := keysOf(schema.Items, known); items != nil {
		k.items = items
	}
	for _, parts := range []openapi3.SchemaRefs{schema.AllOf, schema.OneOf, schema.AnyOf} {
		for _, part := range parts {
			k.add(part.Value, known)
		}
	}
}

// exactKeys rejects a request whose JSON body has a duplicate key, a key that differs from a
// declared one only in case, or anything after its first value. It reads the body and restores it.
// A body of another type that the operation accepts, such as a file, is neither read nor checked.
func (op *Operation) exactKeys(r *http.Request) error {
	if !op.takesJSON || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if op.CarriesFile(r) {
		return nil
	}
	var body bytes.Buffer
	if n := r.ContentLength; n > 0 {
		body.Grow(int(min(n, 64<<10)) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(r.Body); err != nil {
		return httpserve.BodyError(err)
	}
	r.Body = buffered{bytes.NewReader(body.Bytes())}
	return checkKeys(body.Bytes(), op.bodyKeys)
}

// buffered is a body in memory. Package rest rewinds it to find the field of an error.
type buffered struct{ *bytes.Reader }

// Close does nothing.
func (buffered) Close() error { return nil }

// CarriesFile reports whether a request's body is of a type that the operation accepts besides
// JSON, such as a file.
func (op *Operation) CarriesFile(r *http.Request) bool {
	if len(op.otherMedia) == 0 {
		return false
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && slices.Contains(op.otherMedia, media)
}

// checkKeys is exactKeys for a body. An empty body is left to the handler.
func checkKeys(body []byte, k *keys) error {
	s := keyScanner{body: body}
	if s.space(); s.at == len(body) {
		return nil
	}
	if !utf8.Valid(body) {
		// encoding/json would replace invalid bytes with U+FFFD, so two texts could become one.
		return fault.New(fault.Invalid, "the request body is not valid UTF-8")
	}
	if err := s.value(k); err != nil {
		return err
	}
	if s.space(); s.at != len(body) {
		return fault.New(fault.Invalid, "the request body has more after its JSON, at byte %d", s.at+1)
	}
	return nil
}

// maxDepth limits the nesting of values that the contract describes.
const maxDepth = 100

// keyScanner walks through JSON. It examines only structure and keys; the decoder that runs after
// it checks numbers, literals and escapes.
type keyScanner struct {
	body  []byte
	at    int
	steps []step
}

// step is one step of the path to a value: the key of a member, or the index of an element.
type step struct {
	name  []byte
	index int
}

// field returns the path of the current member, for faults.
func (s *keyScanner) field() string {
	parts := make([]string, len(s.steps))
	for i, step := range s.steps {
		if parts[i] = strconv.Itoa(step.index); step.name != nil {
			parts[i] = clipName(step.name)
		}
	}
	return strings.Join(parts, ".")
}

func (s *keyScanner) broken() error {
	return fault.New(fault.Invalid, "the request body is not valid JSON: error at byte %d", s.at+1)
}

func (s *keyScanner) space() {
	for s.at < len(s.body) {
		switch s.body[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// next skips space and returns the next byte, 0 at the end.
func (s *keyScanner) next() byte {
	if s.space(); s.at == len(s.body) {
		return 0
	}
	return s.body[s.at]
}

func (s *keyScanner) value(k *keys) error {
	c := s.next()
	if k == plainText && c == '"' {
		text, err := s.text()
		if err == nil && bytes.IndexByte(text, 0) >= 0 {
			err = fault.InvalidField(s.field(), "holds NUL")
		}
		return err
	}
	if k == nil || c != '{' && c != '[' || c == '{' && !k.object || c == '[' && k.items == nil {
		return s.skip() // nothing to check, or of another type than the contract declares
	}
	if len(s.steps) == maxDepth {
		return fault.New(fault.Invalid, "the request body is nested more than %d levels deep", maxDepth)
	}
	s.at++
	s.steps = append(s.steps, step{})
	var err error
	if c == '{' {
		err = s.members(k)
	} else {
		err = s.elements(k.items)
	}
	s.steps = s.steps[:len(s.steps)-1]
	return err
}

func (s *keyScanner) members(k *keys) error {
	if s.next() == '}' {
		s.at++
		return nil
	}
	for seen := (names{}); ; {
		if s.next() != '"' {
			return s.broken()
		}
		name, err := s.text()
		if err != nil {
			return err
		}
		s.steps[len(s.steps)-1].name = name
		if !seen.add(name) {
			return fault.InvalidField(s.field(), "is given twice")
		}
		if k.others == plainText && bytes.IndexByte(name, 0) >= 0 {
			return fault.InvalidField(s.field(), "holds NUL")
		}
		below, declared := k.names[string(name)]
		if !declared {
			if below = k.others; len(k.folded) > 0 {
				if meant, similar := k.folded[fold(name)]; similar {
					return fault.InvalidField(s.field(), "there is no such field; did you mean %s?", meant)
				}
			}
		}
		if s.next() != ':' {
			return s.broken()
		}
		s.at++
		if err := s.value(below); err != nil {
			return err
		}
		if more, err := s.more('}'); err != nil || !more {
			return err
		}
	}
}

func (s *keyScanner) elements(k *keys) error {
	if s.next() == ']' {
		s.at++
		return nil
	}
	for i := 0; ; i++ {
		s.steps[len(s.steps)-1].index = i
		if err := s.value(k); err != nil {
			return err
		}
		if more, err := s.more(']'); err != nil || !more {
			return err
		}
	}
}

// names is the set of keys of one object. Small sets are searched linearly, without an allocation.
type names struct {
	few  [16][]byte
	n    int // of few
	many map[string]bool
}

// add returns false if the name is already in the set.
func (n *names) add(name []byte) bool {
	if n.many == nil {
		for _, b := range n.few[:n.n] {
			if bytes.Equal(b, name) {
				return false
			}
		}
		if n.n < len(n.few) {
			n.few[n.n] = name
			n.n++
			return true
		}
		n.many = make(map[string]bool, 2*len(n.few))
		for _, b := range n.few {
			n.many[string(b)] = true
		}
	}
	if n.many[string(name)] {
		return false
	}
	n.many[string(name)] = true
	return true
}

// more reads the separator after a member or an element.
func (s *keyScanner) more(end byte) (bool, error) {
	switch s.next() {
	case ',':
		s.at++
		return true, nil
	case end:
		s.at++
		return false, nil
	}
	return false, s.broken()
}

// text reads a string and returns its content, decoded if it has escapes.
func (s *keyScanner) text() ([]byte, error) {
	begin, escaped := s.at, false
	for s.at++; s.at < len(s.body); s.at++ {
		switch s.body[s.at] {
		case '\\':
			escaped = true
			s.at++
		case '"':
			s.at++
			if !escaped {
				return s.body[begin+1 : s.at-1], nil
			}
			var decoded string
			if err := json.Unmarshal(s.body[begin:s.at], &decoded); err != nil {
				return nil, s.broken()
			}
			return []byte(decoded), nil
		}
	}
	return nil, s.broken()
}

// skip skips a value whose keys are not checked.
func (s *keyScanner) skip() error {
	depth := 0
	for {
		switch s.next() {
		case 0:
			return s.broken()
		case '"':
			if err := s.skipText(); err != nil {
				return err
			}
		case '{', '[':
			depth++
			s.at++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return s.broken()
			}
			s.at++
		case ',', ':':
			if depth == 0 {
				return s.broken()
			}
			s.at++
			continue
		default:
			s.literal()
		}
		if depth == 0 {
			return nil
		}
	}
}

func (s *keyScanner) skipText() error {
	for s.at++; s.at < len(s.body); s.at++ {
		switch s.body[s.at] {
		case '\\':
			s.at++
		case '"':
			s.at++
			return nil
		}
	}
	return s.broken()
}

// literal skips a number, true, false or null, or anything else in its place.
func (s *keyScanner) literal() {
	for s.at < len(s.body) {
		switch s.body[s.at] {
		case ' ', '\t', '\r', '\n', ',', ':', '{', '}', '[', ']', '"':
			return
		}
		s.at++
	}
}

// fold maps names that encoding/json considers equal to one string. It compares runes by simple
// case folding, so U+212A (the Kelvin sign) equals k.
func fold(name []byte) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, string(name))
}

// clipName shortens a key and makes it printable, to be echoed to the client.
func clipName(name []byte) string {
	if len(name) > 64 {
		name = name[:64]
	}
	quoted := fmt.Sprintf("%q", bytes.ToValidUTF8(name, []byte("?")))
	return quoted[1 : len(quoted)-1]
}
