package dr

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// Check is one thing that a failover needs.
type Check struct {
	Name   string
	OK     bool
	Detail string
}

// Step is something to do in the case at hand.
type Step struct {
	MirrorID      string // empty: it is about all of them
	Title, Detail string
	Command       string // how the command line does it; empty: a person must
}

// Preflight is whether a failover would work now, and what to do.
type Preflight struct {
	Checks []Check
	Steps  []Step
}

const (
	// preflightMost is of how many mirrors both sites are asked at most, and atOnce of how many at once.
	preflightMost = 100
	atOnce        = 8
)

// Preflight checks the mirrors of a filter, or one of them.
func (m *Manager) Preflight(ctx context.Context, f record.MirrorFilter, id string) (p Preflight, err error) {
	var all []record.Mirror
	if id != "" {
		one, err := m.cfg.Store.Mirror(ctx, id)
		if err != nil {
			return p, err
		}
		all = append(all, one)
	} else if all, err = m.cfg.Store.Mirrors(ctx, f, preflightMost+1); err != nil {
		return p, err
	}
	peers, err := m.cfg.Store.Peers(ctx, f.Cluster, "", 1000)
	if err != nil {
		return p, err
	}
	if len(all) == 0 {
		p.Checks = append(p.Checks, Check{"mirrors", false, "no volume is mirrored"})
	}
	for _, one := range peers {
		c := Check{"peer " + one.Name, one.State != record.PeerUnreachable, "it is " + one.State}
		if !c.OK && caller.From(ctx).SeesAll() {
			c.Detail = one.LastError
		}
		p.Checks = append(p.Checks, c)
	}
	if len(all) > preflightMost {
		all = all[:preflightMost]
		p.Checks = append(p.Checks, Check{
			"number of mirrors", true, fmt.Sprintf("only the newest %d were checked; name a mirror to check another one", preflightMost),
		})
	}
	checks, steps := make([]Check, len(all)), make([][]Step, len(all))
	slots := make(chan struct{}, atOnce)
	var work sync.WaitGroup
	for i := range all {
		checks[i] = Check{Name: "mirror " + all[i].ID, Detail: "it could not be checked"}
		work.Go(func() {
			_ = routine.Run(m.cfg.Log, "check of a mirror", func() { // a panic was logged
				slots <- struct{}{}
				defer func() { <-slots }()
				v, err := m.Look(ctx, &all[i])
				checks[i], steps[i] = judge(&all[i], v, err)
			})
		})
	}
	work.Wait()
	p.Checks = append(p.Checks, checks...)
	for _, s := range steps {
		p.Steps = append(p.Steps, s...)
	}
	return p, nil
}

// judge says whether the work of a mirror could be moved now, and what to do.
func judge(m *record.Mirror, v *View, failed error) (Check, []Step) {
	c := Check{Name: "mirror " + m.ID}
	switch {
	case m.State != record.MirrorEnabled:
		c.Detail = "it is in the state " + m.State
		return c, nil
	case failed != nil:
		c.Detail = fault.From(failed).Message
		return c, nil
	}
	if v.Missing {
		c.Detail = missing
		return c, nil
	}
	synced := v.SyncedNow()
	switch late := !synced.IsZero() && v.RPO > 0 && v.Now.Sub(synced) > v.RPO; {
	case SplitBrain(v.Here.Sites) || v.There != nil && (SplitBrain(v.There.Sites) || v.Here.Primary && v.There.Primary):
		c.Detail = "the volume was written to at both sites"
	case v.Here.Primary && v.There == nil:
		c.Detail = "the volume is primary here; " + v.unreachable()
	case Healthy(&v.Here) == driver.Critical:
		c.Detail = "the daemons report an error: " + problem(v.Here.Sites)
	case late:
		c.Detail = fmt.Sprintf("the copy is %s old, and may be %s", v.Now.Sub(synced).Round(time.Second), v.RPO)
	case v.Here.Primary:
		c.OK, c.Detail = true, "the volume is primary here, and its copy at the other site can take over"
		if v.Here.Mode == driver.BySnapshots && !descends(v.There, &v.Here) {
			c.OK, c.Detail = false, "the other site has no complete copy yet"
		}
	default:
		why := FailoverBlocker(v, false, false)
		c.OK, c.Detail = why == "", why
		if c.OK {
			c.Detail = "this site can take over"
		}
	}
	return c, Steps(m.ID, v)
}

