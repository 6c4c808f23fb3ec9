package storage_test

import (
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli"
	"github.com/mainstay-infra/mainstay/cli/clitest"
	"github.com/mainstay-infra/mainstay/kit/contract"
)

// load reads the contract once: it takes long, and the contract is not modified.
var load = sync.OnceValues(func() (*contract.Contract, error) {
	return contract.Load(storageapi.Document, storageapi.BasePath, []string{"open", "viewer", "operator", "admin"})
})

// serve runs a fake of the service.
func serve(t *testing.T, handlers map[string]http.HandlerFunc) *clitest.Service {
	t.Helper()
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	ready := handlers["/readyz"]
	if ready == nil {
		ready = answer(200, "ok")
	}
	return clitest.Serve(t, &clitest.Fake{
		Contract: c, BasePath: storageapi.BasePath, Examples: examples(), Handlers: handlers,
		Types:  map[string]string{"WatchJob": "text/event-stream"},
		Beside: map[string]http.HandlerFunc{"/version": answer(200, versionText), "/readyz": ready},
	})
}

const (
	volumeID    = "01a20b56-c1bc-741c-92d0-a6ddefd10973"
	snapshotID  = "01a20b56-c1bc-741c-92d0-a6ddefd10974"
	backendID   = "01a20b56-c1bc-741c-92d0-a6ddefd10975"
	clusterID   = "01a20b56-c1bc-741c-92d0-a6ddefd10976"
	groupID     = "01a20b56-c1bc-741c-92d0-a6ddefd10980"
	bucketID    = "01a20b56-c1bc-741c-92d0-a6ddefd10978"
	jobID       = "01a20b56-c1bc-741c-92d0-a6ddefd10977"
	versionText = `{"name":"mainstay-storage","version":"1","api":"v1"}`
	at          = `"2026-11-25T12:00:00Z"`
	abilities   = `{"block":true,"file":true,"object":false,"snapshots":true,"clone":true,"expansion":true,"replication":false}`
	backend     = `{"id":"` + backendID + `","name":"local","backend_type":"nfs","mode":"external","status":"ready","cordoned":false,` +
		`"capabilities":` + abilities + `,"connection_ref":"local","last_error":"","discovered_at":` + at + `,"created_at":` + at + `}`
	cluster = `{"id":"` + clusterID + `","backend_id":"` + backendID + `","name":"local","native_fsid":"x","health":"ok",` +
		`"raw_capacity_bytes":4096,"used_capacity_bytes":1024,"available_capacity_bytes":3072,"seen_at":` + at + `}`
	volume = `{"id":"` + volumeID + `","tenant_id":"acme","cluster_id":"` + clusterID + `","pool_id":"p","name":"data","kind":"block",` +
		`"policy":"default","backend_native_id":"vol","size_bytes":1073741824,"used_bytes":null,"size_enforced":true,` +
		`"state":"available","health":"ok","managed":true,"kubernetes_namespace":"","pvc_name":"","storage_class_name":"",` +
		`"source_snapshot_id":"","last_error":"","created_at":` + at + `,"updated_at":` + at + `}`
	snapshot = `{"id":"` + snapshotID + `","volume_id":"` + volumeID + `","tenant_id":"acme","name":"before","state":"ready",` +
		`"size_bytes":1073741824,"used_bytes":512,"consistency":"crash","snapshot_class":"","dependents":0,"last_error":"",` +
		`"created_at":` + at + `,"ready_at":` + at + `}`
	bucket = `{"id":"` + bucketID + `","tenant_id":"acme","name":"logs","bucket_name":"logs-1","endpoint":"https://s3",` +
		`"region":"us-east-1","secret_ref":"bucket-1","namespace":"","adopted":false,"state":"bound","last_error":"","created_at":` + at + `}`
	policy = `{"name":"default","description":"","backend_id":"` + backendID + `","pool":"","kind":"block","storage_class":"",` +
		`"snapshot_class":"","created_at":` + at + `}`
	tenant = `{"name":"acme","description":"","quota":{"bytes":2048},"used":{"volumes":1,"bytes":1024,"snapshots":0,"buckets":0,` +
		`"backup_bytes":0},"created_at":` + at + `}`
	done = `{"id":"` + jobID + `","kind":"volume.create","state":"succeeded","progress":1,"attempt":1,"resource":{"type":"volume","id":"` +
		volumeID + `"},"tenant":"acme","actor":"ada","created_at":` + at + `,"started_at":` + at + `,"finished_at":` + at + `}`
	alert = `{"id":"quota_near-acme:volumes-1","severity":"warning","source":"quota_near","resource_type":"tenant","resource_id":"acme:volumes",` +
		`"title":"t","description":"d","evidence":{"used":4},"state":"open","tenant_id":"acme","created_at":` + at +
		`,"resolved_at":null,"acknowledged_at":null,"acknowledged_by":"","silenced_until":null}`
	backupID = "01a20b56-c1bc-741c-92d0-a6ddefd10979"
	backup   = `{"id":"` + backupID + `","tenant_id":"acme","volume_id":"` + volumeID + `","volume_name":"data","bucket_id":"` + bucketID +
		`","object_key":"k","mode":"data","state":"completed","incremental":true,"full_reason":"","parent":"","size_bytes":4096,` +
		`"stored_bytes":1024,"checksum":"","encrypted":false,"consistency":"crash","error":"","created_at":` + at +
		`,"finished_at":` + at + `,"expires_at":null,"verification":{"method":"stored","ok":true,"detail":"d","at":` + at +
		`,"job_id":"j"}}`
	maintenance = `{"paused":true,"since":` + at + `,"by":"ada","queued":1,"running":0}`
	accepted    = `{"job_id":"` + jobID + `","state":"queued","links":{"job":"/j","watch":"/w"},"resource":`
)

