package record

// StartOptions are what a VM is started with for one start only. They are forgotten when it stops, also
// for a restart.
type StartOptions struct {
	Kernel     string   `json:"kernel,omitempty"`
	Initrd     string   `json:"initrd,omitempty"`
	KernelArgs string   `json:"kernel_args,omitempty"`
	Firmware   string   `json:"firmware,omitempty"`
	Shares     []Share  `json:"shares,omitempty"`
	ExtraArgs  []string `json:"extra_args,omitempty"`
	// Boot is what the VM boots from in place of its own.
	Boot Boot `json:"boot"`
}

// Share is a folder of the host that a guest sees (9p).
type Share struct {
	Source   string `json:"source"` // a path on the host
	Tag      string `json:"tag"`    // by which the guest mounts it
	ReadOnly bool   `json:"read_only,omitempty"`
}
