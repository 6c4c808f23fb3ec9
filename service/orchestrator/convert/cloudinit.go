package convert

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

// Places in a guest.
const (
	guestFolder  = "/var/lib/mainstay"
	guestProgram = guestFolder + "/run" // starts the container
)

// guestFile is one that cloud-init writes (write_files).
type guestFile struct {
	Path        string `yaml:"path"`
	Permissions string `yaml:"permissions"`
	Content     string `yaml:"content"`
}

// CloudInit returns the user data by which a VM of ToKubeVirt runs the container of a workload. It holds the values of
// secrets, so it belongs into a Secret.
func CloudInit(s *spec.Spec, image string, values map[KeyOf]string, keys map[string][]string) (string, error) {
	g := guest{
		args:  []string{"podman", "run", "--name", "main", "--replace", "--network", "host", "--log-driver", "journald"},
		files: []guestFile{},
	}
	g.volumes(s)
	g.rights(s)
	g.configuration(s)
	g.secrets(s, values, keys)
	g.args = append(g.args, image)
	if len(s.Command) > 0 { // the rest of an entry point are arguments
		g.args = slices.Insert(g.args, len(g.args)-1, "--entrypoint", s.Command[0])
		g.args = append(g.args, s.Command[1:]...)
	}
	g.args = append(g.args, s.Args...)
	restart := ""
	if s.Restart.Policy != "never" {
		restart = "Restart=always\nRestartSec=2\n"
	}
	g.add(guestProgram, "0700", "#!/bin/sh\nexec "+shellWords(g.args)+"\n")
	g.add("/etc/systemd/system/mainstay.service", "0644", fmt.Sprintf(`[Unit]
Description=The workload %s
Wants=network-online.target
After=network-online.target
[Service]
ExecStart=%s
ExecStop=podman stop --time %d main
TimeoutStopSec=%d
%s[Install]
WantedBy=multi-user.target
`, s.Metadata.Name, guestProgram, seconds(s.Restart.Stop), seconds(s.Restart.Stop)+5, restart))
	config := map[string]any{
		"write_files": g.files,
		"runcmd":      [][]string{{"systemctl", "daemon-reload"}, {"systemctl", "enable", "--now", "mainstay.service"}},
	}
	if len(g.mounts) > 0 {
		config["fs_setup"], config["mounts"] = g.filesystems, g.mounts
	}
	raw, err := yaml.Marshal(config)
	return "#cloud-config\n" + string(raw), err
}

// guest collects what a guest is told.
type guest struct {
	args        []string
	files       []guestFile
	filesystems []map[string]any
	mounts      [][]string
}

func (g *guest) add(path, permissions, content string) {
	g.files = append(g.files, guestFile{path, permissions, content})
}

// volumes has the guest make file systems on new disks, mount them, and give them to the container.
func (g *guest) volumes(s *spec.Spec) {
	for i, v := range s.Persistence.Volumes {
		device := "/dev/disk/by-id/virtio-" + serial(i)
		at := path.Join(guestFolder, "volumes", v.Name)
		g.filesystems = append(g.filesystems, map[string]any{"device": device, "filesystem": "ext4", "overwrite": false})
		g.mounts = append(g.mounts, []string{device, at, "ext4", "defaults,nofail", "0", "2"})
		g.args = append(g.args, "--volume", at+":"+v.MountPath+readOnly(v.ReadOnly))
	}
}

func readOnly(is bool) string {
	if is {
		return ":ro"
	}
	return ""
}

func (g *guest) rights(s *spec.Spec) {
	if s.Security.User > 0 {
		user := strconv.Itoa(s.Security.User)
		if s.Security.Group > 0 {
			user += ":" + strconv.Itoa(s.Security.Group)
		}
		g.args = append(g.args, "--user", user)
	}
	if s.Security.ReadOnlyRoot {
		g.args = append(g.args, "--read-only")
	}
	if !s.Security.Escalation {
		g.args = append(g.args, "--security-opt", "no-new-privileges")
	}
	for _, c := range s.Security.DropCapabilities {
		g.args = append(g.args, "--cap-drop", c)
	}
	if s.Resources.PIDs > 0 {
		g.args = append(g.args, "--pids-limit", strconv.Itoa(s.Resources.PIDs))
	}
}

func (g *guest) configuration(s *spec.Spec) {
	for _, name := range sortedKeys(s.Env) {
		g.args = append(g.args, "--env", name+"="+s.Env[name])
	}
	for _, m := range s.ConfigMaps {
		folder := path.Join(guestFolder, "config", m.Name)
		for _, name := range sortedKeys(m.Data) {
			g.add(path.Join(folder, name), "0444", m.Data[name])
		}
		g.args = append(g.args, "--volume", folder+":"+m.MountPath+":ro")
	}
}

func (g *guest) secrets(s *spec.Spec, values map[KeyOf]string, keys map[string][]string) {
	for _, secret := range s.Secrets {
		if secret.Env != "" {
			g.args = append(g.args, "--env", secret.Env+"="+values[KeyOf{secret.Name, secret.Key}])
			continue
		}
		of := keys[secret.Name]
		if secret.Key != "" {
			of = []string{secret.Key}
		}
		for _, key := range of {
			file := path.Join(guestFolder, "secrets", secret.Name, key)
			permissions := "0400"
			if s.Security.User > 0 { // the folder is root's, and the container has its user
				permissions = "0444"
			}
			g.add(file, permissions, values[KeyOf{secret.Name, key}])
			g.args = append(g.args, "--volume", file+":"+path.Join(secret.MountPath, key)+":ro")
		}
	}
}

// shellWords returns a command line that a shell takes apart into the words.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
