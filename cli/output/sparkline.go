package output

import "strings"

// Sparkline draws values as a row of blocks, the highest at full height. Zero has its own sign, to
// distinguish it from small values.
func Sparkline(values []int64) string {
	blocks := []rune("▁▂▃▄▅▆▇█")
	var highest int64
	for _, v := range values {
		highest = max(highest, v)
	}
	var b strings.Builder
	for _, v := range values {
		if v <= 0 {
			b.WriteRune('·')
			continue
		}
		b.WriteRune(blocks[(v*int64(len(blocks))-1)/highest])
	}
	return b.String()
}

// Bar draws value as a share of total, as a bar of the given width.
func Bar(value, total int64, width int) string {
	full := 0
	if total > 0 {
		full = int(min(max(value, 0), total) * int64(width) / total)
	}
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}
