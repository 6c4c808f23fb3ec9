package webhook_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// The example of the reference libraries (github.com/standard-webhooks).
const (
	vectorSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID     = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorUnix   = 1614265330
	vectorBody   = `{"test": 2432232314}`
	vectorSig    = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func mustSecret(t testing.TB, text string) webhook.Secret {
	t.Helper()
	s, err := webhook.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func signedHeader(id string, unix int64, sigs string) http.Header {
	h := http.Header{}
	h.Set(webhook.HeaderID, id)
	h.Set(webhook.HeaderTimestamp, fmt.Sprint(unix))
	h.Set(webhook.HeaderSignature, sigs)
	return h
}

func TestSignMatchesTheReferenceVector(t *testing.T) {
	t.Parallel()
	s := mustSecret(t, vectorSecret)
	got := s.Sign(vectorID, time.Unix(vectorUnix, 999), []byte(vectorBody))
	if got != vectorSig {
		t.Errorf("got %s, want %s", got, vectorSig)
	}
}

func TestNewSecretsAreDistinctAndParse(t *testing.T) {
	t.Parallel()
	a, b := webhook.NewSecret(), webhook.NewSecret()
	if a == b || !strings.HasPrefix(a, "whsec_") {
		t.Errorf("%q, %q", a, b)
	}
	mustSecret(t, a)
	mustSecret(t, strings.TrimPrefix(a, "whsec_"))
}

func TestParseSecretRefusesKeysOutsideTheSpecification(t *testing.T) {
	t.Parallel()
	enc := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, n := range []int{24, 64} {
		mustSecret(t, "whsec_"+enc(n))
	}
	for _, text := range []string{"", "whsec_", enc(23), enc(65), "whsec_!" + enc(32), enc(32) + "\n",
		strings.TrimRight(enc(32), "="), "WHSEC_" + enc(32)} {
		_, err := webhook.ParseSecret(text)
		if !fault.Is(err, fault.Invalid) || fault.From(err).Field != "secret" {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil && len(text) > 10 && strings.Contains(err.Error(), text) {
			t.Errorf("%q: the fault repeats the secret", text)
		}
	}
}

func TestFormattingASecretHidesItsKey(t *testing.T) {
	t.Parallel()
	s := mustSecret(t, vectorSecret)
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s", s, s, s, s), s.LogValue().String()} {
		if strings.Contains(text, "MfKQ") || strings.Contains(text, "49") || !strings.Contains(text, "redacted") {
			t.Errorf("%q", text)
		}
	}
}

func TestVerifyAcceptsAnyOfSeveralSignatures(t *testing.T) {
	t.Parallel()
	s := mustSecret(t, vectorSecret)
	now := time.Unix(vectorUnix, 0)
	for _, sigs := range []string{
		vectorSig,
		"v1,AAAA " + vectorSig,
		"v1a,whatever v2,x v1,not-base64! " + vectorSig + " v1,BBBB",
	} {
		err := s.Verify(signedHeader(vectorID, vectorUnix, sigs), []byte(vectorBody), now, webhook.DefaultTolerance)
		if err != nil {
			t.Errorf("%q: %v", sigs, err)
		}
	}
}

func TestVerifyRefusesWhatItDidNotSign(t *testing.T) {
	t.Parallel()
	s := mustSecret(t, vectorSecret)
	sent := time.Unix(vectorUnix, 0)
	good := func() http.Header { return signedHeader(vectorID, vectorUnix, vectorSig) }
	without := func(name string) http.Header { h := good(); h.Del(name); return h }
	cases := map[string]struct {
		h    http.Header
		body string
		now  time.Time
	}{
		"other body": {good(), vectorBody + " ", sent},
		"other id":   {signedHeader("msg_x", vectorUnix, vectorSig), vectorBody, sent},
		"other time": {signedHeader(vectorID, vectorUnix+1, vectorSig), vectorBody, sent},
		"other scheme": {
			signedHeader(vectorID, vectorUnix, strings.Replace(vectorSig, "v1,", "v1a,", 1)),
			vectorBody,
			sent,
		},
		"too old":             {good(), vectorBody, sent.Add(webhook.DefaultTolerance + time.Second)},
		"too new":             {good(), vectorBody, sent.Add(-webhook.DefaultTolerance - time.Second)},
		"no id":               {without(webhook.HeaderID), vectorBody, sent},
		"no timestamp":        {without(webhook.HeaderTimestamp), vectorBody, sent},
		"no signature":        {without(webhook.HeaderSignature), vectorBody, sent},
		"full stop in the id": {signedHeader("msg.1", vectorUnix, vectorSig), vectorBody, sent},
		"huge timestamp":      {signedHeader(vectorID, 1<<62, vectorSig), vectorBody, sent},
		"lowest timestamp":    {signedHeader(vectorID, -1<<63, vectorSig), vectorBody, sent},
	}
	odd := good()
	odd.Set(webhook.HeaderTimestamp, fmt.Sprintf("+%d", vectorUnix))
	cases["timestamp in another spelling"] = struct {
		h    http.Header
		body string
		now  time.Time
	}{odd, vectorBody, sent}
	for name, c := range cases {
		if err := s.Verify(c.h, []byte(c.body), c.now, webhook.DefaultTolerance); !fault.Is(
			err, fault.Unauthenticated,
		) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Verify(
		good(), []byte(vectorBody), sent.Add(webhook.DefaultTolerance), webhook.DefaultTolerance,
	); err != nil {
		t.Errorf("at the tolerance: %v", err)
	}
}

func TestTheZeroSecretVerifiesNothing(t *testing.T) {
	t.Parallel()
	var s webhook.Secret
	err := s.Verify(signedHeader(vectorID, vectorUnix, vectorSig), nil, time.Unix(vectorUnix, 0), time.Hour)
	if !fault.Is(err, fault.Unauthenticated) {
		t.Error(err)
	}
}

func FuzzSecretTextSurvivesSignAndVerify(f *testing.F) {
	f.Add(vectorSecret, vectorID, []byte(vectorBody))
	f.Add("whsec_AAAA", "a.b", []byte(nil))
	f.Fuzz(func(t *testing.T, text, id string, body []byte) {
		s, err := webhook.ParseSecret(text)
		if err != nil || webhook.CheckID(id) != nil {
			return
		}
		now := time.Unix(vectorUnix, 0)
		h := signedHeader(id, vectorUnix, s.Sign(id, now, body))
		if err := s.Verify(h, body, now, 0); err != nil {
			t.Fatal(err)
		}
		if s.Verify(h, append(body, 'x'), now, 0) == nil {
			t.Fatal("another body verifies")
		}
	})
}

func ExampleSecret_Sign() {
	secret, err := webhook.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err)
	}
	fmt.Println(secret.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)))
	// Output: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=
}