// problem returns what the first daemon says that has a problem.
func problem(sites []driver.MirrorSite) string {
	for _, s := range sites {
		if s.State == "error" {
			return s.Description
		}
	}
	return "unknown"
}

const dr = "mainstay storage dr "

// Steps returns what to do with a mirror in the case at hand. id is the mirror's at this site.
func Steps(id string, v *View) []Step {
	step := func(title, detail, command string) Step {
		if command != "" {
			command = dr + command + " " + id
		}
		return Step{MirrorID: id, Title: title, Detail: detail, Command: command}
	}
	split := SplitBrain(v.Here.Sites) || v.There != nil && SplitBrain(v.There.Sites)
	switch {
	case v.There != nil && v.Here.Primary && v.There.Primary:
		return []Step{
			step("Decide which site keeps its content",
				"The volume is primary at both sites. What was written to the other one since is lost: save it first, for "+
					"example by a backup.", ""),
			step("Stop the clients of the volume here, unless this site keeps its content",
				"A demotion is refused while clients have it open.", ""),
			step("Demote the volume here, unless this site keeps its content",
				"Use the other mirror's id if it is the other site that gives up.", "demote"),
			step("Copy it again from the other site",
				"Wait until its health is ok. Until then, it cannot take over.", "resync"),
		}
	case split && !v.Here.Primary, v.There != nil && v.There.Primary && FailoverBlocker(v, false, false) == notACopy:
		return []Step{
			step("Copy the volume again from the other site",
				"Both sites have written since they last agreed. What this one has is thrown away. Wait until its health is ok.",
				"resync"),
		}
	case split:
		return []Step{
			step("Copy the volume again at the other site",
				"Both sites have written since they last agreed, and this one is primary. Run resync with the id of the mirror at "+
					"the other site. What that one has is thrown away.", ""),
		}
	case v.Here.Primary:
		return nil
	case v.orphaned():
		return []Step{
			step("Promote the volume here by force",
				"It is primary at neither site. This one was until lately, and has the newest content: its demotion was not completed, "+
					"for example because its pool was full. Make room first.", "promote --force"),
		}
	case v.There != nil && v.swapped().orphaned():
		return []Step{
			step("Promote the volume at the other site by force",
				"It is primary at neither site. The other one was until lately, and has the newest content. Use the id of the mirror "+
					"there.", ""),
		}
	case v.There != nil && !v.There.Primary && PromoteBlocker(v, false, false) == "":
		return []Step{
			step("Promote the volume here, or at the other site",
				"It is primary at neither of them, so nobody can write to it.", "promote"),
		}
	case v.There != nil && v.There.Primary:
		return []Step{
			step("Stop the clients of the volume at the other site", "A demotion is refused while clients have it open.", ""),
			step("Fail over", "The gateway demotes the volume there, waits until that has arrived, and promotes it here.",
				"failover --yes"),
			step("Start the clients here", "To go back, fail over with the id of the mirror at the other site.", ""),
		}
	case v.There == nil:
		return []Step{
			step("Make sure that the other site is down, and stays so",
				"The gateway cannot ask it ("+v.unreachable()+"). If its clients still write, both sites differ from then on.", ""),
			step("Fail over by force", "What the other site had not sent yet is lost.", "failover --force --yes"),
			step("When the other site is back, demote the volume there, and copy it again",
				"Use demote and resync with the id of its mirror.", ""),
		}
	}
	return nil
}
