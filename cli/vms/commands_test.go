package vms_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli"
	"github.com/mainstay-infra/mainstay/cli/clitest"
	"github.com/mainstay-infra/mainstay/kit/contract"
)

// load reads the contract once: it takes long, and the contract is not modified.
var load = sync.OnceValues(func() (*contract.Contract, error) {
	return contract.Load(vmapi.Document, vmapi.BasePath, []string{"open", "viewer", "user", "admin", "global-admin"})
})

// serve runs a fake of the service.
func serve(t *testing.T, handlers map[string]http.HandlerFunc) *clitest.Service {
	t.Helper()
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return clitest.Serve(t, &clitest.Fake{
		Contract: c, BasePath: vmapi.BasePath, Examples: examples, Handlers: handlers,
		Types: map[string]string{
			"WatchJob": "text/event-stream", "GetFile": "application/octet-stream", "GetBackupFile": "application/octet-stream",
		},
	})
}

const (
	at  = `"2026-11-23T18:00:00Z"`
	one = `{"id":"v1","name":"web","tenant":"acme","image":"demo","cpus":1,"memory":512,"disk":2,"disks":[],"pending":[],"labels":{"tenant":"acme"},"tags":["prod"],` +
		`"description":"","state":"running","unreachable":false,"provisioned":true,"autostart":false,"protected":false,"backend":"qemu",` +
		`"network":{"mode":"user"},"node":"","ips":["10.0.0.7"],"mac":"52:54:00:00:00:01","created":` + at + `,"updated":` + at +
		`,"last_error":"","job":null}`
	snap = `{"id":"s1","vm_name":"web","name":"before","description":"","snapshot_type":"Disk","parent_id":null,"size_bytes":0,"created":` +
		at + `,"current":true}`
	done    = `{"id":"j1","kind":"vm.start","vm_id":"v1","vm_name":"web","status":"completed","progress":1,"created":` + at + `,"error":""}`
	pricing = `{"cpu_per_hour":0.02,"memory_gb_per_hour":0,"disk_gb_per_hour":0,"network_egress_per_gb":0,"currency":"EUR"}`
	usage   = `{"vm_id":"v1","vm_name":"web","tenant_id":"acme","period_start":` + at + `,"period_end":` + at + `,"cpu_hours":1.5,` +
		`"memory_gb_hours":1,"disk_gb_hours":1,"network_egress_gb":0,"total_cost":0.03,"currency":"EUR"}`
	invoice = `{"invoice_id":"INV-000001","status":"final","reason":"","tenant_id":"acme","period_start":` + at + `,"period_end":` + at +
		`,"line_items":[{"description":"d","amount":0.03,"vm_id":"v1","vm_name":"web","resource":"cpu","quantity":1.5,"unit":"vCPU-hours"}],` +
		`"total":0.03,"currency":"EUR","created":` + at + `}`
	backup = `{"id":"b1","vm_id":"v1","vm_name":"web","backup_type":"full","size_bytes":1,"disk_bytes":1,"left_out":[],"read_bytes":1,"compressed":true,` +
		`"created":` + at + `,"status":"completed","retention_days":0,"description":"","consistency":"crash","error":"","job_id":"j1"}`
	backupJob = `{"id":"j1","backup_id":"b1","vm_name":"web","operation":"restore","status":"running","progress":0,"created":` + at + `,"error":""}`
	plan      = `{"id":"p1","name":"nightly","vm_tags":["prod"],"schedule_type":"daily","time":"02:00","timezone":"UTC","weekday":"sunday","day":1,` +
		`"backup_type":"full","retention_days":0,"keep_last":0,"keep_daily":0,"keep_weekly":0,"keep_monthly":0,"enabled":true,"created":` + at + `,"last_result":""}`
	picture = `{"id":"01a20b56-c1bc-741c-92d0-a6ddefd10973","name":"web","kind":"disk","distribution":"debian","version":"12","state":"completed",` +
		`"image":"acme:web","output_path":null,"error":null,"started":` + at + `,"completed":` + at + `,"created":` + at + `,"size_bytes":1,` +
		`"virtual_size_bytes":2147483648,"format":"qcow2","checksum":"","tenant":"acme","shared":false,"job_id":"j1","packages":[],` +
		`"autologin":false,"agent":true,"cloud_init":false}`
	pictures = `{"items":[` + picture + `],"total":1,"offset":0,"limit":200}`
	user     = `{"id":"u1","username":"alice","role":"user","tenant":"acme","source":"local","two_factor":false,"created":` + at + `}`
	acme     = `{"name":"acme","description":"","quota":{"vms":5},"used":{"vms":1,"cpus":1,"memory":512,"disk":2,"snapshots":0,"backup_bytes":0,"users":1},"created":` + at + `}`
)

