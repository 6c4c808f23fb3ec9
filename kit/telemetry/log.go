package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const redacted = "[redacted]"

// secretWords are the words that make an attribute's key secret. Keys are compared in lower case
// without separators, so that api_key, apiKey and X-Api-Key are equal.
var secretWords = []string{
	"token", "password", "passwd", "passphrase", "secret", "authorization", "cookie",
	"credential", "apikey", "accesskey", "privatekey", "signingkey", "dsn",
}

// NewLogger returns a logger that writes lines of format "text" or "json" to w,
// from level "debug", "info", "warn" or "error" upwards. Other values are faults of
// kind Invalid that name the setting, "log-format" or "log-level".
//
// An attribute is written as "[redacted]" if its key, or the name of an enclosing group, contains
// one of the words token, password, passwd, passphrase, secret, authorization, cookie, credential,
// api key, access key, private key, signing key and dsn, in any case and with any separators. The
// same applies to the keys of a http.Header, map[string]string or map[string]any that is logged as
// a value. This is only a coarse safety net under the rule that secrets are not logged: it does not
// look into messages, structs or the text of values.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{ReplaceAttr: redact}
	switch level {
	case "debug":
		opts.Level = slog.LevelDebug
	case "info":
		opts.Level = slog.LevelInfo
	case "warn":
		opts.Level = slog.LevelWarn
	case "error":
		opts.Level = slog.LevelError
	default:
		return nil, fault.InvalidField("log-level", "must be debug, info, warn or error, not %q", level)
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	default:
		return nil, fault.InvalidField("log-format", "must be text or json, not %q", format)
	}
}

// redact is a slog ReplaceAttr. It is not called for groups, only for their attributes, with the
// names of the enclosing groups.
func redact(groups []string, a slog.Attr) slog.Attr {
	if isSecret(a.Key) {
		return slog.String(a.Key, redacted)
	}
	if slices.ContainsFunc(groups, isSecret) {
		return slog.String(a.Key, redacted)
	}
	if a.Value.Kind() == slog.KindAny {
		a.Value = slog.AnyValue(redactMap(a.Value.Any()))
	}
	return a
}

// redactMap returns v, or a copy without secrets if v is a map that has some.
func redactMap(v any) any {
	switch m := v.(type) {
	case http.Header:
		return redactValues(m, []string{redacted})
	case map[string]string:
		return redactValues(m, redacted)
	case map[string]any:
		out := make(map[string]any, len(m))
		for k, inner := range m {
			out[k] = redactMap(inner)
		}
		return redactValues(out, any(redacted))
	}
	return v
}

func redactValues[M ~map[string]V, V any](m M, mask V) M {
	out := make(M, len(m))
	for k, v := range m {
		if isSecret(k) {
			v = mask
		}
		out[k] = v
	}
	return out
}

func isSecret(key string) bool {
	plain := strings.Map(func(c rune) rune {
		if c == '_' || c == '-' || c == '.' || c == ' ' {
			return -1
		}
		return c
	}, strings.ToLower(key))
	return slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(plain, w) })
}
