package mergepatch_test

import (
	"encoding/json"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/mergepatch"
)

// The examples are those of RFC 7396, appendix A, and some of arrays that hold null.
func TestApplyFollowsRFC7396(t *testing.T) {
	t.Parallel()
	for _, tt := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"keep":[null]}`, `{"a":[null, {"b":null}]}`, `{"a":[null,{"b":null}],"keep":[null]}`},
		{``, `{"a": {"b": null, "c": [null]}}`, `{"a":{"c":[null]}}`},
		{`{"n":12345678901234567890.10}`, `{"m":1e400}`, `{"m":1e400,"n":12345678901234567890.10}`},
	} {
		got, err := mergepatch.Apply(json.RawMessage(tt[0]), json.RawMessage(tt[1]))
		if err != nil || string(got) != tt[2] {
			t.Errorf("%s after %s: %s, %v; want %s", tt[0], tt[1], got, err, tt[2])
		}
	}
}

func TestWhatIsNotJSONIsAnError(t *testing.T) {
	t.Parallel()
	for _, tt := range [][2]string{{`{}`, `{"a":`}, {`{}`, `x`}, {`{"a"`, `{"a":1}`}} {
		if got, err := mergepatch.Apply(json.RawMessage(tt[0]), json.RawMessage(tt[1])); err == nil {
			t.Errorf("%s after %s: %s", tt[0], tt[1], got)
		}
	}
}
