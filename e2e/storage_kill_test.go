//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/cephtest"
)

// storageGateway is a storage gateway without credentials, in front of Ceph and of a folder, that can be killed and
// started again.
type storageGateway struct {
	testing.TB
	cluster *cephtest.Cluster
	data    string
	url     string
	args    []string
	process *process
	client  *http.Client
}

func newStorageGateway(t testing.TB) *storageGateway {
	t.Helper()
	cephtest.Programs(t)
	cluster := cephtest.Start(t)
	objects := cluster.StartGateway(t)
	helper := filepath.Join(t.TempDir(), "mainstay-ceph")
	build := exec.Command("go", "build", "-tags", "ceph pacific", "-o", helper, "github.com/mainstay-infra/mainstay/cmd/mainstay-ceph")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=1") // as binary does
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	access, err := json.Marshal(map[string]string{
		"endpoint": objects.URL, "access_key": objects.AccessKey, "secret_key": objects.SecretKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "prod.json")
	if err := os.WriteFile(file, access, 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeLoopback(t)
	s := &storageGateway{
		TB: t, cluster: cluster, data: t.TempDir(), url: "http://" + address, client: &http.Client{Timeout: patience},
	}
	s.args = []string{
		"serve", "storage", "--listen", address, "--grpc-addr", "off", "--data", s.data, "--access-log", "off",
		"--ceph-clusters", "prod=mainstay@" + cluster.Conf, "--ceph-program", helper, "--object-gateways", "prod=" + file,
	}
	return s
}

func (s *storageGateway) start() {
	s.Helper()
	s.process = launch(s.TB, nil, s.args...)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if res, err := s.client.Get(s.url + "/readyz"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			s.Fatalf("the gateway did not start:\n%s", tail(s.process.output.String(), 20))
		}
	}
}

// call sends a request, and returns the status, 0 if there was none, and the answer.
func (s *storageGateway) call(method, path string, body any) (int, []byte) {
	s.Helper()
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			s.Fatal(err)
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, s.url+storageapi.BasePath+path, content)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil
	}
	return res.StatusCode, raw
}

// all lists a collection.
func storageAll[T any](s *storageGateway, path string) (all []T) {
	s.Helper()
	status, raw := s.call("GET", path, nil)
	if status != 200 || json.Unmarshal(raw, &all) != nil {
		s.Fatalf("GET %s: %d %s", path, status, raw)
	}
	return all
}

// settled waits until no job is under way.
func (s *storageGateway) settled() {
	s.Helper()
	open := func() (all []storageapi.Job) {
		for _, state := range []string{"pending", "queued", "running", "verifying"} {
			all = append(all, storageAll[storageapi.Job](s, "/jobs?limit=1000&state="+state)...)
		}
		return all
	}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		left := open()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("%d jobs do not end: %+v", len(left), left)
		}
	}
}

// done begins a job, and waits until it has succeeded. What is refused because something else is under way, or because
// what a killed process had open looks open for half a minute, is tried again.
func (s *storageGateway) done(method, path string, body any) {
	s.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
		status, raw := s.call(method, path, body)
		said := string(raw)
		switch status {
		case 404:
			return // it is gone already
		case 200, 204:
			return
		case 202:
			var begun storageapi.VolumeAccepted
			if err := json.Unmarshal(raw, &begun); err != nil {
				s.Fatal(err)
			}
			var j storageapi.Job
			for j.FinishedAt == nil {
				if status, raw := s.call("GET", "/jobs/"+begun.JobId+"?wait=30", nil); status != 200 || json.Unmarshal(raw, &j) != nil {
					s.Fatalf("job: %d %s", status, raw)
				}
			}
			if j.State == storageapi.JobStateSucceeded {
				return
			}
			said = fmt.Sprintf("%+v", j.Error)
		}
		if time.Now().After(deadline) {
			s.Fatalf("%s %s: %d %s", method, path, status, said)
		}
	}
}