// examples are what the fake answers, by operation.
func examples() map[string]string {
	onVolume := accepted + `{"volume_id":"` + volumeID + `","storage_class":"","namespace":"","pvc":""}}`
	onTrash := accepted + `{"trash_id":"` + volumeID + `","volume_id":"` + volumeID + `","cluster_id":"` + clusterID +
		`","pool":"vms","name":"data"}}`
	onSnapshot := accepted + `{"volume_id":"` + volumeID + `","snapshot_id":"` + snapshotID + `"}}`
	onBucket := accepted + `{"bucket_id":"` + bucketID + `","namespace":""}}`
	onOSD := accepted + `{"cluster_id":"` + clusterID + `","osd_id":3}}`
	group := `{"id":"` + groupID + `","tenant_id":"acme","name":"db","cluster_id":"` + clusterID + `","volume_ids":["` + volumeID +
		`"],"created_at":` + at + `}`
	schedule := `{"id":"` + groupID + `","tenant_id":"acme","name":"hourly","kind":"snapshot","enabled":true,"volume_id":"` + volumeID +
		`","every_secs":3600,"keep":2,"max_age_secs":0,"created_at":` + at + `,"next_at":` + at + `,"last_at":null,"last_job_id":"",` +
		`"last_error":""}`
	ofGroup := accepted + `{"snapshot_id":"s","group_id":"` + groupID + `","snap":"before"}}`
	ofBackup := accepted + `{"backup_id":"` + backupID + `","bucket_id":"` + bucketID + `","object_key":"k"}}`
	event := `[{"id":"audit-1","at":` + at + `,"type":"audit","kind":"volume.create","message":"data","actor":"ada","tenant_id":"acme",` +
		`"resource_type":"volume","resource_id":"` + volumeID + `"}]`
	image := `{"id":"` + volumeID + `","tenant_id":"acme","cluster_id":"` + clusterID + `","pool":"vms","name":"disk","size_bytes":4096,` +
		`"used_bytes":null,"state":"available","health":"ok","parent":"vms/base@one","iops":500,"bps":0,"managed":true,"created_at":` + at + `}`
	inPool := `"volume_id":"` + volumeID + `","cluster_id":"` + clusterID + `","pool":"vms","image":"disk"`
	onImage := accepted + `{` + inPool + `}}`
	ofImage := accepted + `{` + inPool + `,"snapshot_id":"` + snapshotID + `","snap":"before"}}`
	all := map[string]string{
		"ListRBDImages": "[" + image + "]", "CreateRBDImage": onImage, "DeleteRBDImage": onImage, "CloneRBDImage": onImage,
		"FlattenRBDImage": onImage, "MigrateRBDImage": onImage, "SetRBDQoS": onImage, "ResizeRBDImage": onImage,
		"RollbackRBDImage": onImage, "CreateRBDSnapshot": ofImage, "DeleteRBDSnapshot": ofImage,
		"ListRBDSnapshots": `[{"id":"","name":"before","size_bytes":4096,"protected":false,"created_at":null}]`,
		"RefreshRBDUsage":  accepted + `{"cluster_ids":["` + clusterID + `"]}}`,
		"MarkOSDOut":       onOSD, "MarkOSDIn": onOSD, "ReweightOSD": onOSD,
		"ListBackends": "[" + backend + "]", "GetBackend": backend, "CreateBackend": backend,
		"CordonBackend": backend, "UncordonBackend": backend,
		"DiscoverBackend": `{"state":"succeeded","summary":{"backend_id":"` + backendID + `","cluster_id":"` + clusterID +
			`","pools":1,"osds":0,"volumes":3,"new":2,"missing":1,"snapshots":0}}`,
		"ListClusters": "[" + cluster + "]", "GetClusterCapabilities": abilities,
		"GetClusterHealth": `{"status":"ok","summary":"","raw_capacity_bytes":1,"used_capacity_bytes":1,` +
			`"available_capacity_bytes":0,"recovering":false,"degraded_objects":0,"seen_at":` + at + `}`,
		"ListNodes": `[{"cluster_id":"` + clusterID + `","name":"n1","osds":2,"osds_up":2,"osds_in":1,"used_bytes":1,"capacity_bytes":2}]`,
		"ListOSDs": `[{"id":3,"cluster_id":"` + clusterID + `","up":true,"in_cluster":false,"device_class":"ssd","host":"n1",` +
			`"used_bytes":1,"capacity_bytes":0}]`,
		"ListPools": `[{"id":"p","cluster_id":"` + clusterID + `","name":"volumes","kind":"nfs_export","device_class":"",` +
			`"replica_size":1,"used_bytes":1,"max_bytes":4,"health":"ok","missing":false}]`,
		"ListVolumes": "[" + volume + "]", "GetVolume": volume, "CreateVolume": onVolume, "ExpandVolume": onVolume,
		"DeleteVolume": onVolume, "ListVolumeSnapshots": "[" + snapshot + "]",
		"ListTrash": `[{"id":"` + volumeID + `","volume_id":"` + volumeID + `","tenant_id":"acme","cluster_id":"` + clusterID +
			`","pool":"vms","name":"data","kind":"block","size_bytes":4096,"state":"trashed","last_error":"","deleted_at":` + at +
			`,"deleted_by":"ada","purge_at":` + at + `}]`,
		"RestoreTrash": onTrash, "PurgeTrash": onTrash,
		"ListSnapshots": "[" + snapshot + "]", "GetSnapshot": snapshot, "CreateSnapshot": onSnapshot, "DeleteSnapshot": onSnapshot,
		"CloneSnapshot":   accepted + `{"volume_id":"` + volumeID + `","mode":"clone"}}`,
		"RestoreSnapshot": accepted + `{"volume_id":"` + volumeID + `","mode":"restore"}}`,
		"ListBuckets":     "[" + bucket + "]", "GetBucket": bucket, "CreateBucket": onBucket, "DeleteBucket": onBucket,
		"GetBucketStats": `{"bucket_id":"` + bucketID + `","bucket":"logs-1","available":true,"reason":"","num_objects":2,"size_bytes":3,` +
			`"quota":{"max_objects":0,"max_size":0},"versioning":"disabled","lifecycle":[]}`,
		"ListBucketObjects": `[{"key":"a/","folder":true,"size_bytes":0,"modified_at":null},` +
			`{"key":"b\u001b","folder":false,"size_bytes":1024,"modified_at":` + at + `}]`,
		"ListPolicies": "[" + policy + "]", "GetPolicy": policy, "PutPolicy": policy,
		"ListTenants": "[" + tenant + "]", "GetTenant": tenant, "PutTenant": tenant,
		"ListJobs": "[" + done + "]", "GetJob": done, "CancelJob": done, "WatchJob": "event: job\ndata: " + done + "\n\n",
		"ListAlerts": "[" + alert + "]", "AcknowledgeAlert": alert, "SilenceAlert": alert, "ResolveAlert": alert,
		"EvaluateAlerts": `{"evaluated":11,"open_alerts":1}`, "GetMaintenance": maintenance, "SetMaintenance": maintenance,
		"GetSummary": `{"raw_capacity_bytes":4,"used_capacity_bytes":1,"available_capacity_bytes":3,"clusters":1,"pools":1,"volumes":1,` +
			`"forecasts":[]}`,
		"ListSchedules": "[" + schedule + "]", "GetSchedule": schedule, "CreateSchedule": schedule, "UpdateSchedule": schedule,
		"ListVolumeGroups": "[" + group + "]", "GetVolumeGroup": group, "CreateVolumeGroup": group, "DeleteVolumeGroup": group,
		"ListGroupSnapshots": `[{"id":"s","group_id":"` + groupID + `","name":"before","state":"ready","consistency":"crash",` +
			`"volume_ids":["` + volumeID + `"],"last_error":"","created_at":` + at + `}]`,
		"CreateGroupSnapshot": ofGroup, "DeleteGroupSnapshot": ofGroup, "RollbackGroup": ofGroup,
		"ListBackups": "[" + backup + "]", "ListOrphans": "[" + backup + "]", "GetBackup": backup, "CreateBackup": ofBackup,
		"VerifyBackup": ofBackup, "DeleteBackup": ofBackup, "ImportBackups": onBucket,
		"RestoreBackup": accepted + `{"volume_id":"` + volumeID + `","mode":"restore"}}`,
		"ListEvents":    event, "ListVolumeEvents": event,
		"GetUpgradePreflight": `{"ready":true,"checks":[{"name":"jobs","ok":true,"detail":"none"}],"blockers":[]}`,
		"ListCephMetrics":     `[{"name":"ceph_osd_up","value":1,"labels":{"cluster":"prod","ceph_daemon":"osd.0"}}]`,
		"GetCapacityHistory": `{"now":` + at + `,"from":` + at + `,"to":` + at + `,"step_seconds":60,"points":[{"at":` + at +
			`,"raw_capacity_bytes":4,"used_capacity_bytes":1,"health":"ok"}]}`,
		"ListAudit": `[{"seq":1,"time":` + at + `,"actor":"ada","action":"volume.create","target":"v","tenant":"","result":"ok","message":""}]`,
		"VerifyAudit": `{"ok":true,"entries":1,"verified":1,"reason":"","genesis":"g","head_seq":1,"head_hash":"h","segments":[],` +
			`"breaks":[],"checkpoints":{"count":0,"since":null,"newest_at":null,"newest_seq":0,"cut":0}}`,
	}
	maps.Copy(all, drExamples())
	return all
}

