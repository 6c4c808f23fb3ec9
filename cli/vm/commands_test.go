package vm_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon/daemontest"
)

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

// commandLines are every command once, with the operations it must call.
func commandLines(t *testing.T) map[string]string {
	t.Helper()
	text := writeFile(t, "text", "sixteen letters and more")
	hello := writeFile(t, "motd", "hello")
	policy := writeFile(t, "policy", `{"ingress":{"default":"deny","rules":[]},"egress":{"default":"allow","rules":[]}}`)
	out := t.TempDir()
	disk := writeFile(t, "disk", "content")
	if err := os.Truncate(disk, 16<<20); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"vm run demo --name web --vcpus 2 --memory 1G --disk 8 --network user --backend qemu --kernel-args x --tenant acme --ttl 1h --label a=b --detach": "CreateVM StartVM",
		"vm create web --image debian-12 --publish 30080:80 --publish 127.0.0.1:30053:53/udp":                                                             "CreateVM",
		"vm create web --image debian-12 --start --wait agent":                                                                                            "CreateVM GetVM",
		"vm run demo --name web --detach --wait agent --wait-timeout 1m":                                                                                  "CreateVM StartVM GetVM",
		"vm create web --image debian-12 --kernel /k --initrd /i --firmware uefi --storage dir --network bridge --bridge br0 --mac 52:54:00:AE:b2:4d --ip 10.0.0.7 --agent=false --agent-token-file " + text +
			" --autostart --start --user-data " + text + " --ssh-key " + text + " --hostname web": "CreateVM",
		"vm list --tenant acme --state running --label role=web": "ListVMs",
		"vm show web":                              "ListVMs GetVM",
		"vm show " + daemontest.VMID:               "GetVM",
		"vm start web":                             "ListVMs StartVM",
		"vm stop web --grace 1m":                   "ListVMs StopVM",
		"vm restart web --force":                   "ListVMs RestartVM",
		"vm reset web":                             "ListVMs ResetVM",
		"vm pause web":                             "ListVMs PauseVM",
		"vm resume web":                            "ListVMs ResumeVM",
		"vm enable web":                            "ListVMs EnableVM",
		"vm disable web":                           "ListVMs DisableVM",
		"vm delete web -y":                         "ListVMs DeleteVM",
		"vm start web --wait running":              "ListVMs StartVM GetVM",
		"vm wait web --for running":                "ListVMs GetVM",
		"vm wait web --for agent --timeout 5s":     "ListVMs GetVM",
		"vm events web --limit 10":                 "ListVMs ListVMEvents",
		"vm metrics web":                           "ListVMs GetVMMetrics",
		"vm network-policy show web":               "ListVMs GetNetworkPolicy",
		"vm network-policy delete web -y":          "ListVMs DeleteNetworkPolicy",
		"vm network-policy apply web -f " + policy: "ListVMs PutNetworkPolicy",
		"vm flows web --limit 5":                   "ListVMs ListFlows",
		"vm ping web":                              "ListVMs PingAgent",
		"vm exec web --env A=b --cwd / -- x -y":    "ListVMs Exec",
		"vm cp " + hello + " web:/etc/motd":        "ListVMs PutFile",
		"vm cp web:/etc/motd " + out:               "ListVMs GetFile",

		"vm snapshot create web one --full --description x":                                    "ListVMs CreateSnapshot",
		"vm snapshot list web":                                                                 "ListVMs ListSnapshots",
		"vm snapshot revert web one -y":                                                        "ListVMs RevertSnapshot",
		"vm snapshot delete web one --yes":                                                     "ListVMs DeleteSnapshot",
		"vm backup create web --incremental --description x":                                   "ListVMs CreateBackup GetOperation",
		"vm backup create web --no-wait":                                                       "ListVMs CreateBackup",
		"vm backup list --vm web":                                                              "ListVMs ListBackups",
		"vm backup show b1":                                                                    "ListBackups GetBackup",
		"vm backup delete b1 -y":                                                               "ListBackups DeleteBackup",
		"vm backup restore b1 --name web-2":                                                    "ListBackups RestoreBackup GetOperation",
		"vm backup restore b1 --into web -y":                                                   "ListBackups ListVMs RestoreBackup GetOperation",
		"vm backup export b1 --force " + filepath.Join(out, "b1"):                              "ListBackups ExportBackup",
		"vm clone web web-2 --linked":                                                          "ListVMs CloneVM GetOperation",
		"vm start web --kernel /k --initrd /i --kernel-args x --firmware bios":                 "ListVMs StartVM",
		"vm start web --share /srv:data:ro --share /a:b --extra-arg=-rtc --extra-arg base=utc": "ListVMs StartVM",
		"vm resize web 40G":                                                                    "ListVMs ResizeVM",
		"vm set web --receive-limit 1000000 --send-limit 0":                                    "ListVMs PatchVM",
		"vm set web --publish-none":                                                            "ListVMs PatchVM",
		"vm set web --vcpus 4 --memory 2G --network user --mac 52:54:00:00:00:01 --publish 30080:80": "ListVMs PatchVM",
		"vm set web --cpus 2 --name web-2 --autostart=false":                                         "ListVMs PatchVM",
		"vm set web --label a=b --remove-label role":                                                 "ListVMs GetVM PatchVM",

		"vm disk read web " + filepath.Join(out, "disk") + " --force --consumer nightly": "ListVMs CreateTransfer ListTransferRanges ReadTransfer FinishTransfer",
		"vm disk write web --yes " + disk:                                                "ListVMs CreateTransfer WriteTransfer GetTransfer FinishTransfer",
		"vm disk read web --consumer nightly --since c0 " + writeFile(t, "old", ""):      "ListVMs CreateTransfer ListTransferRanges ReadTransfer FinishTransfer",

		"vm disk add web data --size 50G --iops 5 --bytes-per-second 9 --serial d": "ListVMs CreateDisk",
		"vm disk add web data --image tools --read-only":                           "ListVMs CreateDisk",
		"vm disk list web":                  "ListVMs ListDisks",
		"vm disk show web data":             "ListVMs GetDisk",
		"vm disk resize web data 100G":      "ListVMs ChangeDisk",
		"vm disk limit web system --iops 0": "ListVMs ChangeDisk",
		"vm disk remove web data --yes":     "ListVMs RemoveDisk",
		"vm cd insert web demo":             "ListVMs InsertCD",
		"vm log web --tail 100":             "ListVMs GetVMLog",
		"vm cd eject web":                   "ListVMs EjectCD",

		"vm migrate web --to host-2 --restart --grace 1m": "ListVMs MigrateVM GetOperation",
		"vm take-back web --host-is-lost":                 "ListVMs TakeBackVM",
		"vm migration list":                               "ListMigrations",
		"vm migration abort m1 -y":                        "AbortMigration",
		"fleet drain host-1 --restart":                    "CordonNode ListNodeVMs MigrateVM GetOperation",

		"vm template create demo --name warm --vcpus 2 --memory 1G --network=false": "CreateTemplate GetOperation",
		"vm template list":                                     "ListTemplates",
		"vm template show warm":                                "GetTemplate",
		"vm template delete warm -y":                           "DeleteTemplate",
		"vm run demo --name web --detach --from-template warm": "CreateVM StartVM",
		"vm create web --image demo --instant=false":           "CreateVM",

		"vm operation list":                      "ListOperations",
		"vm operation show o1":                   "ListOperations GetOperation",
		"vm operation cancel o1":                 "ListOperations CancelOperation",
		"vm host":                                "GetHost",
		"vm whoami":                              "GetMe",
		"vm audit list --limit 5":                "ListAudit",
		"vm audit verify":                        "VerifyAudit",
		"vm audit acknowledge 3 --note restored": "AcknowledgeAudit",

		"image build-demo": "BuildDemoImage GetOperation",
		"image add a /srv/a.qcow2 --signature " + text:        "AddImage GetOperation",
		"image add a --kernel /k --initrd /i --kernel-args x": "AddImage GetOperation",
		"image import a " + hello + " --signature " + text:    "UploadImage GetOperation",
		"images list":             "ListImages",
		"image show demo":         "GetImage",
		"image clone demo demo2":  "CloneImage",
		"image rename demo demo2": "RenameImage",
		"image export demo --force " + filepath.Join(out, "img"): "ExportImage",
		"image resize demo 8":                              "ResizeImage GetOperation",
		"image lock demo":                                  "LockImage",
		"image unlock demo":                                "UnlockImage",
		"image read-only demo on":                          "SetImageReadOnly",
		"image remove demo --yes":                          "RemoveImage",
		"image clean":                                      "CleanImages",
		"image create a /srv/a.qcow2":                      "AddImage GetOperation",
		"image update demo --name demo2 --read-only":       "RenameImage SetImageReadOnly",
		"image update demo --name demo2 --read-only=false": "SetImageReadOnly RenameImage",
		"image delete demo --yes":                          "RemoveImage",

		"fleet nodes":             "ListNodes",
		"fleet node host-1":       "GetNode",
		"fleet cordon host-1":     "CordonNode",
		"fleet uncordon host-1":   "UncordonNode",
		"fleet deregister h -y":   "DeregisterNode",
		"fleet capacity":          "GetCapacity",
		"fleet vms":               "ListFleetVMs",
		"fleet vms --node host-1": "ListNodeVMs",
		"fleet create web --image debian-12 --on host-1 --selector rack=a --vcpus 2": "CreateFleetVM",
		"fleet node list":                                   "ListNodes",
		"fleet node show host-1":                            "GetNode",
		"fleet node cordon host-1":                          "CordonNode",
		"fleet node uncordon host-1":                        "UncordonNode",
		"fleet node delete host-1 -y":                       "DeregisterNode",
		"fleet vm list --limit 1":                           "ListFleetVMs",
		"fleet vm list --node host-1 --all":                 "ListNodeVMs",
		"fleet vm create web --image debian-12":             "CreateFleetVM",
		"fleet vm delete host-1 web --yes":                  "ListNodeVMs DeleteFleetVM",
		"fleet delete host-1 " + daemontest.VMID + " --yes": "DeleteFleetVM",
	}
}

