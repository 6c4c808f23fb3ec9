package compliance

import (
	"bufio"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// source is a program that is run in guests. It only reads.
type source struct {
	argv []string
	// codes are the exit codes with which what it printed counts, beside 0.
	codes []int
}

// Limits on what a guest answers.
const (
	// askLimit is how long all programs may take, and programLimit how long each.
	askLimit     = 4 * time.Minute
	programLimit = 20 * time.Second
	// maxAnswer is the most bytes that a program may print.
	maxAnswer = 256 << 10
	// maxSilent is how often the agent may not answer before it is not asked any more.
	maxSilent = 2
)

// answer is what a program in a guest has printed.
type answer struct {
	out     string
	code    int
	problem string // why there is none; empty: there is
}

// lines calls f for each line that is not empty, without spaces around it.
func (a *answer) lines(f func(line string)) {
	scanner := bufio.NewScanner(strings.NewReader(a.out))
	scanner.Buffer(nil, maxAnswer+1)
	for scanner.Scan() {
		if line := strings.TrimSpace(scanner.Text()); line != "" {
			f(line)
		}
	}
}

// words returns the lines, or nil if there are none.
func (a *answer) words() (out []string) {
	a.lines(func(line string) { out = append(out, line) })
	return out
}

// ask runs the sources of checks in a guest. It fails only if ctx ends.
func (s *Scanner) ask(
	ctx context.Context, r *record.VM, checks []Check, progress func(float64),
) (map[*source]*answer, error) {
	var sources []*source
	for i := range checks {
		if c := &checks[i]; c.source != nil && !slices.Contains(sources, c.source) {
			sources = append(sources, c.source)
		}
	}
	asking, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	answers := make(map[*source]*answer, len(sources))
	silent, why := 0, ""
	for i, src := range sources {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		switch {
		case silent >= maxSilent:
			answers[src] = &answer{problem: why}
		case asking.Err() != nil:
			answers[src] = &answer{problem: "the guest takes too long to answer"}
		default:
			var lost bool
			if answers[src], lost = s.program(asking, r, src); lost {
				silent, why = silent+1, answers[src].problem
			}
		}
		progress(float64(i+1) / float64(len(sources)))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return answers, nil
}

// program runs a program in a guest. lost means that asking again is of no use.
func (s *Scanner) program(ctx context.Context, r *record.VM, src *source) (a *answer, lost bool) {
	out, err := s.driver.Exec(ctx, driver.PlaceOf(r), src.argv, programLimit)
	f := fault.From(err)
	switch {
	case err == nil:
	case f.Code == driver.CodeNotInGuest:
		return &answer{problem: "the guest does not have the program " + src.argv[0]}, false
	default:
		// The message is the daemon's, and may name paths of its host.
		return &answer{problem: caller.Caller{}.Public(f.Message)}, true
	}
	switch {
	case out.Truncated || len(out.Stdout) > maxAnswer:
		return &answer{problem: "the guest's answer to " + src.argv[0] + " is too long to be judged"}, false
	case out.ExitCode != 0 && !slices.Contains(src.codes, out.ExitCode):
		return &answer{problem: "the program " + src.argv[0] + " has failed in the guest"}, false
	}
	return &answer{out: out.Stdout, code: out.ExitCode}, false
}
