package document_test

import (
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/document"
)

type part struct {
	Name  string            `json:"name" required:"true" form:"word" help:"Its name."`
	Rate  float64           `json:"rate,omitempty" default:"0.5" min:"0" max:"1" help:"Its share."`
	Kind  string            `json:"kind,omitempty" default:"small" enum:"small large" help:"Its kind."`
	Notes map[string]string `json:"notes,omitempty" items:"2" help:"What to know."`
}

type whole struct {
	Parts   []part          `json:"parts" items:"3" help:"The parts."`
	First   *part           `json:"first" help:"The first one."`
	By      map[string]part `json:"by" help:"Parts by name."`
	Every   time.Duration   `key:"every" default:"2s" min:"1s" max:"1h" help:"How often."`
	At      netip.Addr      `key:"at" help:"Where."`
	Count   int             `key:"count" help:"How many."`
	On      bool            `key:"on" help:"Whether."`
	Ignored string          `json:"-"`
}

func syntaxOf(lenient bool) *document.Syntax {
	return &document.Syntax{
		MaxBytes: 4096, MaxValues: 60, MaxItems: 10, Needs: "it needs parts", Lenient: lenient,
		Forms: map[string]document.Form{"word": {Pattern: regexp.MustCompile(`^[a-z]+$`), Says: "a word of lower-case letters"}},
	}
}

