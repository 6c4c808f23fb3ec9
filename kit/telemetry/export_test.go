package telemetry

// BuildFrom lets tests give build information that a test binary does not have.
var BuildFrom = buildFrom
