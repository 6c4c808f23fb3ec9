package webhook_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

func TestOrdinaryHeadersPass(t *testing.T) {
	t.Parallel()
	err := webhook.CheckHeaders(map[string]string{
		"X-Tenant": "acme", "Content-Type": "application/cloudevents+json", "X-Tokenizer": "bpe",
		"X-Secretary": "Zoë", "Idempotency-Key": "1", "X-Empty": "",
		strings.Repeat("a", webhook.MaxHeaderNameBytes): strings.Repeat("v", webhook.MaxHeaderValueBytes),
	})
	if err != nil {
		t.Error(err)
	}
	if err := webhook.CheckHeaders(nil); err != nil {
		t.Error(err)
	}
}

func TestHeadersThatChangeTheRequestOrCarryCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Connection", "keep-alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Proxy-Connection",
		"Proxy-Authorization", "HOST", "content-length", "Expect", "Authorization", "X-Amz-Authorization",
		"Cookie", "Set-Cookie", "X-Api-Key", "api-key", "X-Auth-Token", "token", "X-Hub-Secret", "X-Password",
		"Webhook-Id", "webhook-signature", "webhook-anything", "X-AWS-Access-Key",
	} {
		err := webhook.CheckHeaders(map[string]string{name: "very-private"})
		if !fault.Is(err, fault.Invalid) || fault.From(err).Field != "headers."+name {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "very-private") {
			t.Errorf("%s: the fault repeats the value", name)
		}
	}
}

func TestMalformedAndOversizedHeadersAreRefused(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range webhook.MaxHeaders + 1 {
		many[fmt.Sprintf("X-%d", i)] = "v"
	}
	cases := map[string]map[string]string{
		"empty name":    {"": "v"},
		"space":         {"X A": "v"},
		"colon":         {"X:": "v"},
		"newline":       {"X\r\nHost": "v"},
		"non-ASCII":     {"X-é": "v"},
		"long name":     {strings.Repeat("a", webhook.MaxHeaderNameBytes+1): "v"},
		"long value":    {"X": strings.Repeat("a", webhook.MaxHeaderValueBytes+1)},
		"value newline": {"X": "a\r\nHost: b"},
		"value NUL":     {"X": "a\x00"},
		"value tab":     {"X": "a\tb"},
		"value C1":      {"X": "a\u0085b"},
		"value bytes":   {"X": "\xff"},
		"twice":         {"X-A": "1", "x-a": "2"},
		"too many":      many,
	}
	for name, h := range cases {
		err := webhook.CheckHeaders(h)
		if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(fault.From(err).Field, "headers") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCheckHeadersAdmitsOnlySendableHeaders(f *testing.F) {
	for _, n := range []string{"X-A", "Host", "authorization", "X-Api-Key", "Webhook-Id", "bad name", "\r\n"} {
		f.Add(n, "value")
	}
	f.Add("X-A", "a\r\nb")
	f.Fuzz(func(t *testing.T, name, value string) {
		err := webhook.CheckHeaders(map[string]string{name: value})
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("not a fault: %v", err)
			}
			return
		}
		low := strings.ToLower(name)
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			t.Fatalf("admitted %q: %q", name, value)
		}
		if low == "host" || low == "authorization" || strings.HasPrefix(low, "webhook-") ||
			strings.HasSuffix(low, "-token") {
			t.Fatalf("admitted %q", name)
		}
	})
}