func TestADocumentIsReadIntoAStruct(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"YAML": "parts:\n  - name: one\n    notes: {a: x, 1: y}\n  - {name: two, rate: 1, kind: large}\nby: {x: {name: three}}\nevery: 3s\nat: 192.0.2.1\ncount: 7\non: true\n",
		"JSON": `{"parts": [{"name": "one", "notes": {"a": "x", "1": "y"}}, {"name": "two", "rate": 1, "kind": "large"}], "by": {"x": {"name": "three"}}, "every": "3s", "at": "192.0.2.1", "count": 7, "on": true}`,
	} {
		var got whole
		problems, warnings := syntaxOf(false).Decode([]byte(text), &got)
		if err := problems.Fault(); err != nil || !warnings.None() {
			t.Errorf("%s: %v", name, err)
		}
		want := whole{
			Parts: []part{
				{Name: "one", Rate: 0.5, Kind: "small", Notes: map[string]string{"a": "x", "1": "y"}}, {Name: "two", Rate: 1, Kind: "large"},
			},
			By:    map[string]part{"x": {Name: "three", Rate: 0.5, Kind: "small"}},
			Every: 3 * time.Second, At: netip.MustParseAddr("192.0.2.1"), Count: 7, On: true,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestEveryProblemOfADocumentIsToldWithItsPathAndLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                      {"the document is empty; it needs parts"},
		"a: [":                  {"the document is not valid YAML"},
		"on: true\n---\non: no": {"the file has a second document"},
		"a: *secret":            {"does not name an anchor"},
		"- 1":                   {"must be keys with values, not a list (line 1)"},
		"parts: 5":              {"parts: must be a list, not a single value (line 1)"},
		"parts:\n  - {}":        {"parts[0].name: is required (line 2)"},
		"parts:\n  - {name: A}\n  - {name: b, rate: 2}\n  - {name: c, kind: huge}": {
			`3 problems`, `parts[0].name: must be a word of lower-case letters, not "A" (line 2)`, "parts[1].rate: must be at most 1, not 2 (line 3)",
			`parts[2].kind: must be small, large, not "huge" (line 4)`,
		},
		"parts: [{name: a}, {name: b}, {name: c}, {name: d}]": {"parts: has 4 items, which is more than 3"},
		"first: {name: a, notes: {a: 1, b: 2, c: 3}}":         {"first.notes: has 3 items, which is more than 2"},
		"first: {name: a, notes: {a: [1]}}":                   {"first.notes.a: must be a single value, not a list"},
		"first: {name: a, notes: {a: x, a: y}}":               {"first.notes.a: is given twice, first in line 1"},
		"first: {name: a, notes: [a]}":                        {"first.notes: must be keys with values, not a list"},
		"by: {x: 1}":                                          {"by.x: must be keys with values, not a single value"},
		"by: {? [a] : {name: a}}":                             {"by: a key must be a word, not a list"},
		"first: {name: a, rate: .nan}":                        {`first.rate: must be a number, not ".nan"`},
		"first: {name: a, rate: 1e999}":                       {"first.rate: must be a number"},
		"first: {name: a, rate: NaN}":                         {"first.rate: must be a number"},
		"every: 1ms":                                          {"every: must be at least 1s, not 1ms"},
		"every: soon":                                         {"every: must be a duration, as in 500ms or 2s"},
		"count: 1.5":                                          {"count: must be a whole number"},
		"count: -1":                                           {"count: must be a whole number"},
		"count: ~":                                            {"count: must be a single value, not nothing"},
		"on: yes":                                             {`on: must be true or false, not "yes"`},
		"at: fe80::1%eth0":                                    {"at: must have no zone"},
		"evry: 2s":                                            {"evry: unknown key; did you mean every? (line 1)"},
		"Ignored: x":                                          {"Ignored: unknown key"},
		strings.Repeat("x", 70) + ": 1":                       {"unknown key"},
		strings.Repeat(" ", 5000):                             {"larger than 4096 bytes"},
		"a: &a {name: a}\nby: {" + strings.Repeat("k", 1) + ": *a}\nfirst: *a\nparts: [*a, *a]": {"a: unknown key"},
		"x: &x [1, 2]\nfirst: {<<: *x, name: a}":                                                {"merge keys (<<) are not supported"},
	} {
		problems, warnings := syntaxOf(false).Decode([]byte(text), &whole{})
		err := problems.Fault()
		if err == nil || !warnings.None() {
			t.Errorf("%.40q: %v", text, err)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%.40q: %v, want %s", text, err, part)
			}
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

func TestUnknownKeysOfALenientSyntaxAreWarnings(t *testing.T) {
	t.Parallel()
	var got whole
	problems, warnings := syntaxOf(true).Decode([]byte("on: true\nfirst:\n  name: a\n  colour: red\n"), &got)
	if !problems.None() || !got.On || got.First.Name != "a" {
		t.Errorf("%+v, %v", got, problems.Fault())
	}
	if err := warnings.Fault(); err == nil || !strings.HasPrefix(err.Error(), "first.colour: unknown key") || !strings.HasSuffix(err.Error(), "(line 4)") {
		t.Errorf("%v", err)
	}
}

func TestAliasesDoNotMakeADocumentGrow(t *testing.T) {
	t.Parallel()
	text := "first: &a {name: a, notes: &n {a: x, b: y}}\nby: {"
	for _, key := range strings.Split("abcdefghij", "") {
		text += key + ": {name: z, notes: *n}, "
	}
	problems, _ := syntaxOf(false).Decode([]byte(text+"}\nparts: [*a, *a, *a]\n"), &whole{})
	if err := problems.Fault(); err == nil || !strings.Contains(err.Error(), "more than 60 values") {
		t.Errorf("%v", err)
	}
}

func TestTheReferenceHasEveryKey(t *testing.T) {
	t.Parallel()
	want := `| key | type | default | what it means |
|---|---|---|---|
| ` + "`parts[]`" + ` | list |  | The parts. |
| ` + "`parts[].name`" + ` | text | required | Its name. |
| ` + "`parts[].rate`" + ` | number | ` + "`0.5`" + ` | Its share. Allowed: 0 to 1. |
`
	got := syntaxOf(false).Markdown(reflect.TypeFor[whole]())
	if !strings.HasPrefix(got, want) || !strings.Contains(got, "| `every` | duration | `2s` | How often. Allowed: 1s to 1h. |") ||
		!strings.Contains(got, "| `first.notes` | keys with texts |") || strings.Contains(got, "Ignored") {
		t.Errorf("%s", got)
	}
}