const (
	rule   = `{"direction":"ingress","cidr":"10.0.0.0/8"}`
	group  = `{"name":"web","tenant":"","every_tenant":true,"description":"","rules":[` + rule + `],"created":` + at + `,"updated":` + at + `}`
	cnp    = `{"name":"p","tenant":"acme","every_tenant":false,"document":{},"created":` + at + `,"updated":` + at + `}`
	policy = `{"vm":"web","groups":["web"],"ingress":{"rules":[` + rule + `]},"egress":{},"status":"pending","reason":"the daemon is away"}`
	flow   = `{"time":` + at + `,"vm":"web","tenant":"acme","direction":"ingress","verdict":"denied","rule":"","protocol":"tcp",` +
		`"source":{"address":"10.0.0.1","identity":2,"labels":[]},"destination":{"address":"10.0.0.2","port":22,"vm":"web","identity":256,"labels":["a=b"]}}`
	hook = `{"id":"w1","url":"https://example.com/hook","delivery_type":"generic","events":["vm.failed"],"tags":[],"enabled":true,"description":"",` +
		`"secret":"whsec_x","created":` + at + `,"updated":` + at + `}`
	result = `{"scan_id":"c1","vm_id":"v1","vm_name":"web","profile_id":"level-1","status":"completed","passed":1,"failed":1,"skipped":0,` +
		`"score":50,"started":` + at + `,"completed":` + at + `,"error":"","checks":[{"id":"vm-agent","title":"t","scope":"vm","status":"failed",` +
		`"evidence":"e","remedy":"r"}]}`
	delivery = `{"id":"d1","event":"vm.failed","status":"delivered","attempts":1,"replays":0,"created":` + at + `}`
	dataDisk = `{"name":"data","size":4,"image":"","read_only":false,"serial":"data","iops":0,"bytes_per_second":0,"state":"attached"}`
	count    = `{"packets":1,"bytes":2}`
	both     = `{"allowed":` + count + `,"denied":` + count + `}`
)

