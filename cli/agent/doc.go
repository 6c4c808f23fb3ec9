// Package agent has the commands below `mainstay agent` that ask a running agent:
// status, and refused with what can be done about refused events. Running the agent,
// and the doctor, are in package app, which knows its settings.
package agent