func TestEveryCommandMakesTheCallsItIsForAndKeepsTheContract(t *testing.T) {
	t.Parallel()
	daemontest.EveryCommand(t, commandLines(t))
}

func TestEveryOperationHasACommand(t *testing.T) {
	t.Parallel()
	reached := []string{
		"OpenConsole", "OpenScreen", // sockets, which have tests of their own
		"ServeDisk",      // for services that read disks from elsewhere, such as VM management's backups
		"WaitVM",         // by vm run, when a console has ended
		"FollowFlows",    // a stream without end, which has a test of its own
		"WatchVMs",       // a stream without end, which has a test of its own
		"WatchOperation", // for consoles; commands wait with GetOperation
		"CreateTicket",   // for browsers, which cannot send headers with sockets
		"GetVMHistory",   // for the plots of consoles
		"DeleteTransfer", // by vm disk, when something fails
		"Heartbeat",      // what daemons say to each other, as are these
		"OfferMigration", "WriteMigration", "PrepareMigration", "CommitMigration",
	}
	for _, operations := range commandLines(t) {
		reached = append(reached, strings.Fields(operations)...)
	}
	for _, op := range daemontest.Contract(t).Operations() {
		if !slices.Contains(reached, op.ID) {
			t.Errorf("%s (%s %s)", op.ID, op.Method, op.Path)
		}
	}
}

