package identity_test

import (
	"bytes"
	"encoding/base64"
	"image/png"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
)

// enable gives a user a second factor, and moves the clock past the code that was used for it.
func (w *world) enable(c identity.Caller) (setup identity.Setup, recovery []string) {
	w.Helper()
	setup, err := w.SetUp(w.Context(), c)
	if err != nil {
		w.Fatal(err)
	}
	if recovery, err = w.Verify(w.Context(), c, w.code(setup.Secret)); err != nil || len(recovery) != 10 {
		w.Fatal(recovery, err)
	}
	w.advance(time.Minute)
	return setup, recovery
}

func TestASecondFactorIsAskedForOnceItIsVerified(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		c := w.caller("anna")
		setup := must(w.SetUp(w.Context(), c))
		uri := must(url.Parse(setup.ProvisioningURI))
		if uri.Scheme != "otpauth" || uri.Host != "totp" || uri.Path != "/Mainstay:anna" || uri.Query().Get("secret") != setup.Secret {
			w.Errorf("%s", uri)
		}
		raw, ok := strings.CutPrefix(setup.QRCode, "data:image/png;base64,")
		if image, err := png.Decode(bytes.NewReader(must(base64.StdEncoding.DecodeString(raw)))); !ok || err != nil || image.Bounds().Dx() != 256 {
			w.Errorf("%.60s, %v", setup.QRCode, err)
		}
		w.login("anna") // it is not verified yet
		w.refused("disabled before it is enabled", w.Disable(w.Context(), c, w.code(setup.Secret)), fault.Conflict, "")
		w.refused("a wrong code", second(w.Verify(w.Context(), c, "000000")), fault.Unauthenticated, badCode)

		before := setup.Secret
		setup = must(w.SetUp(w.Context(), c)) // anew
		w.refused("a code of before", second(w.Verify(w.Context(), c, w.code(before))), fault.Unauthenticated, badCode)
		verified := w.code(setup.Secret)
		if codes, err := w.Verify(w.Context(), c, verified); err != nil || len(codes) != 10 {
			w.Fatal(codes, err)
		}
		w.refused("verified again", second(w.Verify(w.Context(), c, verified)), fault.Conflict, "")
		w.refused("set up again", second(w.SetUp(w.Context(), c)), fault.Conflict, "")

		w.refused("no code", second(w.Login(w.Context(), "anna", password, "")), fault.Unauthenticated, noCode)
		w.refused("the code that verified", second(w.Login(w.Context(), "anna", password, verified)), fault.Unauthenticated, badCode)
		w.advance(time.Minute)
		code := w.code(setup.Secret)
		w.refused("a wrong password with a right code", second(w.Login(w.Context(), "anna", "wrong horse", code)), fault.Unauthenticated, badLogin)
		s, err := w.Login(w.Context(), "anna", password, code[:3]+" "+code[3:])
		if err != nil || !must(w.Account(w.Context(), identity.System, "anna")).TwoFactor {
			w.Fatal(s, err)
		}
		w.refused("the same code", second(w.Login(w.Context(), "anna", password, code)), fault.Unauthenticated, badCode)

		w.advance(time.Minute)
		w.refused("disabled with a used code", w.Disable(w.Context(), c, code), fault.Unauthenticated, badCode)
		if err := w.Disable(w.Context(), c, w.code(setup.Secret)); err != nil {
			w.Fatal(err)
		}
		w.login("anna")
		w.enable(c)
	})
}

func TestARecoveryCodeIsGoodOnce(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		c := w.caller("anna")
		_, codes := w.enable(c)
		if _, err := w.Login(w.Context(), "anna", password, strings.ToLower(codes[3])); err != nil {
			w.Error(err)
		}
		w.refused("again", second(w.Login(w.Context(), "anna", password, codes[3])), fault.Unauthenticated, badCode)
		w.refused("another's", second(w.Login(w.Context(), "anna", password, "AAAA-AAAA-AAAA-AAAA")), fault.Unauthenticated, badCode)
		w.refused("huge", second(w.Login(w.Context(), "anna", password, strings.Repeat("A", 1<<16))), fault.Unauthenticated, badCode)
		w.refused("disabled with a used one", w.Disable(w.Context(), c, codes[3]), fault.Unauthenticated, badCode)
		if err := w.Disable(w.Context(), c, codes[0]); err != nil {
			w.Error(err)
		}
		w.login("anna")
	})
}

