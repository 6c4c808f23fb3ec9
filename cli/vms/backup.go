package vms

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) backups() *cobra.Command {
	cmd := verb.Group("backup", "Backups of VMs: create, list, restore, files, verify, policies",
		"  mainstay vms backup create web\n  mainstay vms backup restore BACKUP --name web-2", "backups")
	cmd.AddCommand(
		s.backupCreate(), s.backupList(), s.backupShow(), s.backupDelete(), s.backupRestore(), s.backupProtect(),
		s.backupVolumes(), s.backupFiles(), s.backupGetFile(), s.backupClose(), s.backupBoot(),
		s.backupStats(), s.backupJobs(), s.backupVerify(), s.backupScan(), s.policies(),
	)
	return cmd
}

func (s commands) backupCreate() *cobra.Command {
	var incremental bool
	var description string
	var days int
	cmd := s.Command(verb.Verb{
		Use:   "create VM",
		Short: "Back up a VM's disk, while the VM keeps running",
		Long: `Back up a VM's disk, while the VM keeps running. With --incremental, only what has changed since the last backup is
read; every backup can be restored by itself either way. If the guest has an agent, its file systems are frozen for a
moment.`,
		Example: "  mainstay vms backup create web\n  mainstay vms backup create web --incremental --retention-days 14",
	}, func(ctx context.Context, c *call) error {
		spec := vmapi.BackupSpec{
			VmName: c.Args[0], Description: verb.Given(c, "description", description),
			RetentionDays: verb.Given(c, "retention-days", days),
		}
		if incremental {
			spec.BackupType = new(vmapi.BackupTypeIncremental)
		}
		a, err := c.Send(c.API.CreateBackup(ctx, &vmapi.CreateBackupParams{Tenant: s.of()}, spec))
		b, err := decode[vmapi.Backup](a, err)
		if err != nil {
			return err
		}
		if c.NoWait() || b.JobId == nil {
			return c.Done(a, "The backup %s of %s is being made.", b.Id, c.Args[0])
		}
		err = follow(ctx, c, "Backing up "+c.Args[0], *b.JobId)
		if err != nil {
			return err
		}
		a, err = c.Send(c.API.GetBackup(ctx, b.Id))
		if b, err = decode[vmapi.Backup](a, err); err != nil {
			return err
		}
		return c.Done(a, "Made the backup %s of %s (%s): %s read, %s new.",
			b.Id, c.Args[0], b.BackupType, verb.Bytes(b.ReadBytes), verb.Bytes(b.SizeBytes))
	})
	cmd.Flags().BoolVar(&incremental, "incremental", false, "read only what has changed since the last backup")
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	cmd.Flags().IntVar(&days, "retention-days", 0, "remove it after so many days")
	verb.NoWaitFlag(cmd)
	return cmd
}

func (s commands) backupList() *cobra.Command {
	var vm string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List backups, newest first",
		Example: "  mainstay vms backup list\n  mainstay vms backup list --vm web",
	}, output.Columns[vmapi.Backup]{
		Heads: []string{"ID", "VM", "TYPE", "STATUS", "NEW", "DISK", "CONSISTENCY", "CREATED", "EXPIRES", "DESCRIPTION"},
		Row: func(b vmapi.Backup) []any {
			expires := any("")
			if b.ExpiresAt != nil {
				expires = *b.ExpiresAt
			}
			return []any{
				b.Id, b.VmName, b.BackupType, b.Status, verb.Bytes(b.SizeBytes), verb.Bytes(b.DiskBytes), b.Consistency,
				b.Created, expires, b.Description,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListBackups(ctx, &vmapi.ListBackupsParams{Limit: p.Limit, Cursor: p.Cursor, Vm: verb.Given(c, "vm", vm)})
	})
	cmd.Flags().StringVar(&vm, "vm", "", "only those of the VM with this name, also if it is deleted")
	return cmd
}

func (s commands) backupShow() *cobra.Command {
	return s.Object(verb.Verb{Use: "show BACKUP", Short: "Show one backup", Example: "  mainstay vms backup show BACKUP"},
		func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetBackup(ctx, c.Args[0]) })
}

func (s commands) backupDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete BACKUP", Short: "Remove a backup; others stay whole", Example: "  mainstay vms backup delete BACKUP --yes",
	}, "Delete the backup %s?", "Deleted the backup %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.Slow.DeleteBackup(ctx, c.Args[0])
	})
}

