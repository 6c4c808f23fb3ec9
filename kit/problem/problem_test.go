package problem_test

import (
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/problem"
)

func TestEveryBodyIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	all := problem.Problem{
		Code:      "not_found",
		Message:   "no such site",
		Field:     "site_id",
		Limit:     "max_sites",
		RequestID: "r1",
	}
	message, capitals := problem.Problem{Message: all.Message}, all
	capitals.Code = "NOT_FOUND"
	for _, tt := range []struct {
		body problem.Body
		text string
		read problem.Problem
	}{
		{problem.Nested, `{"error":{"code":"not_found","message":"no such site","field":"site_id","limit":"max_sites","request_id":"r1"}}`, all},
		{problem.Flat, `{"error":"no such site","code":"not_found","field":"site_id","limit":"max_sites","request_id":"r1"}`, all},
		{problem.Capitals, `{"error":{"code":"NOT_FOUND","message":"no such site","field":"site_id","limit":"max_sites","request_id":"r1"}}`, capitals},
		{problem.Bare, `{"error":"no such site"}`, message},
		{problem.Detail, `{"detail":"no such site"}`, message},
		{problem.Wrapped, `{"success":false,"data":null,"error":"no such site"}`, message},
	} {
		var text strings.Builder
		if err := tt.body.Encode(&text, all); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(text.String()); got != tt.text {
			t.Errorf("wrote %s, want %s", got, tt.text)
		}
		if got, ok := problem.Parse([]byte(text.String())); !ok || got != tt.read {
			t.Errorf("read %+v of %s, want %+v", got, text.String(), tt.read)
		}
	}
}

func TestWhatIsEmptyIsLeftOut(t *testing.T) {
	t.Parallel()
	p := problem.Problem{Code: "invalid", Message: "no"}
	for body, want := range map[problem.Body]string{
		problem.Nested:   `{"error":{"code":"invalid","message":"no","request_id":""}}`,
		problem.Flat:     `{"error":"no","code":"invalid","request_id":""}`,
		problem.Capitals: `{"error":{"code":"VALIDATION_ERROR","message":"no","request_id":""}}`,
	} {
		var text strings.Builder
		if err := body.Encode(&text, p); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(text.String()); got != want {
			t.Errorf("wrote %s, want %s", got, want)
		}
	}
}

func TestWhatIsNotAnErrorBodyIsNotRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "null", "[]", "7", `"error"`, "<html>502 Bad Gateway</html>", "{}", `{"error": {}}`, `{"error": 7}`,
		`{"error": null}`, `{"message": "x"}`, `{"error": {"message": 7}}`, `{"success": true, "data": {}}`,
	} {
		if p, ok := problem.Parse([]byte(text)); ok {
			t.Errorf("read %+v of %s", p, text)
		}
	}
}
