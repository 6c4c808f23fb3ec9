// Package tenant has the rules for names of tenants, which are the same in all services.
//
// It imports fault.
package tenant

import "github.com/mainstay-infra/mainstay/kit/fault"

// MaxName is the most bytes of a tenant's name.
const MaxName = 63

// CheckName returns a fault that names the field if name is not a valid name of a tenant: letters, digits, dots,
// dashes and underscores, beginning and ending with a letter or digit.
func CheckName(field, name string) error {
	ok := name != "" && len(name) <= MaxName
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		inner := i > 0 && i < len(name)-1 && (c == '.' || c == '-' || c == '_')
		ok = ok && (letter || inner)
	}
	if !ok {
		return fault.InvalidField(field, "%q is not a valid name of a tenant: it has 1 to %d letters, digits, dots, dashes and "+
			"underscores, and begins and ends with a letter or digit", name, MaxName)
	}
	return nil
}
