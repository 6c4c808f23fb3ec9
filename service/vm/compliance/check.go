package compliance

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/mainstay-infra/mainstay/service/vm/dataplane"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// The ids of the profiles.
const (
	Level1 = "level-1"
	Level2 = "level-2"
)

// What a check can find.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped"
)

// What a check is about.
const (
	ScopeVM    = "vm"    // the VM's configuration, which this service knows
	ScopeGuest = "guest" // the guest, as its agent tells
)

// Profile is a set of checks.
type Profile struct {
	ID, Name, Description string
	level                 int
}

// Profiles lists the profiles.
func Profiles() []Profile {
	return []Profile{
		{Level1, "Level 1", "What every VM should have. It restricts no ordinary use of a guest.", 1},
		{Level2, "Level 2", "All of level 1, and what VMs need that hold sensitive data or face the internet. It may " +
			"restrict what a guest can be used for.", 2},
	}
}

func profileOf(id string) (Profile, bool) {
	for _, p := range Profiles() {
		if p.ID == id {
			return p, true
		}
	}
	return Profile{}, false
}

// Count returns the number of checks of a profile.
func (p *Profile) Count() int { return len(p.checks()) }

func (p *Profile) checks() (out []Check) {
	for _, c := range all {
		if c.level <= p.level {
			out = append(out, c)
		}
	}
	return out
}

// Check is one rule of a profile. It has either vm, or source and guest.
type Check struct {
	ID, Title, Remedy string
	level             int // of the lowest profile that has it
	vm                func(f *facts) verdict
	source            *source
	guest             func(a *answer) verdict
}

// Scope returns what the check is about.
func (c *Check) Scope() string {
	if c.vm != nil {
		return ScopeVM
	}
	return ScopeGuest
}

// all are the checks, in the order in which findings are shown.
var all = append(append(vmChecks(), kernelChecks()...), guestChecks()...)

// CheckOf returns a check by its id. A finding may be of a check that no longer exists: then only the
// id is set.
func CheckOf(id string) Check {
	for _, c := range all {
		if c.ID == id {
			return c
		}
	}
	return Check{ID: id, Title: id}
}

// facts is what checks judge.
type facts struct {
	now       time.Time
	vm        record.VM
	backups   []record.Backup // finished ones, newest first
	policies  []record.Policy // of backups, all that there are
	snapshots []record.Snapshot
	network   dataplane.Status
	guest     map[*source]*answer
}

// verdict is what a check has found.
type verdict struct{ status, evidence string }

func passed(format string, args ...any) verdict { return verdict{Passed, fmt.Sprintf(format, args...)} }
func failed(format string, args ...any) verdict { return verdict{Failed, fmt.Sprintf(format, args...)} }
func skipped(format string, args ...any) verdict {
	return verdict{Skipped, fmt.Sprintf(format, args...)}
}

// passedIf returns a verdict with the same evidence either way.
func passedIf(ok bool, format string, args ...any) verdict {
	if ok {
		return passed(format, args...)
	}
	return failed(format, args...)
}

// judge applies a check to facts.
func (c *Check) judge(f *facts) verdict {
	if c.vm != nil {
		return c.vm(f)
	}
	a := f.guest[c.source]
	switch {
	case a == nil:
		return skipped("the guest was not asked")
	case a.problem != "":
		return skipped("%s", a.problem)
	}
	return c.guest(a)
}

// maxEvidence bounds the evidence of a finding, in characters.
const maxEvidence = 300

// printable returns text without what could confuse a terminal or a page, and not longer than evidence
// may be.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	runes := []rune(text)
	if len(runes) > maxEvidence {
		return string(runes[:maxEvidence]) + "…"
	}
	return text
}
