// Package app puts services together: which run in a process, in which order
// they start and stop, and with what they are started.
//
// A process is a set of modules. Run starts them one after the other, each after
// those it stands on, and stops them in the opposite order, so that no module
// ever lacks what it needs. `mainstay dev` runs all services as modules of one
// process, `mainstay serve SERVICE` runs one.
//
// Units is the table of the services; everything that is there for each of them goes by it.
package app
