//go:build !unix

package httpserve

// maxFiles is unknown.
func maxFiles() int { return 0 }