// commandLines are command lines with the operations that they call. A table may call more, for names.
func commandLines() map[string]string {
	all := map[string]string{
		"version":                  "/version",
		"health":                   "/readyz",
		"backend list --type nfs":  "ListBackends",
		"backends ls":              "ListBackends",
		"backend show local":       "ListBackends GetBackend",
		"backend get " + backendID: "GetBackend",
		"backend discover local":   "ListBackends DiscoverBackend",
		"backend cordon local":     "ListBackends CordonBackend",
		"backend uncordon local":   "ListBackends UncordonBackend",
		"backend create e --type nfs --mode read_only --connection exports": "CreateBackend",
		"cluster list --backend local":                                      "ListBackends ListClusters",
		"cluster health local":                                              "ListClusters GetClusterHealth",
		"cluster capabilities local":                                        "ListClusters GetClusterCapabilities",
		"node list --cluster local":                                         "ListNodes",
		"osd list --cluster local --host n1":                                "ListOSDs",
		"osd out 3 --cluster local":                                         "MarkOSDOut GetJob GetJob",
		"osd in 3":                                                          "MarkOSDIn GetJob GetJob",
		"osd reweight 3 --weight 0.5 --no-wait":                             "ReweightOSD GetJob",
		"pool list --backend local --kind nfs_export --cluster local":       "ListBackends ListPools",
		"policy list":                                                       "ListPolicies",
		"policy show default":                                               "GetPolicy",
		"policy delete p --yes":                                             "DeletePolicy",
		"policy set default --backend local --kind block --pool p --description d": "ListBackends PutPolicy",
		"tenant list":              "ListTenants",
		"tenant show acme":         "GetTenant",
		"tenant delete acme --yes": "DeleteTenant",
		"tenant set acme --volumes 5 --capacity 10TiB --snapshots 0 --description d":                           "PutTenant",
		"volume list --state available --tenant acme --backend local --cluster local --kind block --search da": "ListBackends ListVolumes",
		"volume list --owner-product vm --owner-resource web --all":                                            "ListVolumes",
		"volume show data": "ListVolumes GetVolume",
		"volume create data --size 1GiB --policy default --kind block --tenant acme": "CreateVolume GetJob GetVolume",
		"volumes create data --size 1 --no-wait --idempotency-key k":                 "CreateVolume GetJob",
		"volume expand data --size 2G":                                               "ListVolumes ExpandVolume GetJob GetVolume",
		"volume delete data --yes":                                                   "ListVolumes DeleteVolume GetJob GetJob",
		"volume rm " + volumeID + " --yes --no-wait":                                 "DeleteVolume GetJob",
		"volume delete data --trash 72h --yes --no-wait":                             "ListVolumes DeleteVolume GetJob",
		"trash list --tenant acme --cluster local":                                   "ListTrash",
		"trash restore data --name data-2":                                           "ListTrash RestoreTrash GetJob GetVolume",
		"trash purge data --yes":                                                     "ListTrash PurgeTrash GetJob GetJob",
		"volume snapshots data":                                                      "ListVolumes ListVolumeSnapshots",
		"snapshot list --volume data --tenant acme --state ready --cluster local":    "ListVolumes ListSnapshots",
		"snapshot show before":                                                       "ListSnapshots GetSnapshot",
		"snapshot create data --name before":                                         "ListVolumes CreateSnapshot GetJob GetSnapshot",
		"snapshot create data --no-wait":                                             "ListVolumes CreateSnapshot GetJob",
		"snapshot clone before data-2":                                               "ListSnapshots CloneSnapshot GetJob GetVolume",
		"snapshot clone before data-2 --size 2GiB":                                   "ListSnapshots CloneSnapshot GetJob GetVolume",
		"snapshot restore before":                                                    "ListSnapshots RestoreSnapshot GetJob GetVolume",
		"snapshot restore before --name n --size 2G":                                 "ListSnapshots RestoreSnapshot GetJob GetVolume",
		"snapshot delete before --force --yes":                                       "ListSnapshots DeleteSnapshot GetJob GetJob",
		"snapshot restore before --in-place --yes":                                   "ListSnapshots RestoreSnapshot GetJob GetVolume",
		"image list --pool vms --tenant acme --cluster local":                        "ListRBDImages",
		"image create vms/disk --size 1GiB --cluster local --tenant acme":            "CreateRBDImage GetJob GetVolume",
		"image clone vms/disk@before disk-2":                                         "CloneRBDImage GetJob GetVolume",
		"image flatten vms/disk":                                                     "FlattenRBDImage GetJob GetVolume",
		"image qos vms/disk --iops 0 --bps 1MiB":                                     "SetRBDQoS GetJob GetVolume",
		"image resize vms/disk --size 1GiB --allow-shrink":                           "ResizeRBDImage GetJob GetVolume",
		"image migrate vms/disk fast --no-wait":                                      "MigrateRBDImage GetJob",
		"image delete vms/disk --yes":                                                "DeleteRBDImage GetJob GetJob",
		"image usage --cluster local":                                                "RefreshRBDUsage GetJob GetJob",
		"image snapshots vms/disk --cluster local":                                   "ListRBDSnapshots",
		"image snapshot vms/disk@before":                                             "CreateRBDSnapshot GetJob GetJob",
		"image rollback vms/disk@before --yes":                                       "RollbackRBDImage GetJob GetJob",
		"image delete-snapshot vms/disk@before --yes":                                "DeleteRBDSnapshot GetJob GetJob",
		"job list --state failed --kind volume.create --about v --tenant acme":       "ListJobs",
		"job show " + jobID[:30]:                                                     "ListJobs GetJob",
		"job wait " + jobID:                                                          "GetJob GetJob",
		"job watch " + jobID:                                                         "WatchJob",
		"job cancel " + jobID:                                                        "CancelJob",
		"audit list --action volume.create --tenant acme":                            "ListAudit",
		"alert list": "ListAlerts",
		"alerts list --state all --severity critical": "ListAlerts",
		"alert evaluate": "EvaluateAlerts",
		"alert acknowledge quota_near-acme:volumes-1":             "ListAlerts AcknowledgeAlert",
		"bucket list --state bound --tenant acme --backend local": "ListBackends ListBuckets",
		"buckets show logs":                          "ListBuckets GetBucket",
		"bucket stats logs":                          "ListBuckets GetBucketStats",
		"bucket objects logs --prefix a/ --all":      "ListBuckets ListBucketObjects",
		"bucket delete logs --force --yes":           "ListBuckets DeleteBucket GetJob GetJob",
		"bucket create off --connection c --no-wait": "CreateBucket GetJob",
		"bucket create logs --backend local --tenant acme --max-objects 5 --max-size 1G --versioning":                          "ListBackends CreateBucket GetJob GetBucket",
		"alert silence quota_near-acme:volumes-1 --for 8h --reason work":                                                       "ListAlerts SilenceAlert",
		"alert resolve quota_near-acme:volumes-1":                                                                              "ListAlerts ResolveAlert",
		"capacity show --cluster local":                                                                                        "GetSummary",
		"capacity history --cluster local --since 1h --points 60":                                                              "GetCapacityHistory",
		"backup list --volume data --bucket logs --tenant acme --state completed":                                              "ListBuckets ListVolumes ListBackups",
		"group list --tenant acme --cluster local":                                                                             "ListVolumeGroups",
		"schedule list --tenant acme --kind snapshot --volume data":                                                            "ListVolumes ListSchedules",
		"schedule show hourly":                                                                                                 "ListSchedules GetSchedule",
		"schedule create h --kind backup --volume data --bucket logs --every 1h --keep 2 --max-age 24h --key k --full-every 7": "ListBuckets ListVolumes CreateSchedule",
		"schedule create g --kind snapshot --group db --every 1h --first 2027-01-01T03:00:00Z":                                 "ListVolumeGroups CreateSchedule",
		"schedule update hourly --disabled --keep 3":                                                                           "ListSchedules GetSchedule UpdateSchedule",
		"schedule delete hourly --yes":                                                                                         "ListSchedules DeleteSchedule",
		"group show db":                                                                                                        "ListVolumeGroups GetVolumeGroup",
		"group create db data":                                                                                                 "ListVolumes CreateVolumeGroup",
		"group delete db --yes":                                                                                                "ListVolumeGroups DeleteVolumeGroup",
		"group snapshots db":                                                                                                   "ListVolumeGroups ListGroupSnapshots",
		"group snapshot db --name before":                                                                                      "ListVolumeGroups CreateGroupSnapshot GetJob GetJob",
		"group rollback db before --yes":                                                                                       "ListVolumeGroups RollbackGroup GetJob GetJob",
		"group delete-snapshot db before --yes":                                                                                "ListVolumeGroups DeleteGroupSnapshot GetJob GetJob",
		"backup show " + backupID:                                                                                              "GetBackup",
		"backup create data --bucket logs --key k --full --keep 3 --max-age 24h":                                               "ListVolumes ListBuckets CreateBackup GetJob GetBackup",
		"backup create data --bucket logs --mode manifest --no-wait":                                                           "ListVolumes ListBuckets CreateBackup GetJob",
		"backup verify " + backupID + " --method source":                                                                       "VerifyBackup GetJob GetBackup",
		"backup restore " + backupID + " --name n --policy default --size 1G":                                                  "RestoreBackup GetJob GetVolume",
		"backup restore " + backupID + " --in-place --yes":                                                                     "RestoreBackup GetJob GetVolume",
		"backup verify " + backupID + " --method restore":                                                                      "VerifyBackup GetJob GetBackup",
		"backup delete " + backupID + " --yes":                                                                                 "DeleteBackup GetJob GetJob",
		"backup orphans --tenant acme":                                                                                         "ListOrphans",
		"backup import logs --key k --tenant acme":                                                                             "ListBuckets ImportBackups GetJob GetJob",
		"event list --type job --tenant acme --about x":                                                                        "ListEvents",
		"volume events data":                                                                                                   "ListVolumes ListVolumeEvents",
		"preflight":                                                                                                            "GetUpgradePreflight",
		"cluster metrics --prefix ceph --cluster prod":                                                                         "ListCephMetrics",
		"maintenance show":                                                                                                     "GetMaintenance",
		"maintenance pause":                                                                                                    "SetMaintenance",
		"maintenance resume":                                                                                                   "SetMaintenance",
		"audit verify":                                                                                                         "VerifyAudit",
		"audit acknowledge 7 --note read":                                                                                      "AcknowledgeAudit",
	}
	maps.Copy(all, drLines())
	return all
}

