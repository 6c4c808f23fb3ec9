// Package cli is the command line of Mainstay.
//
// # What is where
//
//	main.go      Main: run a command line, print what went wrong, name the exit code
//	root.go      the root command; noun.go: the table of what is below it; version.go
//	agent/       `mainstay agent status`, which asks a running site agent
//	login/       `mainstay login`; contexts/: `mainstay context`; terminal/: asking people
//	verb/        what commands are made of: flags, lists, names, confirmations
//	client/      what all that ask a running service share
//	edge/        `mainstay edge`, the client of the edge control plane
//	lb/          what asks a running load balancer
//	vm/, image/, fleet/  the client of the hypervisor daemon
//	vms/         the client of VM management; storage/: the client of the storage gateway
//	output/      tables, JSON and YAML, for people and for programs
//	man/         manual pages
//	exit/        errors with exit codes and hints
//
// The commands talk to servers only through the generated clients of api/*. The commands that run
// servers are passed in.
package cli
