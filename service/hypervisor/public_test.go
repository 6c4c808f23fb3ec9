package hypervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

func TestTheDaemonsOwnFailureNamesTheRequestIDUnderWhichItIsLogged(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		errors.New("inner detail"):                    "internal error; the server's log has the details under request id q-1",
		fault.New(fault.Conflict, "the VM is paused"): "the VM is paused",
	} {
		var log bytes.Buffer
		render := renderer(slog.New(slog.NewTextHandler(&log, nil)))
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Request-Id", "q-1")
		httpserve.RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { render(w, r, err) })).ServeHTTP(w, r)
		var body errorBody
		if jsonErr := json.Unmarshal(w.Body.Bytes(), &body); jsonErr != nil || body.Error != want || body.RequestID != "q-1" {
			t.Errorf("%v %s, want %q", jsonErr, w.Body, want)
		}
		if strings.Contains(want, "q-1") != strings.Contains(log.String(), "request_id=q-1") {
			t.Errorf("%v: logged %q", err, log.String())
		}
	}
}

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