func TestEveryCommandMakesTheCallsItIsForAndKeepsTheContract(t *testing.T) {
	t.Parallel()
	for line, operations := range commandLines() {
		for _, format := range []string{"table", "json", "yaml"} {
			t.Run(line+" "+format, func(t *testing.T) {
				t.Parallel()
				s := serve(t, nil)
				args := append([]string{"storage", "--server", s.URL, "--token", "t", "--output", format}, strings.Fields(line)...)
				code, out, errOut := clitest.Run(t, t.TempDir(), "", args...)
				called := s.Called()
				if format == "table" { // which asks for names besides
					called = called[:min(len(called), len(operations))]
				}
				if code != 0 || called != operations {
					t.Errorf("exit code %d, called %q\n%s%s", code, s.Called(), out, errOut)
				}
				if strings.Contains(out, "<nil>") || strings.Contains(out, "0x") || strings.Contains(out, "%!") {
					t.Errorf("prints what is meant for programmers: %s", out)
				}
			})
		}
	}
}

func TestEveryOperationHasACommand(t *testing.T) {
	t.Parallel()
	var reached []string
	for _, operations := range commandLines() {
		reached = append(reached, strings.Fields(operations)...)
	}
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range c.Operations() {
		if !slices.Contains(reached, op.ID) {
			t.Errorf("%s (%s %s)", op.ID, op.Method, op.Path)
		}
	}
}

