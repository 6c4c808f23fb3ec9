package dr_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/storage/dr"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// now is the time of these tests.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func own(id uint64, demoted bool) driver.MirrorCopy {
	return driver.MirrorCopy{ID: id, Demoted: demoted, Complete: true, At: now.Add(-time.Minute)}
}

func copied(id, of uint64, demoted, complete bool) driver.MirrorCopy {
	return driver.MirrorCopy{ID: id, Of: of, Demoted: demoted, Complete: complete, At: now}
}

func side(primary bool, copies ...driver.MirrorCopy) driver.Mirror {
	return driver.Mirror{Mode: driver.BySnapshots, Enabled: true, Primary: primary, Copies: copies}
}

func view(here driver.Mirror, there *driver.Mirror) *dr.View {
	return &dr.View{Here: here, There: there, Known: there != nil, Now: now}
}

func ptr(m driver.Mirror) *driver.Mirror { return &m }

// journal is a copy whose daemon says something.
func journal(state, description string) driver.Mirror {
	return driver.Mirror{Mode: driver.ByJournal, Sites: []driver.MirrorSite{
		{Here: true, Up: true, State: state, Description: description, UpdatedAt: now},
	}}
}

func TestWhatStandsInTheWayOfAPromotion(t *testing.T) {
	t.Parallel()
	demotedOriginal := side(false, own(4, false), own(5, true))
	for name, c := range map[string]struct {
		view            *dr.View
		force, replayed bool
		want            string // empty: nothing
	}{
		"it is primary": {view: view(side(true, own(4, false)), nil), want: "primary at this site already"},
		"the other site is primary": {
			view: view(side(false, copied(7, 4, false, true)), ptr(side(true, own(4, false)))), want: "demote it there first",
		},
		"nothing has arrived": {view: view(side(false), ptr(demotedOriginal)), want: "nothing of the volume has arrived"},
		"the demotion is arriving": {
			view: view(side(false, copied(7, 4, false, true), copied(8, 5, true, false)), ptr(demotedOriginal)),
			want: "still arriving",
		},
		"the demotion has not arrived": {
			view: view(side(false, copied(7, 4, false, true)), ptr(demotedOriginal)), want: "has not arrived here yet",
		},
		"the demotion has arrived":   {view: view(side(false, copied(8, 5, true, true)), ptr(demotedOriginal))},
		"back to where it came from": {view: view(demotedOriginal, ptr(side(false, copied(8, 5, true, true))))},
		"it was promoted and demoted before the other site copied anything": {
			view: view(side(false, copied(17, 19, true, true), own(19, false), own(21, true)), ptr(side(false, own(19, true)))),
		},
		"the other one of these": {
			view: view(side(false, own(19, true)), ptr(side(false, copied(17, 19, true, true), own(19, false), own(21, true)))),
			want: "not a copy",
		},
		"a demotion that was not completed": {
			view: view(side(false, own(4, false)), ptr(side(false, copied(7, 4, false, true)))), want: "promote it by force",
		},
		"the other site of that": {
			view: view(side(false, copied(7, 4, false, true)), ptr(side(false, own(4, false)))), want: "promote that one by force",
		},
		"by force, a demotion that was not completed": {
			view: view(side(false, own(4, false)), ptr(side(false, copied(7, 4, false, true)))), force: true,
		},
		"both sites were primary": {
			view: view(side(false, own(9, true)), ptr(side(false, own(5, true)))), want: "not a copy",
		},
		"an unknown site was not demoted": {
			view: view(side(false, copied(7, 4, false, true)), nil), want: "it is not known that the volume is demoted",
		},
		"an unknown site was demoted": {view: view(side(false, copied(7, 4, true, true)), nil)},
		"by force":                    {view: view(side(false, copied(7, 4, false, true)), nil), force: true},
		"by force, with half of a copy": {
			view: view(side(false, copied(7, 4, false, false)), nil), force: true, want: "no complete copy",
		},
		"by force, while changes arrive": {
			view:  view(side(false, copied(7, 4, false, true), copied(8, 5, false, false)), ptr(side(true, own(5, false)))),
			force: true, want: "wait for them",
		},
		"by force, with half of the changes of a lost site": {
			view: view(side(false, copied(7, 4, false, true), copied(8, 5, false, false)), nil), force: true,
		},
		"the storage does not have it": {view: &dr.View{Missing: true}, force: true, want: "does not mirror the volume"},
		"a journal of an unknown site": {
			view: view(journal("replaying", `replaying, {"entries_behind_primary":0}`), nil), want: "confirm it with peer_replayed",
		},
		"somebody knows about the journal": {
			view: view(journal("replaying", `replaying, {"entries_behind_primary":0}`), nil), replayed: true,
		},
		"somebody is wrong about the journal": {
			view: view(journal("replaying", `replaying, {"entries_behind_primary":3}`), nil), replayed: true,
			want: "writes of the other site are still arriving",
		},
		"a journal after a split brain": {
			view: view(journal("error", "split-brain"), ptr(driver.Mirror{})), want: "does not say that it copies",
		},
		"a daemon that has not noticed the demotion": {
			view: view(journal("stopped", "local image is primary"), ptr(driver.Mirror{})), want: "does not say that it copies",
		},
	} {
		got := dr.PromoteBlocker(c.view, c.force, c.replayed)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWhatStandsInTheWayOfAFailover(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		view *dr.View
		want string
	}{
		"a copy": {view: view(side(false, copied(7, 4, false, true)), ptr(side(true, own(4, false), own(5, false))))},
		"no copy yet": {
			view: view(side(false, copied(7, 4, false, false)), ptr(side(true, own(4, false)))), want: "no complete copy",
		},
		"content of its own": {
			view: view(side(false, copied(3, 2, true, true), own(4, false), own(9, true)), ptr(side(true, own(4, false)))),
			want: "copy it again with resync",
		},
		"one that was primary until lately": {
			view: view(side(false, own(4, false), own(5, true)), ptr(side(true, copied(8, 5, true, true), own(9, false)))),
			want: "wait until it has",
		},
		"one that was primary until lately, and then by force": {
			view: view(side(false, own(5, true), own(6, false), own(7, true)), ptr(side(true, copied(8, 5, true, true), own(9, false)))),
			want: "copy it again with resync",
		},
		"a copy of what the other site has no more": {
			view: view(side(false, copied(7, 4, false, true)), ptr(side(true, own(12, false)))), want: "copy it again with resync",
		},
		"an interrupted one":     {view: view(side(false, copied(8, 5, true, true)), ptr(side(false, own(4, false), own(5, true))))},
		"a site that is silent":  {view: view(side(false, copied(7, 4, false, true)), nil), want: "not known that the volume is demoted"},
		"the other way, already": {view: view(side(true, own(4, false)), nil), want: "primary at this site already"},
	} {
		got := dr.FailoverBlocker(c.view, false, false)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAVolumeIsNotDemotedBeforeTheOtherSiteCopiesIt(t *testing.T) {
	t.Parallel()
	late := view(side(true, copied(3, 19, true, true), own(4, false)), ptr(side(false, own(19, true))))
	if dr.DemoteBlocker(late) == "" || dr.DisableBlocker(late) == "" {
		t.Error("it would be demoted, and no site could take over")
	}
	for name, v := range map[string]*dr.View{
		"it copies":     view(side(true, own(4, false)), ptr(side(false, copied(7, 4, false, true)))),
		"it is silent":  view(side(true, own(4, false)), nil),
		"a split brain": view(side(true, own(4, false)), ptr(side(true, own(9, false)))),
	} {
		if why := dr.DemoteBlocker(v); why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
}

func TestACopyIsMadeAgainOnlyIfNothingIsLostByThat(t *testing.T) {
	t.Parallel()
	primary := side(true, own(4, false))
	if why := dr.ResyncBlocker(view(side(false), &primary)); why != "" {
		t.Error(why)
	}
	for name, v := range map[string]*dr.View{
		"it is primary": view(primary, ptr(side(true))), "the other site is silent": view(side(false), nil),
		"nobody is primary": view(side(false), ptr(side(false))),
	} {
		if dr.ResyncBlocker(v) == "" {
			t.Errorf("%s, and it would be copied again", name)
		}
	}
}

func TestHowOldACopyIs(t *testing.T) {
	t.Parallel()
	primary, secondary := side(true, own(4, false)), side(false, copied(7, 4, false, true))
	secondary.Sites = []driver.MirrorSite{{Here: true, Up: true, State: "replaying", UpdatedAt: now,
		Description: `replaying, {"local_snapshot_timestamp":1772000000,"remote_snapshot_timestamp":1772000100}`}}
	if at := dr.Synced(secondary.Sites); at.Unix() != 1772000000 {
		t.Errorf("by the daemon: %s", at)
	}
	for name, v := range map[string]*dr.View{"here": view(secondary, &primary), "there": view(primary, &secondary)} {
		if at := v.SyncedNow(); !at.Equal(now.Add(-time.Minute)) {
			t.Errorf("with the copy %s: %s", name, at)
		}
	}
	for _, text := range []string{"", "replaying", "replaying, {", `replaying, {"entries_behind_primary":2}`, "starting replay"} {
		if at := dr.Synced([]driver.MirrorSite{{Description: text}}); !at.IsZero() {
			t.Errorf("%q: %s", text, at)
		}
	}
}

func TestTheStepsAreThoseOfTheCaseAtHand(t *testing.T) {
	t.Parallel()
	split := side(false, own(9, true))
	split.Sites = []driver.MirrorSite{{Here: true, Up: true, State: "error", Description: "split-brain"}}
	for name, c := range map[string]struct {
		view *dr.View
		want []string // commands
	}{
		"all is well, seen from the copy": {
			view: view(side(false, copied(7, 4, false, true)), ptr(side(true, own(4, false)))),
			want: []string{"", "mainstay storage dr failover --yes m", ""},
		},
		"all is well, seen from the original": {view: view(side(true, own(4, false)), ptr(side(false, copied(7, 4, false, true))))},
		"the other site is lost": {
			view: view(side(false, copied(7, 4, false, true)), nil),
			want: []string{"", "mainstay storage dr failover --force --yes m", ""},
		},
		"both are primary": {
			view: view(side(true, own(4, false)), ptr(side(true, own(9, false)))),
			want: []string{"", "", "mainstay storage dr demote m", "mainstay storage dr resync m"},
		},
		"a split brain that was demoted": {
			view: view(split, ptr(side(true, own(4, false)))), want: []string{"mainstay storage dr resync m"},
		},
		"nobody is primary": {
			view: view(side(false, copied(8, 5, true, true)), ptr(side(false, own(5, true)))),
			want: []string{"mainstay storage dr promote m"},
		},
	} {
		var got []string
		for _, s := range dr.Steps("m", c.view) {
			if s.Title == "" || s.Detail == "" || s.MirrorID != "m" {
				t.Errorf("%s: %+v", name, s)
			}
			got = append(got, s.Command)
		}
		if strings.Join(got, "|") != strings.Join(c.want, "|") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
