package dr

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// View is what both sites tell about a volume that is mirrored.
type View struct {
	Here    driver.Mirror
	Missing bool           // the storage system at this site does not mirror the volume
	There   *driver.Mirror // nil: the other site is not known, or does not answer
	Known   bool           // the gateway knows the other site
	Now     time.Time
	RPO     time.Duration // how old the copy may be; 0: nothing is said
}

// newest returns the newest copy that a site has, whether it is complete or not.
func newest(m *driver.Mirror) (c driver.MirrorCopy, ok bool) {
	if len(m.Copies) == 0 {
		return c, false
	}
	return m.Copies[len(m.Copies)-1], true
}

// complete returns the newest complete copy that a site has.
func complete(m *driver.Mirror) (c driver.MirrorCopy, ok bool) {
	for _, one := range m.Copies {
		if one.Complete {
			c, ok = one, true
		}
	}
	return c, ok
}

// descends reports whether the newest complete copy of a site is one of what the primary site was. After a split brain
// it is not, until it was copied again: what a site has that was itself demoted last is its own.
func descends(secondary, primary *driver.Mirror) bool {
	last, ok := complete(secondary)
	if !ok || last.Of == 0 {
		return false
	}
	for _, c := range primary.Copies {
		if c.ID == last.Of {
			return true
		}
	}
	return false
}

// has reports whether a site has all that the other one was when it was demoted, since it copied that, or since the
// other one copied it from there.
func has(site, other *driver.Mirror) bool {
	last, ok := newest(other)
	if !ok || !last.Complete || !last.Demoted {
		return false
	}
	for _, c := range site.Copies {
		if last.Of == 0 && c.Of == last.ID && c.Complete || last.Of != 0 && c.Of == 0 && c.ID == last.Of {
			return true
		}
	}
	return false
}

// copies reports whether the daemon of this site says that it copies a volume whose writes are sent one by one. After a
// split brain, or before it has noticed that this site was demoted, it does not.
func copies(m *driver.Mirror) bool {
	for _, s := range m.Sites {
		if s.Here {
			return s.Up && s.State != "error" && !strings.Contains(s.Description, "local image is primary") &&
				!SplitBrain(m.Sites)
		}
	}
	return false
}

// notACopy is why a site cannot take over whose content is its own.
const notACopy = "what this site has is not a copy of what the other one has, as after a split brain; copy it again with resync"

// missing is why nothing can be done with a mirror that its site does not have.
const missing = "the storage system at this site does not mirror the volume, or is about to copy it again"

// unreachable says in words for people why the other site was not asked.
func (v *View) unreachable() string {
	if v.Known {
		return "the other site does not answer"
	}
	return "the gateway does not know the other site"
}

// PromoteBlocker returns what stands in the way of a promotion at this site; empty: nothing does. replayed: somebody
// knows that this site has all that the other one had. That stands in only for what the gateway cannot find out.
func PromoteBlocker(v *View, force, replayed bool) string {
	switch {
	case v.Missing:
		return missing
	case v.Here.Primary:
		return "the volume is primary at this site already"
	case force:
		return forceBlocker(v)
	case v.There != nil && v.There.Primary:
		return "the volume is primary at the other site; demote it there first"
	case v.Here.Mode == driver.ByJournal:
		return journalBlocker(v, replayed)
	}
	last, ok := newest(&v.Here)
	switch {
	case !ok:
		return "nothing of the volume has arrived at this site yet"
	case v.orphaned():
		return incomplete
	case v.There != nil && v.swapped().orphaned():
		return "the other site was primary last, and its demotion was not completed; promote that one by force"
	case !last.Complete:
		return "changes of the other site are still arriving"
	case v.There != nil && !has(&v.Here, v.There):
		if last.Demoted && last.Of == 0 {
			return notACopy
		}
		return "the volume is demoted at the other site, but that has not arrived here yet"
	case last.Demoted:
		return ""
	}
	return "it is not known that the volume is demoted at the other site: " + v.unreachable()
}