func TestEveryCommandHasAnExampleThatParses(t *testing.T) {
	t.Parallel()
	root := cli.NewRoot(cli.IO{})
	group, _, err := root.Find([]string{"storage"})
	if err != nil {
		t.Fatal(err)
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !strings.Contains(cmd.Example, "mainstay "+strings.TrimPrefix(cmd.CommandPath(), "mainstay ")) {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " && ")
			words := strings.Fields(strings.ReplaceAll(line, "'", ""))
			found, rest, err := root.Find(words[1:])
			if err != nil || found.HasSubCommands() {
				t.Errorf("%q: %v", line, err)
				continue
			}
			for _, word := range rest {
				name, isFlag := strings.CutPrefix(word, "--")
				if isFlag && found.Flags().Lookup(name) == nil && found.InheritedFlags().Lookup(name) == nil {
					t.Errorf("%q: there is no flag --%s", line, name)
				}
			}
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(group)
}

func TestATableShowsNamesAndSizes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"volume list":                            "data   available   block   1.0 GiB   -      default   local     acme",
		"snapshot list":                          snapshotID + "   before   data     ready   1.0 GiB   512 B   crash",
		"bucket list":                            "logs   bound   logs-1   https://s3   no        acme",
		"bucket objects logs":                    "b\\x1b   1.0 KiB   2026-",
		"bucket create logs":                     "The bucket logs is logs-1 at https://s3.\n",
		"bucket delete logs --yes":               "Deleted the bucket logs.\n",
		"backend list":                           "local   nfs    external   ready    block,file,snapshots,clone,expansion   local",
		"cluster list":                           "local   local     ok       1.0 KiB of 4.0 KiB (25%)",
		"osd list":                               "3    n1     yes   no   -        ssd     1 B of 0 B   local",
		"tenant list":                            "acme   1         1.0 KiB of 2.0 KiB   0",
		"job list":                               jobID + "   volume.create   succeeded   100%       data    acme     ada",
		"volume create data --size 1GiB":         "Made the volume data of 1.0 GiB.\n",
		"volume expand data --size 1GiB":         "The volume data has 1.0 GiB.\n",
		"volume delete data --yes":               "Deleted the volume data.\n",
		"snapshot create data":                   "Took the snapshot before of data.\n",
		"snapshot restore before":                "Restored to the volume data of 1.0 GiB.\n",
		"backend discover local":                 "local has 3 volumes: 2 are new, 1 are missing.\n",
		"job watch " + jobID:                     "volume.create succeeded, 100%\n",
		"health":                                 "The gateway can work.\n",
		"volume create data --size 1 --no-wait":  "'mainstay storage job wait " + jobID + "'",
		"volume create d --size 1 -q":            volumeID + "\n",
		"volume create d --size 1 --no-wait -q":  jobID + "\n",
		"volume list --template {{.size_bytes}}": "1073741824\n",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s := serve(t, nil)
			args := append([]string{"storage", "--server", s.URL, "--token", "t"}, strings.Fields(line)...)
			if code, out, errOut := clitest.Run(t, t.TempDir(), "", args...); code != 0 || !strings.Contains(out, want) {
				t.Errorf("exit code %d:\n%s%s", code, out, errOut)
			}
		})
	}
}

