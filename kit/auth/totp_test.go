package auth_test

import (
	"encoding/base32"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// rfcSecret is the secret of the test vectors of RFC 6238, appendix B.
var rfcSecret = base32.StdEncoding.EncodeToString([]byte("12345678901234567890"))

func TestCodesAreThoseOfRFC6238(t *testing.T) {
	t.Parallel()
	// The last six of the eight digits in the RFC.
	for unix, code := range map[int64]string{
		59: "287082", 1111111109: "081804", 1111111111: "050471", 1234567890: "005924", 2000000000: "279037", 20000000000: "353130",
	} {
		step, err := auth.CheckTOTP(rfcSecret, code, time.Unix(unix, 0), 0)
		if err != nil || step != unix/30 {
			t.Errorf("at %d: step %d, %v", unix, step, err)
		}
	}
}

func TestACodeIsGoodOnceAndForAWhile(t *testing.T) {
	t.Parallel()
	const code, made = "050471", 1111111111
	for offset, good := range map[int64]bool{-62: false, -31: true, 0: true, 31: true, 62: false} {
		if _, err := auth.CheckTOTP(rfcSecret, code, time.Unix(made+offset, 0), 0); (err == nil) != good {
			t.Errorf("%d seconds off: %v", offset, err)
		}
	}
	step, err := auth.CheckTOTP(rfcSecret, "050 471", time.Unix(made, 0), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := auth.CheckTOTP(rfcSecret, code, time.Unix(made, 0), step); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("a second time: %v", err)
	}
	for _, wrong := range []string{"", "000000", "05047", "0504711", strings.Repeat("0", 1000), "٠٥٠٤٧١"} {
		if _, err := auth.CheckTOTP(rfcSecret, wrong, time.Unix(made, 0), 0); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%.20q: %v", wrong, err)
		}
	}
}

func TestASecondFactorIsSetUpByItsURI(t *testing.T) {
	t.Parallel()
	secret, uri := auth.NewTOTP("Mainstay VMs", "anna@example.com")
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "otpauth" || u.Host != "totp" || u.Path != "/Mainstay VMs:anna@example.com" ||
		u.Query().Get("secret") != secret || u.Query().Get("issuer") != "Mainstay VMs" || strings.Contains(uri, "+") {
		t.Errorf("%s, %v", uri, err)
	}
	if raw, err := base32.StdEncoding.DecodeString(secret); err != nil || len(raw) != 20 {
		t.Errorf("%s: %v", secret, err)
	}
	if again, _ := auth.NewTOTP("Mainstay VMs", "anna@example.com"); again == secret {
		t.Error("two secrets are one")
	}
}

func TestARecoveryCodeIsGoodOnce(t *testing.T) {
	t.Parallel()
	codes, hashes := auth.NewRecoveryCodes()
	if len(codes) != 10 || len(hashes) != 10 || len(codes[0]) != 19 {
		t.Fatalf("%v", codes)
	}
	left, err := auth.UseRecoveryCode(hashes, " "+strings.ToLower(strings.ReplaceAll(codes[3], "-", "")))
	if err != nil || len(left) != 9 || len(hashes) != 10 {
		t.Fatalf("%d left, %v", len(left), err)
	}
	if _, err := auth.UseRecoveryCode(left, codes[3]); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("a second time: %v", err)
	}
	if left, err = auth.UseRecoveryCode(left, codes[4]); err != nil || len(left) != 8 {
		t.Errorf("another one: %v", err)
	}
	for _, wrong := range []string{"", "AAAA-AAAA-AAAA-AAAA", strings.Repeat("A", 1000), hashes[0]} {
		if _, err := auth.UseRecoveryCode(hashes, wrong); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%.20q: %v", wrong, err)
		}
	}
}
