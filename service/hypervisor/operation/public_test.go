package operation

import (
	"errors"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

func TestAnOperationsErrorNamesTheOperationUnderWhichItIsLogged(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		errors.New("inner detail"):                         "internal error; the daemon's log has the details under operation o-1",
		fault.New(fault.Unavailable, "there is no kernel"): "there is no kernel",
	} {
		if got := publicText(err, "o-1"); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