func TestSizesHaveUnitsAndReachTheService(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"volume create data --size 10GiB":           `"size_bytes":10737418240`,
		"volume expand data --size 2T":              `"new_size_bytes":2199023255552`,
		"snapshot clone before d --size 1M":         `"size_bytes":1048576`,
		"bucket create b --max-size 1K":             `{"max_size":1024,"name":"b"}`,
		"tenant set acme --capacity 1K":             `{"quota":{"bytes":1024}}`,
		"tenant set acme --volumes 0":               `{"quota":{"volumes":0}}`,
		"policy set p --backend local --kind block": `{"backend_id":"` + backendID + `","kind":"block"}`,
	} {
		s := serve(t, nil)
		args := append([]string{"storage", "--server", s.URL, "--token", "t"}, strings.Fields(line)...)
		if code, _, errOut := clitest.Run(t, t.TempDir(), "", args...); code != 0 || !strings.Contains(s.Body(), want) {
			t.Errorf("%s: exit code %d, %s: %s", line, code, s.Body(), errOut)
		}
	}
}

// answer answers a request for a fake with JSON.
func answer(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

func refusal(code, message string) string {
	return `{"error":{"code":"` + code + `","message":"` + message + `","request_id":"r1"}}`
}

func TestWhatFailsSaysWhyAndWhatToDo(t *testing.T) {
	t.Parallel()
	failed := strings.Replace(done, `"succeeded"`, `"failed","error":{"code":"FAILED","message":"the disk is \u001bfull"}`, 1)
	for line, tt := range map[string]struct {
		operation string
		handler   http.HandlerFunc
		code      int
		want      string
	}{
		"volume create data --size 1G": {"GetJob", answer(200, failed), 1, "hint: 'mainstay storage job show " + jobID},
		"job wait " + jobID:            {"GetJob", answer(200, failed), 1, `the disk is \x1bfull`},
		"job watch " + jobID:           {"GetNothing", nil, 0, ""},
		"volume list":                  {"ListVolumes", answer(401, refusal("UNAUTHENTICATED", "a token is required")), 4, "mainstay login storage"},
		"audit list":                   {"ListAudit", answer(403, refusal("DENIED", "this takes the role admin")), 4, "hint: use a token with this role"},
		"volume create d --size 1G --tenant acme": {
			"CreateVolume",
			answer(403, `{"error":{"code":"DENIED","limit":"bytes","message":"no room","request_id":"r1"}}`), 4,
			"mainstay storage tenant list",
		},
		"volume show other":                 {"GetNothing", nil, 3, "hint: 'mainstay storage volume list' shows what there is"},
		"volume create d --size 1G -o json": {"CreateVolume", answer(503, refusal("BACKEND_CORDONED", "it is cordoned")), 5, "backend uncordon BACKEND"},
		"health":                            {"/readyz", answer(503, refusal("UNAVAILABLE", "the database does not answer")), 5, "the database does not answer"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s := serve(t, map[string]http.HandlerFunc{tt.operation: tt.handler})
			args := append([]string{"storage", "--server", s.URL, "--token", "t"}, strings.Fields(line)...)
			if code, out, errOut := clitest.Run(t, t.TempDir(), "", args...); code != tt.code || !strings.Contains(errOut, tt.want) {
				t.Errorf("exit code %d:\n%s%s", code, out, errOut)
			}
		})
	}
}

