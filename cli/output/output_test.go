package output_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/cli/output"
)

func TestTimesAreDistancesForPeopleAndRFC3339Elsewhere(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	p := &output.Printer{Terminal: true, Now: now}
	for ago, want := range map[time.Duration]string{
		0: "0s ago", 59 * time.Second: "59s ago", 3 * time.Minute: "3m ago", 47 * time.Hour: "47h ago", 72 * time.Hour: "3d ago", -time.Hour: "in 1h",
	} {
		if got := p.Time(now.Add(-ago)); got != want {
			t.Errorf("%s: %q, want %q", ago, got, want)
		}
	}
	p.Terminal = false
	if got := p.Time(now.In(time.FixedZone("", 3600))); got != "2026-01-02T12:00:00Z" {
		t.Error(got)
	}
}

func TestCellsShowNothingAsADash(t *testing.T) {
	t.Parallel()
	p := &output.Printer{}
	for _, v := range []any{"", (*time.Time)(nil), map[string]string{}, []string(nil)} {
		if got := p.Cell(v); got != "-" {
			t.Errorf("%#v: %q", v, got)
		}
	}
	if got := p.Cell(map[string]string{"b": "2", "a": "1"}); got != "a=1,b=2" {
		t.Error(got)
	}
}

func TestEscapeLeavesTextAndShowsWhatIsNone(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"grüße, 東京 🙂":    "grüße, 東京 🙂",
		"a\tb\r\n":       `a\tb\r\n`,
		"\x00\x7f\u0085": `\x00\x7f\x85`,
		"\xff":           `\xff`,
		"\u202e\u2066":   `\u202e\u2066`,
	} {
		if got := output.Escape(in); got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}

func TestYAMLHasTheJSONsFieldsOrderAndValues(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := &output.Printer{Out: &b, Style: output.Style{Format: output.YAML}}
	if err := p.Object(
		[]byte(
			`{"z":12345678901234567890,"a":"\ud83d\ude42","yes":"yes","n":"1","f":1.5e3,"list":[1,[],{}],"t":true,"none":null}`,
		),
	); err != nil {
		t.Fatal(err)
	}
	want := "z: 12345678901234567890\na: \"\\U0001F642\"\n\"yes\": \"yes\"\n\"n\": \"1\"\nf: 1.5e3\nlist:\n  - 1\n  - []\n  - {}\nt: true\nnone: null\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestBrokenJSONIsAnErrorInEveryFormat(t *testing.T) {
	t.Parallel()
	for _, f := range []output.Format{output.Table, output.JSON, output.YAML} {
		for _, raw := range []string{"", "{", `{"a":`, "[1", "nonsense"} {
			if err := (&output.Printer{Out: new(bytes.Buffer), Style: output.Style{Format: f}}).Object([]byte(raw)); err == nil {
				t.Errorf("%s took %q", f, raw)
			}
		}
	}
}

func TestAListOfPagesIsOneList(t *testing.T) {
	t.Parallel()
	for format, want := range map[output.Format]string{
		output.Table: "N\n1\n2\n", output.JSON: "[\n  1,\n  2\n]\n", output.YAML: "- 1\n- 2\n",
	} {
		var b bytes.Buffer
		l := output.NewList(
			&output.Printer{Out: &b, Style: output.Style{Format: format}},
			output.Columns[int]{Heads: []string{"N"}, Row: func(n int) []any { return []any{n} }},
		)
		for _, page := range []string{"1", "2"} {
			if err := l.Page([]json.RawMessage{json.RawMessage(page)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil || b.String() != want {
			t.Errorf("%s: %v %q", format, err, b.String())
		}
	}
}

func TestOnlyPeopleSeeCutCellsAndNearlyAllOfTheLast(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 600)
	columns := output.Columns[string]{
		Heads: []string{"ID", "MESSAGE"},
		Row:   func(s string) []any { return []any{s, s} },
	}
	for people, want := range map[bool]string{
		true:  strings.Repeat("é", 59) + "…   " + strings.Repeat("é", 499) + "…\n",
		false: long + "   " + long + "\n",
	} {
		var b bytes.Buffer
		list := output.NewList(&output.Printer{Out: &b, Style: output.Style{Format: output.Table}, Terminal: people}, columns)
		if err := list.Page([]json.RawMessage{json.RawMessage(`"` + long + `"`)}); err != nil {
			t.Fatal(err)
		}
		if _, row, _ := strings.Cut(b.String(), "\n"); row != want {
			t.Errorf("people %v: %s", people, row)
		}
	}
}

func TestSparklinesAndBarsAreInProportion(t *testing.T) {
	t.Parallel()
	if got := output.Sparkline([]int64{0, 1, 4, 8}); got != "·▁▄█" {
		t.Error(got)
	}
	if output.Sparkline(nil) != "" || output.Sparkline([]int64{0}) != "·" {
		t.Error("nothing is drawn as something")
	}
	for _, tt := range []struct {
		value, total int64
		want         string
	}{{0, 0, "░░░░"}, {1, 2, "██░░"}, {3, 2, "████"}, {-1, 2, "░░░░"}} {
		if got := output.Bar(tt.value, tt.total, 4); got != tt.want {
			t.Errorf("%d of %d: %s", tt.value, tt.total, got)
		}
	}
}

func TestProgressIsSilentWhereNobodyWatches(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := output.NewProgress(&b, 10)
	p.Update(5, 5, "events")
	p.Done()
	if b.Len() != 0 {
		t.Errorf("%q", b.String())
	}
}
