// Package storagepb is the contract of the storage gateway over gRPC: storage.proto, and the messages, server and
// client generated from it. Only storage.proto is edited by hand; `make generate` makes the rest.
package storagepb

//go:generate go run -C ../../../../tools ./protoc ../api/proto storage/v1/storage.proto
