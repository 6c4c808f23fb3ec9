package vm

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// backupMode is the file mode of an exported backup, which contains all the guest's data.
const backupMode = 0o600

func (s commands) backups() *cobra.Command {
	cmd := verb.Group("backup", "Backups of a VM's disk: create, list, restore, export",
		"  mainstay vm backup create web --incremental\n  mainstay vm backup list --vm web", "backups")
	cmd.AddCommand(
		s.backupCreate(), s.backupList(), s.backupShow(), s.backupDelete(), s.backupRestore(), s.backupExport(),
	)
	return cmd
}

func (s commands) backupCreate() *cobra.Command {
	var incremental bool
	var description string
	cmd := daemon.Operation(s.Session, verb.Verb{
		Use:     "create VM",
		Short:   "Copy a VM's disk to where backups are kept",
		Long:    "Copy a VM's disk to where backups are kept, whole, or with --incremental what changed since the last backup.",
		Example: "  mainstay vm backup create web\n  mainstay vm backup create web --incremental --description nightly\n  mainstay vm backup create web --no-wait",
	}, daemon.OfVM(func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
		spec := hypervisorapi.BackupSpec{
			Kind:        new(hypervisorapi.BackupKindFull),
			Description: verb.Given(c, "description", description),
		}
		if incremental {
			spec.Kind = new(hypervisorapi.BackupKindIncremental)
		}
		return c.API.CreateBackup(ctx, id, nil, spec)
	}), func(c *daemon.Call, op hypervisorapi.Operation) string {
		if op.BackupId == nil {
			return "Made the backup."
		}
		return fmt.Sprintf("Made the backup %s of %s.", *op.BackupId, c.Args[0])
	})
	cmd.Flags().BoolVar(
		&incremental, "incremental", false,
		"only what changed since the last backup; whole where there is none to build on",
	)
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	return cmd
}

func (s commands) backupList() *cobra.Command {
	var vm string
	cmd := verb.List(
		s.Session,
		verb.Verb{
			Use:     "list",
			Short:   "List backups, newest first",
			Example: "  mainstay vm backup list\n  mainstay vm backup list --vm web",
		},
		output.Columns[hypervisorapi.Backup]{
			Heads: []string{"ID", "VM", "KIND", "SIZE", "DISK", "CREATED", "PARENT", "DESCRIPTION"},
			Row: func(v hypervisorapi.Backup) []any {
				parent := ""
				if v.ParentId != nil {
					parent = *v.ParentId
				}
				return []any{
					v.Id, v.VmName, v.Kind, verb.Bytes(v.SizeBytes), verb.Bytes(v.VirtualSizeBytes),
					v.CreatedAt, parent, v.Description,
				}
			},
		},
		func(ctx context.Context, c *daemon.Call, p verb.Page) (*http.Response, error) {
			params := &hypervisorapi.ListBackupsParams{Limit: p.Limit, Cursor: p.Cursor}
			if vm != "" {
				id, err := daemon.VMID(ctx, c, vm)
				if err != nil {
					return nil, err
				}
				params.Vm = &id
			}
			return c.API.ListBackups(ctx, params)
		},
	)
	cmd.Flags().StringVar(&vm, "vm", "", "only of this VM; by id if it is there no more")
	return cmd
}

func (s commands) backupShow() *cobra.Command {
	return s.Object(verb.Verb{Use: "show BACKUP", Short: "Show one backup", Example: "  mainstay vm backup show BACKUP"},
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
			return c.API.GetBackup(ctx, c.Args[0])
		})
}

func (s commands) backupDelete() *cobra.Command {
	return s.Remove(
		verb.Verb{
			Use:     "delete BACKUP",
			Short:   "Remove a backup that no later one builds on",
			Example: "  mainstay vm backup delete BACKUP --yes",
		},
		"Delete the backup %s?",
		"Deleted the backup %s.",
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
			return c.Slow.DeleteBackup(ctx, c.Args[0])
		},
	)
}

func (s commands) backupRestore() *cobra.Command {
	var name, into string
	var yes bool
	cmd := s.Command(verb.Verb{
		Use: "restore BACKUP",
		Check: func(*cobra.Command, []string) error {
			if (name == "") == (into == "") {
				return exit.Usagef("give either --name for a new VM, or --into for one that there is")
			}
			return nil
		},
		Short:   "Make a VM of a backup, or put the disk of a VM back",
		Long:    "Make a VM of a backup with --name, or with --into put the disk of a VM back, which is stopped and loses what its disk holds.",
		Example: "  mainstay vm backup restore BACKUP --name web-2\n  mainstay vm backup restore BACKUP --into web",
	}, func(ctx context.Context, c *daemon.Call) error {
		request := hypervisorapi.Restore{Name: verb.Given(c, "name", name)}
		if into != "" {
			id, err := daemon.VMID(ctx, c, into)
			if err != nil {
				return err
			}
			if err := c.Confirm("Put the disk of "+into+" back? What it holds now is lost.", yes); err != nil {
				return err
			}
			request.Vm = &id
		}
		begin := func() (*http.Response, error) { return c.API.RestoreBackup(ctx, c.Args[0], nil, request) }
		return daemon.Follow(ctx, c, begin, func(*daemon.Call, hypervisorapi.Operation) string {
			return fmt.Sprintf("%s has the disk of the backup %s; it is stopped.", name+into, c.Typed[0])
		})
	})
	cmd.Flags().StringVar(&name, "name", "", "name of the new VM")
	cmd.Flags().StringVar(&into, "into", "", "VM whose disk is replaced")
	verb.YesFlag(cmd, &yes)
	daemon.FollowFlag(cmd)
	return cmd
}

func (s commands) backupExport() *cobra.Command {
	var force bool
	cmd := s.Command(verb.Verb{
		Use: "export BACKUP FILE", Short: "Fetch a backup's disk whole, as one qcow2 image",
		Example: "  mainstay vm backup export BACKUP web.qcow2\n  mainstay vm backup export BACKUP - | zstd > web.qcow2.zst",
	}, func(ctx context.Context, c *daemon.Call) error {
		return c.Export(
			c.Args[1], backupMode, force, func() (*http.Response, error) { return c.Slow.ExportBackup(ctx, c.Args[0]) },
		)
	})
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	return cmd
}
