package storage

import (
	"context"
	"net/http"
	"os"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) backups() *cobra.Command {
	cmd := verb.Group("backup", "Backups of volumes in buckets: create, list, verify, restore, delete",
		"  mainstay storage backup create data --bucket archive\n  mainstay storage backup list --volume data", "backups")
	cmd.AddCommand(
		s.backupList(), s.backupShow(), s.backupCreate(), s.backupVerify(), s.backupRestore(), s.backupDelete(),
		s.backupOrphans(), s.backupImport(), s.backupKey(),
	)
	return cmd
}

var backupColumns = output.Columns[storageapi.Backup]{
	Heads: []string{
		"ID", "VOLUME", "BUCKET", "MODE", "STATE", "SIZE", "ADDED", "READ", "VERIFIED", "TENANT", "CREATED", "EXPIRES",
		"ERROR",
	},
	Row: func(b storageapi.Backup) []any {
		read := "all"
		switch {
		case b.Mode == storageapi.BackupModeManifest:
			read = ""
		case b.Incremental:
			read = "what changed"
		}
		verified := ""
		if v := b.Verification; v != nil {
			verified = yes(v.Ok)
		}
		return []any{
			b.Id, b.VolumeName, output.Ref{Kind: "BUCKET", ID: b.BucketId}, b.Mode, b.State, verb.Bytes(b.SizeBytes),
			verb.Bytes(b.StoredBytes), read, verified, b.TenantId, b.CreatedAt, b.ExpiresAt, b.Error,
		}
	},
}

func (s commands) backupList() *cobra.Command {
	var volume, bucket, tenant, state string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List backups, newest first",
		Long: "List backups, newest first. Those of a volume that is deleted are listed by its ID.",
		Example: "  mainstay storage backup list --volume data\n  mainstay storage backup list --bucket archive --state failed\n" +
			"  mainstay storage backup list --tenant acme --all",
	}, backupColumns, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListBackups(ctx, &storageapi.ListBackupsParams{
			Limit: p.Limit, Cursor: p.Cursor, VolumeId: verb.Given(c, "volume", volume),
			BucketId: verb.Given(c, "bucket", bucket), Tenant: verb.Given(c, "tenant", tenant),
			State: verb.Given(c, "state", storageapi.BackupState(state)),
		})
	})
	f := cmd.Flags()
	f.StringVar(&volume, "volume", "", "only those of this volume")
	f.StringVar(&bucket, "bucket", "", "only those in this bucket")
	f.StringVar(&tenant, "tenant", "", "only those of this tenant")
	f.StringVar(&state, "state", "", "only those in this state: pending, uploading, verifying, completed, failed or deleting")
	return cmd
}

func (s commands) backupShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show BACKUP", Short: "Show one backup", Example: "  mainstay storage backup show BACKUP",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetBackup(ctx, c.Args[0]) })
}

func (s commands) backupCreate() *cobra.Command {
	var key func() *string
	var bucket, mode, keyRef string
	var full bool
	var keep int
	var age time.Duration
	cmd := s.Command(verb.Verb{
		Use: "create VOLUME", Short: "Back up a volume to a bucket",
		Long: `Back up a volume to a bucket. The content is that of a snapshot, so the volume may be used meanwhile. Where the storage
tells what has changed since the backup before, only that is read. What is uploaded is compared with the snapshot.

With --mode manifest, only a description of the volume is stored, without its data.`,
		Example: "  mainstay storage backup create data --bucket archive\n" +
			"  mainstay storage backup create data --bucket archive --keep 7 --max-age 720h\n" +
			"  mainstay storage backup create data --bucket archive --key offsite --no-wait -q",
		Required: []string{"bucket"},
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.CreateBackup(ctx, &storageapi.CreateBackupParams{IdempotencyKey: key()}, storageapi.BackupSpec{
			VolumeId: c.Args[0], BucketId: bucket, Mode: new(storageapi.BackupMode(mode)), Full: verb.Given(c, "full", full),
			KeyRef: verb.Given(c, "key", keyRef), Keep: verb.Given(c, "keep", keep),
			MaxAgeSecs: verb.Given(c, "max-age", int64(age/time.Second)),
		})
		return await(ctx, c, "Backing up "+c.Typed[0], r, err, func(b begun) error {
			a, err := c.Send(c.API.GetBackup(ctx, b.Resource.BackupID))
			made, err := decode[storageapi.Backup](a, err)
			if err != nil {
				return err
			}
			return c.Done(a, "Backed up %s of %s, which added %s to the bucket: %s.", c.Typed[0], verb.Bytes(made.SizeBytes),
				verb.Bytes(made.StoredBytes), made.Id)
		})
	})
	f := cmd.Flags()
	f.StringVar(&bucket, "bucket", "", "bucket that it goes to")
	f.StringVar(&mode, "mode", "data", "data, or manifest for a description without data")
	f.StringVar(&keyRef, "key", "", "entry of the gateway's setting backup-keys to encrypt with; default: not encrypted")
	f.BoolVar(&full, "full", false, "read everything, and not only what changed")
	f.IntVar(&keep, "keep", 0, "remove older backups of the volume in this bucket than so many; 0: keep all")
	f.DurationVar(&age, "max-age", 0, "remove the backup when it is older, for example 720h; 0: never")
	key = jobFlags(cmd)
	return cmd
}

