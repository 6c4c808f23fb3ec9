// Package app assembles services into a process: it decides which run, in which order they start
// and stop, and with what dependencies.
//
// A process is a set of modules. Run starts them one after the other, each after its dependencies,
// and stops them in reverse order, so that no module ever lacks a dependency. `mainstay dev` runs
// all services as modules of one process, `mainstay serve SERVICE` runs one.
//
// Units is the table of services. Everything that exists for each service is derived from it.
package app
