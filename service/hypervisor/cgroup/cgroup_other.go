//go:build !linux

// Package cgroup limits the host resources of a VM's processes, which requires Linux.
package cgroup

import "github.com/mainstay-infra/mainstay/kit/fault"

// Limits are the limits of a VM's processes.
type Limits struct {
	Memory    int64 // bytes
	CPUs      int
	Processes int
}

// Hierarchy is where groups are created; not supported here.
type Hierarchy struct{}

// Open always fails.
func Open(string) (*Hierarchy, error) {
	return nil, fault.New(fault.Unavailable, "control groups take Linux")
}

// Create does nothing.
func (*Hierarchy) Create(string, Limits) error { return nil }

// Add does nothing.
func (*Hierarchy) Add(string, int) error { return nil }

// Remove does nothing.
func (*Hierarchy) Remove(string) error { return nil }

// Sweep does nothing.
func (*Hierarchy) Sweep(func(string) bool) (int, error) { return 0, nil }
