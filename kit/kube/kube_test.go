package kube_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/kit/kubetest"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

var configMaps = kube.Resource{Version: "v1", Kind: "ConfigMap", Plural: "configmaps"}

// configMap has one of the fields of a ConfigMap.
type configMap struct {
	Meta kube.Meta         `json:"metadata"`
	Data map[string]string `json:"data,omitempty"`
}

func named(name, value string) *configMap {
	return &configMap{Meta: kube.Meta{Name: name}, Data: map[string]string{"key": value}}
}

func TestObjectsAreMadeReadChangedAndDeleted(t *testing.T) {
	t.Parallel()
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	if _, err := kube.Get[configMap](t.Context(), c.Client, configMaps, ns, "one"); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	made := kubetest.Create(t, c, configMaps, ns, named("one", "first"))
	if made.Meta.UID == "" || made.Meta.Namespace != ns || made.Meta.CreationTimestamp.IsZero() || made.Data["key"] != "first" {
		t.Errorf("%+v", made)
	}
	if _, err := kube.Create(t.Context(), c.Client, configMaps, ns, named("one", "other")); !fault.Is(err, fault.Conflict) {
		t.Errorf("one that there is: %v", err)
	}
	// Applied fields are added; others stay.
	patch := &configMap{Meta: kube.Meta{Name: "one", UID: made.Meta.UID}, Data: map[string]string{"more": "second"}}
	changed, err := kube.Apply(t.Context(), c.Client, configMaps, ns, "one", patch)
	if err != nil || changed.Data["key"] != "first" || changed.Data["more"] != "second" {
		t.Errorf("%+v, %v", changed, err)
	}
	patch.Meta.UID = "00000000-0000-0000-0000-000000000000"
	for _, name := range []string{"one", "none"} {
		patch.Meta.Name = name
		if _, err := kube.Apply(t.Context(), c.Client, configMaps, ns, name, patch); !fault.Is(err, fault.Conflict) {
			t.Errorf("applied to another %s: %v", name, err)
		}
	}
	if err := kube.Delete(t.Context(), c.Client, configMaps, ns, "one", patch.Meta.UID); !fault.Is(err, fault.Conflict) {
		t.Errorf("another one was deleted: %v", err)
	}
	if err := kube.Delete(t.Context(), c.Client, configMaps, ns, "one", made.Meta.UID); err != nil {
		t.Error(err)
	}
	if err := kube.Delete(t.Context(), c.Client, configMaps, ns, "one", made.Meta.UID); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}

func TestRefusalsAreFaults(t *testing.T) {
	t.Parallel()
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	_, err := kube.Create(t.Context(), c.Client, configMaps, ns, named("Not A Name", ""))
	if f := fault.From(err); f.Kind != fault.Invalid || f.Field != "metadata.name" {
		t.Errorf("%+v", f)
	}
	quota := &kubetest.Quota{Meta: kube.Meta{Name: "few"}}
	quota.Spec.Hard = map[string]string{"count/configmaps": "1"} // the cluster has made one
	kubetest.Create(t, c, kubetest.Quotas, ns, quota)
	kubetest.Await(t, c, kubetest.Quotas, ns, "few", func(q *kubetest.Quota) bool { return q != nil && len(q.Status.Hard) > 0 })
	_, err = kube.Create(t.Context(), c.Client, configMaps, ns, named("two", ""))
	if err == nil { // the one that the cluster makes may come later
		_, err = kube.Create(t.Context(), c.Client, configMaps, ns, named("three", ""))
	}
	if f := fault.From(err); f == nil || f.Kind != fault.TooMany || f.Limit != "ResourceQuota" || !strings.Contains(f.Message, "few") {
		t.Errorf("%+v", f)
	}
	_, err = kube.Get[configMap](t.Context(), as(t, c, "nobody"), configMaps, ns, "one")
	if f := fault.From(err); f.Kind != fault.Denied || !strings.Contains(f.Message, "nobody") {
		t.Errorf("%+v", f)
	}
	stranger := edit(t, c, func(config string) string {
		at := strings.Index(config, "client-certificate-data")
		return config[:at] + "token: something\n"
	})
	if _, err = kube.Get[configMap](t.Context(), stranger, configMaps, ns, "one"); !fault.Is(err, fault.Unavailable) ||
		!strings.Contains(fault.From(err).Message, "credentials") {
		t.Errorf("%v", err)
	}
}

