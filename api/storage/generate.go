// Package storageapi is the contract of the storage gateway: openapi.yaml, and the
// server, client and types generated from it. Only openapi.yaml is edited by hand;
// `make generate` makes the rest.
package storageapi

import _ "embed"

//go:generate go tool -modfile=../../tools/go.mod oapi-codegen -config types.cfg.yaml openapi.yaml
//go:generate go tool -modfile=../../tools/go.mod oapi-codegen -config server.cfg.yaml openapi.yaml
//go:generate go tool -modfile=../../tools/go.mod oapi-codegen -config client.cfg.yaml openapi.yaml

// BasePath precedes every path of the contract.
const BasePath = "/api/store/v1"

// Document is the contract, openapi.yaml.
//
//go:embed openapi.yaml
var Document []byte