// examples are what the fake answers, by operation.
var examples = map[string]string{
	"GetMe":            `{"id":"u1","username":"alice","role":"admin","two_factor":false}`,
	"SetUpTwoFactor":   `{"secret":"ABC","provisioning_uri":"otpauth://totp/x","qr_code":"data:image/png;base64,AA=="}`,
	"VerifyTwoFactor":  `{"status":"2fa_enabled","recovery_codes":["one-two"]}`,
	"DisableTwoFactor": `{"status":"2fa_disabled"}`,
	"ListUsers":        "[" + user + "]", "CreateUser": user, "UpdateUser": user,
	"ListTenants": "[" + acme + "]", "GetTenant": acme, "PutTenant": acme,
	"ListImages": pictures, "ListISOImages": pictures, "GetImage": picture, "BuildImage": picture, "DownloadImage": picture,
	"ImportImage": picture, "ResizeImage": picture, "GetImageLog": `{"text":"one\n","offset":0,"next":4,"complete":true}`,
	"ListImageDownloads": `[{"distribution":"debian","version":"12","format":"qcow2","title":"Debian 12","url":"https://example.com/d"}]`,
	"ListVMs":            `{"items":[` + one + `],"total":1,"offset":0,"limit":100}`,
	"CreateVM":           one, "GetVM": one, "UpdateVM": one, "CloneVM": one,
	"StartVM": `{"status":"starting","job_id":"j1"}`, "StopVM": `{"status":"stopped"}`, "RestartVM": `{"status":"restarted"}`,
	"InsertCD": one, "EjectCD": one, "ListDisks": "[" + dataDisk + "]", "AddDisk": dataDisk, "ChangeDisk": dataDisk, "RemoveDisk": one,
	"PauseVM": `{"status":"paused"}`, "ResumeVM": `{"status":"running"}`,
	"GetVMMetrics":  `{"cpu_usage":1.5,"memory_usage":1,"disk_usage":1,"network_rx":1,"network_tx":1}`,
	"Exec":          `{"stdout":"","stderr":"","exit_code":0,"truncated":false}`,
	"PutFile":       `{"path":"/tmp/file","size":21,"mode":"0600","sha256":"cde4fde0e3138f471cd1ac3e4c2c1904349fe167e472fcdd1a6e337286e65717"}`,
	"GetFile":       "content",
	"GetBackupFile": "content",
	"ListVMEvents":  `[{"id":1,"at":` + at + `,"kind":"state","message":"created","actor":"alice"}]`,
	"ListSnapshots": "[" + snap + "]", "CreateSnapshot": snap, "GetSnapshot": snap,
	"GetSnapshotTree": `[{"snapshot":` + snap + `,"children":[]}]`, "RevertSnapshot": `{"status":"reverted","snapshot_id":"s1"}`,
	"ListJobs": "[" + done + "]", "GetJob": done, "CancelJob": done, "WatchJob": "event: operation\ndata: {}\n\n",
	"GetPricing": pricing, "SetPricing": pricing, "CreateInvoice": invoice, "GetInvoice": invoice,
	"ListInvoices": "[" + invoice + "]", "ListUsage": "[" + usage + "]",
	"OpenBackupVolumes": `[{"name":"vdb1","size_bytes":1,"kind":"ext4","label":"","error":""},{"name":"vdb2","size_bytes":1,"kind":"swap","label":"","error":"no"}]`,
	"ListBackupFiles":   `{"entries":[{"name":"f","type":"file","size_bytes":1,"mode":"-rw-r--r--","uid":0,"gid":0,"modified":` + at + `}],"more":false,"skipped":1}`,
	"ListBackups":       "[" + backup + "]", "GetBackup": backup, "CreateBackup": backup, "ProtectBackup": backup,
	"GetBackupStats": `{"total_backups":1,"total_size_bytes":1,"by_type":{},"by_vm":{},"oldest_backup":null,"newest_backup":null}`,
	"ListBackupJobs": "[" + backupJob + "]", "RestoreBackup": backupJob, "VerifyBackups": done, "BootBackup": done,
	"ScanBackups":        `{"found":2,"added":1,"damaged":0}`,
	"ListBackupPolicies": "[" + plan + "]", "CreateBackupPolicy": plan, "UpdateBackupPolicy": plan,
	"ListAudit":   `[{"seq":1,"time":` + at + `,"actor":"alice","action":"vm.create","target":"v1","tenant":"acme","result":"ok","message":""}]`,
	"GetVMPolicy": policy, "SetVMPolicy": policy, "ListSecurityGroups": "[" + group + "]", "GetSecurityGroup": group, "PutSecurityGroup": group,
	"ListNetworkPolicies": "[" + cnp + "]", "GetNetworkPolicy": cnp, "PutNetworkPolicy": cnp,
	"GetDataplaneStatus": `{"vm":"web","status":"applied","reason":"","mode":"enforced","attached":true,"schema_version":1,"revision":1,"policy":null}`,
	"GetEffectivePolicy": `{"vm":"web","tenant":"acme","labels":{},"status":"none","reason":"","sources":[],"notes":[],"rules":0,"limit":1000,"policy":null}`,
	"GetDataplaneStats":  `{"vm":"web","allowed":` + count + `,"denied":` + count + `,"rules":[],"defaults":{"ingress":` + both + `,"egress":` + both + `}}`,
	"ListVMFlows":        "[" + flow + "]", "Observe": `{"flows":[` + flow + `],"silent":["db"]}`,
	"ListIdentities":     `[{"id":256,"tenant":"acme","labels":["a=b"],"reserved":false,"vms":["web"]}]`,
	"ListIPCache":        `[{"cidr":"10.0.0.2/32","identity":256,"tenant":"acme","vm":"web","source":"vm"}]`,
	"GetDataplaneHealth": `{"status":"ok","vms":{"none":0,"pending":0,"applied":1,"failed":0,"unsupported":0},"problems":[],"identities":1,"groups":0,"policies":0}`,
	"RefreshDNS":         `{"names":1,"vms":2}`,
	"ListWebhooks":       "[" + hook + "]", "CreateWebhook": hook, "GetWebhook": hook, "UpdateWebhook": hook,
	"TestWebhook":            `{"status":"delivered","http_status":204,"error":"","duration_ms":3}`,
	"ListComplianceProfiles": `[{"id":"level-1","name":"Level 1","description":"","check_count":30}]`,
	"StartComplianceScan":    `{"scan_id":"c1","vm_name":"web","profile_id":"level-1","status":"running","started":` + at + `,"job_id":"j1"}`,
	"ListComplianceResults":  "[" + result + "]",
	"ListDeliveries":         "[" + delivery + "]", "GetDelivery": delivery, "ReplayDelivery": delivery,
	"VerifyAudit": `{"ok":true,"entries":1,"verified":1,"reason":"","genesis":"g","head_seq":1,"head_hash":"h","segments":[],"breaks":[],` +
		`"checkpoints":{"count":1,"since":` + at + `,"newest_at":` + at + `,"newest_seq":1,"cut":0}}`,
}