func TestAJobIsWaitedForUntilItEnds(t *testing.T) {
	t.Parallel()
	asked := 0
	running := strings.Replace(strings.Replace(done, "succeeded", "running", 1), `"progress":1`, `"progress":0.5`, 1)
	s := serve(t, map[string]http.HandlerFunc{"GetJob": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("wait") == "" {
			t.Error("it asks again and again instead of letting the server wait")
		}
		if asked++; asked < 3 {
			answer(200, running)(w, r)
			return
		}
		answer(200, done)(w, r)
	}})
	code, out, errOut := clitest.Run(t, t.TempDir(), "", "storage", "--server", s.URL, "--token", "t", "volume", "create", "data", "--size", "1G")
	if code != 0 || asked != 3 || out != "Made the volume data of 1.0 GiB.\n" || errOut != "" {
		t.Errorf("exit code %d, asked %d times: %s%s", code, asked, out, errOut)
	}
}

func TestAWatchedJobIsPrintedAsItChangesAndItsFailureFails(t *testing.T) {
	t.Parallel()
	running := strings.Replace(done, "succeeded", "running", 1)
	failed := strings.Replace(done, `"succeeded"`, `"failed","error":{"code":"CANCELLED","message":"the job was cancelled"}`, 1)
	s := serve(t, map[string]http.HandlerFunc{"WatchJob": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: job\ndata: "+running+"\n\nevent: job\ndata: "+failed+"\n\n")
	}})
	code, out, errOut := clitest.Run(t, t.TempDir(), "", "storage", "--server", s.URL, "--token", "t", "job", "watch", jobID, "-o", "json")
	if code != 1 || strings.Count(out, "\n") != 2 || !strings.Contains(errOut, "the job was cancelled") || s.Called() != "WatchJob" {
		t.Errorf("exit code %d, called %s: %s%s", code, s.Called(), out, errOut)
	}
}