// edit returns a client by another kubeconfig.
func edit(t *testing.T, c *kubetest.Cluster, change func(string) string) *kube.Client {
	t.Helper()
	raw, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(change(string(raw))), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := kube.Open(kube.Config{Kubeconfig: path, UserAgent: "test", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// as returns a client that acts as a user.
func as(t *testing.T, c *kubetest.Cluster, user string) *kube.Client {
	t.Helper()
	return edit(t, c, func(config string) string {
		return strings.Replace(config, "    client-certificate-data", "    as: "+user+"\n    client-certificate-data", 1)
	})
}

// through returns a client that reaches the cluster by a handler.
func through(t *testing.T, c *kubetest.Cluster, handler func(to http.Handler) http.Handler) *kube.Client {
	t.Helper()
	raw, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	_, rest, _ := strings.Cut(string(raw), "server: ")
	address, _, _ := strings.Cut(rest, "\n")
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1 // watches
	proxy.Transport = c.Transport(t)
	server := httptest.NewServer(handler(proxy))
	t.Cleanup(server.Close)
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "a",
"clusters": [{"name": "a", "cluster": {"server": %q}}], "contexts": [{"name": "a", "context": {"cluster": "a"}}]}`, server.URL)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := kube.Open(kube.Config{Kubeconfig: path, UserAgent: "test", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// fill makes some objects, and returns their names.
func fill(t *testing.T, c *kubetest.Cluster, ns string, count int) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for i := range count {
		m := named(fmt.Sprintf("some-%04d", i), "")
		m.Meta.Labels = map[string]string{"of": "test"}
		names[kubetest.Create(t, c, configMaps, ns, m).Meta.Name] = true
	}
	return names
}

// expire is what an API server answers for a page of a list that it has forgotten. next may be empty.
func expire(w http.ResponseWriter, next string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusGone)
	_, _ = fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "metadata": {"continue": %q}, "status": "Failure",
"message": "The provided continue parameter is too old", "reason": "Expired", "code": 410}`, next)
}

func TestListsAreReadPageByPageAndGoOnWhenTheyAreTooOld(t *testing.T) {
	t.Parallel()
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	want := fill(t, c, ns, 1200)
	for _, goesOn := range []bool{true, false} {
		var pages, expired atomic.Int64
		client := through(t, c, func(to http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if q := r.URL.Query(); q.Get("limit") != "500" {
					t.Errorf("%s is unlimited", r.URL)
				} else if next := q.Get("continue"); next != "" && pages.Load() == 2 && expired.CompareAndSwap(0, 1) {
					if !goesOn {
						next = ""
					}
					expire(w, next)
					return
				}
				pages.Add(1)
				to.ServeHTTP(w, r)
			})
		})
		seen, times := map[string]bool{}, 0
		if err := kube.Each(t.Context(), client, configMaps, ns, kube.Query{Labels: "of=test"}, func(m *configMap) error {
			seen[m.Meta.Name] = true
			times++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		wantTimes, wantPages := 1200, int64(3)
		if !goesOn {
			wantTimes, wantPages = 2200, 5
		}
		if len(seen) != len(want) || times != wantTimes || pages.Load() != wantPages || expired.Load() != 1 {
			t.Errorf("goes on %v: %d objects, told %d times, in %d pages", goesOn, len(seen), times, pages.Load())
		}
	}
	enough := errors.New("enough")
	if err := kube.Each(t.Context(), c.Client, configMaps, ns, kube.Query{}, func(*configMap) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}

func TestAWatchGoesOnWhereItWasInterrupted(t *testing.T) {
	t.Parallel()
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	var broken atomic.Int64
	watching := make(chan struct{}, 100)
	client := through(t, c, func(to http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				to.ServeHTTP(w, r)
				return
			}
			// The first watches end: as if their beginning was forgotten, in the middle of an event, and without a word.
			switch broken.Add(1) {
			case 1:
				expire(w, "")
			case 2:
				_, _ = io.WriteString(w, `{"type": "ADDED", "object": {"metadata": {"na`)
			case 3:
				_, _ = io.WriteString(w, `{"type": "ERROR", "object": {"kind": "Status", "code": 410}}`)
			case 4:
			default:
				watching <- struct{}{}
				to.ServeHTTP(w, r)
			}
		})
	})
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan string, 100)
	var running sync.WaitGroup
	running.Go(func() {
		err := kube.Watch(ctx, client, configMaps, ns, kube.Query{Fields: "metadata.name=one"}, func(m *configMap, gone bool) error {
			events <- fmt.Sprint(m.Data["key"], gone)
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
	<-watching
	made := kubetest.Create(t, c, configMaps, ns, named("one", "first"))
	if e := <-events; e != "firstfalse" {
		t.Error(e)
	}
	if err := kube.Delete(t.Context(), c.Client, configMaps, ns, "one", made.Meta.UID); err != nil {
		t.Error(err)
	}
	if e := <-events; e != "firsttrue" {
		t.Error(e)
	}
	cancel()
	running.Wait()
	stop := errors.New("stop")
	kubetest.Create(t, c, configMaps, ns, named("two", ""))
	if err := kube.Watch(t.Context(), client, configMaps, ns, kube.Query{}, func(*configMap, bool) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
}

func TestWaitingSurvivesTheAPIServer(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	ns := c.Namespace(t)
	kubetest.Create(t, c, configMaps, ns, named("one", "first"))
	looked := make(chan struct{}, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- kube.Await(t.Context(), c.Client, configMaps, ns, "one", func(m *configMap) (bool, error) {
			looked <- struct{}{}
			return m != nil && m.Data["more"] == "second", nil
		})
	}()
	<-looked
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err := kube.Get[configMap](t.Context(), c.Client, configMaps, ns, "one")
	if f := fault.From(err); f == nil || f.Kind != fault.Unavailable || strings.Contains(f.Message, "127.0.0.1") {
		t.Errorf("%v", err)
	}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := kube.Apply(t.Context(), c.Client, configMaps, ns, "one", &configMap{Data: map[string]string{"more": "second"}}); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestCallsEndInTime(t *testing.T) {
	t.Parallel()
	c := kubetest.Shared(t)
	silent := make(chan struct{})
	client := through(t, c, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-silent })
	})
	t.Cleanup(func() { close(silent) })
	why := fault.New(fault.Unavailable, "enough of it")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
	defer cancel()
	if _, err := kube.Get[configMap](ctx, client, configMaps, "default", "one"); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	if err := kube.Await(ctx, client, configMaps, "default", "one", func(*configMap) (bool, error) { return true, nil }); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	if _, err := kube.Get[configMap](t.Context(), client, configMaps, "default", "one"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("the client's own limit: %v", err)
	}
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := kube.Get[configMap](given, client, configMaps, "default", "one"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestAnswersOfOthersAreNotTakenForTheAPIServers(t *testing.T) {
	t.Parallel()
	c := kubetest.Shared(t)
	for status, body := range map[int]string{404: "<html>nothing here, 10.0.0.1</html>", 200: "<html>", 502: "bad", 403: "no"} {
		client := through(t, c, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			})
		})
		_, err := kube.Get[configMap](t.Context(), client, configMaps, "default", "one")
		if f := fault.From(err); f == nil || f.Kind != fault.Unavailable || strings.Contains(f.Message, "html") {
			t.Errorf("%d: %v", status, err)
		}
		err = kube.Delete(t.Context(), client, configMaps, "default", "one", "uid")
		if status != 200 && !fault.Is(err, fault.Unavailable) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestWhatIsServedIsKnown(t *testing.T) {
	t.Parallel()
	c := kubetest.Shared(t)
	for r, want := range map[kube.Resource]bool{
		kube.VolumeSnapshots: true, kube.StorageClasses: true,
		{Group: "snapshot.storage.k8s.io", Version: "v1", Plural: "others"}:          false,
		{Group: "snapshot.storage.k8s.io", Version: "v7", Plural: "volumesnapshots"}: false,
		{Group: "none.example.com", Version: "v1", Plural: "volumesnapshots"}:        false,
	} {
		if got, err := c.Client.Serves(t.Context(), r); err != nil || got != want {
			t.Errorf("%+v: %v, %v", r, got, err)
		}
	}
}

func TestKubeconfigsAreChecked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	open := func(config, context string) (*kube.Client, error) {
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		return kube.Open(kube.Config{Kubeconfig: path, Context: context})
	}
	config, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": "https://192.0.2.1"}}},
		"contexts": []any{
			map[string]any{"name": "a", "context": map[string]any{"cluster": "c", "namespace": "here"}},
			map[string]any{"name": "b", "context": map[string]any{"cluster": "c"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for context, want := range map[string]string{"": "here", "a": "here", "b": "default"} {
		if c, err := open(string(config), context); err != nil || c.Namespace() != want {
			t.Errorf("%q: %v", context, err)
		}
	}
	if _, err := open(string(config), "none"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"", "{", string(bytes.ReplaceAll(config, []byte("https://"), []byte("https://%%")))} {
		if _, err := open(bad, ""); !fault.Is(err, fault.Unavailable) || strings.Contains(fault.From(err).Message, path) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := kube.Open(kube.Config{}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("outside of a cluster: %v", err)
	}
}

func TestQuantitiesAreReadInBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"8Mi": 8 << 20, "1G": 1e9, "1500m": 2, "7": 7, "": 0, "many": 0} {
		if got := kube.Bytes(text); got != want {
			t.Errorf("%s: %d", text, got)
		}
	}
}
