//go:build linux

package qemu_test

import (
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/qemu"
)

func TestOnlyHarmlessExtraArgumentsAreTaken(t *testing.T) {
	t.Parallel()
	for args, field := range map[string]string{
		"":              "",
		"-rtc|base=utc": "",
		"-rtc|base=localtime,clock=vm,driftfix=slew":        "",
		"-rtc|base=2001-02-03T04:05:06":                     "",
		"-boot|order=dc,menu=on":                            "",
		"-boot|once=n,reboot-timeout=5000":                  "",
		"-global|ICH9-LPC.disable_s3=1":                     "",
		"-global|kvm-pit.lost_tick_policy=delay":            "",
		"-smbios|type=1,manufacturer=A B,serial=ds=nocloud": "extra_args.1",
		"-smbios|type=1,manufacturer=A B,serial=x:1":        "",
		"-smbios|type=11,value=a b":                         "",
		"-rtc":                                              "extra_args.0",
		"-rtc|base=utc|-boot":                               "extra_args.2",
		"-rtc|":                                             "extra_args.1",
		"-rtc|,":                                            "extra_args.1",
		"-rtc|base=utc,":                                    "extra_args.1",
		"-rtc|base=utc,,clock=rt":                           "extra_args.1",
		"-boot|splash=/etc/passwd":                          "extra_args.1",
		"-boot|menu=on,splash=/x":                           "extra_args.1",
		"-smbios|file=/etc/shadow":                          "extra_args.1",
		"-smbios|type=11,path=/etc/shadow":                  "extra_args.1",
		"-smbios|type=1,uuid=0":                             "extra_args.1",
		"-global|virtio-blk-pci.drive=x":                    "extra_args.1",
		"-global|driver=x,property=y,value=z":               "extra_args.1",
		"-device|usb-host":                                  "extra_args.0",
		"-chardev|file,id=a,path=/x":                        "extra_args.0",
		"--rtc|base=utc":                                    "extra_args.0",
		"-rtc|base=utc\nclock=rt":                           "extra_args.1",
		"-smbios|type=11,value=" + strings.Repeat("x", 300): "extra_args.1",
	} {
		var given []string
		if args != "" {
			given = strings.Split(args, "|")
		}
		err := qemu.CheckExtra(given)
		if (err != nil) != (field != "") || err != nil && fault.From(err).Field != field {
			t.Errorf("%q: %v", args, err)
		}
	}
}
