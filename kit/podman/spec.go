package podman

import "time"

// Restart policies.
const (
	RestartAlways    = "always"
	RestartOnFailure = "on-failure"
	RestartNo        = "no"
)

// Spec describes a container to create (SpecGenerator in Podman's API). Empty fields are the image's or Podman's own.
type Spec struct {
	Name          string            `json:"name"`
	Image         string            `json:"image"`
	Entrypoint    []string          `json:"entrypoint,omitempty"`
	Command       []string          `json:"command,omitempty"`
	Hostname      string            `json:"hostname,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
	SecretEnv     map[string]string `json:"secret_env,omitempty"` // names of secrets, by those of variables
	Labels        map[string]string `json:"labels,omitempty"`
	Ports         []PortMapping     `json:"portmappings,omitempty"`
	RestartPolicy string            `json:"restart_policy,omitempty"`
	StopTimeout   *uint             `json:"stop_timeout,omitempty"` // seconds
	Health        *HealthConfig     `json:"healthconfig,omitempty"`
	Volumes       []NamedVolume     `json:"volumes,omitempty"`
	Secrets       []SecretFile      `json:"secrets,omitempty"`
	// User is a user and a group, as UID or UID:GID.
	User            string              `json:"user,omitempty"`
	CapDrop         []string            `json:"cap_drop,omitempty"`
	NoNewPrivileges bool                `json:"no_new_privileges,omitempty"`
	ReadOnlyRoot    bool                `json:"read_only_filesystem,omitempty"`
	Resources       *Resources          `json:"resource_limits,omitempty"`
	NetNS           *Namespace          `json:"netns,omitempty"`
	Networks        map[string]Attached `json:"Networks,omitempty"` // by the names of networks; with NetNS "bridge"
}

// PortMapping maps a port of the host to one of the container.
type PortMapping struct {
	ContainerPort uint16 `json:"container_port"`
	HostPort      uint16 `json:"host_port,omitempty"` // 0: chosen by Podman
	HostIP        string `json:"host_ip,omitempty"`   // empty: all addresses of the host
	Protocol      string `json:"protocol,omitempty"`  // tcp unless given
}

// HealthConfig is a container's health check. With an Interval of zero, Podman sets no timer: the
// creator of the container calls CheckHealth.
type HealthConfig struct {
	Test     []string      // "CMD", program, arguments; "NONE" turns off the image's check
	Interval time.Duration // nanoseconds in JSON, as Podman expects
	Timeout  time.Duration
	Retries  int
}

// NamedVolume is a volume in a container.
type NamedVolume struct {
	Name    string
	Dest    string   // absolute path in the container
	Options []string `json:",omitempty"` // for example ro
	// IsAnonymous has the volume removed with the container. The name may be empty then.
	IsAnonymous bool `json:",omitempty"`
}

// SecretFile is a secret that a container has as a file.
type SecretFile struct {
	Source   string // name of the secret
	Target   string // absolute path in the container
	UID, GID uint32
	Mode     uint32 // permissions
}

// Resources are limits of a container.
type Resources struct {
	CPU    *CPU    `json:"cpu,omitempty"`
	Memory *Memory `json:"memory,omitempty"`
	PIDs   *PIDs   `json:"pids,omitempty"`
}

// CPU limits processors.
type CPU struct {
	Shares uint64 `json:"shares,omitempty"` // weight among containers; 1024 is usual
	Quota  int64  `json:"quota,omitempty"`  // microseconds in each period
	Period uint64 `json:"period,omitempty"` // microseconds
}

// Memory limits memory.
type Memory struct {
	Limit int64 `json:"limit,omitempty"` // bytes
}

// PIDs limits processes and threads.
type PIDs struct {
	Limit int64 `json:"limit,omitempty"`
}

// Namespace is the mode of a namespace.
type Namespace struct {
	Mode string `json:"nsmode"`
}

// Attached is how a container is attached to a network.
type Attached struct {
	Aliases []string `json:"aliases,omitempty"` // names that other containers of the network find it by
}
