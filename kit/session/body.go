package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

var (
	errNotJSON  = fault.New(fault.WrongType, "the request needs the header Content-Type: application/json")
	errNoObject = fault.New(fault.Invalid, "the request body must be a JSON object")
	errMore     = fault.New(fault.Invalid, "the request body has more after the JSON object")
	errNotText  = fault.New(fault.Invalid, "the request body is not valid UTF-8")
)

// maxName limits a name that an error repeats, in bytes.
const maxName = 64

// readTexts reads a request's body: a JSON object with some of the named fields, all of them texts. It
// is as strict as the contracts of the services are: names count exactly, no name is given twice, and
// nothing follows the object.
func readTexts(r *http.Request, names ...string) (map[string]string, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, errNotJSON
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, httpserve.BodyError(err)
	}
	if !utf8.Valid(raw) {
		return nil, errNotText
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	begin, err := d.Token()
	if err != nil {
		return nil, httpserve.BodyError(err)
	}
	if begin != json.Delim('{') {
		return nil, errNoObject
	}
	texts := map[string]string{}
	for d.More() {
		if err := readText(d, names, texts); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, cut(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errMore
	}
	return texts, nil
}

// cut returns the fault for an error within the object, where io.EOF is not the end of an empty body.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return httpserve.BodyError(err)
}

// readText reads a name and its text.
func readText(d *json.Decoder, names []string, texts map[string]string) error {
	token, err := d.Token()
	if err != nil {
		return cut(err)
	}
	name, _ := token.(string) // the decoder accepts nothing else here
	if !slices.Contains(names, name) {
		return fault.InvalidField(name[:min(len(name), maxName)], "there is no such field")
	}
	if _, twice := texts[name]; twice {
		return fault.InvalidField(name, "is given twice")
	}
	if token, err = d.Token(); err != nil {
		return cut(err)
	}
	text, ok := token.(string)
	if !ok || strings.ContainsRune(text, 0) {
		return fault.InvalidField(name, "must be a text without NUL")
	}
	texts[name] = text
	return nil
}
