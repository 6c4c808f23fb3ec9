package telemetry

// BuildFrom lets tests provide build information that a test binary does not have.
var BuildFrom = buildFrom