func (s commands) backupVerify() *cobra.Command {
	var key func() *string
	var method string
	cmd := s.Command(verb.Verb{
		Use: "verify BACKUP", Short: "Check that a backup can be restored",
		Long: `Check that a backup can be restored, by reading all of it. With --method source, it is also compared with the snapshot that
it is of, while that is kept. With --method restore, a volume is made of it, compared, and removed.`,
		Example: "  mainstay storage backup verify BACKUP\n  mainstay storage backup verify BACKUP --method source\n" +
			"  mainstay storage backup verify BACKUP --method restore",
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.VerifyBackup(ctx, c.Args[0], &storageapi.VerifyBackupParams{IdempotencyKey: key()},
			storageapi.BackupVerifySpec{Method: new(storageapi.BackupVerifyMethod(method))})
		return await(ctx, c, "Reading the backup "+c.Typed[0], r, err, func(b begun) error {
			a, err := c.Send(c.API.GetBackup(ctx, b.Resource.BackupID))
			seen, err := decode[storageapi.Backup](a, err)
			if err != nil {
				return err
			}
			return c.Done(a, "The backup can be restored: %s.", seen.Verification.Detail)
		})
	})
	cmd.Flags().StringVar(&method, "method", "stored", "stored, source to compare with the snapshot, too, or restore to make a volume of it, too")
	key = jobFlags(cmd)
	return cmd
}

func (s commands) backupRestore() *cobra.Command {
	var key func() *string
	var name, policy string
	var inPlace, yes bool
	capacity := input.Bytes()
	cmd := s.Command(verb.Verb{
		Use: "restore BACKUP", Short: "Bring back what a backup holds, as a new volume or in place",
		Long: `Bring back what a backup holds, as a new volume.

With --in-place, the backup's own volume is put back instead, and what was written to it since is lost. Until all of it
was read, the volume stays as it is. This takes an admin, a volume without snapshots, and that no client has it open.`,
		Example: "  mainstay storage backup restore BACKUP\n" +
			"  mainstay storage backup restore BACKUP --name data-of-yesterday --policy fast\n" +
			"  mainstay storage backup restore BACKUP --in-place --yes",
	}, func(ctx context.Context, c *call) error {
		spec := storageapi.BackupRestoreSpec{
			Name: verb.Given(c, "name", name), Policy: verb.Given(c, "policy", policy),
			SizeBytes: verb.Given(c, "size", int64(capacity.Count)),
		}
		if inPlace {
			question := "Put the volume back to the backup " + c.Typed[0] + ", and lose what was written since?"
			if err := c.Confirm(question, yes); err != nil {
				return err
			}
			spec.InPlace, spec.Confirm = new(true), new(true)
		}
		r, err := c.API.RestoreBackup(ctx, c.Args[0], &storageapi.RestoreBackupParams{IdempotencyKey: key()}, spec)
		return await(ctx, c, "Restoring the backup "+c.Typed[0], r, err, func(b begun) error {
			return volumeDone(ctx, c, b.Resource.VolumeID, "Restored to the volume %s of %s.")
		})
	})
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "name of the new volume; default: restore-, the volume's name and the time")
	f.StringVar(&policy, "policy", "", "how to make it; default: where the volume was")
	f.Var(&capacity, "size", "size, at least that of the backup, which it is by default: 500M, 20GiB")
	f.BoolVar(&inPlace, "in-place", false, "put the backup's own volume back")
	for _, other := range []string{"name", "policy", "size"} {
		cmd.MarkFlagsMutuallyExclusive("in-place", other)
	}
	verb.YesFlag(cmd, &yes)
	key = jobFlags(cmd)
	return cmd
}

