// Package agentapi is the contract between the site agent and the programs at its
// site: openapi.yaml, and the server, client and types generated from it. Only
// openapi.yaml is edited by hand; `make generate` makes the rest.
package agentapi

import _ "embed"

//go:generate go tool -modfile=../../tools/go.mod oapi-codegen -config types.cfg.yaml openapi.yaml
//go:generate go tool -modfile=../../tools/go.mod oapi-codegen -config server.cfg.yaml openapi.yaml
//go:generate go tool -modfile=../../tools/go.mod oapi-codegen -config client.cfg.yaml openapi.yaml

// BasePath precedes every path of the contract.
const BasePath = "/v1"

// Socket is the name of the Unix socket in the agent's data folder.
const Socket = "agent.sock"

// Document is the contract, openapi.yaml.
//
//go:embed openapi.yaml
var Document []byte
