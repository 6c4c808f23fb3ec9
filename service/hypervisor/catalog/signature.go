package catalog

import (
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"aead.dev/minisign"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

var signedAtComment = regexp.MustCompile(`(?:^|\s)timestamp:(\d{1,12})(?:\s|$)`)

// verify checks a file against a minisign signature and the configured keys.
func (c *Catalog) verify(path, text string) (good bool, signedAt db.Time, err error) {
	var signature minisign.Signature
	if err := signature.UnmarshalText([]byte(text)); err != nil {
		return false, signedAt, fault.InvalidField("signature", "is not a minisign signature")
	}
	if found := signedAtComment.FindStringSubmatch(signature.TrustedComment); found != nil {
		if seconds, err := strconv.ParseInt(found[1], 10, 64); err == nil {
			signedAt = db.At(time.Unix(seconds, 0))
		}
	}
	f, err := os.Open(path) //nolint:gosec // below our own folder
	if err != nil {
		return false, signedAt, err
	}
	defer func() { _ = f.Close() }() // it was only read
	reader := minisign.NewReader(f)
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return false, signedAt, err
	}
	for _, line := range c.images.PublicKeys {
		var key minisign.PublicKey
		if err := key.UnmarshalText([]byte(strings.TrimSpace(line))); err != nil {
			return false, signedAt, err
		}
		if reader.Verify(key, []byte(text)) {
			return true, signedAt, nil
		}
	}
	return false, signedAt, nil
}