func (s commands) backupDelete() *cobra.Command {
	var key func() *string
	cmd := s.Confirmed(verb.Verb{
		Use: "delete BACKUP", Short: "Remove a backup; the others of its volume can be restored as before",
		Example: "  mainstay storage backup delete BACKUP --yes",
	}, "Delete the backup %s?", func(ctx context.Context, c *call) error {
		r, err := c.API.DeleteBackup(ctx, c.Args[0], &storageapi.DeleteBackupParams{IdempotencyKey: key()})
		return await(ctx, c, "Deleting the backup "+c.Typed[0], r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, "Deleted the backup %s.")
		})
	})
	key = jobFlags(cmd)
	return cmd
}

func (s commands) backupOrphans() *cobra.Command {
	var tenant string
	cmd := verb.List(s.session, verb.Verb{
		Use: "orphans", Short: "List backups whose volume is gone, oldest first",
		Long:    "List backups whose volume is gone, oldest first. They are restored and deleted like others.",
		Example: "  mainstay storage backup orphans\n  mainstay storage backup orphans --tenant acme --all",
	}, backupColumns, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListOrphans(ctx, &storageapi.ListOrphansParams{
			Limit: p.Limit, Cursor: p.Cursor, Tenant: verb.Given(c, "tenant", tenant),
		})
	})
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of this tenant")
	return cmd
}

func (s commands) backupImport() *cobra.Command {
	var key func() *string
	var keyRef, tenant string
	cmd := s.Command(verb.Verb{
		Use: "import BUCKET", Short: "Take in the backups of a bucket that the gateway does not know",
		Long: `Take in the backups of a bucket that the gateway does not know, for example after its database was lost. The bucket must be
known first: 'mainstay storage bucket create archive --connection offsite' takes it in. Backups that are encrypted are
taken in with --key.`,
		Example: "  mainstay storage backup import archive\n  mainstay storage backup import archive --key offsite",
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.ImportBackups(ctx, c.Args[0], &storageapi.ImportBackupsParams{IdempotencyKey: key()},
			storageapi.BackupImport{KeyRef: verb.Given(c, "key", keyRef), TenantId: verb.Given(c, "tenant", tenant)})
		return await(ctx, c, "Reading the bucket "+c.Typed[0], r, err, func(b begun) error {
			a, err := jobOf(ctx, c, b.JobID)
			if err != nil {
				return err
			}
			return c.Done(a, "Took in the backups of %s; 'mainstay storage backup list --bucket %s' lists them. What was passed over stands in 'mainstay storage event list --about %s'.",
				c.Typed[0], c.Typed[0], c.Args[0])
		})
	})
	cmd.Flags().StringVar(&keyRef, "key", "", "entry of the gateway's setting backup-keys, for those that are encrypted")
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of this tenant")
	key = jobFlags(cmd)
	return cmd
}

// backupKey makes a key to encrypt backups with. It asks no service.
func (s commands) backupKey() *cobra.Command {
	return &cobra.Command{
		Use: "keygen FILE", Short: "Make a key to encrypt backups with",
		Long: `Make a key to encrypt backups with, in a new file, as age-keygen does. Name the file in the gateway's setting backup-keys, and
keep a copy elsewhere: without the key, the backups that are encrypted with it cannot be restored.`,
		Example: "  mainstay storage backup keygen /etc/mainstay/offsite.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := age.GenerateX25519Identity()
			if err != nil {
				return err
			}
			f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			_, err = f.WriteString("# public key: " + k.Recipient().String() + "\n" + k.String() + "\n")
			if err == nil {
				err = f.Sync()
			}
			if closed := f.Close(); err == nil {
				err = closed
			}
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write([]byte("Made the key " + args[0] + ". Keep a copy of it elsewhere.\n"))
			return err
		},
	}
}
