package spec

// Version is the apiVersion of documents. Later versions begin in the same way.
const Version = "orch/v1"

// Limits of a document.
const (
	MaxBytes    = 256 << 10
	MaxReplicas = 1000
	MaxPorts    = 32
	MaxVolumes  = 32
	MaxEnv      = 512
	// MaxData is how many bytes the files of a workload's configMaps may have together: Kubernetes has this limit for one.
	MaxData = 128 << 10
)

// Kinds of workloads.
const (
	Workload = "Workload" // runs until it is stopped
	Job      = "Job"      // runs once, to its end
	CronJob  = "CronJob"  // runs by a schedule
)

// Spec is a workload. The tags are those of kit/document.
type Spec struct {
	APIVersion   string            `json:"apiVersion" required:"true" enum:"orch/v1" help:"The version of the document."`
	Kind         string            `json:"kind,omitempty" default:"Workload" enum:"Workload Job CronJob" help:"A Workload runs until it is stopped, a Job once to its end, and a CronJob by its schedule."`
	Metadata     Metadata          `json:"metadata" required:"true" help:"What the workload is called, and whose it is."`
	Image        *Image            `json:"image,omitempty" help:"The image that it runs. Exactly one of image and build is given."`
	Build        *Build            `json:"build,omitempty" help:"How its image is built."`
	Command      []string          `json:"command,omitempty" items:"256" help:"The program, instead of the image's entry point."`
	Args         []string          `json:"args,omitempty" items:"256" help:"Arguments of the program, instead of the image's."`
	Requirements Requirements      `json:"requirements,omitzero" help:"What each instance needs. A place without it is not chosen."`
	Resources    Resources         `json:"resources,omitzero" help:"What each instance may use at most."`
	Runtime      Runtime           `json:"runtime,omitzero" help:"Where it may run."`
	Scaling      Scaling           `json:"scaling,omitzero" help:"How many instances run. For the kind Workload only."`
	Network      Network           `json:"network,omitzero" help:"Which ports it serves, and to whom."`
	Persistence  Persistence       `json:"persistence,omitzero" help:"What it keeps when it is started again or moved."`
	Health       Health            `json:"health,omitzero" help:"How to tell that it works."`
	Env          map[string]string `json:"env,omitempty" items:"512" help:"Environment variables. Secrets belong into secrets."`
	ConfigMaps   []ConfigMap       `json:"configMaps,omitempty" items:"32" help:"Files of its configuration."`
	Secrets      []Secret          `json:"secrets,omitempty" items:"64" help:"Secrets of the orchestrator that it gets, as variables or files."`
	Security     Security          `json:"security,omitzero" help:"What its processes may do."`
	Monitoring   Monitoring        `json:"monitoring,omitzero" help:"What is watched."`
	Schedule     *Schedule         `json:"schedule,omitempty" help:"When it runs. For the kind CronJob only, which needs it."`
	Restart      Restart           `json:"restart,omitzero" help:"What becomes of instances that end."`
	DependsOn    []string          `json:"dependsOn,omitempty" items:"64" form:"name" help:"Workloads that are started first."`
	Annotations  map[string]string `json:"annotations,omitempty" items:"64" help:"Notes of your own, which runtimes get as annotations or labels."`
}

// Metadata is what a workload is called.
type Metadata struct {
	Name    string            `json:"name" required:"true" form:"name" help:"The name of the workload, which is unique."`
	Owner   string            `json:"owner,omitempty" form:"line" help:"Who answers for it."`
	Project string            `json:"project,omitempty" form:"label" help:"The project that it belongs to."`
	Class   string            `json:"class,omitempty" enum:"web-service api-backend database cache batch-job ml-training worker microservice" help:"What sort of workload it is, by which a runtime is chosen."`
	Labels  map[string]string `json:"labels,omitempty" items:"32" form:"label" help:"Labels that lists can be filtered by."`
}

// Image is a container image.
type Image struct {
	Registry   string `json:"registry,omitempty" form:"registry" help:"The registry, as in registry.example.com:5000. Default: docker.io."`
	Repository string `json:"repository" required:"true" form:"repository" help:"The repository, as in library/nginx."`
	Tag        string `json:"tag,omitempty" form:"tag" help:"The tag. Default: latest, unless there is a digest."`
	Digest     string `json:"digest,omitempty" form:"digest" help:"The digest, which pins the image."`
}

// Build is how an image is built.
type Build struct {
	Context    string            `json:"context" required:"true" form:"context" help:"What is built: an upload, as upload:ID, or a git repository, as https://host/path#ref."`
	Dockerfile string            `json:"dockerfile,omitempty" default:"Dockerfile" form:"path" help:"The path of the Dockerfile in the context."`
	Target     string            `json:"target,omitempty" form:"label" help:"The stage that is built. Default: the last."`
	Args       map[string]string `json:"args,omitempty" items:"64" help:"Arguments of the build. They are seen in the image's history, so they must not be secrets."`
	Registry   string            `json:"registry,omitempty" form:"registry" help:"The registry that the image is pushed to. Runtimes other than the one that builds it need one."`
}