func TestEveryCommandHasExamplesThatParse(t *testing.T) {
	t.Parallel()
	root := cli.NewRoot(cli.IO{})
	for _, group := range []string{"vm", "image", "fleet"} {
		cmd, _, err := root.Find([]string{group})
		if err != nil {
			t.Fatal(err)
		}
		walk(cmd, func(cmd *cobra.Command) {
			if !strings.Contains(cmd.Example, "mainstay "+strings.Fields(cmd.CommandPath())[1]) {
				t.Errorf("%s has no example", cmd.CommandPath())
			}
			for line := range strings.SplitSeq(cmd.Example, "\n") {
				for part := range strings.SplitSeq(line, "&&") {
					parse(t, root, part)
				}
			}
		})
	}
}

// parse finds the command of an example, and checks all its flags.
func parse(t *testing.T, root *cobra.Command, line string) {
	t.Helper()
	_, line, ok := strings.Cut(line, "mainstay ")
	if !ok {
		t.Errorf("%q is not an example", line)
		return
	}
	line, _, _ = strings.Cut(line, " -- ")
	line, _, _ = strings.Cut(line, " | ")
	found, rest, err := root.Find(strings.Fields(line))
	if err != nil {
		t.Errorf("%q: %v", line, err)
		return
	}
	if found.HasSubCommands() {
		t.Errorf("%q names a group alone", line)
	}
	for _, word := range rest {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && found.Flags().Lookup(name) == nil && found.InheritedFlags().Lookup(name) == nil {
			t.Errorf("%q: %s has no flag --%s", line, found.CommandPath(), name)
		}
	}
}