// forceBlocker returns what stands in the way even of a promotion by force.
func forceBlocker(v *View) string {
	if v.Here.Mode == driver.ByJournal {
		return ""
	}
	if _, ok := complete(&v.Here); !ok {
		return "this site has no complete copy of the volume"
	}
	if last, _ := newest(&v.Here); !last.Complete && v.There != nil {
		return "changes of the other site, which answers, are still arriving; wait for them"
	}
	return ""
}

// journalBlocker returns what stands in the way of a promotion of a volume whose writes are sent one by one.
func journalBlocker(v *View, replayed bool) string {
	behind, told := behind(v.Here.Sites)
	switch {
	case !copies(&v.Here):
		return "the daemon at this site does not say that it copies the volume"
	case told && behind > 0:
		return "writes of the other site are still arriving"
	case v.There == nil && !replayed:
		return "it is not known whether all writes of the other site have arrived: " + v.unreachable() +
			"; if you know that they have, confirm it with peer_replayed"
	}
	return ""
}

// orphaned reports whether the volume is primary at neither site although this one was until lately: its demotion was
// not completed, so that the other one cannot take over.
func (v *View) orphaned() bool {
	last, ok := newest(&v.Here)
	return ok && v.Here.Mode == driver.BySnapshots && v.There != nil && !v.Here.Primary && !v.There.Primary &&
		last.Of == 0 && !last.Demoted && descends(v.There, &v.Here)
}

// swapped is the view of the other site.
func (v *View) swapped() *View {
	return &View{Here: *v.There, There: &v.Here, Known: true, Now: v.Now, RPO: v.RPO}
}

const incomplete = "this site was primary last, and its demotion was not completed; promote it by force"

// followed reports whether the other site copies from this one, as far as it can be asked. That takes a while after a
// promotion.
func (v *View) followed() bool {
	return v.Here.Mode != driver.BySnapshots || v.There == nil || v.There.Primary || descends(v.There, &v.Here)
}

const notFollowed = "the other site has not begun to copy from this one, which was promoted lately; wait until it has"

const notFollowing = "this site has not begun to copy from the other one, which was promoted lately; wait until it has"

// DisableBlocker returns what stands in the way of the end of the mirroring of a volume.
func DisableBlocker(v *View) string {
	switch {
	case v.Missing:
		return "" // there is only the record left
	case !v.Here.Primary:
		return "the volume is the copy of one at another site; disable it there"
	case !v.followed(): // its daemon would keep the copy
		return notFollowed
	}
	return ""
}

// DemoteBlocker returns what stands in the way of a demotion at this site.
func DemoteBlocker(v *View) string {
	switch {
	case v.Missing:
		return missing
	case !v.Here.Primary:
		return "the volume is not primary at this site"
	case v.Here.InUse != "":
		return v.Here.InUse
	case !v.followed():
		// Daemons do not copy from a site that is not primary: neither site could take over then.
		return notFollowed
	}
	return ""
}

// ResyncBlocker returns what stands in the way of copying a volume again.
func ResyncBlocker(v *View) string {
	switch {
	case v.Missing:
		return missing
	case v.Here.Primary:
		return "the volume is primary at this site; demote it first"
	case v.There == nil:
		return "what this site has would be thrown away, and " + v.unreachable()
	case !v.There.Primary:
		return "what this site has would be thrown away, and the volume is not primary at the other site"
	}
	return ""
}

// FailoverBlocker returns what stands in the way of moving the work to this site.
func FailoverBlocker(v *View, force, replayed bool) string {
	switch {
	case v.Missing:
		return missing
	case v.Here.Primary:
		return "the volume is primary at this site already"
	case force:
		return forceBlocker(v)
	case v.There == nil: // it may have been demoted before
		return PromoteBlocker(v, false, replayed)
	}
	_, ok := complete(&v.Here)
	switch {
	case v.There.InUse != "":
		return "at the other site, " + v.There.InUse
	case v.Here.Mode == driver.ByJournal && !copies(&v.Here):
		return "the daemon at this site does not say that it copies the volume"
	case v.Here.Mode == driver.ByJournal:
		return ""
	case !ok:
		return "this site has no complete copy of the volume yet"
	case v.There.Primary && !descends(&v.Here, v.There):
		if has(v.There, &v.Here) { // it was primary until lately
			return notFollowing
		}
		return notACopy
	case !v.There.Primary && !has(&v.Here, v.There):
		return PromoteBlocker(v, false, replayed)
	}
	return ""
}

