package vm_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/cli/vm/daemon/daemontest"
)

func TestTablesShowWhatMatters(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, nil)
	for line, want := range map[string]string{
		"vm list": `
NAME   STATE     BACKEND   VCPUS   MEMORY    DISK     IPS         IMAGE       TENANT   CREATED                ID
web    running   qemu      2       512 MiB   20 GiB   10.0.2.15   debian-12   acme     2026-01-02T03:04:05Z   01a1ffd4-4443-7c85-916f-20e2f635613c
`,
		"vm backup list": `
ID   VM    KIND   SIZE        DISK      CREATED                PARENT   DESCRIPTION
b1   web   full   192.0 KiB   1.0 GiB   2026-01-02T03:04:05Z   -        -
`,
		"vm host": `
Host                  h, version 1
VMs                   1
Processors            8, 6 not given to VMs
Memory                16384 MiB, 8192 MiB not given to VMs
Backend qemu          available, version 7.2: kvm
Backend firecracker   not available: firecracker is missing
`,
		"vm metrics web": `
Processor time     1.50 s
Memory             1.0 MiB
Disk read          1 B
Disk written       2 B
Network received   3 B
Network sent       4 B
At                 2026-01-02T03:04:05Z
`,
		"vm operation list": `
ID   KIND        STATE       PROGRESS   ABOUT   CREATED                ERROR
o1   image.add   succeeded   100%       demo    2026-01-02T03:04:05Z   -
`,
		"image list": `
NAME   KIND     SIZE       DISK   SIGNATURE   LOCKED   READ-ONLY   ADDED                  SOURCE
demo   kernel   16.2 MiB   -      none        yes      no          2026-01-02T03:04:05Z   built of the host's packages
`,
		"fleet nodes": `
NAME     STATE     VMS   FREE VCPUS   FREE MEMORY         BACKENDS   LABELS   VERSION   HEARTBEAT              URL
host-1   healthy   1     6 of 8       8192 of 16384 MiB   qemu       rack=a   1         2026-01-02T03:04:05Z   http://10.0.0.5:7070
`,
		"fleet capacity": `
Hosts                                         3, 2 healthy
VMs                                           4
Processors   ███████░░░░░░░░░░░░░░░░░░░░░░░   12 of 16 left
Memory       ███████████████░░░░░░░░░░░░░░░   16384 of 32768 MiB left
`,
	} {
		if got := (daemontest.Run{URL: s.URL}).OK(t, strings.Fields(line)...); got.Out != want[1:] {
			t.Errorf("%s:\n%s", line, got.Out)
		}
	}
}

func TestListsThatHaveNoPagesAreCutToTheLimit(t *testing.T) {
	t.Parallel()
	node := strings.Trim(daemontest.Examples()["ListNodes"], "[]")
	s := daemontest.Serve(t, map[string]http.HandlerFunc{
		"ListNodes": daemontest.Answer(200, "["+node+","+strings.ReplaceAll(node, "host-1", "host-2")+"]"),
	})
	got := daemontest.Run{URL: s.URL}.OK(t, "fleet", "nodes", "--limit", "1")
	if strings.Contains(got.Out, "host-2") || !strings.Contains(got.Err, "There is more") {
		t.Errorf("%s%s", got.Out, got.Err)
	}
	if got := (daemontest.Run{URL: s.URL}).OK(t, "fleet", "nodes", "--all"); !strings.Contains(got.Out, "host-2") ||
		got.Err != "" {
		t.Errorf("%s%s", got.Out, got.Err)
	}
}
