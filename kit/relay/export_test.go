package relay

// Held is how much memory a log takes for what was printed, in bytes.
func Held(l *Log) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cap(l.ring)
}