// Replayed reports whether this site has all writes of a volume whose writes are sent one by one; nil: there is no
// journal, or nobody tells.
func (v *View) Replayed() *bool {
	if v.Here.Mode != driver.ByJournal {
		return nil
	}
	n, told := behind(v.Here.Sites)
	if !told {
		return nil
	}
	return new(n == 0)
}

// replaying is what daemons say before the numbers about what they copy.
const replaying = "replaying, "

// numbers reads what a daemon says about its copying.
func numbers(s *driver.MirrorSite, into any) bool {
	text, ok := strings.CutPrefix(s.Description, replaying)
	return ok && json.Unmarshal([]byte(text), into) == nil
}

// behind returns how many writes have not arrived yet, if a daemon tells that.
func behind(sites []driver.MirrorSite) (n int64, ok bool) {
	for i := range sites {
		var told struct {
			Behind *int64 `json:"entries_behind_primary"`
		}
		if numbers(&sites[i], &told) && told.Behind != nil {
			return *told.Behind, true
		}
	}
	return 0, false
}

// Synced returns the moment that the copy of a volume is of, by the clock of the primary site, as far as the daemons
// tell; zero: they do not.
func Synced(sites []driver.MirrorSite) (at time.Time) {
	for i := range sites {
		var told struct {
			Copied int64  `json:"local_snapshot_timestamp"`
			Behind *int64 `json:"entries_behind_primary"`
		}
		if !numbers(&sites[i], &told) {
			continue
		}
		switch {
		case told.Copied > 0:
			at = time.Unix(told.Copied, 0).UTC()
		case told.Behind != nil && *told.Behind == 0:
			at = sites[i].UpdatedAt
		}
	}
	return at
}

// SyncedNow returns the moment that the copy of a volume is of, as far as both sites tell; zero: they do not.
func (v *View) SyncedNow() time.Time {
	at := Synced(v.Here.Sites)
	if v.There == nil {
		return at
	}
	primary, secondary := &v.Here, v.There
	if !v.Here.Primary {
		primary, secondary = v.There, &v.Here
	}
	if last, ok := complete(secondary); ok {
		for _, c := range primary.Copies {
			if c.ID == last.Of && c.At.After(at) {
				at = c.At
			}
		}
	}
	return at
}

// SplitBrain reports whether a daemon says that the volume was written to at both sites.
func SplitBrain(sites []driver.MirrorSite) bool {
	for _, s := range sites {
		if strings.Contains(s.Description, "split-brain") {
			return true
		}
	}
	return false
}

// Healthy returns the condition of a mirror, as its daemons tell it.
func Healthy(m *driver.Mirror) driver.Health {
	worst := driver.Healthy
	for _, s := range m.Sites {
		switch {
		case s.State == "error":
			return driver.Critical
		case s.UpdatedAt.IsZero():
			if worst == driver.Healthy {
				worst = driver.Unknown
			}
		case !s.Up:
			worst = driver.Warning
		}
	}
	if len(m.Sites) < 2 && worst == driver.Healthy {
		return driver.Unknown // only one of the sites has told anything
	}
	return worst
}

// Condition returns the condition of a mirror from what both sites tell.
func (v *View) Condition() driver.Health {
	if v.Missing || v.There != nil && v.Here.Primary && v.There.Primary {
		return driver.Critical
	}
	h := Healthy(&v.Here)
	if v.There != nil && Healthy(v.There) == driver.Critical {
		h = driver.Critical
	}
	if h == driver.Healthy && v.There != nil && !v.Here.Primary && !v.There.Primary {
		h = driver.Warning // nobody can write to it
	}
	if at := v.SyncedNow(); h == driver.Healthy && v.RPO > 0 && !at.IsZero() && v.Now.Sub(at) > v.RPO {
		h = driver.Warning
	}
	return h
}
