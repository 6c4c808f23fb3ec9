package identity_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
)

// guess tries a wrong password and reports whether it was looked at.
func (w *world) guess(s *identity.Service, username string) bool {
	w.Helper()
	_, err := s.Login(w.Context(), username, "wrong horse", "")
	switch {
	case fault.Is(err, fault.TooMany):
		if f := fault.From(err); f.Message != tooMany || f.RetryAfter < time.Second || f.RetryAfter > 5*time.Minute {
			w.Errorf("%+v", f)
		}
		return false
	case fault.Is(err, fault.Unauthenticated):
		return true
	}
	w.Errorf("a guess: %v", err)
	return false
}

func TestFiveFailuresOfAUserInFiveMinutesAreAllowed(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		for range 5 { // one a minute, the first at 0:00
			if !w.guess(w.Service, "anna") {
				w.Fatal("refused too early")
			}
			w.advance(time.Minute)
		}
		w.advance(-time.Second) // 4:59
		_, err := w.Login(w.Context(), "anna", password, "")
		w.refused("the right password", err, fault.TooMany, tooMany)
		if f := fault.From(err); f.RetryAfter != time.Second || f.PublicCode() != "login_throttled" {
			w.Errorf("%+v", f)
		}
		w.refused("in capitals", second(w.Login(w.Context(), "ANNA", password, "")), fault.TooMany, tooMany)
		if !w.guess(w.Service, "bert") {
			w.Error("another user is refused")
		}
		w.advance(time.Second) // 5:00: the first failure is let go of, and no other
		if !w.guess(w.Service, "anna") || w.guess(w.Service, "anna") {
			w.Error("after five minutes one more failure is allowed")
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestASuccessClearsTheFailuresOfItsUserAndNotThoseOfAll(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		for range 10 { // 40 failures in all
			for range 4 {
				if !w.guess(w.Service, "anna") {
					w.Fatal("refused too early")
				}
			}
			w.login("anna")
		}
		looked := 0
		for i := range 20 {
			if w.guess(w.Service, fmt.Sprintf("nobody%d", i)) {
				looked++
			}
		}
		if looked != 10 {
			w.Errorf("%d further failures were allowed, not 10", looked)
		}
		w.refused("everybody", second(w.Login(w.Context(), "anna", password, "")), fault.TooMany, tooMany)
		w.advance(5 * time.Minute)
		w.login("anna")
		var rows int
		if err := w.db.Get(w.Context(), &rows, "SELECT COUNT(*) FROM login_attempts"); err != nil || rows != 0 {
			w.Errorf("%d rows are left, %v", rows, err)
		}
	})
}

func TestAClockThatWasSetBackShutsNobodyOut(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		for w.guess(w.Service, "anna") {
		}
		w.advance(-24 * time.Hour)
		w.login("anna")
	})
}

func TestGuessesAtOnceAreNoMoreThanTheLimit(t *testing.T) {
	engines(t, func(w *world) {
		w.host.set("anna", 1000)
		if n := w.storm([]*identity.Service{w.Service}, func(int) string { return "anna" }); n != 5 || w.host.asked.Load() != 5 {
			w.Errorf("%d of 200 guesses were looked at, and the host was asked %d times, not 5", n, w.host.asked.Load())
		}
		w.advance(time.Hour)
		if n := w.storm([]*identity.Service{w.Service}, func(i int) string { return fmt.Sprintf("u%d", i) }); n != 50 {
			w.Errorf("%d of 200 guesses for different users were looked at, not 50", n)
		}
	})
}

func TestReplicasShareTheLimit(t *testing.T) {
	replicas(t, func(w *world, other *identity.Service) {
		both := []*identity.Service{w.Service, other}
		if n := w.storm(both, func(int) string { return "anna" }); n != 5 || w.host.asked.Load() != 5 {
			w.Errorf("%d of 200 guesses were looked at, and the host was asked %d times, not 5", n, w.host.asked.Load())
		}
		w.advance(time.Hour)
		if n := w.storm(both, func(i int) string { return fmt.Sprintf("u%d", i/2) }); n != 50 {
			w.Errorf("%d of 200 guesses for different users were looked at, not 50", n)
		}
	})
}

