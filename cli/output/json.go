package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// writeJSON writes raw indented, with prefix before every line but the first.
func writeJSON(w io.Writer, raw []byte, prefix string) error {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, prefix, "  "); err != nil {
		return BadAnswer(err)
	}
	_, err := fmt.Fprintf(w, "%s\n", escapeJSON(b.Bytes()))
	return err
}

// escapeJSON escapes DEL and the C1 controls, which JSON allows unescaped but some terminals
// interpret. They can only occur in strings.
func escapeJSON(raw []byte) []byte {
	if !bytes.ContainsFunc(raw, isHighControl) {
		return raw
	}
	var b bytes.Buffer
	for _, r := range string(raw) {
		if isHighControl(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

func isHighControl(r rune) bool { return r >= 0x7f && r <= 0x9f }
