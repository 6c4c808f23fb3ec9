package twin_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/edge/twin"
)

func same(t *testing.T, got json.RawMessage, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCleanKeepsAllButTheControlPlanesKey(t *testing.T) {
	t.Parallel()
	got, err := twin.Clean("desired", json.RawMessage(` {"a": 1, "ota": {"version": "evil"}} `))
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, `{"a":1}`)
}

// The examples are those of RFC 7396, appendix A, as far as they patch objects.
func TestNullsWithinArraysStay(t *testing.T) {
	t.Parallel()
	got, err := twin.Merge(
		"reported",
		json.RawMessage(`{"a": [1], "keep": [null]}`),
		json.RawMessage(`{"a": [null, {"b": null, "c": [null]}], "d": {"e": null, "f": [null]}}`),
	)
	if want := `{"a":[null,{"b":null,"c":[null]}],"d":{"f":[null]},"keep":[null]}`; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestMergeFollowsRFC7396(t *testing.T) {
	t.Parallel()
	for _, tt := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"x":1}`, `{"ota":{"state":"succeeded"}}`, `{"x":1}`},
	} {
		got, err := twin.Merge("reported", json.RawMessage(tt[0]), json.RawMessage(tt[1]))
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, tt[2])
	}
}

func TestStatesThatAreNoObjectOrTooLargeAreRefused(t *testing.T) {
	t.Parallel()
	big := `{"x":"` + strings.Repeat("y", twin.MaxBytes) + `"}`
	deep := `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`
	for in, kind := range map[string]fault.Kind{"[]": fault.Invalid, "null": fault.Invalid, "1": fault.Invalid, "{": fault.Invalid, deep: fault.Invalid, big: fault.TooLarge} {
		if _, err := twin.Clean("desired", json.RawMessage(in)); !fault.Is(err, kind) {
			t.Errorf("Clean(%.20s) = %v", in, err)
		}
		if _, err := twin.Merge("reported", json.RawMessage("{}"), json.RawMessage(in)); !fault.Is(err, kind) {
			t.Errorf("Merge(%.20s) = %v", in, err)
		}
	}
	half := json.RawMessage(`{"x":"` + strings.Repeat("y", twin.MaxBytes/2) + `"}`)
	other := json.RawMessage(`{"z":"` + strings.Repeat("y", twin.MaxBytes/2) + `"}`)
	if _, err := twin.Merge("reported", half, other); !fault.Is(err, fault.TooLarge) {
		t.Errorf("two halves merged to more than the limit: %v", err)
	}
}

func TestWithShowsTheUpdateBesideTheState(t *testing.T) {
	t.Parallel()
	same(t, twin.With(json.RawMessage(`{}`), json.RawMessage(`{"v":1}`)), `{"ota":{"v":1}}`)
	same(t, twin.With(json.RawMessage(`{"a":1}`), json.RawMessage(`{"v":1}`)), `{"a":1,"ota":{"v":1}}`)
	same(t, twin.With(json.RawMessage(`{"a":1}`), nil), `{"a":1}`)
}

func FuzzMerge(f *testing.F) {
	f.Add(`{"a":1}`, `{"a":null,"b":[1,{"c":2}]}`)
	f.Add(`{}`, `{"ota":{}}`)
	f.Add(`{"a":{"b":1}}`, `{"a":{"b":{"c":null}}}`)
	f.Fuzz(func(t *testing.T, state, patch string) {
		before, err := twin.Clean("reported", json.RawMessage(state))
		if err != nil {
			return
		}
		after, err := twin.Merge("reported", before, json.RawMessage(patch))
		if err != nil {
			return
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(after, &object); err != nil || object == nil {
			t.Fatalf("merged state is not an object: %s", after)
		}
		if _, has := object[twin.OTAKey]; has {
			t.Fatalf("a report wrote %s", twin.OTAKey)
		}
		again, err := twin.Merge("reported", after, json.RawMessage(patch))
		if err != nil {
			t.Fatalf("merging again: %v", err)
		}
		same(t, again, string(after)) // a merge patch is idempotent
	})
}

func TestDiffHasOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ was, is, before, after string }{
		{`{}`, `{}`, `{}`, `{}`},
		{`{"a":1,"b":2}`, `{"a":1,"b":3}`, `{"b":2}`, `{"b":3}`},
		{`{"a":1}`, `{"b":1}`, `{"a":1}`, `{"b":1}`},
		{`{"a":null}`, `{}`, `{"a":null}`, `{}`},
		{`{"a":{"x":1,"y":[1]}}`, `{"a":{"y":[2],"x":1}}`, `{"a":{"y":[1]}}`, `{"a":{"y":[2]}}`},
		{`{"a":{"x":1}}`, `{"a":{}}`, `{"a":{"x":1}}`, `{"a":{}}`},
		{`{"a":{"x":1}}`, `{"a":[1]}`, `{"a":{"x":1}}`, `{"a":[1]}`},
		{`{"a":{"x":{"y":1}}}`, `{"a":{"x":{"y": 1}}}`, `{}`, `{}`},
	} {
		before, after, err := twin.Diff(json.RawMessage(tt.was), json.RawMessage(tt.is))
		if err != nil {
			t.Fatal(err)
		}
		same(t, before, tt.before)
		same(t, after, tt.after)
	}
}

func TestAReportNamesTheFirmwareAtEitherOfItsKeys(t *testing.T) {
	t.Parallel()
	for patch, want := range map[string]string{
		`{"firmware":"1.0"}`:                              "1.0",
		`{"firmware_version":"1.1"}`:                      "1.1",
		`{"firmware":"1.0","firmware_version":"1.1"}`:     "1.1",
		`{"firmware":{"image":"a"}}`:                      "",
		`{"firmware":null}`:                               "",
		`{"firmware":""}`:                                 "",
		`{"firmware":"a\u0007"}`:                          "",
		`{"firmware":"` + strings.Repeat("x", 129) + `"}`: "",
		`{"mode":"auto"}`:                                 "",
	} {
		if got, said := twin.Firmware(json.RawMessage(patch)); got != want || said != (want != "") {
			t.Errorf("%s: %q, %v; want %q", patch, got, said, want)
		}
	}
}
