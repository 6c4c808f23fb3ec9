package image

import (
	"encoding/hex"
	"path"
	"regexp"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// checksum is a line of a list of checksums.
type checksum struct {
	file   string
	sum    string // in lower-case hexadecimal digits
	sha512 bool
}

// The lines of the programs sha256sum and sha512sum, and those of their option --tag.
var (
	plainLine  = regexp.MustCompile(`^([0-9A-Fa-f]{64}|[0-9A-Fa-f]{128}) [ *]?(\S+)$`)
	taggedLine = regexp.MustCompile(`^SHA(?:256|512) \((\S+)\) = ([0-9A-Fa-f]{64}|[0-9A-Fa-f]{128})$`)
)

// findChecksum returns the line of a list whose file has a name that matches a pattern. Of several, it takes
// the last by name, longer names later: that is the highest version.
func findChecksum(list, pattern string) (found checksum, err error) {
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		var file, sum string
		if m := plainLine.FindStringSubmatch(line); m != nil {
			file, sum = m[2], m[1]
		} else if m := taggedLine.FindStringSubmatch(line); m != nil {
			file, sum = m[1], m[2]
		} else {
			continue
		}
		file = strings.TrimPrefix(file, "./")
		if ok, err := path.Match(pattern, file); err != nil || !ok || strings.Contains(file, "/") {
			continue
		}
		if len(file) > len(found.file) || len(file) == len(found.file) && file > found.file {
			found = checksum{file: file, sum: strings.ToLower(sum), sha512: len(sum) == 2*hex.EncodedLen(32)}
		}
	}
	if found.file == "" {
		return found, fault.New(fault.Unavailable, "the list of checksums names no %s", pattern).
			WithCode("image_checksum_missing")
	}
	return found, nil
}
