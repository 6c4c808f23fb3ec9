// Package podman is a client of the Podman REST API, over the Unix socket that
// `podman system service` listens on. It covers what Mainstay needs: containers, their health and
// logs, and pulling images.
//
// It speaks version 4.0.0 of the libpod API, which every Podman since 4.0 serves
// (https://docs.podman.io/en/latest/_static/api.html). Podman's own Go bindings
// are not used because they need C libraries.
//
// Errors are faults (package fault): NotFound for a container or image that does not exist,
// Conflict for a name that is taken or a state that does not allow the call, Unavailable if nothing
// listens on the socket.
package podman