func walk(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, child := range cmd.Commands() {
		walk(child, f)
	}
}

func TestFlagsBecomeTheFieldsOfTheVM(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, nil)
	file := writeFile(
		t, "web.yaml",
		"name: from-file\nimage: debian-11\nvcpus: 4\nlabels: {role: web, tier: gold}\nnetwork: {mode: bridge, bridge: br0}\n",
	)
	key := writeFile(t, "key.pub", "ssh-ed25519 AAAA me\n")
	daemontest.Run{
		URL: s.URL,
	}.OK(
		t,
		strings.Fields(
			"vm create web --file "+file+" --image debian-12 --memory 2G --disk 1T --ttl 90m --label tier=silver --ip 10.0.0.9 --ssh-key "+key,
		)...)
	var got, want map[string]any
	if err := json.Unmarshal([]byte(s.Last().Body), &got); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(
		[]byte(
			`{"name":"web","image":"debian-12","vcpus":4,"memory_mib":2048,"disk_gib":1024,"ttl_seconds":5400,"labels":{"role":"web","tier":"silver"},
		"network":{"mode":"bridge","bridge":"br0","ip":"10.0.0.9"},"cloud_init":{"ssh_authorized_keys":["ssh-ed25519 AAAA me"]}}`,
		),
		&want,
	) // valid
	if g, w := encode(t, got), encode(t, want); g != w {
		t.Errorf("sent\n%s, want\n%s", g, w)
	}
	daemontest.Run{URL: s.URL}.OK(t, "vm", "create", "--file", file)
	if !strings.Contains(s.Last().Body, `"name":"from-file"`) {
		t.Error("the file's name was left out: ", s.Last().Body)
	}
	daemontest.Run{URL: s.URL}.OK(t, "fleet", "create", "web", "--file", file, "--selector", "disk=nvme", "--on", "h")
	for _, want := range []string{`"name":"web"`, `"vcpus":4`, `"bridge":"br0"`, `"node":"h"`, `"node_selector":{"disk":"nvme"}`} {
		if !strings.Contains(s.Last().Body, want) {
			t.Errorf("no %s in %s", want, s.Last().Body)
		}
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestANameThatSeveralTenantsUseIsRefusedNamingTheIDs(t *testing.T) {
	t.Parallel()
	one := daemontest.Examples()["GetVM"]
	other := strings.NewReplacer(daemontest.VMID, "01a1ffd4-0000-7c85-916f-20e2f635613c", "acme", "globex").Replace(one)
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"ListVMs": daemontest.Answer(200, "["+one+","+other+"]")})
	got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), "vm", "delete", "web", "-y")
	if got.Code != 2 || !strings.Contains(got.Err, daemontest.VMID) ||
		!strings.Contains(got.Err, `01a1ffd4-0000-7c85-916f-20e2f635613c (tenant "globex")`) ||
		s.Called() != "ListVMs" {
		t.Errorf("%d %s; called %s", got.Code, got.Err, s.Called())
	}
}

func TestANameIsLookedForOnAllPages(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"ListVMs": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("cursor") == "" {
			w.Header().Set("Link", `</v1/vms?cursor=p2>; rel="next"`)
			daemontest.Answer(200, "["+strings.ReplaceAll(daemontest.Examples()["GetVM"], `"web"`, `"db"`)+"]")(w, r)
			return
		}
		daemontest.Answer(200, daemontest.Examples()["ListVMs"])(w, r)
	}})
	daemontest.Run{URL: s.URL}.OK(t, "vm", "pause", "web")
	if s.Called() != "ListVMs ListVMs PauseVM" || s.Last().Path != "/v1/vms/"+daemontest.VMID+"/pause" {
		t.Errorf("called %s, last %s", s.Called(), s.Last().Path)
	}
}
