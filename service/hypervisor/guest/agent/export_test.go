//go:build linux

package agent

var (
	ParseMounts = parseMounts
	FindPortIn  = findPort
	UntilFree   = untilFree
)
