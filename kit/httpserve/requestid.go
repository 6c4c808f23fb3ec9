package httpserve

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
)

// requestIDHeader is in canonical form, for direct use as a key of http.Header.
const requestIDHeader = "X-Request-Id"

const maxRequestID = 64

// RequestID gives every request an id: the inbound X-Request-ID if it consists of 1 to 64 of the
// characters A-Z a-z 0-9 . _ -, otherwise a new one of 32 hex digits. The id is in the context
// (RequestIDFrom) and in the response header.
//
// Ids come from math/rand/v2, whose per-thread ChaCha8 needs neither a lock nor a system call. That
// is enough: an id only correlates log lines and grants nothing, so guessing one gains nothing, and
// 128 random bits do not collide.
func RequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, w, r := track(w, r)
		x.id = ChooseRequestID(r.Header[requestIDHeader])
		x.idValue[0] = x.id
		w.Header()[requestIDHeader] = x.idValue[:]
		next.ServeHTTP(w, r)
	})
}

// ChooseRequestID returns the id of a request that has brought these: the only one if it is sane, otherwise a new one.
func ChooseRequestID(in []string) string {
	if len(in) == 1 && saneRequestID(in[0]) {
		return in[0]
	}
	return newRequestID()
}

// RequestIDFrom returns the request's id. It is empty outside RequestID.
func RequestIDFrom(ctx context.Context) string {
	if x := exchangeOf(ctx); x != nil {
		return x.id
	}
	return ""
}

func saneRequestID(s string) bool {
	if s == "" || len(s) > maxRequestID {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

func newRequestID() string {
	var raw [16]byte
	binary.LittleEndian.PutUint64(raw[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[8:], rand.Uint64())
	var text [32]byte
	hex.Encode(text[:], raw[:])
	return string(text[:])
}
