package glob_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/glob"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"temp", "temp", true},
		{"temp", "temperature", false},
		{"*", "", true},
		{"*", "any/thing.at all", true},
		{"temp.*", "temp.", true},
		{"temp.*", "temp", false},
		{"*.alarm", "line1.motor.alarm", true},
		{"a*b*c", "abbbc", true},
		{"a*b*c", "acb", false},
		{"**", "x", true},
		{"a*a", "a", false},
		{"", "", true},
		{"", "x", false},
	} {
		if got := glob.Match(tt.pattern, tt.s); got != tt.want {
			t.Errorf("Match(%q, %q) = %t", tt.pattern, tt.s, got)
		}
	}
}

func TestMatchStaysCheapOnAPatternMadeToBeSlow(t *testing.T) {
	t.Parallel()
	// Exponential matchers would not finish this within the age of the universe.
	if glob.Match(strings.Repeat("a*", 100)+"b", strings.Repeat("a", 4000)) {
		t.Error("matched")
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("a*b", "axxb")
	f.Add("*", "")
	f.Add("**x*", "yxz")
	f.Add("temp.*.c", "temp.b.c")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern) > 40 || len(s) > 200 {
			return
		}
		var re strings.Builder
		re.WriteString(`(?s)\A`)
		for i, part := range strings.Split(pattern, "*") {
			if i > 0 {
				re.WriteString(`.*`)
			}
			re.WriteString(regexp.QuoteMeta(part))
		}
		re.WriteString(`\z`)
		oracle, err := regexp.Compile(re.String())
		if err != nil { // regexp takes valid UTF-8 only
			return
		}
		if !utf8.ValidString(s) {
			return
		}
		if got, want := glob.Match(pattern, s), oracle.MatchString(s); got != want {
			t.Errorf("Match(%q, %q) = %t, regexp says %t", pattern, s, got, want)
		}
	})
}
