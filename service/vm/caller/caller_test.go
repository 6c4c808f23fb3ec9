package caller_test

import (
	"testing"

	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

func TestOnlyAdminsOfEverythingReadPathsOfHosts(t *testing.T) {
	t.Parallel()
	user := caller.Caller{Role: caller.Admin, Tenant: "acme"}
	for message, want := range map[string]string{
		"cannot open /var/lib/mainstay/disk.qcow2":          "cannot open (path)",
		`open "/etc/shadow": permission denied`:             `open "(path)": permission denied`,
		"/srv: is missing":                                  "(path): is missing",
		"rbd:/pool/disk and file:///etc/passwd":             "(path) and (path)",
		"paths:/a,/b;/c":                                    "(path),(path);(path)",
		"Get http://10.1.2.3:7070/v1/vms":                   "Get (address)",
		"url: must begin with https:// or http://":          "url: must begin with https:// or http://",
		"as in 10.0.0.0/8 or 2001:db8::/32":                 "as in 10.0.0.0/8 or 2001:db8::/32",
		"text/plain is not application/json":                "text/plain is not application/json",
		"/8 is short, and /8/x is a path":                   "/8 is short, and (path) is a path",
		"a path with a unicode name /srv/\u202e and an end": "a path with a unicode name (path) and an end",
	} {
		if got := user.Public(message); got != want {
			t.Errorf("%q is shown as %q, want %q", message, got, want)
		}
		if got := (caller.Caller{Role: caller.Admin}).Public(message); got != message {
			t.Errorf("an admin of everything reads %q", got)
		}
	}
}
