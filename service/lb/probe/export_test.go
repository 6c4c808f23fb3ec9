package probe

// For tests outside of the package.
var (
	Request       = newRequest
	FailureReason = failureReason
)

// MaxUnderWay is maxUnderWay.
const MaxUnderWay = maxUnderWay