// storm makes 200 guesses at once, and returns how many were looked at.
func (w *world) storm(services []*identity.Service, username func(i int) string) int64 {
	var work sync.WaitGroup
	var looked atomic.Int64
	for i := range 200 {
		work.Go(func() {
			if w.guess(services[i%len(services)], username(i)) {
				looked.Add(1)
			}
		})
	}
	work.Wait()
	return looked.Load()
}

func TestLoginsOfOneUserAtOnceAllSucceed(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		w.guess(w.Service, "anna")
		var work sync.WaitGroup
		for range 40 {
			work.Go(func() { w.login("anna") })
		}
		work.Wait()
	})
}

func TestASuccessDoesNotClearAnAttemptInProgress(t *testing.T) {
	engines(t, func(w *world) {
		w.host.set("anna", 1000)
		asked, answer := make(chan bool), make(chan bool)
		w.host.before = func(typed string) {
			if typed == "slow horse" {
				asked <- true
				<-answer
			}
		}
		slow := make(chan error, 1)
		replica := w.start()
		go func() { slow <- second(replica.Login(w.Context(), "anna", "slow horse", "")) }()
		<-asked
		w.login("anna")
		guesses := 0
		for guesses < 10 && w.guess(w.Service, "anna") {
			guesses++
		}
		if guesses != 4 {
			w.Errorf("%d failures are allowed beside an attempt in progress, not 4", guesses)
		}
		answer <- true
		w.refused("the slow one", <-slow, fault.Unauthenticated, badLogin)
		if w.guess(w.Service, "anna") {
			w.Error("a sixth failure is allowed")
		}
	})
}

// Whatever happens, no five minutes have more failures than are allowed.
func TestFailuresNeverExceedTheLimits(t *testing.T) {
	engines(t, func(w *world) {
		seed := rand.Uint64()
		w.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 2))
		users := []string{"anna", "bert", "carl", "dora", "emil", "fritz", "gina", "hugo", "ida", "jan", "karl", "lena"}
		for _, u := range users[:4] {
			w.add(u, identity.User, "")
		}
		replica := w.start()
		type failure struct {
			user string
			at   time.Time
		}
		var all []failure                  // of all users
		byUser := map[string][]time.Time{} // since the last success
		refused, inAll := 0, 0
		for step := range 500 {
			if random.IntN(3) == 0 {
				w.advance(time.Duration(random.IntN(24_000)) * time.Millisecond)
			}
			s := []*identity.Service{w.Service, replica}[random.IntN(2)]
			user := users[random.IntN(len(users))]
			typed := "wrong horse"
			if random.IntN(6) == 0 {
				typed = password
			}
			now := w.now()
			all = slices.DeleteFunc(all, func(f failure) bool { return now.Sub(f.at) >= 5*time.Minute })
			byUser[user] = slices.DeleteFunc(byUser[user], func(at time.Time) bool { return now.Sub(at) >= 5*time.Minute })
			full := len(all) >= 50 || len(byUser[user]) >= 5
			_, err := s.Login(w.Context(), user, typed, "")
			switch {
			case fault.Is(err, fault.TooMany) != full:
				w.Fatalf("step %d: %d failures of %s, %d in all: %v", step, len(byUser[user]), user, len(all), err)
			case full:
				refused++
				if len(all) >= 50 {
					inAll++
				}
			case err == nil:
				byUser[user] = nil
			default:
				all = append(all, failure{user, now})
				byUser[user] = append(byUser[user], now)
			}
		}
		if refused < 20 || inAll == 0 {
			w.Errorf("%d attempts were refused, %d of them because of the limit for all", refused, inAll)
		}
	})
}
