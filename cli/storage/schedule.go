package storage

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) schedules() *cobra.Command {
	cmd := verb.Group("schedule", "Schedules: snapshots, backups and checks at regular times",
		"  mainstay storage schedule create hourly --kind snapshot --volume data --every 1h --keep 24\n"+
			"  mainstay storage schedule list", "schedules")
	cmd.AddCommand(s.scheduleList(), s.scheduleShow(), s.scheduleCreate(), s.scheduleUpdate(), s.scheduleDelete())
	return cmd
}

func (s commands) scheduleList() *cobra.Command {
	var tenant, kind, volume string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List schedules, newest first",
		Example: "  mainstay storage schedule list\n  mainstay storage schedule list --volume data --kind backup",
	}, output.Columns[storageapi.Schedule]{
		Heads: []string{"NAME", "KIND", "EVERY", "KEEP", "ENABLED", "NEXT", "LAST", "TENANT", "ID", "LAST ERROR"},
		Row: func(c storageapi.Schedule) []any {
			return []any{
				c.Name, c.Kind, time.Duration(c.EverySecs) * time.Second, c.Keep, yes(c.Enabled), c.NextAt, c.LastAt, c.TenantId,
				c.Id, c.LastError,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListSchedules(ctx, &storageapi.ListSchedulesParams{
			Limit: p.Limit, Cursor: p.Cursor, Tenant: verb.Given(c, "tenant", tenant),
			VolumeId: verb.Given(c, "volume", volume), Kind: verb.Given(c, "kind", storageapi.ScheduleKind(kind)),
		})
	})
	f := cmd.Flags()
	f.StringVar(&tenant, "tenant", "", "only those of this tenant")
	f.StringVar(&kind, "kind", "", "only those of this kind: snapshot, backup, verify or test_restore")
	f.StringVar(&volume, "volume", "", "only those for this volume")
	return cmd
}

func (s commands) scheduleShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show SCHEDULE", Short: "Show one schedule", Example: "  mainstay storage schedule show hourly",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetSchedule(ctx, c.Args[0]) })
}

// timing are the flags that say when a schedule runs, and what it keeps.
type timing struct {
	every, age      time.Duration
	first           string
	keep, fullEvery int
	disabled        bool
}

func (t *timing) add(f *pflag.FlagSet) {
	f.DurationVar(&t.every, "every", 0, "how long it is from run to run, at least 5m")
	f.StringVar(&t.first, "first", "", "when the first run is due, for example 2027-01-01T03:00:00Z; default: at once")
	f.IntVar(&t.keep, "keep", 0, "remove older snapshots or backups of the schedule than so many; 0: keep all")
	f.DurationVar(&t.age, "max-age", 0, "remove those of the schedule that are older; 0: never")
	f.IntVar(&t.fullEvery, "full-every", 0, "of backups: each of so many reads everything; 0: only the first")
	f.BoolVar(&t.disabled, "disabled", false, "do not run it; --disabled=false runs it again")
}

// into takes what is given over into a schedule.
func (t *timing) into(f *pflag.FlagSet, spec *storageapi.ScheduleSpec) error {
	if f.Changed("every") {
		spec.EverySecs = int(t.every / time.Second)
	}
	if f.Changed("first") {
		at, err := time.Parse(time.RFC3339, t.first)
		if err != nil {
			return errFirst
		}
		spec.FirstAt = &at
	}
	if f.Changed("keep") {
		spec.Keep = &t.keep
	}
	if f.Changed("max-age") {
		spec.MaxAgeSecs = new(int64(t.age / time.Second))
	}
	if f.Changed("full-every") {
		spec.FullEvery = &t.fullEvery
	}
	if f.Changed("disabled") {
		spec.Enabled = new(!t.disabled)
	}
	return nil
}

var errFirst = exit.Usagef("--first is not a time such as 2027-01-01T03:00:00Z")

