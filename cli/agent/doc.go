// Package agent has the commands below `mainstay agent` that ask a running agent:
// status. Running it, and the doctor, are in package app, which knows its settings.
package agent
