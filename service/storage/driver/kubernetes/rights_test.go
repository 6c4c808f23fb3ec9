package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/kit/kubetest"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/kubernetes"
)

const rbac = "rbac.authorization.k8s.io"

var secrets = kube.Resource{Version: "v1", Kind: "Secret", Plural: "secrets"}

// kinds are those of the manifest.
var kinds = map[string]kube.Resource{
	"Namespace":          kube.Namespaces,
	"Secret":             secrets,
	"ServiceAccount":     {Version: "v1", Kind: "ServiceAccount", Plural: "serviceaccounts"},
	"Role":               {Group: rbac, Version: "v1", Kind: "Role", Plural: "roles"},
	"RoleBinding":        {Group: rbac, Version: "v1", Kind: "RoleBinding", Plural: "rolebindings"},
	"ClusterRole":        {Group: rbac, Version: "v1", Kind: "ClusterRole", Plural: "clusterroles"},
	"ClusterRoleBinding": {Group: rbac, Version: "v1", Kind: "ClusterRoleBinding", Plural: "clusterrolebindings"},
}

// installed applies the manifest that the documentation names, and returns a kubeconfig with the account's token.
func installed(t *testing.T, c *kubetest.Cluster) string {
	t.Helper()
	raw, err := os.ReadFile("../../../../deploy/kubernetes/mainstay-storage.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for docs := yaml.NewDecoder(bytes.NewReader(raw)); ; {
		var object map[string]any
		if err := docs.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kind, known := kinds[object["kind"].(string)]
		if !known {
			t.Fatalf("%v is not known", object["kind"])
		}
		meta := object["metadata"].(map[string]any)
		namespace, _ := meta["namespace"].(string)
		if _, err := kube.Apply(t.Context(), c.Client, kind, namespace, meta["name"].(string), &object); err != nil {
			t.Fatalf("%v: %v", meta, err)
		}
	}
	type secret struct {
		Data map[string]string `json:"data"`
	}
	var token []byte
	kubetest.Await(t, c, secrets, "mainstay", "mainstay-storage-token", func(s *secret) bool {
		if s == nil || s.Data["token"] == "" {
			return false
		}
		token, err = base64.StdEncoding.DecodeString(s.Data["token"])
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(admin, []byte("client-certificate-data"))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, append(admin[:at:at], "token: "+string(token)+"\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheAccountOfTheManifestMayDoWhatItNeedsAndNoMore(t *testing.T) {
	t.Parallel()
	c := kubetest.Shared(t)
	config := installed(t, c)
	l := newLab(t, c)
	other := l.namespace
	l.namespace = "mainstay"
	d, err := kubernetes.Open(t.Context(), kubernetes.Config{Kubeconfig: config, Namespace: l.namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if _, err := d.Inspect(t.Context()); err != nil {
		t.Error(err)
	}
	v := l.make(d)
	if _, err := d.ExpandVolume(t.Context(), v.Name, 16*mib); err != nil {
		t.Error(err)
	}
	s, err := d.CreateSnapshot(t.Context(), v.Name, driver.Name{Native: driver.SnapshotName(uuid.NewString())}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	clone, err := d.CloneSnapshot(t.Context(), s.Name, l.spec(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	l.csi.Behave(kubetest.Behavior{Failure: "no room"})
	never := l.spec()
	err = endedWhen(t, func() { l.warned(never.Native) }, func(ctx context.Context) error {
		_, err := d.CreateVolume(ctx, never)
		return err
	})
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "no room") {
		t.Errorf("it does not learn why: %v", err)
	}
	l.csi.Behave(kubetest.Behavior{})
	for _, name := range []driver.Name{never.Name, clone.Name, v.Name} {
		if err := d.DeleteVolume(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if err := d.DeleteSnapshot(t.Context(), s.Name); err != nil {
		t.Error(err)
	}

	client, err := kube.Open(kube.Config{Kubeconfig: config, UserAgent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		kind      kube.Resource
		namespace string
	}{{secrets, "mainstay"}, {kube.PersistentVolumeClaims, other}, {kube.Pods, other}, {kube.VolumeSnapshots, other}, {kube.PersistentVolumes, ""}} {
		err := kube.Each(t.Context(), client, at.kind, at.namespace, kube.Query{}, func(*kubetest.Object) error { return nil })
		if !fault.Is(err, fault.Denied) {
			t.Errorf("it reads the %s of %q: %v", at.kind.Plural, at.namespace, err)
		}
	}
	if _, err := kube.Create(t.Context(), client, kube.Pods, "mainstay", kubetest.PodUsing("pod", "none")); !fault.Is(err, fault.Denied) {
		t.Errorf("it makes pods: %v", err)
	}
}
