package daemontest

import (
	"crypto/sha256"
	"encoding/hex"
)

// VMID is the id of the only VM, whose name is web.
const VMID = "01a1ffd4-4443-7c85-916f-20e2f635613c"

const (
	at       = `"2026-01-02T03:04:05Z"`
	vmFields = `"id":"` + VMID + `","name":"web","backend":"qemu","state":"running","vcpus":2,"memory_mib":512,"disk_gib":20,"image":"debian-12","tenant":"acme","storage":"dir","network":{"mode":"user"},"labels":{"role":"web"},"autostart":false,"ips":["10.0.2.15"],"mac":"52:54:00:ae:b2:4d","created_at":` + at + `,"generation":3,"last_error":"","agent":{"enabled":true,"connected":true,"version":"1"},"pending":[],"disks":[` + disk + `],"cd":{"image":"debian-12-iso"}`
	disk     = `{"name":"data","size_gib":50,"read_only":false,"serial":"data","iops":500,"bytes_per_second":0,"state":"attached","created_at":` + at + `}`
	vm       = `{` + vmFields + `}`
	fleetVM  = `{` + vmFields + `,"node":"host-1"}`
	template = `{"id":"t","name":"warm","image":"demo","sha256":"00","vcpus":1,"memory_mib":512,"network":true,"disk_bytes":0,
		"backend_version":"7.2","machine":"microvm","cpu":"max","accelerator":"tcg","agent_version":"1",
		"size_bytes":133000000,"created_at":` + at + `,"usable":true,"detail":""}`
	image     = `{"name":"demo","kind":"kernel","source":"built of the host's packages","sha256":"00","size_bytes":17009068,"virtual_size_bytes":0,"signature_valid":null,"read_only":false,"locked":true,"added_at":` + at + `}`
	snapshot  = `{"name":"one","kind":"disk","description":"","created_at":` + at + `,"memory_bytes":0}`
	backup    = `{"id":"b1","vm_id":"` + VMID + `","vm_name":"web","tenant":"acme","kind":"full","description":"","created_at":` + at + `,"size_bytes":196624,"virtual_size_bytes":1073741824,"sha256":"00","left_out":["data"]}`
	transfer  = `{"id":"t1","vm_id":"` + VMID + `","direction":"read","size_bytes":1048576,"checkpoint":"c1","changed":true,"consistency":"filesystem"}`
	operation = `{"id":"o1","kind":"image.add","state":"running","progress":0.25,"image":"demo","created_at":` + at + `,"error":""}`
	policy    = `{"policy":{"ingress":{"default":"deny","rules":[{"name":"web","action":"allow","peers":[{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}],"ports":[{"protocol":"tcp","port":80,"end_port":90}]}]},"egress":{"default":"allow","rules":[]}},"revision":3,"attached":true,"mode":"enforced","since":` + at + `,"counters":[{"direction":"ingress","rule":"web","packets":5,"bytes":300}],"defaults":{"ingress":{"allowed":{"packets":0,"bytes":0},"denied":{"packets":2,"bytes":120}},"egress":{"allowed":{"packets":1,"bytes":60},"denied":{"packets":0,"bytes":0}}}}`
	flow      = `{"time":` + at + `,"vm_id":"` + VMID + `","vm":"web","tenant":"acme","direction":"ingress","verdict":"denied","rule":"","protocol":"tcp","source":"192.0.2.1","source_port":50000,"destination":"10.87.0.2","destination_port":22}`
	finished  = `{"id":"o1","kind":"image.add","state":"succeeded","progress":1,"image":"demo","backup_id":"b1","created_at":` + at + `,"finished_at":` + at + `,"error":""}`
	node      = `{"name":"host-1","url":"http://10.0.0.5:7070","version":"1","healthy":true,"cordoned":false,"labels":{"rack":"a"},"vcpus":8,"memory_mib":16384,"free_vcpus":6,"free_memory_mib":8192,"vms":1,"backends":["qemu"],"heartbeat_at":` + at + `}`
)

// FileContent is the content of every downloadable file.
const FileContent = "\x00\xffcontent\n"

// sum returns the SHA-256 of content, in hexadecimal.
func sum(content string) string {
	h := sha256.Sum256([]byte(content))
	return hex.EncodeToString(h[:])
}

