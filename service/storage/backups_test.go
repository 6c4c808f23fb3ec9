//go:build linux

package storage_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
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

func TestWhatOthersDoInCephDoesNotMisleadBackups(t *testing.T) {
	t.Parallel()
	s := withBuckets(t)
	pool := s.cluster.Pool
	bucket := s.done(s.call("POST", "/buckets", s.admin, object{"name": "kept", "connection_ref": "offsite"}), s.admin)
	backend := contracttest.As[[]storageapi.Backend](s.call("GET", "/backends?backend_type=ceph", s.admin, nil).Want(200))[0]
	s.call("PUT", "/policies/prod", s.admin, object{"backend_id": backend.Id, "kind": "block"}).Want(200)
	id := s.done(s.call("POST", "/volumes", s.admin, object{"name": "data", "size_bytes": 8 * mib, "policy": "prod"}), s.admin)
	image := pool + "/vol-" + id
	fill(t, s.cluster, image, 8*mib)
	body := object{"volume_id": id, "bucket_id": bucket, "mode": "data"}
	s.backedUp(body, s.admin)
	// The snapshot that the next one would be compared with is replaced by one of another moment.
	var snaps []struct{ Name string }
	if err := json.Unmarshal(rbd(t, s.cluster, "snap", "ls", image, "--format", "json"), &snaps); err != nil || len(snaps) != 1 {
		t.Fatalf("%+v, %v", snaps, err)
	}
	base := image + "@" + snaps[0].Name
	rbd(t, s.cluster, "snap", "rm", base)
	content := fill(t, s.cluster, image, 8*mib)
	rbd(t, s.cluster, "snap", "create", base)
	second := s.backedUp(body, s.admin)
	if second.Incremental || !strings.Contains(second.FullReason, "another snapshot") {
		t.Errorf("%+v", second)
	}
	made := s.restored(second.Id, "again", s.admin)
	if got := rbd(t, s.cluster, "export", pool+"/vol-"+made, "-"); !bytes.Equal(got, content) {
		t.Error("it does not hold what the volume held")
	}
	// A volume that could not be restored is not in use by the gateway itself.
	c := s.offsite()
	for _, o := range s.objects("mainstay/plain/packs/") {
		if _, err := c.PutObject(t.Context(), "offsite-bucket", o.Key, strings.NewReader("x"), 1, minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	a := contracttest.As[storageapi.CopyAccepted](
		s.call("POST", "/backups/"+second.Id+"/restore", s.admin, object{"name": "damaged"}).Want(202))
	if j := s.job(a.JobId, s.admin); j.Error == nil || j.Error.Code != "BACKUP_DAMAGED" {
		t.Errorf("%+v %+v", j, j.Error)
	}
	s.done(s.call("DELETE", "/volumes/"+a.Resource.VolumeId, s.admin, nil), s.admin)
}

// offsite returns a client for the bucket of the entry offsite.
func (s *store) offsite() *minio.Client {
	s.Helper()
	theirs := access{Endpoint: s.rgw.URL, Access: "theirs-access", Secret: "theirs-secret", Bucket: "offsite-bucket"}
	return theirs.client(s.T)
}

// objects returns the objects of that bucket whose keys begin with a prefix. There is one at least.
func (s *store) objects(prefix string) (all []minio.ObjectInfo) {
	s.Helper()
	for o := range s.offsite().ListObjects(s.Context(), "offsite-bucket", minio.ListObjectsOptions{Recursive: true, Prefix: prefix}) {
		if o.Err != nil {
			s.Fatal(o.Err)
		}
		all = append(all, o)
	}
	if len(all) == 0 {
		s.Fatalf("there is nothing below %s", prefix)
	}
	return all
}

func (s *store) put(key, content string) {
	s.Helper()
	if _, err := s.offsite().PutObject(s.Context(), "offsite-bucket", key, strings.NewReader(content), int64(len(content)),
		minio.PutObjectOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s *store) remove(key string) {
	s.Helper()
	if err := s.offsite().RemoveObject(s.Context(), "offsite-bucket", key, minio.RemoveObjectOptions{}); err != nil {
		s.Fatal(err)
	}
}

// verified checks a backup, and returns the job and what it has stored.
func (s *store) verified(backup string) (storageapi.Job, storageapi.BackupVerification) {
	s.Helper()
	a := s.call("POST", "/backups/"+backup+"/verify", s.admin, nil).Want(202)
	j := s.job(contracttest.As[storageapi.BackupAccepted](a).JobId, s.admin)
	v := contracttest.As[storageapi.Backup](s.call("GET", "/backups/"+backup, s.admin, nil).Want(200)).Verification
	if v == nil {
		s.Fatalf("%+v stores nothing", j)
	}
	return j, *v
}

func TestAVolumeIsPutBackToItsBackup(t *testing.T) {
	t.Parallel()
	s := withBuckets(t)
	pool := s.cluster.Pool
	bucket := s.done(s.call("POST", "/buckets", s.admin, object{"name": "kept", "connection_ref": "offsite"}), s.admin)
	backend := contracttest.As[[]storageapi.Backend](s.call("GET", "/backends?backend_type=ceph", s.admin, nil).Want(200))[0]
	s.call("PUT", "/policies/prod", s.admin, object{"backend_id": backend.Id, "kind": "block"}).Want(200)
	local := s.done(s.call("POST", "/volumes", s.admin, object{"name": "local", "size_bytes": 8 * mib}), s.admin)
	named := s.done(s.call("POST", "/rbd-images", s.admin, object{"name": "Disk_1", "size_bytes": 8 * mib, "pool": pool}), s.admin)
	s.write(local, "before")
	before := fill(t, s.cluster, pool+"/Disk_1", 8*mib)
	backups := map[string]storageapi.Backup{}
	for _, id := range []string{local, named} {
		backups[id] = s.backedUp(object{"volume_id": id, "bucket_id": bucket, "mode": "data"}, s.admin)
	}
	s.write(local, "after!")
	fill(t, s.cluster, pool+"/Disk_1", 8*mib)
	s.done(s.call("POST", "/volumes/"+named+"/expand", s.admin, object{"new_size_bytes": 12 * mib}), s.admin)

	of := "/backups/" + backups[named].Id + "/restore"
	sure := object{"in_place": true, "confirm": true}
	s.call("POST", of, s.admin, object{"in_place": true}).Refused(400, "VALIDATION_ERROR", "confirm")
	s.call("POST", of, s.admin, object{"in_place": true, "confirm": true, "name": "x"}).Refused(400, "VALIDATION_ERROR", "name")
	s.call("POST", of, s.token("otto", "operator", ""), sure).Refused(403, "DENIED", "")
	snapshot := s.done(s.call("POST", "/volumes/"+named+"/snapshots", s.admin, object{"name": "one"}), s.admin)
	s.call("POST", of, s.admin, sure).Refused(409, "CONFLICT", "")
	s.done(s.call("DELETE", "/snapshots/"+snapshot, s.admin, nil), s.admin)
	// Somebody else's snapshot keeps it, too, and then everything is as it was.
	rbd(t, s.cluster, "snap", "create", pool+"/Disk_1@theirs")
	after := rbd(t, s.cluster, "export", pool+"/Disk_1", "-")
	j := s.job(contracttest.As[storageapi.CopyAccepted](s.call("POST", of, s.admin, sure).Want(202)).JobId, s.admin)
	if j.Error == nil || j.Error.Code != "CONFLICT" || !strings.Contains(j.Error.Message, "theirs") {
		t.Errorf("%+v %+v", j, j.Error)
	}
	if got := rbd(t, s.cluster, "export", pool+"/Disk_1", "-"); !bytes.Equal(got, after) {
		t.Error("a volume that was not put back has changed")
	}
	if v := s.volume(named, s.admin); v.State != "available" || !strings.Contains(v.LastError, "theirs") {
		t.Errorf("%+v", v)
	}
	rbd(t, s.cluster, "snap", "rm", pool+"/Disk_1@theirs")

	for _, id := range []string{local, named} {
		if got := s.done(s.call("POST", "/backups/"+backups[id].Id+"/restore", s.admin, sure), s.admin); got != id {
			t.Errorf("the job is about %s, not %s", got, id)
		}
		if v := s.volume(id, s.admin); v.State != "available" || v.LastError != "" {
			t.Errorf("%+v", v)
		}
		// The next backup is compared with nothing that is gone.
		again := s.backedUp(object{"volume_id": id, "bucket_id": bucket, "mode": "data"}, s.admin)
		if again.Incremental || again.StoredBytes != 0 {
			t.Errorf("%+v", again)
		}
	}
	s.holds(local, "before")
	if got := rbd(t, s.cluster, "export", pool+"/Disk_1", "-"); len(got) != 12*mib || !bytes.Equal(got[:8*mib], before) ||
		len(bytes.Trim(got[8*mib:], "\x00")) > 0 {
		t.Errorf("%d bytes, or others than the backup has", len(got))
	}
	if names := strings.Fields(string(rbd(t, s.cluster, "ls", pool))); len(names) != 1 || names[0] != "Disk_1" {
		t.Errorf("left: %v", names)
	}
	s.triesRestores(backups[named].Id, named, bucket)
	s.triesRestores(backups[local].Id, local, bucket)
	s.done(s.call("DELETE", "/volumes/"+named, s.admin, nil), s.admin)
	s.call("POST", of, s.admin, sure).Refused(409, "CONFLICT", "")
}

// triesRestores checks a backup by restores, one of which a schedule begins. Nothing of them is left.
func (s *store) triesRestores(backup, volume, bucket string) {
	s.Helper()
	left := func() (all []string) {
		all = append(all, strings.Fields(string(rbd(s.T, s.cluster, "ls", s.cluster.Pool)))...)
		for _, folder := range []string{"volumes", "snapshots", "trash"} {
			entries, err := os.ReadDir(filepath.Join(s.config.Data, "volumes", folder))
			if err != nil {
				s.Fatal(err)
			}
			for _, e := range entries {
				all = append(all, folder+"/"+e.Name())
			}
		}
		return all
	}
	before := left()
	a := s.call("POST", "/backups/"+backup+"/verify", s.admin, object{"method": "restore"}).Want(202)
	if j := s.job(contracttest.As[storageapi.BackupAccepted](a).JobId, s.admin); j.State != "succeeded" {
		s.Errorf("%+v %+v", j, j.Error)
	}
	v := contracttest.As[storageapi.Backup](s.call("GET", "/backups/"+backup, s.admin, nil).Want(200)).Verification
	if v == nil || !v.Ok || v.Method != "restore" || !strings.Contains(v.Detail, "a volume that was made of them holds the same") {
		s.Errorf("%+v", v)
	}
	s.call("POST", "/schedules", s.admin, object{
		"name": "try-" + volume[30:], "kind": "test_restore", "volume_id": volume, "bucket_id": bucket, "every_secs": 86400,
	}).Want(201)
	s.runSchedules()
	newest := contracttest.As[[]storageapi.Backup](s.call("GET", "/backups?volume_id="+volume, s.admin, nil).Want(200))[0]
	if v := newest.Verification; v == nil || !v.Ok || v.Method != "restore" {
		s.Errorf("%+v", newest)
	}
	if after := left(); !slices.Equal(after, before) {
		s.Errorf("left: %v, and before %v", after, before)
	}
}

func TestABucketThatLostWhatItsBackupsAreOpenedWithIsNoticed(t *testing.T) {
	t.Parallel()
	s := withBuckets(t)
	bucket := s.done(s.call("POST", "/buckets", s.admin, object{"name": "kept", "connection_ref": "offsite"}), s.admin)
	id := s.done(s.call("POST", "/volumes", s.admin, object{"name": "data", "size_bytes": mib}), s.admin)
	s.write(id, "kept")
	body := object{"volume_id": id, "bucket_id": bucket, "mode": "data"}
	first := s.backedUp(body, s.admin)
	fails := func(what string) {
		s.Helper()
		if j, v := s.verified(first.Id); j.State != "failed" || j.Error.Code != "BACKUP_DAMAGED" && j.Error.Code != "REPOSITORY_KEY" || v.Ok {
			s.Errorf("%s: %+v %+v, %+v", what, j, j.Error, v)
		}
	}
	passes := func(what string) {
		s.Helper()
		if j, v := s.verified(first.Id); j.State != "succeeded" || !v.Ok {
			s.Errorf("%s: %+v %+v, %+v", what, j, j.Error, v)
		}
	}
	passes("at first")
	manifest, err := s.offsite().GetObject(t.Context(), "offsite-bucket", "mainstay/"+first.ObjectKey, minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(manifest)
	if err != nil {
		t.Fatal(err)
	}
	s.put("mainstay/"+first.ObjectKey, strings.Replace(string(text), id, first.Id, 1))
	fails("with another manifest")
	s.remove("mainstay/" + first.ObjectKey)
	fails("without its manifest")
	s.put("mainstay/"+first.ObjectKey, string(text))
	passes("with its manifest again")
	// What the gateway still knows, it writes again with the next backup.
	for _, lost := range []string{s.objects("mainstay/plain/keys/")[0].Key, "mainstay/plain/config"} {
		s.backedUp(body, s.admin) // it is open again
		s.remove(lost)
		s.backedUp(body, s.admin)
		passes("after the backup after the loss of " + lost)
	}
	s.remove("mainstay/plain/config")
	fails("without the config")
	// What nobody knows any more, nothing else takes the place of.
	s.stop()
	s.begin()
	a := contracttest.As[storageapi.BackupAccepted](s.call("POST", "/backup-jobs", s.admin, body).Want(202))
	if j := s.job(a.JobId, s.admin); j.Error == nil || j.Error.Code != "BACKUP_DAMAGED" {
		t.Errorf("%+v %+v", j, j.Error)
	}
	if n := len(s.objects("mainstay/plain/keys/")); n != 1 {
		t.Errorf("%d keys", n)
	}
}

func TestAnObjectThatIsNoBackupDoesNotKeepOthersFromBeingTakenIn(t *testing.T) {
	t.Parallel()
	s := withBuckets(t)
	bucket := s.done(s.call("POST", "/buckets", s.admin, object{"name": "kept", "connection_ref": "offsite"}), s.admin)
	id := s.done(s.call("POST", "/volumes", s.admin, object{"name": "data", "size_bytes": mib}), s.admin)
	good := s.backedUp(object{"volume_id": id, "bucket_id": bucket, "mode": "manifest"}, s.admin)
	manifest := func(change object) string {
		of := uuid.NewString()
		about := object{
			"format": 1, "id": of, "mode": "manifest", "volume_id": "00000000-0000-0000-0000-000000000000", "volume_name": "data",
			"kind": "block", "size_bytes": mib, "taken_at": "2026-01-02T03:04:05Z",
		}
		maps.Copy(about, change)
		text, err := json.Marshal(about)
		if err != nil {
			t.Fatal(err)
		}
		s.put("mainstay/backups/00000000-0000-0000-0000-000000000000/"+of+".json", string(text))
		return of
	}
	taken := map[string]bool{good.Id: true, manifest(nil): true}
	bad := []object{
		{"taken_at": "0000-01-01T00:00:00Z"}, {"taken_at": "0001-01-01T00:00:00+23:59"}, {"taken_at": "9999-12-31T23:59:59-23:59"},
		{"volume_name": "a\x00b"}, {"volume_name": "../../etc"}, {"volume_name": "a\x1bb"}, {"volume_name": strings.Repeat("a", 254)},
		{"size_bytes": int64(1)<<61 + 1}, {"size_bytes": -1}, {"kind": "tape"}, {"tenant": "../acme"}, {"format": 2}, {"id": "x"},
	}
	for _, change := range bad {
		manifest(change)
	}
	s.put("mainstay/backups/00000000-0000-0000-0000-000000000000/x.json", "<html>")
	s.stop()
	s.config.Data = t.TempDir()
	s.begin()
	bucket = s.done(s.call("POST", "/buckets", s.admin, object{"name": "kept", "connection_ref": "offsite"}), s.admin)
	s.done(s.call("POST", "/buckets/"+bucket+"/import", s.admin, nil), s.admin)
	all := contracttest.As[[]storageapi.Backup](s.call("GET", "/backups", s.admin, nil).Want(200))
	if len(all) != len(taken) {
		t.Errorf("%d backups, want %d", len(all), len(taken))
	}
	for _, b := range all {
		if !taken[b.Id] {
			t.Errorf("%+v", b)
		}
	}
	told := fmt.Sprintf("2 backups are new; %d objects were passed over", len(bad)+1)
	if a := s.call("GET", "/events?type=audit", s.admin, nil).Want(200); !strings.Contains(a.Body, told) {
		t.Errorf("no event says %q: %s", told, a.Body)
	}
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
	s.missesKey(sealed.Id)
	s.damages(&sealed, bucket)
}

// missesKey checks a backup without its key, which says nothing about the backup.
func (s *store) missesKey(backup string) {
	s.Helper()
	keys := s.config.BackupKeys
	s.stop()
	s.config.BackupKeys = nil
	s.begin()
	j := s.job(contracttest.As[storageapi.BackupAccepted](s.call("POST", "/backups/"+backup+"/verify", s.admin, nil).Want(202)).JobId, s.admin)
	v := contracttest.As[storageapi.Backup](s.call("GET", "/backups/"+backup, s.admin, nil).Want(200)).Verification
	if j.State != "failed" || v == nil || !v.Ok || v.JobId == j.Id {
		s.Errorf("%+v, %+v", j, v)
	}
	s.stop()
	s.config.BackupKeys = keys
	s.begin()
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

// sweepBackups removes what is kept no longer, and returns how many removals there were so far.
func (s *store) sweepBackups() (removals int) {
	s.Helper()
	for range 3 {
		if err := s.service.Backups().Sweep(s.Context()); err != nil {
			s.Error(err)
		}
		all := contracttest.As[[]storageapi.Job](s.call("GET", "/jobs?kind=backup.delete&limit=1000", s.admin, nil).Want(200))
		for _, j := range all {
			s.job(j.Id, s.admin)
		}
		removals = len(all)
	}
	return removals
}

func TestBackupsThatCannotBeRemovedAreTriedAgainAfterAnHour(t *testing.T) {
	t.Parallel()
	s := withBuckets(t)
	ahead := &atomic.Int64{}
	restart := func(buckets ...string) {
		s.stop()
		s.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		s.config.S3Buckets = buckets
		s.run()
		s.admin = s.sign(jose.HS256, "ada", "admin", "", 1000*time.Hour)
	}
	connections := s.config.S3Buckets
	restart(connections...)
	bucket := s.done(s.call("POST", "/buckets", s.admin, object{"name": "kept", "connection_ref": "offsite"}), s.admin)
	id := s.done(s.call("POST", "/volumes", s.admin, object{"name": "data", "size_bytes": mib}), s.admin)
	for keep := range 3 {
		s.backedUp(object{"volume_id": id, "bucket_id": bucket, "keep": keep, "max_age_secs": 60}, s.admin)
	}
	left := func() int {
		return len(contracttest.As[[]storageapi.Backup](s.call("GET", "/backups?volume_id="+id, s.admin, nil).Want(200)))
	}
	if n := s.sweepBackups(); n != 1 || left() != 2 {
		t.Errorf("%d removals, %d backups are left of which two are kept", n, left())
	}
	restart() // the bucket cannot be reached any more
	for i := range 2 {
		ahead.Add(int64(2 * time.Hour))
		if n, want := s.sweepBackups(), 1+2*(i+1); n != want || left() != 2 {
			t.Errorf("%d removals, want %d, %d backups", n, want, left())
		}
	}
	restart(connections...)
	ahead.Add(int64(2 * time.Hour))
	if n := s.sweepBackups(); n != 7 || left() != 0 {
		t.Errorf("%d removals, %d backups are left", n, left())
	}
}

// What a job was about is at rest a moment before the job has ended.
func TestABackupWhoseJobEndsIsNotRemovedASecondTime(t *testing.T) {
	t.Parallel()
	s := withBuckets(t)
	bucket := s.done(s.call("POST", "/buckets", s.admin, object{"name": "kept", "connection_ref": "offsite"}), s.admin)
	id := s.done(s.call("POST", "/volumes", s.admin, object{"name": "data", "size_bytes": mib}), s.admin)
	b := s.backedUp(object{"volume_id": id, "bucket_id": bucket, "mode": "manifest"}, s.admin)
	s.call("POST", "/maintenance", s.admin, object{"paused": true}).Want(200)
	s.call("DELETE", "/backups/"+b.Id, s.admin, nil).Want(202)
	s.stop()
	s.change("UPDATE backups SET state = 'completed', expires_at = 1 WHERE id = ?", b.Id)
	s.run()
	if err := s.service.Backups().Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := contracttest.As[[]storageapi.Job](s.call("GET", "/jobs?kind=backup.delete", s.admin, nil).Want(200))
	if len(all) != 1 || all[0].State != "queued" {
		t.Errorf("%+v", all)
	}
}

func TestABucketThatIsToHaveItsFirstBackupIsNotAProblemForPruning(t *testing.T) {
	t.Parallel()
	s := withBuckets(t)
	bucket := s.done(s.call("POST", "/buckets", s.admin, object{"name": "kept", "connection_ref": "offsite"}), s.admin)
	id := s.done(s.call("POST", "/volumes", s.admin, object{"name": "data", "size_bytes": mib}), s.admin)
	s.call("POST", "/maintenance", s.admin, object{"paused": true}).Want(200)
	s.call("POST", "/backup-jobs", s.admin, object{"volume_id": id, "bucket_id": bucket, "mode": "data"}).Want(202)
	if err := s.service.Backups().Prune(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOnlyBackupsOfATenantAreTakenInFromItsBucket(t *testing.T) {
	t.Parallel()
	s := withBuckets(t)
	adopt := func(tenant string) string {
		for _, name := range []string{"acme", "beta"} {
			s.call("PUT", "/tenants/"+name, s.admin, object{}).Want(200)
		}
		spec := object{"name": "kept", "connection_ref": "offsite"}
		if tenant != "" {
			spec["tenant_id"] = tenant
		}
		return s.done(s.call("POST", "/buckets", s.admin, spec), s.admin)
	}
	bucket := adopt("")
	want := map[string]bool{}
	for _, tenant := range []string{"acme", "beta"} {
		id := s.done(s.call("POST", "/volumes", s.admin, object{"name": "data", "size_bytes": mib, "tenant_id": tenant}), s.admin)
		for _, mode := range []string{"data", "manifest"} {
			b := s.backedUp(object{"volume_id": id, "bucket_id": bucket, "mode": mode}, s.admin)
			want[b.Id] = tenant == "acme"
		}
	}
	s.stop()
	s.config.Data = t.TempDir()
	s.begin()
	bucket = adopt("acme")
	s.call("POST", "/buckets/"+bucket+"/import", s.admin, object{"tenant_id": "beta"}).Refused(400, "VALIDATION_ERROR", "tenant_id")
	s.done(s.call("POST", "/buckets/"+bucket+"/import", s.admin, nil), s.admin)
	all := contracttest.As[[]storageapi.Backup](s.call("GET", "/backups", s.admin, nil).Want(200))
	if len(all) != 2 {
		t.Errorf("%d backups, want two", len(all))
	}
	for _, b := range all {
		if !want[b.Id] || b.TenantId != "acme" {
			t.Errorf("%+v", b)
		}
	}
}