func TestWithoutATokenItUsesTheOneThatDevModeLeft(t *testing.T) {
	t.Parallel()
	s, dir := serve(t, nil), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".mainstay"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, ".mainstay", "credentials.json")
	if err := os.WriteFile(file, []byte(`{"storage":{"jwt_secret":"s","token":"of dev"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := clitest.Run(t, dir, "", "storage", "--server", s.URL, "policy", "list", "-q"); code != 0 || s.Auth() != "Bearer of dev" {
		t.Errorf("exit code %d, called as %q: %s", code, s.Auth(), errOut)
	}
}

func TestWrongUseIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for line, want := range map[string]string{
		"volume create data":                                "--size is missing",
		"volume create data --size 1.5G":                    "must be a size",
		"volume create data --size 0":                       "must be a size",
		"volume expand data":                                "--size is missing",
		"volume list --state=":                              "--state is empty",
		"volume list --limit 0":                             "--limit must be at least 1",
		"volume delete data":                                "--yes",
		"snapshot delete before":                            "--yes",
		"snapshot clone before":                             "NAME is missing",
		"policy set p --kind block":                         "--backend is missing",
		"backend create e":                                  "--type is missing",
		"audit acknowledge 7":                               "note",
		"volum list":                                        "did you mean volume",
		"image create disk --size 1":                        "write POOL/IMAGE",
		"image create a/b/c --size 1":                       "write POOL/IMAGE",
		"image snapshot vms/disk":                           "write POOL/IMAGE@SNAP",
		"image rollback vms/disk@before":                    "--yes",
		"schedule update hourly":                            "every",
		"image qos vms/disk":                                "iops",
		"snapshot restore before --in-place --name n --yes": "in-place",
	} {
		code, _, errOut := clitest.Run(t, t.TempDir(), "", append([]string{"storage", "--server", s.URL, "--token", "t"}, strings.Fields(line)...)...)
		if code != 2 || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d: %s", line, code, errOut)
		}
	}
	if s.Called() != "" {
		t.Errorf("called %s", s.Called())
	}
}
