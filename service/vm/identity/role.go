package identity

import (
	"slices"

	"github.com/mainstay-infra/mainstay/service/vm/pam"
)

// Role is what an account may do. Each role includes the lower ones.
type Role string

// The roles, the lowest first.
const (
	Viewer Role = "viewer" // reads
	User   Role = "user"   // also creates and operates
	Admin  Role = "admin"  // also deletes and manages
)

// Ladder lists the roles, the lowest first, for the service's table of access classes.
var Ladder = []string{string(Viewer), string(User), string(Admin)}

// Valid reports whether r is one of the roles.
func (r Role) Valid() bool { return r.rank() >= 0 }

func (r Role) rank() int { return slices.Index(Ladder, string(r)) }

// Lower returns the lower of two roles. What is not a role is lower than all of them.
func Lower(a, b Role) Role {
	if a.rank() < b.rank() {
		return a
	}
	return b
}

// adminGroups are the groups of the host whose members are admins.
var adminGroups = []string{"wheel", "sudo", "adm"}

// hostRole returns the role that the host gives an account.
func hostRole(a pam.Account) Role {
	if a.UID == 0 || slices.ContainsFunc(a.Groups, func(g string) bool { return slices.Contains(adminGroups, g) }) {
		return Admin
	}
	return User
}
