//go:build linux

package agent

var (
	ParseMounts = parseMounts
	FindPortIn  = findPort
	UntilFree   = untilFree
)

// The steps of an identity that change files.
var (
	Rename           = rename
	SetMachineID     = setMachineID
	RenewStoredSeeds = renewStoredSeeds
	RenewHostKeys    = renewHostKeys
)
