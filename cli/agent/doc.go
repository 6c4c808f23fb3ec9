// Package agent implements the commands below `mainstay agent` that talk to a running agent:
// status, and refused for handling refused events. Running the agent, and the doctor, are in
// package app, which knows its settings.
package agent
