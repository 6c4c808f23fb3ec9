// Package contract enforces a service's OpenAPI document.
//
// The document is more than documentation. For every operation, Load reads from it who may call it
// (x-access) and with which credential (x-credential), which audit entry it records (x-audit), how
// large a request may be (x-body), how long it may take (x-time), how often it may be called
// (x-rate), and whether requests are validated here or by the handler (x-validation). Other
// extensions are rejected, so a misspelt one is found. The Router registers the generated handlers
// and gives each one its Operation, so that authorization and validation happen before any
// parameter is parsed.
//
// Rules for requests (the same in every service): unknown extra fields are
// ignored; wrong types, missing required fields and values out of range are
// Invalid faults that name the field.
//
// Package contracttest verifies in tests that responses match the document.
package contract
