package text_test

import (
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
)

func TestTextThatCannotBeKeptOrShownIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a\x00b", "two\nlines", "\x1b[31m", "\xff", "\u0085"} {
		if err := text.Check("name", s); !fault.Is(err, fault.Invalid) || fault.From(err).Field != "name" {
			t.Errorf("Check(%q) = %v", s, err)
		}
	}
	for _, s := range []string{"", "línea 1 *", "日本"} {
		if err := text.Check("name", s); err != nil {
			t.Errorf("Check(%q) = %v", s, err)
		}
	}
}

func TestTheNearestWordIsFoundUnlessNoneIsNear(t *testing.T) {
	t.Parallel()
	known := []string{"interface", "vips", "healthCheck"}
	for word, want := range map[string]string{"interfaec": "interface", "VIP": "vips", "healthcheck": "healthCheck", "nonsense": "", "": ""} {
		if got := text.Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
