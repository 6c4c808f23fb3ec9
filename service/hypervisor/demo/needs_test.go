package demo

import (
	"os/exec"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/require"
)

func TestAProgramThatNeedsLibrariesIsToldFromAStaticOne(t *testing.T) {
	t.Parallel()
	if err := static(require.Program(t, "busybox", "busybox-static")); err != nil {
		t.Error(err)
	}
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	if static(cat) == nil {
		t.Errorf("%s is taken for one that needs no libraries", cat)
	}
	if static("/does/not/exist") == nil {
		t.Error("a program that is not there is taken for static")
	}
}
