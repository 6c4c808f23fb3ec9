package session

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Life is how long a session lasts.
const Life = 12 * time.Hour

// maxCookie is the size that every browser accepts for a cookie, with its name and attributes (RFC
// 6265 section 6.1).
const maxCookie = 4096

// content is what a cookie holds.
type content struct {
	ID       string         `json:"i"` // for Ended
	Token    string         `json:"t,omitempty"`
	Identity *auth.Identity `json:"u,omitempty"`
	Expires  time.Time      `json:"e"`
}

// cookieName returns the name of the service's cookie. It contains the port, since browsers send
// the cookies of one port of a host to the others, too.
func (m *Manager) cookieName(r *http.Request) string {
	name := "mainstay_" + m.cfg.Service
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "_" + port
	}
	if secure(r) {
		name = "__Host-" + name // browsers accept it only from this host, and only over HTTPS
	}
	return name
}

// secure reports whether the browser uses HTTPS. A client that lies about it affects only itself.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// write sets the cookie, or deletes it if value is empty.
func (m *Manager) write(w http.ResponseWriter, r *http.Request, value string) error {
	cookie := &http.Cookie{
		Name: m.cookieName(r), Value: value, Path: "/", MaxAge: int(Life / time.Second),
		HttpOnly: true, Secure: secure(r), SameSite: http.SameSiteStrictMode,
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	if text := cookie.String(); len(text) > maxCookie {
		return fault.InvalidField("token", "is too long to sign in with: it has %d characters more than fit into a cookie",
			len(text)-maxCookie)
	}
	http.SetCookie(w, cookie)
	return nil
}

// read returns the content of the request's cookie. found is false if there is none, or none that
// this service can read.
func (m *Manager) read(r *http.Request) (c content, found bool) {
	// Several cookies of one name have different paths or domains. Only one of them is ours.
	for _, cookie := range r.CookiesNamed(m.cookieName(r)) {
		raw, err := m.cfg.Sealer.Open(cookie.Value, m.cfg.Service)
		if err == nil && json.Unmarshal(raw, &c) == nil {
			return c, true
		}
	}
	return content{}, false
}
