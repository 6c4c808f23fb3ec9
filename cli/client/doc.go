// Package client is what all commands that ask a running service share: which server,
// whom to trust, credentials of dev mode, and why there was no answer.
package client
