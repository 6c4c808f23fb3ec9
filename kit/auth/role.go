package auth

import "github.com/mainstay-infra/mainstay/kit/fault"

// Role is a step on the ladder of what a caller may do; each includes those below.
type Role uint8

// The ladder. The zero value permits nothing.
const (
	None     Role = iota
	Viewer        // reads
	Operator      // also acts on what exists
	Admin         // also configures
)

// String is the role's name in APIs and tables: none, viewer, operator, admin.
// A value off the ladder is "none", since it permits nothing.
func (r Role) String() string {
	switch r {
	case Viewer:
		return "viewer"
	case Operator:
		return "operator"
	case Admin:
		return "admin"
	}
	return "none"
}

// ParseRole is the inverse of String. Another word is a fault of kind Invalid with
// the field "role".
func ParseRole(s string) (Role, error) {
	for r := None; r <= Admin; r++ {
		if s == r.String() {
			return r, nil
		}
	}
	return None, fault.InvalidField("role", "must be none, viewer, operator or admin")
}

// AtLeast reports whether r includes least. A value off the ladder includes
// nothing but None.
func (r Role) AtLeast(least Role) bool {
	if r > Admin {
		r = None
	}
	return r >= least
}
