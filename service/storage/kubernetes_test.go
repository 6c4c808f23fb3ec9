package storage_test

import (
	"strings"
	"testing"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/kit/kubetest"
	"github.com/mainstay-infra/mainstay/service/storage"
)

func TestVolumesInKubernetes(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	ns := cluster.Namespace(t)
	csi := kubetest.StartCSI(t, cluster, kubetest.Provisioner)
	class, late := csi.AddClass(t, nil), csi.AddClass(t, func(c *kubetest.Class) { c.VolumeBindingMode = "WaitForFirstConsumer" })
	second := csi.AddClass(t, nil)
	g := start(t, func(c *storage.Config) { c.KubernetesClusters = []string{"prod=" + ns + "@" + cluster.Kubeconfig} })
	g.call("POST", "/backends", g.admin, object{"name": "c", "backend_type": "kubernetes"}).Refused(400, "VALIDATION_ERROR", "connection_ref")
	b := contracttest.As[storageapi.Backend](g.call("POST", "/backends", g.admin, object{
		"name": "prod", "backend_type": "kubernetes",
	}).Want(201))
	foreign := &kubetest.Claim{Meta: kube.Meta{Name: "theirs"}}
	foreign.Spec = kubetest.ClaimSpec{AccessModes: []string{"ReadWriteOnce"}, StorageClassName: class, VolumeMode: "Filesystem"}
	foreign.Spec.Resources.Requests.Storage = "4Mi"
	kubetest.Create(t, cluster, kube.PersistentVolumeClaims, ns, foreign)
	kubetest.Await(t, cluster, kube.PersistentVolumeClaims, ns, "theirs", func(c *kubetest.Claim) bool { return c != nil && c.Status.Phase == "Bound" })
	g.call("POST", "/backends/"+b.Id+"/discover", g.admin, nil).Want(200)
	kinds := map[string]storageapi.PoolKind{}
	for _, p := range contracttest.As[[]storageapi.Pool](g.call("GET", "/pools?backend=prod", g.admin, nil).Want(200)) {
		kinds[p.Name] = p.Kind
	}
	if len(kinds) != 3 || kinds[class] != "storage_class" || kinds[second] != "storage_class" || kinds[late] != "other" {
		t.Errorf("%v", kinds)
	}
	for _, kind := range []string{"block", "filesystem"} {
		g.call("PUT", "/policies/"+kind, g.admin, object{"backend_id": b.Id, "kind": kind, "pool": class}).Want(200)
		a := g.call("POST", "/volumes", g.admin, object{
			"name": kind, "size_bytes": 8 * mib, "policy": kind, "kubernetes": object{"create_pvc": true, "namespace": ns},
		})
		r := contracttest.As[storageapi.VolumeAccepted](a.Want(202)).Resource
		id := g.done(a, g.admin)
		if r.VolumeId != id || r.Namespace != ns || r.StorageClass != class || r.Pvc != "vol-"+id {
			t.Errorf("%+v", r)
		}
		v := g.volume(id, g.admin)
		if v.State != "available" || v.SizeBytes != 8*mib || !v.SizeEnforced || string(v.Kind) != kind || v.KubernetesNamespace != ns ||
			v.PvcName != "vol-"+id || v.StorageClassName != class {
			t.Errorf("%+v", v)
		}
		snapshot := g.done(g.call("POST", "/volumes/"+id+"/snapshots", g.admin, nil), g.admin)
		clone := g.done(g.call("POST", "/snapshots/"+snapshot+"/clone", g.admin, object{
			"name": kind + "-2", "size_bytes": 16 * mib,
		}), g.admin)
		g.done(g.call("POST", "/volumes/"+id+"/expand", g.admin, object{"new_size_bytes": 32 * mib}), g.admin)
		if v, c := g.volume(id, g.admin), g.volume(clone, g.admin); v.SizeBytes != 32*mib || c.SizeBytes != 16*mib || c.PvcName != "vol-"+clone {
			t.Errorf("%+v, %+v", v, c)
		}
		// One that a pod uses is not deleted.
		pod := kubetest.Create(t, cluster, kube.Pods, ns, kubetest.PodUsing("user", "vol-"+clone))
		j := g.job(contracttest.As[storageapi.VolumeAccepted](g.call("DELETE", "/volumes/"+clone, g.admin, nil).Want(202)).JobId, g.admin)
		if j.State != "failed" || !strings.Contains(g.volume(clone, g.admin).LastError, ": user;") {
			t.Errorf("%+v, %+v", j, g.volume(clone, g.admin))
		}
		if err := kube.Delete(t.Context(), cluster.Client, kube.Pods, ns, "user", pod.Meta.UID); err != nil {
			t.Error(err)
		}
		g.done(g.call("DELETE", "/snapshots/"+snapshot+"?force=true", g.admin, nil), g.admin)
		g.done(g.call("DELETE", "/volumes/"+id, g.admin, nil), g.admin)
		g.done(g.call("DELETE", "/volumes/"+clone, g.admin, nil), g.admin)
	}
	for _, c := range []struct {
		claim       object
		code, field string
	}{
		{object{"namespace": "other"}, "VALIDATION_ERROR", "kubernetes.namespace"},
		{object{"storage_class": "none"}, "VALIDATION_ERROR", "kubernetes.storage_class"},
		{object{"storage_class": late}, "VALIDATION_ERROR", "kubernetes.storage_class"},
	} {
		g.call("POST", "/volumes", g.admin, object{
			"name": "a", "size_bytes": mib, "policy": "block", "kubernetes": c.claim,
		}).Refused(400, c.code, c.field)
	}
	id := g.done(g.call("POST", "/volumes", g.admin, object{
		"name": "elsewhere", "size_bytes": mib, "policy": "block", "kubernetes": object{"storage_class": second},
	}), g.admin)
	if v := g.volume(id, g.admin); v.StorageClassName != second {
		t.Errorf("%+v", v)
	}
	for claimed, status := range map[string]int{second: 202, class: 409} { // the request is repeated
		g.call("POST", "/volumes", g.admin, object{
			"name": "elsewhere", "size_bytes": mib, "policy": "block", "kubernetes": object{"storage_class": claimed},
		}).Want(status)
	}
	g.done(g.call("DELETE", "/volumes/"+id, g.admin, nil), g.admin)

	// What other people made is shown, and stays.
	all := contracttest.As[[]storageapi.Volume](g.call("GET", "/volumes?backend=prod", g.admin, nil).Want(200))
	if len(all) != 1 || all[0].PvcName != "theirs" || all[0].Managed || all[0].KubernetesNamespace != ns {
		t.Fatalf("%+v", all)
	}
	g.call("DELETE", "/volumes/"+all[0].Id, g.admin, nil).Want(409)
	kubetest.Get[kubetest.Claim](t, cluster, kube.PersistentVolumeClaims, ns, "theirs")
	if left := csi.Handles(t); len(left) != 1 {
		t.Errorf("%v are left", left)
	}
	// A volume elsewhere has no claim.
	local := g.done(g.call("POST", "/volumes", g.admin, object{"name": "local", "size_bytes": mib, "policy": "default"}), g.admin)
	if v := g.volume(local, g.admin); v.KubernetesNamespace != "" || v.PvcName != "" || v.StorageClassName != "" {
		t.Errorf("%+v", v)
	}
}

func TestEntriesOfKubernetesClustersAreChecked(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{
		"prod", "prod=", "=/etc/kube", "prod=config", "prod=ns@config", "prod=@/etc/kube", "prod=NS@/etc/kube", "prod=a/b@/etc/kube",
		"a b=/etc/kube",
	} {
		c := storage.Config{KubernetesClusters: []string{entry}}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "kubernetes-clusters") {
			t.Errorf("%s: %v", entry, err)
		}
	}
}