func TestACodeOpensOneSessionOfAllReplicas(t *testing.T) {
	replicas(t, func(w *world, other *identity.Service) {
		w.add("anna", identity.User, "")
		setup, recovery := w.enable(w.caller("anna"))
		for _, name := range []string{"a code", "a recovery code"} {
			code := recovery[0]
			if name == "a code" {
				code = w.code(setup.Secret) // as it is now: it is soon too old
			}
			var work sync.WaitGroup
			var opened atomic.Int64
			for i := range 8 {
				work.Go(func() {
					_, err := []*identity.Service{w.Service, other}[i%2].Login(w.Context(), "anna", password, code)
					if err == nil {
						opened.Add(1)
					} else if !fault.Is(err, fault.Unauthenticated) && !fault.Is(err, fault.TooMany) {
						w.Error(err)
					}
				})
			}
			work.Wait()
			if opened.Load() != 1 {
				w.Errorf("%s opened %d sessions", name, opened.Load())
			}
			w.advance(5 * time.Minute)
		}
	})
}

func TestGuessedCodesCountAsFailures(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		c := w.caller("anna")
		setup, _ := w.enable(c)
		guess := func(i int) error {
			switch i % 2 {
			case 0:
				return second(w.Login(w.Context(), "anna", password, "000000"))
			}
			return w.Disable(w.Context(), c, "000000")
		}
		for i := range 5 {
			w.refused("a guess", guess(i), fault.Unauthenticated, badCode)
			// The password alone neither counts nor clears what does.
			if i < 4 {
				w.refused("no code", second(w.Login(w.Context(), "anna", password, "")), fault.Unauthenticated, noCode)
			}
		}
		w.refused("a login", second(w.Login(w.Context(), "anna", password, w.code(setup.Secret))), fault.TooMany, tooMany)
		w.refused("disabling", w.Disable(w.Context(), c, w.code(setup.Secret)), fault.TooMany, tooMany)
		w.refused("verifying", second(w.Verify(w.Context(), c, w.code(setup.Secret))), fault.TooMany, tooMany)
	})
}

// Whoever has taken a token could otherwise guess the password without end.
func TestASecondFactorOfOnesOwnClearsNoFailures(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		c := w.caller("anna")
		for range 4 {
			w.guess(w.Service, "anna")
		}
		setup := must(w.SetUp(w.Context(), c))
		must(w.Verify(w.Context(), c, w.code(setup.Secret)))
		if !w.guess(w.Service, "anna") || w.guess(w.Service, "anna") {
			w.Error("the failures were cleared")
		}
	})
}

func TestAFormerAccountsHolderGetsNoSecondFactor(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		c := w.caller("anna")
		if err := w.Remove(w.Context(), identity.System, "anna"); err != nil {
			w.Fatal(err)
		}
		w.add("anna", identity.User, "")
		w.refused("set up", second(w.SetUp(w.Context(), c)), fault.Unauthenticated, noToken)
		w.refused("verified", second(w.Verify(w.Context(), c, "000000")), fault.Unauthenticated, noToken)
		w.refused("disabled", w.Disable(w.Context(), c, "000000"), fault.Unauthenticated, noToken)
		w.refused("of the service", second(w.SetUp(w.Context(), identity.System)), fault.Unauthenticated, noToken)
	})
}

func TestSecondFactorsOutliveTheirKey(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		setup, _ := w.enable(w.caller("anna"))
		key := []byte(strings.Repeat("n", 32))
		both := must(auth.NewSealer(key, identity.Purpose, secret))
		err := w.db.Update(w.Context(), func(tx *db.Tx) error {
			resealed, unreadable, err := identity.Reseal(w.Context(), tx, both)
			if resealed != 1 || unreadable != 0 {
				w.Errorf("%d, %d", resealed, unreadable)
			}
			return err
		})
		if err != nil {
			w.Fatal(err)
		}
		rotated := w.start(func(cfg *identity.Config) { cfg.Sealer = must(auth.NewSealer(key, identity.Purpose)) })
		if _, err := rotated.Login(w.Context(), "anna", password, w.code(setup.Secret)); err != nil {
			w.Error(err)
		}
		// With a lost key, an admin can help.
		w.advance(time.Minute)
		w.refused("a lost key", second(w.Login(w.Context(), "anna", password, w.code(setup.Secret))), fault.Internal, "")
		if _, err := w.Update(w.Context(), identity.System, "anna", identity.Change{DisableTwoFactor: true}); err != nil {
			w.Error(err)
		}
		w.login("anna")
	})
}
