// Package client is shared by all commands that talk to a running service: the server's address,
// trusted authorities, credentials of dev mode, and errors for requests without a response.
package client
