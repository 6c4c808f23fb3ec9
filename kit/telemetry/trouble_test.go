package telemetry_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

func TestARepeatedErrorIsLoggedLessAndLessAndItsEndOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		trouble := telemetry.NewTrouble(slog.New(slog.NewTextHandler(&out, nil)), "cannot claim")
		trouble.Report(nil)
		for range 3600 { // an hour, an attempt a second
			trouble.Report(errors.New("no database"))
			time.Sleep(time.Second)
		}
		for range 5 {
			trouble.Report(nil)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		// After 0, 1, 3, 7, 15 and 31 minutes, and its end.
		if len(lines) != 7 || !strings.Contains(lines[5], "failures=1861 for=31m0s") ||
			!strings.Contains(lines[6], `msg="cannot claim: it works again" failures=3600 after=1h0m0s`) {
			t.Errorf("%s", out.String())
		}
		trouble.Report(errors.New("again"))
		if !strings.Contains(out.String(), "error=again") {
			t.Error("what comes after it worked is not logged at once")
		}
	})
}
