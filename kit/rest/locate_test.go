package rest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

type event struct {
	Topic   string             `json:"topic"`
	Time    *time.Time         `json:"event_time,omitempty"`
	Headers *map[string]string `json:"headers,omitempty"`
	Count   int8               `json:"count"`
}

type batch struct {
	Events []event `json:"events"`
	Any    any     `json:"any"`
}

// seekable is a body that can be read again, as package contract leaves it.
type seekable struct{ *strings.Reader }

func (seekable) Close() error { return nil }

func TestTheErrorOfABodyNamesTheFieldWhereverItIs(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct{ field, text string }{
		`{"events":[{"topic":"a"},{"event_time":"yesterday"}]}`: {"events.1.event_time", "is not a time"},
		`{"events":[{"event_time":5}]}`:                         {"events.0.event_time", "is not a time"},
		`{"events":[{"headers":{"b":"x","a":1}}]}`:              {"events.0.headers.a", "must be a string, not number"},
		`{"events":[{"count":300}]}`:                            {"events.0.count", "must be an integer in range, not number"},
		`{"events":[{"count":1},5]}`:                            {"events.1", "must be an object, not number"},
		`{"any":{"a":[1,null]},"events":{}}`:                    {"events", "must be an array, not object"},
		`[]`:                                                    {"", "the request body must be an object, not array"},
		`{"events":[`:                                           {"", "ends before"},
	} {
		var got error
		h := rest.Serve(
			func(_ http.ResponseWriter, _ *http.Request, err error) { got = err },
			func(in *rest.Input, b *batch) { rest.JSON[batch](in, true) },
			func(context.Context, batch) (answer, error) { return ok{}, nil },
			answer.visit,
		)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		r.Body = seekable{strings.NewReader(body)}
		h(httptest.NewRecorder(), r)
		if f := fault.From(got); f == nil || f.Kind != fault.Invalid || f.Field != want.field ||
			!strings.Contains(f.Message, want.text) || !strings.HasPrefix(f.Message, want.field) {
			t.Errorf("%s: %+v", body, f)
		}
	}
}
