package demo

import "testing"

func TestVersionsAreComparedNumberByNumber(t *testing.T) {
	t.Parallel()
	ordered := []string{
		"vmlinuz-5.10.0-9-amd64", "vmlinuz-6.1.0-9-amd64", "vmlinuz-6.1.0-56-amd64", "vmlinuz-6.1.0-56-cloud-amd64",
		"vmlinuz-6.1.10-1-amd64", "vmlinuz-6.12",
	}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := compareVersions(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s, %s: %d", a, b, got)
			}
		}
	}
}
