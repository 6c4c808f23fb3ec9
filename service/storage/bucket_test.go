//go:build linux

package storage_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/prometheus/client_golang/prometheus"

	storagepb "github.com/mainstay-infra/mainstay/api/proto/storage/v1"
	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/cephtest"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/storage"
)

// store is a gateway with the backend prod, whose cluster has an object gateway.
type store struct {
	*gateway
	cluster *cephtest.Cluster
	rgw     *cephtest.Gateway
	secrets []string
}

// withBuckets starts a cluster with an object gateway, and the service for it. The setting s3-buckets tells of the bucket
// offsite, which exists.
func withBuckets(t *testing.T, change ...func(*storage.Config)) *store {
	t.Helper()
	cluster := cephtest.Start(t)
	real := cluster.StartGateway(t)
	helper := cephtest.Helper(t)
	dir := t.TempDir()
	theirs := access{Endpoint: real.URL, Access: "theirs-access", Secret: "theirs-secret", Bucket: "offsite-bucket"}
	real.Admin(t, "user", "create", "--uid", "they", "--display-name", "they", "--access-key", theirs.Access,
		"--secret-key", theirs.Secret)
	s := &store{gateway: prepare(t, append(change, func(c *storage.Config) {
		c.AccessLog = "all"
		c.CephClusters, c.CephProgram = []string{"prod=mainstay@" + cluster.Conf}, helper
		c.ObjectGateways = []string{"prod=" + write(t, dir, "prod.json", access{
			Endpoint: real.URL, Access: real.AccessKey, Secret: real.SecretKey,
		})}
		c.S3Buckets = []string{"offsite=" + write(t, dir, "offsite.json", theirs)}
	})...), cluster: cluster, rgw: real}
	c := theirs.client(t)
	if err := errors.Join(c.MakeBucket(t.Context(), theirs.Bucket, minio.MakeBucketOptions{}), theirs.put(t, "a/b", 5)); err != nil {
		t.Fatal(err)
	}
	s.hide(real.SecretKey, theirs.Secret)
	s.begin()
	s.addBackend()
	return s
}

func (s *store) addBackend() {
	s.Helper()
	b := contracttest.As[storageapi.Backend](s.call("POST", "/backends", s.admin, object{"name": "prod"}).Want(201))
	s.call("POST", "/backends/"+b.Id+"/discover", s.admin, nil).Want(200)
}

// access is what a file of the settings holds, and what opens a bucket.
type access struct {
	Endpoint string `json:"endpoint"`
	Access   string `json:"access_key"`
	Secret   string `json:"secret_key"`
	Bucket   string `json:"bucket,omitempty"`
}

