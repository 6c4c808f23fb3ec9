package auth

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	loginCookie   = "mainstay_login"
	loginLifetime = 10 * time.Minute
	// maxUsedStates limits the memory for used states, about 150 bytes each.
	maxUsedStates = 10_000
)

// loginState is the state that must survive between Login and Callback. It is kept in the browser's
// cookie, so no table is needed.
type loginState struct {
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"`
	Expires  time.Time `json:"e"`
}

// loginStates issues and redeems login cookies.
type loginStates struct {
	sealer *Sealer
	now    func() time.Time
	aad    string
	path   string
	secure bool

	mu   sync.Mutex
	used map[string]time.Time // by state, until the cookie expires
}

func newLoginStates(cfg OIDCConfig, sealer *Sealer, now func() time.Time) *loginStates {
	s := &loginStates{
		sealer: sealer,
		now:    now,
		aad:    "login " + cfg.Issuer + " " + cfg.ClientID,
		used:   map[string]time.Time{},
	}
	s.path, s.secure = callbackPath(cfg.RedirectURL)
	return s
}

func (s *loginStates) begin() (loginState, *http.Cookie, error) {
	state := loginState{
		State: NewToken(""), Nonce: NewToken(""), Verifier: oauth2.GenerateVerifier(),
		Expires: s.now().Add(loginLifetime),
	}
	raw, err := json.Marshal(state)
	if err != nil {
		return loginState{}, nil, fmt.Errorf("auth: login state: %w", err)
	}
	return state, s.cookie(s.sealer.Seal(raw, s.aad), int(loginLifetime/time.Second)), nil
}

// cookie limits the cookie to the callback path. SameSite is Lax so that the browser sends the
// cookie with the provider's redirect, which comes from another site.
func (s *loginStates) cookie(value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: loginCookie, Value: value, Path: s.path, MaxAge: maxAge,
		HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteLaxMode,
	}
}

// finish reads and clears the cookie, and checks that it belongs to the given state, has not
// expired and was not used before.
func (s *loginStates) finish(w http.ResponseWriter, r *http.Request, state string) (loginState, error) {
	cookie, err := r.Cookie(loginCookie)
	if err != nil {
		return loginState{}, staleLogin("there is no login in progress in this browser")
	}
	http.SetCookie(w, s.cookie("", -1))
	raw, err := s.sealer.Open(cookie.Value, s.aad)
	if err != nil {
		return loginState{}, staleLogin("the login cookie is damaged")
	}
	var kept loginState
	if err := json.Unmarshal(raw, &kept); err != nil {
		return loginState{}, staleLogin("the login cookie is damaged")
	}
	if state == "" || !equalSecrets(state, kept.State) {
		return loginState{}, staleLogin("the answer does not belong to this browser's last login")
	}
	if now := s.now(); !now.Before(kept.Expires) || !s.use(kept, now) {
		return loginState{}, staleLogin("the login has expired or was completed before")
	}
	return kept, nil
}

func staleLogin(why string) error {
	return fault.InvalidField("state", "%s; start the login again", why).WithCode("stale_login")
}

// use marks a state as used. It reports false if it was used before. Only this process remembers
// used states, and only the last 10 000; beyond that, the provider's refusal to redeem a code twice
// is the remaining protection.
func (s *loginStates) use(state loginState, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.used[state.State]; ok {
		return false
	}
	if len(s.used) >= maxUsedStates {
		for k, expires := range s.used {
			if !now.Before(expires) {
				delete(s.used, k)
			}
		}
		for k := range s.used { // none has expired: drop arbitrary ones
			if len(s.used) < maxUsedStates {
				break
			}
			delete(s.used, k)
		}
	}
	s.used[state.State] = state.Expires
	return true
}
