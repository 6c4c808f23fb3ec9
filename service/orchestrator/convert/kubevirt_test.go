package convert_test

import (
	"os/exec"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/kit/kubetest"
	"github.com/mainstay-infra/mainstay/service/orchestrator/convert"
)

// values are those of the secrets in the examples.
var values = map[convert.KeyOf]string{
	{Secret: "orders", Key: "password"}: "it's $secret", {Secret: "hub", Key: "token"}: "t\n", {Secret: "hub", Key: "user"}: "u",
}

func TestMachinesOfKubeVirtAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	converted := 0
	for name, s := range examples(t) {
		all, notes := convert.ToKubeVirt(s, owner, cluster)
		golden(t, name+".kubevirt.yaml", written(t, all, notes))
		if !notes.Problems.None() {
			continue
		}
		converted++
		data, err := convert.CloudInit(s, cluster.Image, values, host.Keys)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".cloudinit.yaml", data)
	}
	if converted == 0 {
		t.Error("no example can run in KubeVirt")
	}
}

func TestMachinesStartInACluster(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t, "--nodes=1", "--gpus=2", "--kubevirt")
	s := examples(t)["vm"]
	s.Runtime.Namespace = c.Namespace(t)
	all, _ := convert.ToKubeVirt(s, owner, cluster)
	for _, o := range all { // the claims have no provisioner here
		if o["kind"] == "PersistentVolumeClaim" {
			delete(o["spec"].(convert.Object), "storageClassName")
		}
	}
	taken(t, c, "vm", all)
	for _, name := range []string{"wiki--1", "wiki--2"} {
		r := kube.Resource{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine", Plural: "virtualmachines"}
		kubetest.Await(t, c, r, s.Runtime.Namespace, name, func(vm *struct {
			Status struct{ PrintableStatus string }
		},
		) bool {
			return vm != nil && vm.Status.PrintableStatus == "Running"
		})
	}
}

// The command of a guest reaches Podman word by word, whatever the document has in it.
func TestTheShellOfAGuestTakesWordsAsTheyAre(t *testing.T) {
	t.Parallel()
	hostile := []string{
		"plain", "", " ", "it's", `"`, "$HOME", "`id`", "$(id)", `\`, `\'`, "a\nb", "*", "~", ";id", "&&", "|", "-e", "--", "\t", "ü", "'; id; '",
	}
	s := examples(t)["vm"]
	s.Args = append([]string{}, hostile...)
	s.Command = nil
	s.Env = map[string]string{"A": strings.Join(hostile, " ")}
	data, err := convert.CloudInit(s, "image", values, host.Keys)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Files []struct{ Path, Content string } `yaml:"write_files"`
	}
	if err := yaml.Unmarshal([]byte(data), &config); err != nil {
		t.Fatal(err)
	}
	for _, f := range config.Files {
		if f.Path != "/var/lib/mainstay/run" {
			continue
		}
		// A podman that prints its arguments, each with a mark at its end.
		script := strings.Replace(f.Content, "exec 'podman'", `printf '%s\001'`, 1)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput() //nolint:gosec // what is tested
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		words := strings.Split(strings.TrimSuffix(string(out), "\x01"), "\x01")
		at := len(words) - len(hostile)
		if at < 1 || words[at-1] != "image" {
			t.Fatalf("%q", words)
		}
		for i, want := range hostile {
			if words[at+i] != want {
				t.Errorf("%q came as %q", want, words[at+i])
			}
		}
		if joined := "A=" + strings.Join(hostile, " "); !strings.Contains(string(out), "\x01"+joined+"\x01") {
			t.Errorf("the variable is not %q", joined)
		}
		return
	}
	t.Error("there is no program")
}
