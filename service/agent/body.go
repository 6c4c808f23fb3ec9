package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// shape is what a body's object may hold. The contract allows other keys, too, but
// none that only differ from these in case: decoding would take them, and they would
// pass by the contract's bounds.
type shape struct {
	names []string // none: a program's own object, which is not looked into
	list  string   // the name of a list of objects
	items *shape   // what those may hold
}

var (
	eventShape = shape{names: []string{"event_id", "topic", "payload", "headers", "event_time"}}
	shapes     = map[string]shape{
		"SendEvent":            eventShape,
		"SendEvents":           {names: []string{"events"}, list: "events", items: &eventShape},
		"RegisterDevice":       {names: []string{"name", "model", "firmware_version", "labels"}},
		"RetryRefusedEvents":   {names: []string{"event_ids", "all"}},
		"DiscardRefusedEvents": {names: []string{"event_ids", "all"}},
		"PatchReported":        {},
	}
)

// strictBody refuses bodies that decoding would take for something else than what
// was sent: text that is not UTF-8, a second document, and ambiguous keys.
func (a *Agent) strictBody(s shape, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			err = httpserve.BodyError(err)
		} else {
			err = checkBody(text, s)
		}
		if err != nil {
			a.render(w, r, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		next.ServeHTTP(w, r)
	})
}

// checkBody finds what decoding would not. Broken JSON is left to decoding.
func checkBody(text []byte, s shape) error {
	if !utf8.Valid(text) {
		return fault.InvalidField("body", "is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	var f *fault.Error
	err := checkValue(dec, s)
	if errors.As(err, &f) {
		return f
	}
	if err != nil {
		return nil //nolint:nilerr // decoding says what is wrong
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fault.InvalidField(
			"body",
			"holds more than one JSON document; to send several events, use /v1/events/batch",
		)
	}
	return nil
}

// checkValue reads one value.
func checkValue(dec *json.Decoder, s shape) error {
	var whole json.RawMessage
	if len(s.names) == 0 {
		return dec.Decode(&whole)
	}
	begin, err := dec.Token()
	if err != nil {
		return err
	}
	if begin != json.Delim('{') {
		return errors.New("not an object")
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		if err := checkKey(key, s.names, seen); err != nil {
			return err
		}
		if key != s.list || s.items == nil {
			if err := dec.Decode(&whole); err != nil {
				return err
			}
			continue
		}
		if begin, err := dec.Token(); err != nil || begin != json.Delim('[') {
			return errors.Join(err, errors.New("not a list"))
		}
		for dec.More() {
			if err := checkValue(dec, *s.items); err != nil {
				return err
			}
		}
		if _, err := dec.Token(); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

func checkKey(key string, names []string, seen map[string]bool) error {
	for _, name := range names {
		if key != name && strings.EqualFold(key, name) {
			return fault.InvalidField(name, "is written %q; keys are case-sensitive", key)
		}
	}
	if slices.Contains(names, key) && seen[key] {
		return fault.InvalidField(key, "is given twice")
	}
	seen[key] = true
	return nil
}