// rbd runs the command rbd.
func (s *storageGateway) rbd(args ...string) []string {
	s.Helper()
	cmd := exec.Command("rbd", append([]string{"-c", s.cluster.Conf}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("rbd %v: %v", args, err)
	}
	return strings.Fields(string(out))
}

// anything returns a request of a random kind about a random thing that there is.
func (s *storageGateway) anything(bucket string) (method, path string, body any) {
	name := fmt.Sprintf("n%d", rand.IntN(1_000_000))
	volumes := storageAll[storageapi.Volume](s, "/volumes?limit=1000")
	snapshots := storageAll[storageapi.Snapshot](s, "/snapshots?limit=1000")
	backups := storageAll[storageapi.Backup](s, "/backups?limit=1000")
	trash := storageAll[storageapi.TrashItem](s, "/trash?limit=1000")
	groups := storageAll[storageapi.VolumeGroup](s, "/volume-groups")
	images := storageAll[storageapi.RBDImage](s, "/rbd-images?limit=1000")
	pool := s.cluster.Pool
	make := func() (string, string, any) {
		switch rand.IntN(3) {
		case 0:
			return "POST", "/rbd-images", map[string]any{"name": "Image-" + name, "pool": pool, "size_bytes": 4 << 20}
		case 1:
			return "POST", "/volumes", map[string]any{"name": name, "size_bytes": 4 << 20, "policy": "prod"}
		}
		return "POST", "/volumes", map[string]any{"name": name, "size_bytes": 4 << 20}
	}
	if len(volumes) < 6 {
		return make()
	}
	v := volumes[rand.IntN(len(volumes))]
	of := "/volumes/" + v.Id
	kind := rand.IntN(17)
	switch {
	case kind == 0:
		return make()
	case kind == 1:
		return "POST", of + "/expand", map[string]any{"new_size_bytes": v.SizeBytes + 1<<20}
	case kind <= 3:
		return "POST", of + "/snapshots", map[string]any{"name": name}
	case kind == 4:
		return "DELETE", of, nil
	case kind == 5:
		return "DELETE", of + "?trash_secs=3600", nil
	case kind == 6 && len(trash) > 0:
		return "POST", "/trash/" + trash[rand.IntN(len(trash))].Id + "/restore", map[string]any{"name": name}
	case kind == 7 && len(trash) > 0:
		return "DELETE", "/trash/" + trash[rand.IntN(len(trash))].Id, nil
	case kind == 8 && len(snapshots) > 0:
		return "POST", "/snapshots/" + snapshots[rand.IntN(len(snapshots))].Id + "/clone", map[string]any{"name": name}
	case kind == 9 && len(snapshots) > 0:
		return "DELETE", "/snapshots/" + snapshots[rand.IntN(len(snapshots))].Id + "?force=true", nil
	case kind == 10 && len(snapshots) > 0:
		return "POST", "/snapshots/" + snapshots[rand.IntN(len(snapshots))].Id + "/restore", map[string]any{"in_place": true}
	case kind == 11 || kind == 12:
		return "POST", "/backup-jobs", map[string]any{"volume_id": v.Id, "bucket_id": bucket, "mode": "data"}
	case kind == 13 && len(backups) > 0:
		b := backups[rand.IntN(len(backups))]
		return [...]string{"POST", "POST", "DELETE"}[rand.IntN(3)], "/backups/" + b.Id + [...]string{"/verify", "/restore", ""}[rand.IntN(3)],
			map[string]any{}
	case kind == 14 && len(images) > 1:
		if len(groups) == 0 {
			return "POST", "/volume-groups", map[string]any{"name": name, "volume_ids": []string{images[0].Id, images[1].Id}}
		}
		return "POST", "/volume-groups/" + groups[0].Id + "/snapshots", map[string]any{"name": name}
	case len(images) > 0:
		i := images[rand.IntN(len(images))]
		at := "/rbd-images/" + i.Pool + "/" + i.Name
		switch rand.IntN(4) {
		case 0:
			return "POST", at + "/flatten", nil
		case 1:
			return "POST", at + "/qos?iops=" + strconv.Itoa(rand.IntN(1000)), nil
		case 2:
			return "POST", at + "/resize", map[string]any{"size_bytes": 2 << 20, "allow_shrink": true}
		}
		return "DELETE", at, nil
	}
	return make()
}

// The gateway and its helpers are killed at random moments of all kinds of jobs. Then every job ends, what the records
// say is what the storage has, every backup can be read, and when everything is deleted nothing is left.
func TestAStorageGatewayThatIsKilledAtAnyMomentLosesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStorageGateway(t)
	s.start()
	var backend storageapi.Backend
	if status, raw := s.call("POST", "/backends", map[string]any{"name": "prod"}); status != 201 || json.Unmarshal(raw, &backend) != nil {
		t.Fatalf("%d %s", status, raw)
	}
	for method, path := range map[string]string{"POST": "/backends/" + backend.Id + "/discover", "PUT": "/policies/prod"} {
		var body any
		if method == "PUT" {
			body = map[string]any{"backend_id": backend.Id, "kind": "block", "pool": s.cluster.Pool}
		}
		if status, raw := s.call(method, path, body); status != 200 {
			t.Fatalf("%s: %d %s", path, status, raw)
		}
	}
	s.done("POST", "/buckets", map[string]any{"name": "archive", "backend_id": "prod"})
	bucket := storageAll[storageapi.Bucket](s, "/buckets")[0].Id

	kills, begun := 20, 0
	if text := os.Getenv("MAINSTAY_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for range kills {
		var requests sync.WaitGroup
		var mu sync.Mutex
		for range 8 {
			method, path, body := s.anything(bucket)
			requests.Go(func() {
				if status, _ := s.call(method, path, body); status == 202 {
					mu.Lock()
					defer mu.Unlock()
					begun++
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(600)) * time.Millisecond)
		s.process.kill()
		requests.Wait()
		s.start()
	}
	if begun < kills/2 {
		t.Errorf("only %d jobs were begun", begun)
	}
	s.settled()
	kinds := map[string]int{}
	for _, j := range storageAll[storageapi.Job](s, "/jobs?limit=1000") {
		kinds[j.Kind+" "+string(j.State)]++
		if j.Error != nil {
			t.Logf("%s %s after %d tries: %s", j.Kind, j.State, j.Attempt, j.Error.Message)
		}
	}
	t.Logf("%d kills, %d jobs: %v", kills, begun, kinds)
	s.compared()
	for _, b := range storageAll[storageapi.Backup](s, "/backups?limit=1000&state=completed") {
		s.done("POST", "/backups/"+b.Id+"/verify", map[string]any{})
	}
	s.emptied(bucket)
}

// compared compares the records with what the storage has.
func (s *storageGateway) compared() {
	s.Helper()
	for _, b := range storageAll[storageapi.Backend](s, "/backends") {
		s.done("POST", "/backends/"+b.Id+"/discover", nil)
	}
	there := map[string]bool{}
	for _, name := range s.rbd("ls", s.cluster.Pool) {
		there[name] = true
	}
	for _, v := range storageAll[storageapi.Volume](s, "/volumes?limit=1000") {
		switch v.State {
		case "available", "error", "error_deleting", "error_expanding":
		default:
			s.Errorf("%s is %s: %s", v.Name, v.State, v.LastError)
		}
		inCeph := v.Policy == "prod" || strings.HasPrefix(v.Name, "Image-")
		if v.State == "available" && inCeph && !there[v.BackendNativeId] {
			s.Errorf("the records have %s, which is available, and Ceph does not have %s", v.Name, v.BackendNativeId)
		}
	}
	trash := strings.Join(s.rbd("trash", "ls", s.cluster.Pool), " ")
	for _, i := range storageAll[storageapi.TrashItem](s, "/trash?limit=1000") {
		if i.Pool == s.cluster.Pool && !strings.Contains(trash, "vol-"+i.Id) {
			s.Errorf("the records have %s in the trash, and Ceph has %s", i.Id, trash)
		}
	}
}

// emptied deletes everything, and looks for what is left.
func (s *storageGateway) emptied(bucket string) {
	s.Helper()
	for _, g := range storageAll[storageapi.VolumeGroup](s, "/volume-groups") {
		of := "/volume-groups/" + g.Id
		for _, sn := range storageAll[storageapi.GroupSnapshot](s, of+"/snapshots") {
			s.done("DELETE", of+"/snapshots/"+sn.Id, nil)
		}
		s.done("DELETE", of, nil)
	}
	for _, b := range storageAll[storageapi.Backup](s, "/backups?limit=1000") {
		s.done("DELETE", "/backups/"+b.Id, nil)
	}
	for _, sn := range storageAll[storageapi.Snapshot](s, "/snapshots?limit=1000") {
		s.done("DELETE", "/snapshots/"+sn.Id+"?force=true", nil)
	}
	for _, v := range storageAll[storageapi.Volume](s, "/volumes?limit=1000") {
		s.done("DELETE", "/volumes/"+v.Id, nil)
	}
	for _, i := range storageAll[storageapi.TrashItem](s, "/trash?limit=1000") {
		s.done("DELETE", "/trash/"+i.Id, nil)
	}
	// What only snapshots needed goes with a pass.
	var left []string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		for _, b := range storageAll[storageapi.Backend](s, "/backends") {
			s.call("POST", "/backends/"+b.Id+"/discover", nil)
		}
		left = append(s.rbd("ls", s.cluster.Pool), s.rbd("trash", "ls", s.cluster.Pool)...)
		left = append(left, s.rbd("group", "ls", s.cluster.Pool)...)
		for _, folder := range []string{"volumes", "snapshots", "deleted", "trash"} {
			entries, err := os.ReadDir(filepath.Join(s.data, "volumes", folder))
			if err != nil {
				s.Fatal(err)
			}
			for _, e := range entries {
				left = append(left, folder+"/"+e.Name())
			}
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			for _, name := range left {
				s.explain(name)
			}
			s.Fatalf("when everything was deleted, there was left: %v", left)
		}
	}
	s.done("DELETE", "/buckets/"+bucket+"?force=true", nil)
}

// explain logs what is known about something that is left in Ceph: what it is, and the jobs about it.
func (s *storageGateway) explain(name string) {
	s.Helper()
	for _, args := range [][]string{{"info"}, {"snap", "ls", "--all"}, {"image-meta", "ls"}, {"status"}} {
		cmd := exec.Command("rbd", append(append([]string{"-c", s.cluster.Conf}, args...), s.cluster.Pool+"/"+name)...)
		out, err := cmd.CombinedOutput()
		s.Logf("rbd %v %s: %v\n%s", args, name, err, out)
	}
	_, id, _ := strings.Cut(name, "-")
	for _, j := range storageAll[storageapi.Job](s, "/jobs?limit=1000") {
		if j.Resource.Id == id {
			s.Logf("%s began %s, ended %s as %s: %+v", j.Kind, j.CreatedAt, j.FinishedAt, j.State, j.Error)
		}
	}
}
