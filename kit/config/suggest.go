package config

import "github.com/mainstay-infra/mainstay/kit/text"

// suggestion returns a clause that names the known word nearest to word, or "" if none is near.
func suggestion(word string, known []string) string {
	if best := text.Nearest(word, known); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}