// commandLines are every command once, with the operations that it calls.
func commandLines(t *testing.T) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("correct horse\nbattery"), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"whoami": "GetMe",
		"list --state running --tag prod --node a --search web --sort -created --tenant acme": "ListVMs",
		"list --all": "ListVMs",
		"show web":   "GetVM",
		"create web --image demo --cpus 2 --memory 2G --disk 20 --network user --publish 30080:80 --publish 0.0.0.0:53:53/udp --backend qemu --node a --label a=b --tag x --description d " +
			"--autostart --protected --user-data " + file + " --hostname web --ssh-key " + file: "CreateVM",
		"set web --name www --cpus 2 --memory 1G --label a=b --tag x --description d --autostart --protected=false": "UpdateVM",
		"clone web web-2 --linked": "CloneVM",
		"delete web --yes":         "DeleteVM",
		"start web":                "StartVM GetJob GetVM",
		"start web --no-wait":      "StartVM",
		"start web --no-wait --mount /srv/a:/a --mount /srv/b:/b:ro": "StartVM",
		"stop web --grace 1m --force":                                "StopVM",
		"restart web":                                                "RestartVM",
		"pause web":                                                  "PauseVM",
		"cd insert web base":                                         "InsertCD",
		"disk list web":                                              "ListDisks",
		"disk add web data --size 4G --image base --read-only --iops 5 --bytes-per-second 1000": "AddDisk",
		"disk resize web data 4G":                              "ChangeDisk",
		"disk limit web data --iops 5 --bytes-per-second 1000": "ChangeDisk",
		"disk remove web data --yes":                           "RemoveDisk",
		"cd eject web":                                         "EjectCD",
		"resume web --tenant acme":                             "ResumeVM",
		"metrics web":                                          "GetVMMetrics",
		"events web --limit 5":                                 "ListVMEvents",
		"exec web --tenant acme --env A=b --cwd / -- x -y":     "Exec",
		"cp " + file + " web:/tmp/":                            "PutFile",
		"cp web:/etc/motd -":                                   "GetFile",
		"snapshot create web before --full --description d":    "CreateSnapshot",
		"snapshot list web":                                    "ListSnapshots",
		"snapshot show web before":                             "ListSnapshots GetSnapshot",
		"snapshot tree web":                                    "GetSnapshotTree",
		"snapshot revert web before --yes":                     "ListSnapshots RevertSnapshot",
		"snapshot delete web before --yes":                     "ListSnapshots DeleteSnapshot",
		"image build web --package nginx,git --release 12 --autologin --cloud-init --tenant acme": "BuildImage GetJob GetImage",
		"image build web --distribution ubuntu --no-wait":                                         "BuildImage",
		"image list --state completed --search w --all":                                           "ListImages",
		"image iso":      "ListISOImages",
		"image show web": "ListImages GetImage",
		"image show 01a20b56-c1bc-741c-92d0-a6ddefd10973": "GetImage",
		"image downloads": "ListImageDownloads",
		"image download debian 12 --name web --format qcow2":                 "DownloadImage GetJob GetImage",
		"image import web /srv/web.qcow2 --format raw":                       "ImportImage GetJob GetImage",
		"image resize acme:web 10":                                           "ListImages ResizeImage",
		"image delete web --yes":                                             "ListImages DeleteImage",
		"image log web --follow":                                             "ListImages GetImageLog",
		"backup create web --incremental --description d --retention-days 7": "CreateBackup GetJob GetBackup",
		"backup create web --no-wait":                                        "CreateBackup",
		"backup list --vm web":                                               "ListBackups",
		"backup show b1":                                                     "GetBackup",
		"backup delete b1 --yes":                                             "DeleteBackup",
		"backup restore b1 --name web-2":                                     "RestoreBackup GetJob",
		"backup restore b1 --no-config --yes --no-wait":                      "RestoreBackup",
		"backup protect b1 --for 720h":                                       "ProtectBackup",
		"backup stats":                                                       "GetBackupStats",
		"backup jobs":                                                        "ListBackupJobs",
		"backup verify":                                                      "VerifyBackups GetJob",
		"backup volumes b1":                                                  "OpenBackupVolumes",
		"backup files b1 /etc":                                               "OpenBackupVolumes ListBackupFiles",
		"backup files b1 / --volume vdb1":                                    "ListBackupFiles",
		"backup get-file b1 /f - --volume vdb1":                              "GetBackupFile",
		"backup boot b1":                                                     "BootBackup GetJob",
		"backup close b1":                                                    "CloseBackupVolumes",
		"backup scan":                                                        "ScanBackups",
		"backup policy create nightly --vm-tag prod --weekly sunday --at 04:00 --timezone UTC --keep-last 3": "CreateBackupPolicy",
		"backup policy set nightly --vm-tag prod --monthly 31 --full --disabled":                             "ListBackupPolicies UpdateBackupPolicy",
		"backup policy list":                 "ListBackupPolicies",
		"backup policy delete nightly --yes": "ListBackupPolicies DeleteBackupPolicy",
		"job list --vm v1":                   "ListJobs",
		"job show j1":                        "GetJob",
		"job wait j1":                        "GetJob",
		"job watch j1":                       "WatchJob",
		"job cancel j1":                      "CancelJob",
		"user list":                          "ListUsers",
		"network policy show web":            "GetVMPolicy",
		"network policy set web --policy {\"groups\":[\"web\"]}": "SetVMPolicy",
		"network group list":                                              "ListSecurityGroups",
		"network group show web --tenant acme":                            "GetSecurityGroup",
		"network group create web --description d --rules [" + rule + "]": "PutSecurityGroup",
		"network group delete web --yes":                                  "DeleteSecurityGroup",
		"network cnp list":                                                "ListNetworkPolicies",
		"network cnp show p":                                              "GetNetworkPolicy",
		`network cnp apply --policy {"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"p"}}`: "PutNetworkPolicy",
		"network cnp delete p --yes":  "DeleteNetworkPolicy",
		"network status web":          "GetDataplaneStatus",
		"network effective web":       "GetEffectivePolicy",
		"network stats web":           "GetDataplaneStats",
		"network flows web --limit 5": "ListVMFlows",
		"network observe --limit 5":   "Observe",
		"network identities":          "ListIdentities",
		"network ipcache":             "ListIPCache",
		"network health":              "GetDataplaneHealth",
		"network refresh-dns":         "RefreshDNS",
		"billing pricing show":        "GetPricing",
		"billing pricing set --cpu 0.1 --memory 0.1 --disk 0 --egress 1 --currency EUR": "SetPricing",
		"billing usage --vm web --from 24h --to 1h --tenant -":                          "ListUsage",
		"billing usage --csv":                                   "ListUsage",
		"billing invoice create acme --period 2026-10":          "CreateInvoice",
		"billing invoice list --tenant acme":                    "ListInvoices",
		"billing invoice show INV-000001":                       "GetInvoice",
		"billing invoice show INV-000001 --csv":                 "GetInvoice",
		"user add alice --role user --password-file " + file:    "CreateUser",
		"user set alice --role admin --no-tenant --disable-2fa": "UpdateUser",
		"user remove alice --yes":                               "DeleteUser",
		"tenant list":                                           "ListTenants",
		"tenant show acme":                                      "GetTenant",
		"tenant set acme --vms 5 --cpus 4 --memory 1 --disk 1 --snapshots 1 --backup-bytes 1 --description d --revive": "PutTenant",
		"tenant delete acme --yes":                                "DeleteTenant",
		"password --current-file " + file + " --new-file " + file: "ChangePassword",
		"2fa setup":                     "SetUpTwoFactor",
		"2fa verify 123456":             "VerifyTwoFactor",
		"2fa disable 123456":            "DisableTwoFactor",
		"audit list --action vm.create": "ListAudit",
		"audit verify":                  "VerifyAudit",
		"webhook create https://example.com/hook --event vm.failed --type generic --secret-file " + file + " --description d --tenant acme": "CreateWebhook",
		"compliance profiles":                   "ListComplianceProfiles",
		"compliance scan web --profile level-2": "StartComplianceScan GetJob ListComplianceResults",
		"compliance scan web --no-wait":         "StartComplianceScan",
		"compliance results --vm web":           "ListComplianceResults",
		"compliance report web --failed":        "ListComplianceResults",
		"webhook list":                          "ListWebhooks",
		"webhook show w1":                       "GetWebhook",
		"webhook set w1 --event vm.failed --url https://example.com/other": "UpdateWebhook",
		"webhook enable w1":       "UpdateWebhook",
		"webhook disable w1":      "UpdateWebhook",
		"webhook delete w1 --yes": "DeleteWebhook",
		"webhook test w1":         "TestWebhook",
		"webhook test https://example.com/hook --type slack": "TestWebhook",
		"webhook deliveries w1":                              "ListDeliveries",
		"webhook delivery w1 d1":                             "GetDelivery",
		"webhook replay w1 d1":                               "ReplayDelivery",
		"audit acknowledge 7 --note read":                    "AcknowledgeAudit",
	}
}