func (s commands) scheduleCreate() *cobra.Command {
	var kind, volume, group, bucket, mode, key string
	var when timing
	var flags *pflag.FlagSet
	cmd := s.Command(verb.Verb{
		Use: "create NAME", Short: "Have snapshots, backups or checks made at regular times",
		Long: `Have something done at regular times: snapshots of a volume or a group, backups of a volume, or checks of its newest
backup, which compare it with its snapshot while that is kept. A run that was missed while the gateway was down is made
up for once.`,
		Example: "  mainstay storage schedule create hourly --kind snapshot --volume data --every 1h --keep 24\n" +
			"  mainstay storage schedule create nightly --kind backup --volume data --bucket archive --every 24h --keep 30",
		Required: []string{"kind", "every"},
	}, func(ctx context.Context, c *call) error {
		spec := storageapi.ScheduleSpec{
			Name: c.Args[0], Kind: storageapi.ScheduleKind(kind), VolumeId: verb.Given(c, "volume", volume),
			GroupId: verb.Given(c, "group", group), BucketId: verb.Given(c, "bucket", bucket),
			Mode: verb.Given(c, "mode", storageapi.BackupMode(mode)), KeyRef: verb.Given(c, "key", key),
		}
		if err := when.into(flags, &spec); err != nil {
			return err
		}
		a, err := c.Send(c.API.CreateSchedule(ctx, spec))
		if err != nil {
			return err
		}
		return c.Done(a, "Made the schedule %s.", c.Args[0])
	})
	flags = cmd.Flags()
	flags.StringVar(&kind, "kind", "", "snapshot, backup, verify or test_restore")
	flags.StringVar(&volume, "volume", "", "volume that it is for")
	flags.StringVar(&group, "group", "", "group that it is for, instead of a volume; snapshots only")
	flags.StringVar(&bucket, "bucket", "", "of backups: bucket that they go to; of checks: only backups in it")
	flags.StringVar(&mode, "mode", "", "of backups: data, which is the default, or manifest")
	flags.StringVar(&key, "key", "", "of backups: entry of the gateway's setting backup-keys to encrypt with")
	when.add(flags)
	return cmd
}

func (s commands) scheduleUpdate() *cobra.Command {
	var when timing
	var flags *pflag.FlagSet
	cmd := s.Command(verb.Verb{
		Use: "update SCHEDULE", Short: "Change when a schedule runs and what it keeps; what is not named stays",
		Example: "  mainstay storage schedule update hourly --keep 48\n" +
			"  mainstay storage schedule update hourly --disabled",
	}, func(ctx context.Context, c *call) error {
		was, err := decode[storageapi.Schedule](c.Send(c.API.GetSchedule(ctx, c.Args[0])))
		if err != nil {
			return err
		}
		spec := storageapi.ScheduleSpec{
			Name: was.Name, Kind: was.Kind, Enabled: &was.Enabled, VolumeId: was.VolumeId, GroupId: was.GroupId,
			BucketId: was.BucketId, Mode: was.Mode, KeyRef: was.KeyRef, FullEvery: was.FullEvery, EverySecs: was.EverySecs,
			FirstAt: was.FirstAt, Keep: &was.Keep, MaxAgeSecs: &was.MaxAgeSecs,
		}
		if err := when.into(flags, &spec); err != nil {
			return err
		}
		a, err := c.Send(c.API.UpdateSchedule(ctx, c.Args[0], spec))
		if err != nil {
			return err
		}
		return c.Done(a, "Changed the schedule %s.", c.Typed[0])
	})
	flags = cmd.Flags()
	when.add(flags)
	cmd.MarkFlagsOneRequired("every", "first", "keep", "max-age", "full-every", "disabled")
	return cmd
}

func (s commands) scheduleDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete SCHEDULE", Short: "Remove a schedule; what it made stays",
		Example: "  mainstay storage schedule delete hourly --yes",
	}, "Delete the schedule %s?", "Deleted the schedule %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.DeleteSchedule(ctx, c.Args[0])
	})
}
