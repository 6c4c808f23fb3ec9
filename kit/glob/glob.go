// Package glob matches topics, image names and the like against patterns in
// which * stands for any run of characters, the empty run included. Everything
// else stands for itself; there is no way to escape a star.
package glob

// Match reports whether s fits pattern. It takes at most len(pattern)*len(s)
// steps and no memory, whatever the pattern.
func Match(pattern, s string) bool {
	p, i := 0, 0
	star, mark := -1, 0 // the last star, and where in s its run ends so far
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0: // let the last star take one more
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