func (s commands) backupRestore() *cobra.Command {
	var name string
	var yes, noConfig, noDisks bool
	cmd := s.Command(verb.Verb{
		Use:   "restore BACKUP",
		Short: "Make a VM of a backup, or put back the VM that it is of",
		Long: `Make a VM of a backup with --name. Without it, the disk and the settings of the VM that the backup is of are put back;
the VM is stopped, and what its disk holds now is lost.`,
		Example: "  mainstay vms backup restore BACKUP --name web-2\n  mainstay vms backup restore BACKUP",
		Check: func(*cobra.Command, []string) error {
			if noConfig && noDisks {
				return exit.Usagef("--no-config and --no-disks leave nothing to restore")
			}
			return nil
		},
	}, func(ctx context.Context, c *call) error {
		if name == "" {
			if err := c.Confirm("Put the VM of the backup "+c.Args[0]+" back? What it holds now is lost.", yes); err != nil {
				return err
			}
		}
		config, disks := !noConfig, !noDisks
		a, err := c.Send(c.API.RestoreBackup(ctx, vmapi.RestoreSpec{
			BackupId: c.Args[0], TargetVmName: verb.Given(c, "name", name), RestoreConfig: &config, RestoreDisks: &disks,
		}))
		j, err := decode[vmapi.BackupJob](a, err)
		if err != nil {
			return err
		}
		if c.NoWait() {
			return c.Done(a, "The VM %s is being restored by the job %s.", j.VmName, j.Id)
		}
		if err := follow(ctx, c, "Restoring "+j.VmName, j.Id); err != nil {
			return err
		}
		return c.Done(a, "Restored %s, which is stopped.", j.VmName)
	})
	cmd.Flags().StringVar(&name, "name", "", "name of a new VM; without it, the VM of the backup is put back")
	cmd.Flags().BoolVar(&noConfig, "no-config", false, "leave the settings as they are")
	cmd.Flags().BoolVar(&noDisks, "no-disks", false, "leave the disk as it is")
	verb.YesFlag(cmd, &yes)
	verb.NoWaitFlag(cmd)
	return cmd
}

func (s commands) backupProtect() *cobra.Command {
	var length time.Duration
	cmd := s.Change(verb.Verb{
		Use: "protect BACKUP", Short: "Keep a backup from being removed, also by admins; this cannot be taken back",
		Example: "  mainstay vms backup protect BACKUP --for 720h",
		Check: func(*cobra.Command, []string) error {
			if length <= 0 {
				return exit.Usagef("--for says how long, such as 720h")
			}
			return nil
		},
	}, "Protected the backup %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		until := time.Now().Add(length).UTC().Truncate(time.Second)
		return c.API.ProtectBackup(ctx, c.Args[0], vmapi.BackupProtection{Until: until})
	})
	cmd.Flags().DurationVar(&length, "for", 0, "how long, such as 720h")
	return cmd
}

func (s commands) backupStats() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "stats", Short: "Show how many backups there are, and what they take", Example: "  mainstay vms backup stats",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetBackupStats(ctx) })
}

func (s commands) backupJobs() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "jobs", Short: "List jobs that make or restore backups, newest first", Example: "  mainstay vms backup jobs",
	}, output.Columns[vmapi.BackupJob]{
		Heads: []string{"ID", "OPERATION", "VM", "BACKUP", "STATUS", "PROGRESS", "CREATED", "ERROR"},
		Row: func(j vmapi.BackupJob) []any {
			return []any{
				j.Id, j.Operation, j.VmName, j.BackupId, j.Status, fmt.Sprintf("%.0f%%", j.Progress*100), j.Created, j.Error,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListBackupJobs(ctx, &vmapi.ListBackupJobsParams{Limit: p.Limit, Cursor: p.Cursor})
	})
}

func (s commands) backupVerify() *cobra.Command {
	cmd := s.Command(verb.Verb{
		Use: "verify", Short: "Read the whole repository back, and find out which backups are damaged",
		Example: "  mainstay vms backup verify",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.VerifyBackups(ctx, vmapi.Nothing{}))
		j, err := decode[vmapi.Job](a, err)
		if err != nil {
			return err
		}
		if c.NoWait() {
			return c.Done(a, "The repository is being verified by the job %s.", j.Id)
		}
		if err := follow(ctx, c, "Reading the repository", j.Id); err != nil {
			return err
		}
		return c.Done(a, "All backups can be restored.")
	})
	verb.NoWaitFlag(cmd)
	return cmd
}

func (s commands) backupScan() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "scan", Short: "Take in backups that are in the repository and not known here",
		Example: "  mainstay vms backup scan",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.Slow.ScanBackups(ctx, vmapi.Nothing{}))
		found, err := decode[vmapi.BackupScan](a, err)
		if err != nil {
			return err
		}
		return c.Done(a, "Found %d backups, of which %d were not known.", found.Found, found.Added)
	})
}
