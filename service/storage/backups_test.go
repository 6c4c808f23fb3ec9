//go:build linux

package storage_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/minio/minio-go/v7"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/storage"
)

// withKey adds the key offsite to the setting backup-keys.
func withKey(t *testing.T) func(*storage.Config) {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	path := filepath.Join(t.TempDir(), "offsite.key")
	if err := errors.Join(err, os.WriteFile(path, []byte("# a comment\n"+key.String()+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return func(c *storage.Config) { c.BackupKeys = []string{"offsite=" + path} }
}

// backedUp makes a backup, and returns it.
func (g *gateway) backedUp(body object, token string) storageapi.Backup {
	g.Helper()
	id := g.done(g.call("POST", "/backup-jobs", token, body), token)
	b := contracttest.As[storageapi.Backup](g.call("GET", "/backups/"+id, token, nil).Want(200))
	if b.State != "completed" || b.FinishedAt == nil || b.Error != "" {
		g.Errorf("%+v", b)
	}
	return b
}

// restored makes a volume of a backup, and returns its id.
func (g *gateway) restored(backup, name, token string) string {
	g.Helper()
	return g.done(g.call("POST", "/backups/"+backup+"/restore", token, object{"name": name}), token)
}

func TestBackupsOfVolumesInCeph(t *testing.T) {
	t.Parallel()
	s := withBuckets(t)
	tr := &tour{s.gateway, map[string]int{}}
	backend := contracttest.As[[]storageapi.Backend](tr.call("GET", "/backends?backend_type=ceph", tr.admin, nil).Want(200))[0]
	tr.call("PUT", "/policies/prod", tr.admin, object{"backend_id": backend.Id, "kind": "block"}).Want(200)
	bucket := tr.done(tr.call("POST", "/buckets", tr.admin, object{"name": "archive"}), tr.admin)
	const size = 64 * mib
	id := tr.done(tr.call("POST", "/volumes", tr.admin, object{"name": "data", "size_bytes": size, "policy": "prod"}), tr.admin)
	image := s.cluster.Pool + "/vol-" + id
	var contents [][]byte
	var all []storageapi.Backup
	for i := range 3 {
		contents = append(contents, fill(t, s.cluster, image, size))
		a := tr.ok("CreateBackup", "/backup-jobs", object{"volume_id": id, "bucket_id": bucket, "mode": "data"}, 202)
		accepted := contracttest.As[storageapi.BackupAccepted](a)
		if accepted.Resource.ObjectKey != "backups/"+id+"/"+accepted.Resource.BackupId+".json" || accepted.Resource.BucketId != bucket {
			t.Errorf("%+v", accepted)
		}
		b := contracttest.As[storageapi.Backup](tr.ok("GetBackup", "/backups/"+tr.done(a, tr.admin), nil, 200))
		if b.State != "completed" || b.Incremental != (i > 0) || (b.FullReason == "") != (i > 0) || b.SizeBytes != size ||
			b.StoredBytes == 0 || b.Consistency != "crash" || !strings.HasPrefix(b.Checksum, "blocks:") {
			t.Errorf("%+v", b)
		}
		if i > 0 && b.Parent != all[i-1].Id {
			t.Errorf("%+v is not compared with %s", b, all[i-1].Id)
		}
		all = append(all, b)
	}
	if n := len(contracttest.As[[]storageapi.RBDSnapshot](tr.call("GET",
		"/rbd-images/"+s.cluster.Pool+"/vol-"+id+"/snapshots", tr.admin, nil).Want(200))); n != 1 {
		t.Errorf("%d snapshots are kept", n)
	}
	whole := tr.backedUp(object{"volume_id": id, "bucket_id": bucket, "mode": "data", "full": true}, tr.admin)
	if whole.Incremental || whole.FullReason != "it was asked for" || whole.StoredBytes != 0 {
		t.Errorf("%+v", whole)
	}
	if list := contracttest.As[[]storageapi.Backup](tr.ok("ListBackups", "/backups?volume_id="+id+"&state=completed", nil, 200)); len(list) != 4 {
		t.Errorf("%d backups", len(list))
	}
	tr.done(tr.ok("VerifyBackup", "/backups/"+whole.Id+"/verify", object{"method": "source"}, 202), tr.admin)
	if v := contracttest.As[storageapi.Backup](tr.call("GET", "/backups/"+whole.Id, tr.admin, nil).Want(200)).Verification; v == nil ||
		!v.Ok || v.Method != "source" || v.JobId == "" {
		t.Errorf("%+v", v)
	}
	// The volume is destroyed, and each backup still brings back what was, also without the ones before.
	tr.done(tr.call("DELETE", "/volumes/"+id, tr.admin, nil), tr.admin)
	if left := rbd(t, s.cluster, "ls", s.cluster.Pool); len(left) != 0 {
		t.Errorf("%s is left", left)
	}
	if orphans := contracttest.As[[]storageapi.Backup](tr.ok("ListOrphans", "/maintenance/orphans", nil, 200)); len(orphans) != 4 {
		t.Errorf("%d orphans", len(orphans))
	}
	tr.done(tr.ok("DeleteBackup", "/backups/"+all[0].Id, nil, 202), tr.admin)
	for i, b := range all[1:] {
		a := tr.ok("RestoreBackup", "/backups/"+b.Id+"/restore", object{"size_bytes": size + 4*mib}, 202)
		made := tr.done(a, tr.admin)
		got := rbd(t, s.cluster, "export", s.cluster.Pool+"/vol-"+made, "-")
		if len(got) != size+4*mib || !bytes.Equal(got[:size], contents[i+1]) || bytes.Trim(got[size:], "\x00") != nil && len(bytes.Trim(got[size:], "\x00")) > 0 {
			t.Errorf("the volume that was restored of the backup %d holds something else", i+1)
		}
		tr.done(tr.call("DELETE", "/volumes/"+made, tr.admin, nil), tr.admin)
	}
	// To another storage system, too.
	other := tr.done(tr.call("POST", "/backups/"+whole.Id+"/restore", tr.admin, object{"name": "here", "policy": "default"}), tr.admin)
	if got, err := os.ReadFile(tr.data(other)); err != nil || !bytes.Equal(got, contents[2]) {
		t.Errorf("the file holds something else: %v", err)
	}
	s.removesBuckets(bucket, whole.Id)
}

// removesBuckets deletes a bucket that has a backup.
func (s *store) removesBuckets(bucket, backup string) {
	s.Helper()
	s.call("DELETE", "/buckets/"+bucket, s.admin, nil).Refused(409, "CONFLICT", "")
	s.done(s.call("DELETE", "/buckets/"+bucket+"?force=true", s.admin, nil), s.admin)
	if err := s.service.Backups().Sweep(s.Context()); err != nil {
		s.Error(err)
	}
	s.call("GET", "/backups/"+backup, s.admin, nil).Refused(404, "NOT_FOUND", "")
}

func TestBackupsAreTakenInFromABucketAlone(t *testing.T) {
	t.Parallel()
	key := withKey(t)
	s := withBuckets(t, key)
	bucket := s.done(s.call("POST", "/buckets", s.admin, object{"name": "kept", "connection_ref": "offsite"}), s.admin)
	s.call("PUT", "/tenants/acme", s.admin, object{}).Want(200)
	ids, contents := map[string]string{}, map[string][]byte{}
	for _, tenant := range []string{"", "acme"} {
		spec := object{"name": "data", "size_bytes": 24 * mib, "tenant_id": tenant}
		if tenant == "" {
			delete(spec, "tenant_id")
		}
		ids[tenant] = s.done(s.call("POST", "/volumes", s.admin, spec), s.admin)
		// More than fits into one pack, however well it is compressed.
		contents[tenant] = make([]byte, 20*mib)
		_, _ = rand.NewChaCha8([32]byte{byte(len(tenant))}).Read(contents[tenant])
		s.write(ids[tenant], string(contents[tenant]))
	}
	body := func(tenant, mode string) object {
		return object{"volume_id": ids[tenant], "bucket_id": bucket, "mode": mode}
	}
	plain := s.backedUp(body("", "data"), s.admin)
	described := s.backedUp(body("acme", "manifest"), s.admin)
	secret := body("acme", "data")
	secret["key_ref"] = "offsite"
	sealed := s.backedUp(secret, s.admin)
	if left, err := os.ReadDir(filepath.Join(s.config.Data, "volumes", "snapshots")); err != nil || len(left) != 0 {
		t.Errorf("%d snapshots are left, %v", len(left), err)
	}
	if !sealed.Encrypted || plain.Encrypted || sealed.TenantId != "acme" || described.StoredBytes != 0 {
		t.Errorf("%+v, %+v, %+v", plain, described, sealed)
	}
	// The database is lost; what is left is the bucket and the key.
	s.stop()
	s.config.Data = t.TempDir()
	s.begin()
	bucket = s.done(s.call("POST", "/buckets", s.admin, object{"name": "found", "connection_ref": "offsite"}), s.admin)
	s.done(s.call("POST", "/buckets/"+bucket+"/import", s.admin, nil), s.admin)
	s.done(s.call("POST", "/buckets/"+bucket+"/import", s.admin, object{"key_ref": "offsite"}), s.admin)
	found := map[string]storageapi.Backup{}
	for _, b := range contracttest.As[[]storageapi.Backup](s.call("GET", "/backups?bucket_id="+bucket, s.admin, nil).Want(200)) {
		found[b.Id] = b
	}
	if len(found) != 3 || found[sealed.Id].TenantId != "acme" || found[plain.Id].VolumeName != "data" ||
		found[described.Id].Mode != "manifest" || !found[sealed.Id].Encrypted {
		t.Fatalf("%+v", found)
	}
	s.call("PUT", "/tenants/acme", s.admin, object{}).Want(200)
	s.holds(s.restored(plain.Id, "again", s.admin), string(contents[""]))
	s.holds(s.restored(sealed.Id, "again-acme", s.admin), string(contents["acme"]))
	s.call("POST", "/backups/"+described.Id+"/restore", s.admin, nil).Refused(400, "UNSUPPORTED", "")
	if v := s.job(contracttest.As[storageapi.BackupAccepted](s.call("POST", "/backups/"+sealed.Id+"/verify", s.admin, nil).Want(202)).JobId,
		s.admin); v.State != "succeeded" {
		t.Errorf("%+v %+v", v, v.Error)
	}
	s.damages(&sealed, bucket)
}

// damages changes what a bucket holds of a backup, which a check finds and a restore refuses.
func (s *store) damages(b *storageapi.Backup, bucket string) {
	s.Helper()
	theirs := access{Endpoint: s.rgw.URL, Access: "theirs-access", Secret: "theirs-secret", Bucket: "offsite-bucket"}
	c := theirs.client(s.T)
	n := 0
	for o := range c.ListObjects(s.Context(), theirs.Bucket, minio.ListObjectsOptions{Recursive: true, Prefix: "mainstay/age1"}) {
		if o.Err != nil {
			s.Fatal(o.Err)
		}
		if !strings.Contains(o.Key, "/packs/") {
			continue
		}
		n++
		if _, err := c.PutObject(s.Context(), theirs.Bucket, o.Key, bytes.NewReader(make([]byte, o.Size)), o.Size, minio.PutObjectOptions{}); err != nil {
			s.Fatal(err)
		}
	}
	if n == 0 {
		s.Fatal("there are no packs")
	}
	j := s.job(contracttest.As[storageapi.BackupAccepted](s.call("POST", "/backups/"+b.Id+"/verify", s.admin, nil).Want(202)).JobId, s.admin)
	if j.State != "failed" {
		s.Errorf("%+v", j)
	}
	a := s.call("POST", "/backups/"+b.Id+"/restore", s.admin, object{"name": "damaged"}).Want(202)
	accepted := contracttest.As[storageapi.CopyAccepted](a)
	if j := s.job(accepted.JobId, s.admin); j.State != "failed" {
		s.Errorf("%+v", j)
	}
	if v := s.volume(accepted.Resource.VolumeId, s.admin); v.State != "error" || v.LastError == "" {
		s.Errorf("%+v", v)
	}
}