// Requirements is what an instance needs.
type Requirements struct {
	CPU     CPU   `json:"cpu,omitempty" help:"Processors, as 500m or 2."`
	Memory  Bytes `json:"memory,omitempty" help:"Memory, as 512Mi or 2Gi."`
	Storage Bytes `json:"storage,omitempty" help:"Disk for what it writes outside of its volumes, as 10Gi."`
	GPUs    int   `json:"gpus,omitempty" max:"64" help:"GPUs of NVIDIA."`
}

// Resources is what an instance may use at most.
type Resources struct {
	CPU    CPU   `json:"cpu,omitempty" help:"Processors. Default: no limit."`
	Memory Bytes `json:"memory,omitempty" help:"Memory. An instance that needs more is ended. Default: no limit."`
	PIDs   int   `json:"pids,omitempty" max:"1048576" help:"Processes and threads. Default: the runtime's."`
}

// Runtime is where a workload may run.
type Runtime struct {
	Preferred string   `json:"preferred,omitempty" form:"name" help:"The runtime that is taken if it can: podman, kubernetes, kubevirt, or the name of a plugin. Default: the best one."`
	Allow     []string `json:"allow,omitempty" items:"16" form:"name" help:"The runtimes that may be chosen. Default: all."`
	Namespace string   `json:"namespace,omitempty" form:"label" help:"The namespace in Kubernetes. Default: the orchestrator's."`
	Disk      *Image   `json:"disk,omitempty" help:"The disk image that a VM in KubeVirt boots from, with a container engine in it."`
}

// Scaling is how many instances run.
type Scaling struct {
	Replicas     int `json:"replicas,omitempty" default:"1" max:"1000" help:"Instances, unless they are scaled by what they use."`
	Min          int `json:"min,omitempty" max:"1000" help:"With max: the fewest instances."`
	Max          int `json:"max,omitempty" max:"1000" help:"The most instances. With it, instances are scaled by what they use, where the runtime can do that."`
	TargetCPU    int `json:"targetCPU,omitempty" max:"1000" help:"The use of processors that is aimed at, in percent of what is required."`
	TargetMemory int `json:"targetMemory,omitempty" max:"1000" help:"The same for memory."`
}

// Network is what a workload serves.
type Network struct {
	Ports     []Port    `json:"ports,omitempty" items:"32" help:"The ports that it serves."`
	Ingress   []Ingress `json:"ingress,omitempty" items:"32" help:"Names and paths under which HTTP requests come from outside."`
	AllowFrom []string  `json:"allowFrom,omitempty" items:"64" form:"peer" help:"Who may connect: names of workloads, or networks as 10.0.0.0/8. Default: everybody."`
	AllowTo   []string  `json:"allowTo,omitempty" items:"64" form:"peer" help:"What it may connect to, in the same way."`
	VIP       string    `json:"vip,omitempty" form:"peer" help:"The address of the load balancer that brings traffic to it, as 192.0.2.10. A move switches that last."`
}

// Port is a port that a workload serves.
type Port struct {
	Name     string `json:"name,omitempty" form:"port" help:"A name. Default: the protocol and the number, as tcp-8080."`
	Port     uint16 `json:"port" required:"true" min:"1" help:"The number in the container."`
	Protocol string `json:"protocol,omitempty" default:"tcp" enum:"tcp udp" help:"tcp or udp."`
	Publish  uint16 `json:"publish,omitempty" help:"The number at which hosts serve it. Default: they do not."`
}

// Ingress is a name and path of HTTP requests.
type Ingress struct {
	Host string `json:"host,omitempty" form:"host" help:"The name of the host. Default: any."`
	Path string `json:"path,omitempty" default:"/" form:"urlpath" help:"Requests whose path begins with this one."`
	Port uint16 `json:"port" required:"true" min:"1" help:"The port that gets them, one of ports."`
	TLS  string `json:"tls,omitempty" form:"name" help:"The secret with the certificate. Default: no TLS."`
}

// Persistence is what a workload keeps.
type Persistence struct {
	Volumes []Volume `json:"volumes,omitempty" items:"32" help:"Its volumes."`
	Class   string   `json:"class,omitempty" form:"name" help:"The storage class in Kubernetes. Default: the cluster's."`
}

// Volume is a volume of a workload.
type Volume struct {
	Name      string `json:"name" required:"true" form:"name" help:"A name, unique in the workload."`
	MountPath string `json:"mountPath" required:"true" form:"mount" help:"Where the container has it."`
	Size      Bytes  `json:"size,omitempty" default:"1Gi" help:"Its size, where the runtime has sizes."`
	ReadOnly  bool   `json:"readOnly,omitempty" help:"The container only reads it."`
	Shared    bool   `json:"shared,omitempty" help:"All instances have the same one. Otherwise each has its own."`
	Ephemeral bool   `json:"ephemeral,omitempty" help:"It is empty at each start, and nothing is kept."`
}