// Examples returns valid responses by operation.
func Examples() map[string]string {
	list := func(item string) string { return "[" + item + "]" }
	return map[string]string{
		"ListVMs":          list(vm),
		"CreateVM":         vm,
		"GetVM":            vm,
		"PatchVM":          vm,
		"WaitVM":           vm,
		"RevertSnapshot":   vm,
		"ResizeVM":         vm,
		"ListDisks":        list(disk),
		"GetDisk":          disk,
		"CreateDisk":       disk,
		"ChangeDisk":       disk,
		"RemoveDisk":       vm,
		"InsertCD":         vm,
		"EjectCD":          vm,
		"GetVMLog":         "ready\n",
		"StartVM":          vm,
		"StopVM":           vm,
		"RestartVM":        vm,
		"ResetVM":          vm,
		"PauseVM":          vm,
		"ResumeVM":         vm,
		"EnableVM":         vm,
		"DisableVM":        vm,
		"GetVMMetrics":     `{"cpu_seconds":1.5,"memory_bytes":1048576,"disk_read_bytes":1,"disk_written_bytes":2,"net_received_bytes":3,"net_sent_bytes":4,"at":` + at + `}`,
		"GetNetworkPolicy": policy,
		"PutNetworkPolicy": policy,
		"ListFlows":        list(flow),
		"ListVMEvents":     list(`{"at":` + at + `,"kind":"state","message":"running, was starting","actor":"admin"}`),
		"PingAgent":        `{"version":"1","round_trip_ms":2.5}`,
		"Exec":             `{"stream":"stdout","data":"aGVsbG8K"}` + "\n" + `{"exit_code":0}` + "\n",
		"PutFile":          `{"path":"/etc/motd","size":5,"mode":"0640","sha256":"` + sum("hello") + `"}`,
		"GetFile":          FileContent,
		"ListSnapshots":    list(snapshot),
		"CreateSnapshot":   snapshot,
		"CreateBackup":     operation,
		"CloneVM":          operation,
		"MigrateVM":        operation,
		"TakeBackVM":       vm,
		"ListMigrations": `[{"id":"m1","vm_id":"` + VMID + `","name":"web","tenant":"","node":"host-1","state":"prepared",
			"created_at":"2026-01-02T03:04:05Z"}]`,
		"RestoreBackup":      operation,
		"AddImage":           operation,
		"CreateTemplate":     operation,
		"ListTemplates":      list(template),
		"GetTemplate":        template,
		"UploadImage":        operation,
		"ResizeImage":        operation,
		"BuildDemoImage":     operation,
		"ListBackups":        list(backup),
		"GetBackup":          backup,
		"ExportBackup":       FileContent,
		"ListImages":         list(image),
		"GetImage":           image,
		"CloneImage":         image,
		"RenameImage":        image,
		"LockImage":          image,
		"UnlockImage":        image,
		"SetImageReadOnly":   image,
		"ExportImage":        FileContent,
		"CleanImages":        `{"files":2,"bytes":2048}`,
		"GetHost":            `{"name":"h","version":"1","backends":[{"name":"qemu","available":true,"version":"7.2","detail":"kvm"},{"name":"firecracker","available":false,"detail":"firecracker is missing"}],"vcpus":8,"memory_mib":16384,"free_vcpus":6,"free_memory_mib":8192,"vms":1}`,
		"GetMe":              `{"name":"admin","tenant":"","admin":true,"insecure":false}`,
		"ListOperations":     list(finished),
		"GetOperation":       finished,
		"CancelOperation":    operation,
		"CreateTransfer":     transfer,
		"GetTransfer":        transfer,
		"FinishTransfer":     transfer,
		"ListTransferRanges": `[{"offset":0,"length":10}]`,
		"ReadTransfer":       FileContent,
		"ListAudit": list(
			`{"seq":1,"time":` + at + `,"actor":"admin","action":"vm.start","target":"` + VMID + `","tenant":"acme","result":"ok","message":"web"}`,
		),
		"VerifyAudit":   `{"ok":true,"entries":1,"verified":1,"reason":"","genesis":"g","head_seq":1,"head_hash":"00","segments":[{"number":1,"begun_at":"2026-01-02T03:04:05Z","first":1,"last":1,"verified":1}],"breaks":[],"checkpoints":{"count":2,"since":"2026-01-02T03:04:05Z","newest_at":"2026-01-02T03:04:05Z","newest_seq":1,"cut":0}}`,
		"ListNodes":     list(node),
		"GetNode":       node,
		"CordonNode":    node,
		"UncordonNode":  node,
		"ListNodeVMs":   list(fleetVM),
		"CreateFleetVM": fleetVM,
		"ListFleetVMs":  `{"items":[` + fleetVM + `],"unreachable_nodes":[]}`,
		"GetCapacity":   `{"nodes":3,"healthy_nodes":2,"vcpus":16,"memory_mib":32768,"free_vcpus":12,"free_memory_mib":16384,"vms":4}`,
	}
}
