//go:build !linux

package lb

// Needs returns an unmet requirement, since balancing needs Linux.
func Needs(string) []Need {
	return []Need{{Name: "Linux", Detail: "this is another system", Fix: "run it on Linux"}}
}