func write(t *testing.T, dir, name string, a access) string {
	t.Helper()
	text, err := json.Marshal(a)
	path := filepath.Join(dir, name)
	if err := errors.Join(err, os.WriteFile(path, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

func (a *access) client(t *testing.T) *minio.Client {
	t.Helper()
	at, err := url.Parse(a.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	c, err := minio.New(at.Host, &minio.Options{
		Creds: credentials.NewStaticV4(a.Access, a.Secret, ""), Region: "us-east-1", BucketLookup: minio.BucketLookupPath, MaxRetries: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (a *access) put(t *testing.T, key string, size int) error {
	t.Helper()
	_, err := a.client(t).PutObject(t.Context(), a.Bucket, key, bytes.NewReader(make([]byte, size)), int64(size), minio.PutObjectOptions{})
	return err
}

// hide holds what the service logs and answers, and its database, against secrets that nobody may be told.
func (s *store) hide(secrets ...string) {
	s.Helper()
	if s.heard == nil {
		s.heard = &heard{}
		s.Cleanup(func() {
			s.stop()
			stored, err := filepath.Glob(storage.DatabaseFile(s.config.Data) + "*")
			for _, path := range stored {
				text, again := os.ReadFile(path)
				_, _ = s.heard.Write(text)
				err = errors.Join(err, again)
			}
			if err != nil {
				s.Error(err)
			}
			for _, secret := range s.secrets {
				if s.heard.holds(secret) {
					s.Errorf("a secret was told or is stored: %s", secret)
				}
			}
		})
	}
	s.secrets = append(s.secrets, secrets...)
}

func (s *store) bucket(id, token string) storageapi.Bucket {
	s.Helper()
	return contracttest.As[storageapi.Bucket](s.call("GET", "/buckets/"+id, token, nil).Want(200))
}

// keys returns what opens a bucket, as the gateway's host prints it.
func (s *store) keys(name string) *access {
	s.Helper()
	k, err := storage.BucketKeys(s.Context(), s.config, slog.New(slog.DiscardHandler), name)
	if err != nil {
		s.Fatal(err)
	}
	s.hide(k.AccessKey, k.SecretKey)
	return &access{Endpoint: k.Endpoint, Access: k.AccessKey, Secret: k.SecretKey, Bucket: k.Bucket}
}

// gone waits for the end of the job that removes a bucket.
func (s *store) gone(id, token string) {
	s.Helper()
	s.done(s.call("DELETE", "/buckets/"+id, token, nil), token)
	s.call("GET", "/buckets/"+id, token, nil).Refused(404, "NOT_FOUND", "")
}

func (s *store) users() []string {
	s.Helper()
	var all []string
	if err := json.Unmarshal([]byte(s.rgw.Admin(s.T, "user", "list")), &all); err != nil {
		s.Fatal(err)
	}
	return slices.DeleteFunc(all, func(u string) bool { return !strings.HasPrefix(u, "mainstay-") })
}

func TestBucketsInAnObjectGateway(t *testing.T) {
	t.Parallel()
	s := withBuckets(t)
	for _, tenant := range []string{"acme", "beta"} {
		s.call("PUT", "/tenants/"+tenant, s.admin, object{}).Want(200)
	}
	ann, eve := s.token("ann", "operator", "acme"), s.token("eve", "admin", "beta")
	spec := object{"name": "logs", "max_objects": 4, "max_size": 100_000, "versioning": true}
	id := s.done(s.call("POST", "/buckets", ann, spec), ann)
	b := s.bucket(id, ann)
	if b.State != "bound" || b.TenantId != "acme" || b.Name != "logs" || b.BucketName != "logs-"+id[len(id)-12:] ||
		b.Endpoint != s.rgw.URL || b.Region != "us-east-1" || b.SecretRef != "bucket-"+id || b.Adopted || b.LastError != "" {
		t.Errorf("%+v", b)
	}
	keys := s.keys("logs")
	if keys.Bucket != b.BucketName {
		t.Errorf("%+v", keys)
	}
	for _, key := range []string{"one", "folder/two", "odd\x01\"<é"} {
		if err := keys.put(t, key, 10); err != nil {
			t.Error(err)
		}
	}
	if err := keys.put(t, "large", 100_000); minio.ToErrorResponse(err).Code != "QuotaExceeded" {
		t.Errorf("%v", err)
	}
	other := s.done(s.call("POST", "/buckets", eve, object{"name": "logs"}), eve)
	stranger := s.keys(other)
	if stranger.Bucket = b.BucketName; stranger.put(t, "theirs", 1) == nil {
		t.Error("the keys of another bucket write to it")
	}
	if _, err := storage.BucketKeys(t.Context(), s.config, slog.New(slog.DiscardHandler), "logs"); err == nil {
		t.Error("two buckets have the name")
	}

	stats := contracttest.As[storageapi.BucketStats](s.call("GET", "/buckets/"+id+"/stats", ann, nil).Want(200))
	if !stats.Available || stats.Reason != "" || stats.NumObjects != 3 || stats.SizeBytes != 30 || stats.Versioning != "enabled" ||
		stats.Bucket != b.BucketName || stats.Quota != (storageapi.BucketQuota{MaxObjects: 4, MaxSize: 100_000}) {
		t.Errorf("%+v", stats)
	}
	var listed []string
	for path := "/buckets/" + id + "/objects?limit=1"; path != ""; {
		a := s.call("GET", path, ann, nil).Want(200)
		for _, e := range contracttest.As[[]storageapi.BucketEntry](a) {
			listed = append(listed, e.Key)
		}
		path = ""
		if link := a.Header.Get("Link"); link != "" {
			path = strings.TrimPrefix(link[1:strings.Index(link, ">")], base)
		}
	}
	if !slices.Equal(listed, []string{"folder/", "odd\x01\"<é", "one"}) {
		t.Errorf("%q", listed)
	}
	in := contracttest.As[[]storageapi.BucketEntry](s.call("GET", "/buckets/"+id+"/objects?prefix=folder/", ann, nil).Want(200))
	if len(in) != 1 || in[0].Key != "folder/two" || in[0].Folder || in[0].SizeBytes != 10 || in[0].ModifiedAt == nil {
		t.Errorf("%+v", in)
	}

	s.repeats(id, ann, spec)
	s.confines(id, ann, eve)
	s.adopts()

	s.gone(id, ann)
	s.gone(other, eve)
	if left := s.users(); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
	s.call("DELETE", "/tenants/acme", s.admin, nil).Want(204)
	for _, action := range []string{"bucket.create", "bucket.delete"} {
		if e := contracttest.As[[]storageapi.AuditEntry](s.call("GET", "/audit?tenant=acme&result=ok&action="+action, s.admin, nil).Want(200)); len(e) != 1 || e[0].Target != id {
			t.Errorf("%s: %+v", action, e)
		}
	}
}

// repeats sends the request for a bucket again, as it was and otherwise.
func (s *store) repeats(id, token string, spec object) {
	s.Helper()
	if again := s.done(s.call("POST", "/buckets", token, spec), token); again != id {
		s.Errorf("%s, not %s", again, id)
	}
	spec["backend_id"] = "prod"
	if again := s.done(s.call("POST", "/buckets", token, spec), token); again != id {
		s.Errorf("%s, not %s", again, id)
	}
	spec["max_objects"] = 5
	s.call("POST", "/buckets", token, spec).Refused(409, "CONFLICT", "name")
	if left := s.users(); len(left) != 2 {
		s.Errorf("%v", left)
	}
}

// confines tries what others may do with a bucket of ann's tenant.
func (s *store) confines(id, ann, eve string) {
	s.Helper()
	for _, path := range []string{"", "/stats", "/objects"} {
		s.call("GET", "/buckets/"+id+path, eve, nil).Refused(404, "NOT_FOUND", "")
	}
	s.call("DELETE", "/buckets/"+id, eve, nil).Refused(404, "NOT_FOUND", "")
	s.call("DELETE", "/buckets/"+id, s.token("vic", "viewer", "acme"), nil).Refused(403, "DENIED", "")
	s.call("GET", "/buckets?tenant=acme", eve, nil).Refused(403, "DENIED", "")
	s.call("POST", "/buckets", eve, object{"name": "x", "tenant_id": "acme"}).Refused(403, "DENIED", "")
	s.call("POST", "/buckets", eve, object{"name": "x", "connection_ref": "offsite"}).Refused(403, "DENIED", "")
	s.call("POST", "/buckets", s.token("olga", "operator", ""), object{"name": "x", "connection_ref": "offsite"}).Refused(403, "DENIED", "")
	for token, want := range map[string]int{ann: 1, eve: 1, s.admin: 2} {
		if all := contracttest.As[[]storageapi.Bucket](s.call("GET", "/buckets?backend=prod&state=bound", token, nil).Want(200)); len(all) != want {
			s.Errorf("%+v", all)
		}
	}
	all, err := s.rpc().ListBuckets(s.as(ann), &storagepb.ListBucketsRequest{Backend: "prod"})
	if err != nil || len(all.Buckets) != 1 || all.Buckets[0].Id != id || all.Buckets[0].State != "bound" || all.Buckets[0].TenantId != "acme" {
		s.Errorf("%+v, %v", all, err)
	}
	s.call("DELETE", "/tenants/acme", s.admin, nil).Refused(409, "CONFLICT", "")
	if of := contracttest.As[storageapi.Tenant](s.call("GET", "/tenants/acme", ann, nil).Want(200)); of.Used.Buckets != 1 {
		s.Errorf("%+v", of)
	}
}

// adopts takes in a bucket that exists, looks into it, and forgets it.
func (s *store) adopts() {
	s.Helper()
	id := s.done(s.call("POST", "/buckets", s.admin, object{"name": "offsite", "connection_ref": "offsite"}), s.admin)
	b := s.bucket(id, s.admin)
	if !b.Adopted || b.BucketName != "offsite-bucket" || b.SecretRef != "offsite" || b.Endpoint != s.rgw.URL || b.State != "bound" {
		s.Errorf("%+v", b)
	}
	stats := contracttest.As[storageapi.BucketStats](s.call("GET", "/buckets/"+id+"/stats", s.admin, nil).Want(200))
	if !stats.Available || stats.NumObjects != 1 || stats.SizeBytes != 5 {
		s.Errorf("%+v", stats)
	}
	if in := contracttest.As[[]storageapi.BucketEntry](s.call("GET", "/buckets/"+id+"/objects", s.admin, nil).Want(200)); len(in) != 1 || in[0].Key != "a/" {
		s.Errorf("%+v", in)
	}
	s.call("POST", "/buckets", s.admin, object{"name": "again", "connection_ref": "offsite"}).Refused(409, "CONFLICT", "connection_ref")
	if _, err := storage.BucketKeys(s.Context(), s.config, slog.New(slog.DiscardHandler), id); err == nil {
		s.Error("the gateway has no keys of it")
	}
	s.gone(id, s.admin)
	again := s.done(s.call("POST", "/buckets", s.admin, object{"name": "offsite", "connection_ref": "offsite"}), s.admin)
	s.gone(again, s.admin)
}

func TestRequestsForBucketsThatMakeNoSenseNameTheField(t *testing.T) {
	t.Parallel()
	g := start(t)
	for _, c := range []struct {
		body        any
		code, field string
	}{
		{object{}, "VALIDATION_ERROR", "name"},
		{object{"name": "A"}, "VALIDATION_ERROR", "name"},
		{object{"name": "a.b"}, "VALIDATION_ERROR", "name"},
		{object{"name": "-a"}, "VALIDATION_ERROR", "name"},
		{object{"name": strings.Repeat("a", 64)}, "VALIDATION_ERROR", "name"},
		{object{"name": "a", "max_size": -1}, "VALIDATION_ERROR", "max_size"},
		{object{"name": "a", "max_objects": 1.5}, "VALIDATION_ERROR", "max_objects"},
		{object{"name": "a", "tenant_id": "none"}, "VALIDATION_ERROR", "tenant_id"},
		{object{"name": "a", "backend_id": "none"}, "VALIDATION_ERROR", "backend_id"},
		{object{"name": "a", "connection_ref": "none"}, "VALIDATION_ERROR", "connection_ref"},
		{object{"name": "a", "connection_ref": "none", "max_size": 1}, "VALIDATION_ERROR", "connection_ref"},
		{object{"name": "a", "backend_id": "local"}, "UNSUPPORTED", "backend_id"},
		{object{"name": "a"}, "UNSUPPORTED", "backend_id"},
		{object{"name": "a", "namespace": "n"}, "UNSUPPORTED", "namespace"},
		{object{"name": "a", "storage_class": "s"}, "UNSUPPORTED", "storage_class"},
	} {
		g.call("POST", "/buckets", g.admin, c.body).Refused(400, c.code, c.field)
	}
	if all := contracttest.As[[]storageapi.Bucket](g.call("GET", "/buckets", g.admin, nil).Want(200)); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	g.call("POST", "/buckets/none/import", g.admin, nil).Want(404) // not served yet
}

func TestABucketThatIsTakenInIsForgottenOnBothDatabases(t *testing.T) {
	t.Parallel()
	engines(t, func(g *gateway) {
		g.stop()
		g.config.S3Buckets = []string{"offsite=" + fakeBucket(g.T)}
		g.run()
		g.call("PUT", "/tenants/acme", g.admin, object{}).Want(200)
		spec := object{"name": "offsite", "connection_ref": "offsite", "tenant_id": "acme"}
		id := g.done(g.call("POST", "/buckets", g.admin, spec), g.admin)
		if again := g.done(g.call("POST", "/buckets", g.admin, spec), g.admin); again != id {
			g.Errorf("%s, not %s", again, id)
		}
		g.call("POST", "/buckets", g.admin, object{"name": "again", "connection_ref": "offsite"}).Refused(409, "CONFLICT", "connection_ref")
		g.call("POST", "/buckets", g.admin, object{"name": "a"}).Refused(400, "UNSUPPORTED", "backend_id")
		g.call("POST", "/buckets", g.admin, object{"name": "a", "backend_id": "local"}).Refused(400, "UNSUPPORTED", "backend_id")
		ann := g.token("ann", "operator", "acme")
		all := contracttest.As[[]storageapi.Bucket](g.call("GET", "/buckets?tenant=acme&state=bound&limit=1", ann, nil).Want(200))
		if len(all) != 1 || all[0].Id != id || !all[0].Adopted {
			g.Errorf("%+v", all)
		}
		if none := contracttest.As[[]storageapi.Bucket](g.call("GET", "/buckets?backend=local", ann, nil).Want(200)); len(none) != 0 {
			g.Errorf("%+v", none)
		}
		g.call("DELETE", "/tenants/acme", g.admin, nil).Refused(409, "CONFLICT", "")
		g.done(g.call("DELETE", "/buckets/"+id, ann, nil), ann)
		g.call("GET", "/buckets/"+id, ann, nil).Refused(404, "NOT_FOUND", "")
		g.call("DELETE", "/tenants/acme", g.admin, nil).Want(204)
	})
}

func TestAnObjectGatewayThatIsAwayFailsNoQuestionAboutNumbers(t *testing.T) {
	t.Parallel()
	s := withBuckets(t)
	// A job that the end of the service interrupts is repeated, and finds what is there.
	s.cluster.Signal(t, "radosgw", syscall.SIGSTOP)
	a := s.call("POST", "/buckets", s.admin, object{"name": "logs", "max_size": 7})
	path := "/jobs/" + contracttest.As[storageapi.BucketAccepted](a.Want(202)).JobId
	for contracttest.As[storageapi.Job](s.call("GET", path, s.admin, nil).Want(200)).State != "running" {
	}
	s.stop()
	s.cluster.Signal(t, "radosgw", syscall.SIGCONT)
	s.run()
	id := s.done(a, s.admin)
	if left := s.users(); len(left) != 1 || left[0] != "mainstay-"+id {
		t.Errorf("%v", left)
	}
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		s.cluster.Signal(t, "radosgw", signal)
		stats := contracttest.As[storageapi.BucketStats](s.call("GET", "/buckets/"+id+"/stats", s.admin, nil).Want(200))
		if stats.Available || stats.Reason == "" || stats.NumObjects != 0 || stats.Versioning != "unknown" || stats.Quota.MaxSize != 7 {
			t.Errorf("%+v", stats)
		}
		s.call("GET", "/buckets/"+id+"/objects", s.admin, nil).Refused(503, "UNAVAILABLE", "")
	}
	j := s.job(contracttest.As[storageapi.BucketAccepted](s.call("DELETE", "/buckets/"+id, s.admin, nil).Want(202)).JobId, s.admin)
	if b := s.bucket(id, s.admin); j.State != "failed" || b.State != "error" || b.LastError == "" {
		t.Errorf("%+v, %+v", j, b)
	}
	s.call("GET", "/buckets/"+id+"/objects", s.admin, nil).Refused(409, "CONFLICT", "")
	s.call("POST", "/buckets", s.admin, object{"name": "logs", "max_size": 7}).Refused(409, "CONFLICT", "name")
}

func TestKeysOfBucketsOpenAfterARotationOfTheSecretKey(t *testing.T) {
	t.Parallel()
	old := strings.Repeat("o", 32)
	s := withBuckets(t, func(c *storage.Config) { c.SecretKey = old })
	s.done(s.call("POST", "/buckets", s.admin, object{"name": "logs"}), s.admin)
	before := s.keys("logs")
	s.stop()
	s.config.SecretKey, s.config.AcceptedSecretKey = strings.Repeat("n", 32), old
	s.run()
	if after := s.keys("logs"); *after != *before {
		t.Error("they have changed")
	}
	s.stop()
	s.config.AcceptedSecretKey = ""
	s.run()
	after := s.keys("logs")
	if err := after.put(t, "a", 1); err != nil || *after != *before {
		t.Errorf("%v", err)
	}
	wrong := s.config
	wrong.SecretKey = old
	if _, err := storage.BucketKeys(t.Context(), wrong, slog.New(slog.DiscardHandler), "logs"); err == nil {
		t.Error("the old key opens them")
	}
}

func TestFilesOfObjectGatewaysAreChecked(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"", "prod", "prod=", "prod=rgw.json", "../x=/rgw.json"} {
		for setting, c := range map[string]storage.Config{
			"object-gateways": {ObjectGateways: []string{entry}}, "s3-buckets": {S3Buckets: []string{entry}},
		} {
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), setting) {
				t.Errorf("%q: %v", entry, err)
			}
		}
	}
	for _, content := range []string{
		"", "{}", "[]", `{"endpoint":"https://h"}`, `{"endpoint":"ftp://h","access_key":"a","secret_key":"hidden"}`,
		`{"endpoint":"https://hidden@h","access_key":"a","secret_key":"hidden"}`, `{"endpoint":"https://h","access_key":"a","secret_key":"hidden","more":1}`,
		`{"endpoint":"https://h/path","access_key":"a","secret_key":"hidden"}`, `{"endpoint":"https://h","access_key":"a","secret_key":"hidden"}`,
		`{"endpoint":"https://h","access_key":"a","secret_key":"hidden","bucket":"b","ca_file":"/none/hidden"}`,
	} {
		path := filepath.Join(t.TempDir(), "bucket.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		g := prepare(t, func(c *storage.Config) { c.S3Buckets = []string{"b=" + path} })
		_, err := storage.New(t.Context(), g.config, storage.Deps{
			Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: time.Now,
		})
		if err == nil || !strings.Contains(err.Error(), "s3-buckets") || strings.Contains(fmt.Sprintf("%+v", err), "hidden") {
			t.Errorf("%s: %v", content, err)
		}
	}
}