// Health is how to tell that a workload works.
type Health struct {
	Ready   *Check `json:"ready,omitempty" help:"When an instance gets traffic. Moves and updates wait for it. Default: when it runs."`
	Live    *Check `json:"live,omitempty" help:"When an instance is started again: if the check fails."`
	Startup *Check `json:"startup,omitempty" help:"Until this check succeeds, the others are not made."`
}

// Check is a check of an instance. Exactly one of http, tcp and exec is given.
type Check struct {
	HTTP     *HTTPCheck `json:"http,omitempty" help:"A GET request, which any status from 200 to 399 answers."`
	TCP      uint16     `json:"tcp,omitempty" help:"A port that takes connections."`
	Exec     []string   `json:"exec,omitempty" items:"64" help:"A command in the container that succeeds."`
	Interval Duration   `json:"interval,omitempty" default:"10s" min:"1s" max:"1h" help:"Time from one check to the next."`
	Timeout  Duration   `json:"timeout,omitempty" default:"2s" min:"1s" max:"10m" help:"How long a check may take."`
	Delay    Duration   `json:"delay,omitempty" default:"0s" max:"1h" help:"Time before the first check."`
	Failures int        `json:"failures,omitempty" default:"3" min:"1" max:"100" help:"Failures in a row that count."`
}

// HTTPCheck is a check by a request.
type HTTPCheck struct {
	Path string `json:"path,omitempty" default:"/" form:"urlpath" help:"The path."`
	Port uint16 `json:"port" required:"true" min:"1" help:"The port."`
}

// ConfigMap is a set of files.
type ConfigMap struct {
	Name      string            `json:"name" required:"true" form:"name" help:"A name, unique in the workload."`
	MountPath string            `json:"mountPath" required:"true" form:"mount" help:"The folder that has the files."`
	Data      map[string]string `json:"data" items:"64" help:"The content of the files, by their names."`
}

// Secret is a secret that a workload gets. Exactly one of env and mountPath is given.
type Secret struct {
	Name      string `json:"name" required:"true" form:"name" help:"The secret's name in the orchestrator."`
	Key       string `json:"key,omitempty" form:"file" help:"One of its keys. With mountPath, default: all."`
	Env       string `json:"env,omitempty" form:"variable" help:"The variable that has the value of the key."`
	MountPath string `json:"mountPath,omitempty" form:"mount" help:"The folder that has a file for each key."`
}

// Security is what the processes of a workload may do.
type Security struct {
	User             int      `json:"user,omitempty" max:"2147483647" help:"The number of their user. Default: the image's."`
	Group            int      `json:"group,omitempty" max:"2147483647" help:"The number of their group. Default: the image's."`
	NonRoot          bool     `json:"nonRoot,omitempty" help:"Refuse to start as root."`
	ReadOnlyRoot     bool     `json:"readOnlyRoot,omitempty" help:"They cannot write outside of volumes."`
	DropCapabilities []string `json:"dropCapabilities,omitempty" items:"64" form:"capability" help:"Capabilities that they lack, as NET_RAW, or ALL."`
	Escalation       bool     `json:"escalation,omitempty" help:"Programs with the setuid bit give them more rights."`
}

// Monitoring is what is watched.
type Monitoring struct {
	Metrics *HTTPCheck `json:"metrics,omitempty" help:"Where it serves metrics for Prometheus."`
	SLA     *SLA       `json:"sla,omitempty" help:"What was promised."`
}

// SLA is what was promised of a workload.
type SLA struct {
	TargetUptime float64 `json:"targetUptime" required:"true" min:"50" max:"99.999" help:"The share of time in which it works, in percent."`
	WindowDays   int     `json:"windowDays,omitempty" default:"30" min:"1" max:"90" help:"The days that are looked at."`
}

// Schedule is when a CronJob runs.
type Schedule struct {
	Cron     string `json:"cron" required:"true" help:"Five fields, minute, hour, day, month, weekday, as 0 3 * * 1-5, or @hourly, @daily, @weekly, @monthly."`
	TimeZone string `json:"timeZone,omitempty" default:"UTC" help:"The time zone, as Europe/Berlin."`
	Overlap  string `json:"overlap,omitempty" default:"forbid" enum:"forbid allow replace" help:"What happens when it is due and still runs: it is skipped, runs twice, or replaces the one that runs."`
	Missed   string `json:"missed,omitempty" default:"skip" enum:"skip run" help:"What happens after a time without the orchestrator: runs that were due are skipped, or one is made up for."`
	Keep     int    `json:"keep,omitempty" default:"3" max:"100" help:"Runs that are kept for their logs."`
}

// Restart is what becomes of instances that end.
type Restart struct {
	Policy  string   `json:"policy,omitempty" enum:"always on-failure never" help:"When an instance is started again. Default: always for a Workload, on-failure for jobs."`
	Retries int      `json:"retries,omitempty" default:"3" max:"1000" help:"How often a job is tried again."`
	Stop    Duration `json:"stop,omitempty" default:"10s" min:"1s" max:"1h" help:"How long an instance may take to stop before it is killed."`
}
