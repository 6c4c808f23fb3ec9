// Package contract makes a service keep its OpenAPI document.
//
// The document is more than documentation: Load reads from it, for every
// operation, who may call it (x-access) and with which credential (x-credential),
// which audit entry it leaves (x-audit), how large a request may be (x-body), how
// long it may take (x-time), how often it may be called (x-rate), and whether
// requests are checked here or by the handler (x-validation). Another extension is
// refused, so that none is misspelt. The Router registers the generated handlers and
// gives each one its Operation, so that authorization and validation happen before
// any parameter is parsed.
//
// Rules for requests (the same in every service): unknown extra fields are
// ignored; wrong types, missing required fields and values out of range are
// Invalid faults that name the field.
//
// Package contracttest proves in tests that answers keep the document too.
package contract
