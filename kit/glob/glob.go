// Package glob matches topics, image names and the like against patterns in which * matches any run
// of characters, including the empty one. All other characters match themselves; a star cannot be
// escaped.
package glob

// Match reports whether s matches pattern. It takes at most len(pattern)*len(s) steps and allocates
// nothing.
func Match(pattern, s string) bool {
	p, i := 0, 0
	star, mark := -1, 0 // the last star, and the current end of its match in s
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0: // extend the match of the last star by one
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
