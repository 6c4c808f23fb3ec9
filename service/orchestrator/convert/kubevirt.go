package convert

import (
	"strconv"

	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

// ToKubeVirt returns the objects of a workload whose instances are VMs. Each boots a disk that has Podman, and starts
// the container by cloud-init, whose user data (CloudInit) is in the Secret of UserData.
func ToKubeVirt(s *spec.Spec, o Owner, k Kubernetes) ([]Object, *Notes) {
	c := &kubernetes{s: s, owner: o, k: k, notes: &Notes{}}
	c.refuseVM()
	for i := range max(s.Scaling.Replicas, s.Scaling.Min) {
		c.machine(i + 1)
	}
	c.services()
	c.ingress()
	c.policy()
	return c.objects, c.notes
}

// UserData returns the name of the Secret with the user data of a workload's VMs.
func UserData(workload string) string { return part(workload, "userdata") }

// refuseVM tells what VMs cannot do, and what they do in another way.
func (c *kubernetes) refuseVM() {
	s, problem, warn := c.s, c.notes.Problems.Add, c.notes.Warnings.Add
	if s.Kind != spec.Workload {
		problem("kind", "a VM does not tell how a %s ended; use podman or kubernetes", s.Kind)
	}
	if s.Runtime.Disk == nil {
		problem("runtime.disk", "is required: VMs boot from a disk that has Podman and cloud-init")
	}
	if s.Requirements.Memory == 0 && s.Resources.Memory == 0 {
		problem("requirements.memory", "is required: it is the memory of the VM")
	}
	for i, v := range s.Persistence.Volumes {
		if v.Shared {
			problem("persistence.volumes["+strconv.Itoa(i)+"].shared", "disks of VMs are not shared")
		}
	}
	for name, check := range map[string]*spec.Check{"ready": s.Health.Ready, "live": s.Health.Live} {
		if check != nil && len(check.Exec) > 0 {
			problem("health."+name+".exec", "commands cannot be run in the VM; use http or tcp")
		}
	}
	if s.Health.Startup != nil {
		problem("health.startup", "VMs have no check of their start; use health.ready.delay")
	}
	if s.Scaling.Max > 0 {
		warn("scaling", "VMs are not scaled by use; %d instances run", max(s.Scaling.Replicas, s.Scaling.Min))
	}
	if s.Requirements.Storage > 0 {
		warn("requirements.storage", "a VM has the room that its disk has")
	}
	if m := s.Monitoring.Metrics; m != nil && !serves(s, m.Port) {
		warn("monitoring.metrics", "the port is not one of network.ports, so the VM does not pass it on")
	}
}

func serves(s *spec.Spec, port uint16) bool {
	for _, p := range s.Network.Ports {
		if p.Port == port && p.Protocol == "tcp" {
			return true
		}
	}
	return false
}

// machine adds an instance, with the claims of its volumes.
func (c *kubernetes) machine(number int) {
	s := c.s
	name := part(c.name(), strconv.Itoa(number))
	disks := []any{disk("root"), disk("cloudinit")}
	volumes := []any{
		Object{"name": "root", "containerDisk": Object{"image": c.bootDisk()}},
		Object{"name": "cloudinit", "cloudInitNoCloud": Object{"secretRef": Object{"name": UserData(c.name())}}},
	}
	for i, v := range s.Persistence.Volumes {
		d := disk(part("volume", v.Name))
		d["serial"] = serial(i)
		disks = append(disks, d)
		source := Object{"name": d["name"]}
		if v.Ephemeral {
			source["emptyDisk"] = Object{"capacity": v.Size.String()}
		} else {
			claim := part(part(c.name(), v.Name), strconv.Itoa(number))
			c.add("v1", "PersistentVolumeClaim", claim, Object{"spec": c.claim(&v, "ReadWriteOnce")})
			source["persistentVolumeClaim"] = Object{"claimName": claim}
		}
		volumes = append(volumes, source)
	}
	nic := Object{"name": "default", "masquerade": Object{}}
	var ports []any
	for _, p := range s.Network.Ports {
		ports = append(ports, Object{"name": p.Name, "port": p.Port, "protocol": protocol(p)})
	}
	if len(ports) > 0 {
		nic["ports"] = ports
	}
	devices := Object{"disks": disks, "interfaces": []any{nic}}
	var gpus []any
	for i := range s.Requirements.GPUs {
		gpus = append(gpus, Object{"name": "gpu-" + strconv.Itoa(i+1), "deviceName": "nvidia.com/gpu"})
	}
	if len(gpus) > 0 {
		devices["gpus"] = gpus
	}
	vm := Object{
		"domain": Object{
			"cpu": Object{"cores": cores(s)}, "memory": Object{"guest": memory(s).String()}, "devices": devices,
		},
		"networks": []any{Object{"name": "default", "pod": Object{}}}, "volumes": volumes,
		"terminationGracePeriodSeconds": seconds(s.Restart.Stop) + bootSeconds,
	}
	if check := s.Health.Ready; check != nil {
		vm["readinessProbe"] = vmProbe(check)
	}
	if check := s.Health.Live; check != nil {
		vm["livenessProbe"] = vmProbe(check)
	}
	strategy := "Always"
	if s.Restart.Policy == "never" {
		strategy = "Once"
	}
	labels := c.labels()
	labels[LabelInstance] = strconv.Itoa(number)
	metadata := Object{"labels": labels}
	if annotations := c.annotations(); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	c.add("kubevirt.io/v1", "VirtualMachine", name, Object{"spec": Object{
		"runStrategy": strategy, "template": Object{"metadata": metadata, "spec": vm},
	}})
}

// bootSeconds is what a guest may take to shut down beyond the container in it.
const bootSeconds = 30

func disk(name string) Object { return Object{"name": name, "disk": Object{"bus": "virtio"}} }

// serial is by what the guest finds the disk of a volume.
func serial(volume int) string { return "mainstay-" + strconv.Itoa(volume) }

func (c *kubernetes) bootDisk() string {
	if c.s.Runtime.Disk == nil {
		return ""
	}
	return imageName(c.s.Runtime.Disk)
}

// cores returns the whole processors that a VM needs.
func cores(s *spec.Spec) int {
	return max(1, int((max(s.Requirements.CPU, s.Resources.CPU)+999)/1000))
}

func memory(s *spec.Spec) spec.Bytes { return max(s.Requirements.Memory, s.Resources.Memory) }

// vmProbe returns a probe, which begins when a guest can have booted.
func vmProbe(c *spec.Check) Object {
	p := probe(c)
	p["initialDelaySeconds"] = seconds(c.Delay) + bootSeconds
	return p
}
