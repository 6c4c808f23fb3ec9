package vms

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) policies() *cobra.Command {
	cmd := verb.Group("policy", "Policies, by which VMs with certain tags are backed up on a schedule",
		"  mainstay vms backup policy create nightly --vm-tag prod --daily\n  mainstay vms backup policy list", "policies")
	cmd.AddCommand(s.backupPolicyCreate(), s.backupPolicySet(), s.backupPolicyList(), s.backupPolicyDelete())
	return cmd
}

// policyID returns the id of a policy that is given by its name or id.
func policyID(ctx context.Context, c *call) (string, error) {
	all, err := decode[[]vmapi.BackupPolicy](c.Send(c.API.ListBackupPolicies(ctx)))
	if err != nil {
		return "", err
	}
	found := ""
	for _, p := range all {
		switch {
		case p.Id == c.Args[0]:
			return p.Id, nil
		case p.Name == c.Args[0] && found != "":
			return "", exit.Usagef("several tenants have a policy %s; give its id", c.Args[0])
		case p.Name == c.Args[0]:
			found = p.Id
		}
	}
	if found == "" {
		return "", &exit.Error{Code: exit.NotFound, Err: fmt.Errorf("there is no policy %s", c.Args[0])}
	}
	return found, nil
}

// policyFlags are the flags that say what a policy does.
type policyFlags struct {
	tags                   []string
	daily, disabled, full  bool
	weekly                 string
	monthly, days          int
	at, zone               string
	last, byDay, byW, byMo int
}

func (p *policyFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&p.tags, "vm-tag", nil, "VMs with this tag; repeat it for more")
	f.BoolVar(&p.daily, "daily", false, "run every day")
	f.StringVar(&p.weekly, "weekly", "", "run on this day of the week, such as sunday")
	f.IntVar(&p.monthly, "monthly", 0, "run on this day of the month, 1 to 31")
	f.StringVar(&p.at, "at", "02:00", "time of the day")
	f.StringVar(&p.zone, "timezone", "UTC", "time zone of the time, such as Europe/Berlin")
	f.BoolVar(&p.full, "full", false, "read whole disks; otherwise only what has changed")
	f.IntVar(&p.days, "retention-days", 0, "remove its backups after so many days")
	f.IntVar(&p.last, "keep-last", 0, "keep the newest so many of each VM")
	f.IntVar(&p.byDay, "keep-daily", 0, "keep the newest of each of so many days")
	f.IntVar(&p.byW, "keep-weekly", 0, "keep the newest of each of so many weeks")
	f.IntVar(&p.byMo, "keep-monthly", 0, "keep the newest of each of so many months")
	f.BoolVar(&p.disabled, "disabled", false, "do not run it")
}

// check checks that the flags name one schedule.
func (p *policyFlags) check(*cobra.Command, []string) error {
	n := 0
	for _, given := range []bool{p.daily, p.weekly != "", p.monthly != 0} {
		if given {
			n++
		}
	}
	if n != 1 || len(p.tags) == 0 {
		return exit.Usagef("give --vm-tag, and one of --daily, --weekly DAY and --monthly DAY")
	}
	return nil
}

func (p *policyFlags) policy(c *call, tenant *string) vmapi.BackupPolicySpec {
	enabled := !p.disabled
	kind := vmapi.BackupTypeIncremental
	if p.full {
		kind = vmapi.BackupTypeFull
	}
	out := vmapi.BackupPolicySpec{
		Name: c.Args[0], Tenant: tenant, VmTags: p.tags, ScheduleType: vmapi.BackupPolicySpecScheduleType("daily"),
		Time: &p.at, Timezone: &p.zone, BackupType: &kind, RetentionDays: &p.days, KeepLast: &p.last, KeepDaily: &p.byDay,
		KeepWeekly: &p.byW, KeepMonthly: &p.byMo, Enabled: &enabled,
	}
	switch {
	case p.weekly != "":
		out.ScheduleType, out.Weekday = "weekly", new(vmapi.BackupPolicySpecWeekday(strings.ToLower(p.weekly)))
	case p.monthly != 0:
		out.ScheduleType, out.Day = "monthly", &p.monthly
	}
	return out
}

func (s commands) backupPolicyCreate() *cobra.Command {
	var flags policyFlags
	cmd := s.Change(verb.Verb{
		Use: "create NAME", Short: "Have VMs with certain tags backed up on a schedule", Check: flags.check,
		Long: `Have VMs with certain tags backed up on a schedule. A run that was missed is made up for, once. Backups go after
--retention-days; with any --keep, those of the policy that no --keep names go after each run.`,
		Example: "  mainstay vms backup policy create nightly --vm-tag prod --daily --keep-daily 7 --keep-weekly 4\n" +
			"  mainstay vms backup policy create sundays --vm-tag prod --weekly sunday --at 04:00 --timezone Europe/Berlin --full",
	}, "Created the policy %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.CreateBackupPolicy(ctx, flags.policy(c, s.of()))
	})
	flags.add(cmd)
	return cmd
}

func (s commands) backupPolicySet() *cobra.Command {
	var flags policyFlags
	cmd := s.Change(verb.Verb{
		Use: "set POLICY", Short: "Replace what a policy says", Check: flags.check,
		Example: "  mainstay vms backup policy set nightly --vm-tag prod --daily --disabled",
	}, "The policy %s is changed.", func(ctx context.Context, c *call) (*http.Response, error) {
		id, err := policyID(ctx, c)
		if err != nil {
			return nil, err
		}
		return c.API.UpdateBackupPolicy(ctx, id, flags.policy(c, s.of()))
	})
	flags.add(cmd)
	return cmd
}

func (s commands) backupPolicyList() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "list", Short: "List policies by name", Example: "  mainstay vms backup policy list",
	}, output.Columns[vmapi.BackupPolicy]{
		Heads: []string{
			"NAME", "TAGS", "SCHEDULE", "TIME", "TYPE", "ENABLED", "NEXT RUN", "LAST RUN", "LAST RESULT", "TENANT", "ID",
		},
		Row: func(p vmapi.BackupPolicy) []any {
			next, last := any(""), any("")
			if p.NextRun != nil {
				next = *p.NextRun
			}
			if p.LastRun != nil {
				last = *p.LastRun
			}
			schedule := string(p.ScheduleType)
			switch schedule {
			case "weekly":
				schedule += ", " + p.Weekday
			case "monthly":
				schedule += fmt.Sprintf(", day %d", p.Day)
			}
			return []any{
				p.Name, strings.Join(p.VmTags, ","), schedule, p.Time + " " + p.Timezone, p.BackupType, p.Enabled, next, last,
				p.LastResult, text(p.Tenant), p.Id,
			}
		},
	}, func(ctx context.Context, c *call, _ verb.Page) (*http.Response, error) {
		return c.API.ListBackupPolicies(ctx)
	})
}

func (s commands) backupPolicyDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete POLICY", Short: "Remove a policy; its backups stay until they expire",
		Example: "  mainstay vms backup policy delete nightly --yes",
	}, "Delete the policy %s?", "Deleted the policy %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		id, err := policyID(ctx, c)
		if err != nil {
			return nil, err
		}
		return c.API.DeleteBackupPolicy(ctx, id)
	})
}