func TestEveryCommandMakesTheCallsItIsForAndKeepsTheContract(t *testing.T) {
	t.Parallel()
	for line, operations := range commandLines(t) {
		for _, format := range []string{"table", "json", "yaml"} {
			t.Run(line+" "+format, func(t *testing.T) {
				t.Parallel()
				s := serve(t, nil)
				args := append([]string{"vms", "--server", s.URL, "--token", "t", "--output", format}, strings.Fields(line)...)
				code, out, errOut := clitest.Run(t, t.TempDir(), "", args...)
				if code != 0 || s.Called() != operations || s.Auth() != "Bearer t" {
					t.Errorf("exit code %d, called %q as %q\n%s%s", code, s.Called(), s.Auth(), out, errOut)
				}
				if strings.Contains(out, "<nil>") || strings.Contains(out, "0x") {
					t.Errorf("prints what is meant for programmers: %s", out)
				}
			})
		}
	}
}

func TestEveryOperationHasACommand(t *testing.T) {
	t.Parallel()
	reached := []string{
		"GetHealth",       // for monitors
		"Login", "Logout", // by mainstay login and logout
		"OpenConsole", "OpenScreen", // sockets, which have tests of their own
		"GetVMHistory",  // for the plots of consoles
		"CreateTicket",  // for browsers, which cannot send headers with sockets
		"WatchVMEvents", // a stream without end, which has a test of its own
	}
	for _, operations := range commandLines(t) {
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

func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	cmd, _, err := cli.NewRoot(cli.IO{}).Find([]string{"vms"})
	if err != nil {
		t.Fatal(err)
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !strings.Contains(cmd.Example, "mainstay vms") {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(cmd)
}

func TestAPasswordIsReadFromAFileAndSentOnlyInTheBody(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	code, out, errOut := clitest.Run(t, t.TempDir(), "correct horse battery\nrest", "vms", "--server", s.URL, "--token", "t",
		"user", "add", "alice", "--role", "viewer", "--tenant", "acme", "--password-file", "-")
	if code != 0 || s.Body() != `{"password":"correct horse battery","role":"viewer","source":"local","tenant":"acme","username":"alice"}` {
		t.Errorf("exit code %d, body %s\n%s%s", code, s.Body(), out, errOut)
	}
	if strings.Contains(out+errOut, "horse") {
		t.Errorf("the password is printed: %s%s", out, errOut)
	}
}

func TestWithoutATokenItLogsInWithWhatDevModeLeft(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string]http.HandlerFunc{"Login": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"token":"fresh","user_id":"u1","role":"admin","username":"admin","expires_at":`+at+`}`)
	}})
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".mainstay"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, ".mainstay", "credentials.json")
	if err := os.WriteFile(file, []byte(`{"vm":{"username":"admin","password":"secret of dev"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := clitest.Run(t, dir, "", "vms", "--server", s.URL, "whoami")
	if code != 0 || s.Called() != "Login GetMe" || s.Auth() != "Bearer fresh" {
		t.Errorf("exit code %d, called %q as %q: %s", code, s.Called(), s.Auth(), errOut)
	}
	code, _, _ = clitest.Run(t, t.TempDir(), "", "vms", "--server", s.URL, "whoami")
	if s.Auth() != "" || s.Called() != "Login GetMe GetMe" {
		t.Errorf("without a file: exit code %d, called %q as %q", code, s.Called(), s.Auth())
	}
}

func TestFlowsAreFollowedUntilTheStreamIsRefused(t *testing.T) {
	t.Parallel()
	asked := 0
	s := serve(t, map[string]http.HandlerFunc{"Observe": func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked > 1 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error":"no more"}`)
			return
		}
		if r.Header.Get("Accept") != "text/event-stream" {
			t.Errorf("asked for %q", r.Header.Get("Accept"))
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: flow\ndata: "+flow+"\n\nevent: flow\ndata: "+strings.Replace(flow, `"vm":"web","tenant"`, `"vm":"db","tenant"`, 1)+"\n\n")
	}})
	code, out, errOut := clitest.Run(t, t.TempDir(), "", "vms", "--server", s.URL, "--token", "t", "network", "flows", "web", "--follow")
	if code == 0 || !strings.Contains(out, "web  ingress denied tcp  10.0.0.1 (2) -> 10.0.0.2:22 (web)") || strings.Contains(out, "  db  ") || !strings.Contains(errOut, "no more") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
}

func TestAStartThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string]http.HandlerFunc{"GetJob": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.Replace(strings.Replace(done, "completed", "failed", 1), `"error":""`, `"error":"no such image"`, 1))
	}})
	code, _, errOut := clitest.Run(t, t.TempDir(), "", "vms", "--server", s.URL, "--token", "t", "start", "web")
	if code != 1 || !strings.Contains(errOut, "no such image") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

func TestWrongUseIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for line, want := range map[string]string{
		"create web":                        "--image is missing",
		"set web":                           "nothing to change",
		"user set alice":                    "nothing to change",
		"stop web --grace 1h":               "--grace must be between",
		"list --state=":                     "--state is empty",
		"create web --image x --memory 1.5": "must be a size",
		"delete web":                        "--yes",
	} {
		code, _, errOut := clitest.Run(t, t.TempDir(), "", append([]string{"vms", "--server", s.URL, "--token", "t"}, strings.Fields(line)...)...)
		if code != 2 || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d: %s", line, code, errOut)
		}
	}
	if s.Called() != "" {
		t.Errorf("called %s", s.Called())
	}
}
