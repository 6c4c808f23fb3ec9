package topic_test

import (
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/edge/topic"
)

func TestCheckRefusesWhatCannotBeATopic(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", strings.Repeat("x", 257), "a\x00b", "a\nb", "\xff"} {
		if err := topic.Check("topic", s); !fault.Is(err, fault.Invalid) || fault.From(err).Field != "topic" {
			t.Errorf("Check(%q) = %v", s, err)
		}
	}
	if err := topic.Check("topic", "línea/1 *"); err != nil {
		t.Error(err)
	}
}
