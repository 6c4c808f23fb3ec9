package lb

import (
	"fmt"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Role determines what a caller may do.
type Role string

// The roles.
const (
	RoleAdmin    Role = "admin"
	RoleReadonly Role = "readonly"
)

const (
	maxKey      = 4 << 10 // the maximum that auth.Bearer accepts
	maxKeyName  = 64
	namedPrefix = "id:"
)

// apiKey is an accepted key. Only its hash is kept.
type apiKey struct {
	name  string
	named bool // by the operator, not by its position
	role  Role
	hash  string
}

// parseKeys parses the keys of both settings. It returns warnings for keys that are suspicious but
// accepted. Neither warnings nor errors contain a key.
func parseKeys(admin, readonly string) (keys []apiKey, warnings []string, err error) {
	if strings.TrimSpace(readonly) != "" && strings.TrimSpace(admin) == "" {
		return nil, nil, fault.InvalidField(
			"api-readonly-key", "needs api-key beside it: with read-only keys alone nobody could change anything",
		)
	}
	for _, setting := range []struct {
		field, text string
		role        Role
	}{{"api-key", admin, RoleAdmin}, {"api-readonly-key", readonly, RoleReadonly}} {
		if setting.text == "" {
			continue
		}
		parsed, warned, err := parseKeyList(setting.field, setting.text, setting.role)
		if err != nil {
			return nil, nil, err
		}
		keys, warnings = append(keys, parsed...), append(warnings, warned...)
	}
	for _, a := range keys {
		for _, b := range keys {
			if a.role == RoleAdmin && b.role == RoleReadonly && a.hash == b.hash {
				return nil, nil, fault.InvalidField(
					"api-readonly-key", "the key %s is also the admin key %s; a key has one role", b.name, a.name,
				)
			}
		}
	}
	return keys, warnings, refuseReusedNames(keys)
}

// parseKeyList parses a list such as NEW,id:console=OLD. A key without a name is named after its
// position.
func parseKeyList(field, text string, role Role) (keys []apiKey, warnings []string, err error) {
	for i, entry := range strings.Split(text, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		name, key := fmt.Sprintf("key-%d", i+1), entry
		rest, named := strings.CutPrefix(entry, namedPrefix)
		if named {
			var ok bool
			if name, key, ok = strings.Cut(rest, "="); !ok || !validKeyName(name) {
				return nil, nil, fault.InvalidField(
					field,
					"entry %d must be id:NAME=KEY, with a name of 1 to %d letters, digits, dots, underscores and dashes",
					i+1, maxKeyName,
				)
			}
		}
		if !auth.Sendable(key) {
			return nil, nil, fault.InvalidField(
				field, "entry %d must have a key of 1 to %d printable ASCII characters without spaces", i+1, maxKey,
			)
		}
		k := apiKey{name, named, role, auth.HashToken(key)}
		for _, other := range keys {
			if other.hash == k.hash {
				warnings = append(warnings, fmt.Sprintf("%s: the key %s is the same as %s", field, name, other.name))
			}
		}
		// Short keys have always been accepted, so they only cause a warning.
		warning, err := auth.CheckToken(field+": the key "+name, key)
		if err != nil {
			warning = fault.From(err).Message
		}
		if warning != "" {
			warnings = append(warnings, warning)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, nil, fault.InvalidField(field, "is set and holds no key")
	}
	return keys, warnings, nil
}

// refuseReusedNames returns an error if two keys have the same name. A name by position may occur
// once in each role.
func refuseReusedNames(keys []apiKey) error {
	field := map[Role]string{RoleAdmin: "api-key", RoleReadonly: "api-readonly-key"}
	for i, k := range keys {
		for _, before := range keys[:i] {
			if k.name == before.name && (k.role == before.role || k.named || before.named) {
				return fault.InvalidField(field[k.role], "the name %s is used twice", k.name)
			}
		}
	}
	return nil
}

func validKeyName(name string) bool {
	valid := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
	}
	return name != "" && len(name) <= maxKeyName && !strings.ContainsFunc(name, func(r rune) bool { return !valid(r) })
}
