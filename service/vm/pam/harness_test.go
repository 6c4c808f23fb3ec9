//go:build linux

package pam_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mainstay-infra/mainstay/service/vm/pam/pamtest"
)

func TestMain(m *testing.M) { pamtest.Main(m) }

const (
	permitRules = "auth required pam_permit.so\naccount required pam_permit.so\n"
	denyRules   = "auth required pam_deny.so\naccount required pam_deny.so\n"
)

// script returns rules that run a shell script as the check of the password.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "check")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return "auth required pam_exec.so quiet " + path + "\naccount required pam_permit.so\n"
}
