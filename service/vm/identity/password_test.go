package identity_test

import (
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
)

func TestANewPasswordOfOnesOwnEndsAllTokens(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "t1")
		other := w.login("anna")
		anna := w.caller("anna")
		if err := w.ChangePassword(w.Context(), anna, password, "short"); !fault.Is(err, fault.Invalid) {
			w.Errorf("a short password: %v", err)
		}
		if err := w.ChangePassword(w.Context(), anna, password, "another horse"); err != nil {
			w.Fatal(err)
		}
		_, err := w.Check(w.Context(), other.Token)
		w.refused("a token from before", err, fault.Unauthenticated, noToken)
		_, err = w.Login(w.Context(), "anna", password, "")
		w.refused("the old password", err, fault.Unauthenticated, badLogin)
		if _, err := w.Login(w.Context(), "anna", "another horse", ""); err != nil {
			w.Errorf("the new password: %v", err)
		}
	})
}

func TestGuessingThePasswordWithATokenIsThrottledLikeLogins(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		anna := w.caller("anna")
		for range 5 {
			err := w.ChangePassword(w.Context(), anna, "a guess", "another horse")
			w.refused("a guess", err, fault.Invalid, "current_password: is wrong")
		}
		err := w.ChangePassword(w.Context(), anna, password, "another horse")
		w.refused("the right one after five", err, fault.TooMany, tooMany)
		_, err = w.Login(w.Context(), "anna", password, "")
		w.refused("a login after five", err, fault.TooMany, tooMany)
		denied := 0
		for _, e := range w.events {
			if e.Action == "auth.password" && e.Message == "denied: wrong password" {
				denied++
			}
		}
		if denied != 5 {
			w.Errorf("%d of 5 guesses are recorded", denied)
		}
	})
}

func TestThePasswordOfAnAccountOfTheHostIsNotChangedHere(t *testing.T) {
	engines(t, func(w *world) {
		w.host.set("bert", 1000)
		bert := w.caller("bert")
		err := w.ChangePassword(w.Context(), bert, password, "another horse")
		w.refused("an account of the host", err, fault.Conflict, "")
	})
}
