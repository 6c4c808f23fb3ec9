//go:build !linux

// Package cgroup bounds what the processes of a VM take of the host, which takes Linux.
package cgroup

import "github.com/mainstay-infra/mainstay/kit/fault"

// Limits are what a VM's processes may take.
type Limits struct {
	Memory    int64 // bytes
	CPUs      int
	Processes int
}

// Hierarchy is where groups can be made: nowhere here.
type Hierarchy struct{}

// Open fails.
func Open(string) (*Hierarchy, error) {
	return nil, fault.New(fault.Unavailable, "control groups take Linux")
}

// Create has nothing to do.
func (*Hierarchy) Create(string, Limits) error { return nil }

// Add has nothing to do.
func (*Hierarchy) Add(string, int) error { return nil }

// Remove has nothing to do.
func (*Hierarchy) Remove(string) error { return nil }

// Sweep has nothing to do.
func (*Hierarchy) Sweep(func(string) bool) (int, error) { return 0, nil }
