//go:build !linux

package lb

// Needs looks at what this machine has.
func Needs(string) []Need {
	return []Need{{Name: "Linux", Detail: "this is another system", Fix: "run it on Linux"}}
}
