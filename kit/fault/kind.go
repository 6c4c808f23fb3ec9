package fault

import "net/http"

// Kind is what went wrong, seen from the caller's side.
type Kind uint8

// The closed set of kinds. The zero value is Internal, so that a forgotten kind
// never shows an inner message to a caller as something harmless.
const (
	Internal        Kind = iota // a defect or an unexpected failure of the server
	Invalid                     // the input is malformed or out of range
	Unauthenticated             // no credentials, or none that are valid
	Denied                      // valid credentials that do not permit this
	NotFound                    // no such object in the caller's scope
	NotAllowed                  // the path exists, but not with this method
	Conflict                    // the object's present state forbids it
	Precondition                // a stated precondition (If-Match) does not hold
	TooLarge                    // the input is larger than the limit
	TooMany                     // the caller's rate or quota is used up
	Unavailable                 // an engine, queue or feature is not available now
	StorageFailed               // the write could not be made durable (disk full or refused)
	WrongType                   // the input is of a media type that is not taken
	Unreachable                 // a server that the answer depends on cannot be reached, or answers nonsense
	Timeout                     // a server that the answer depends on has not answered in time
	UpgradeRequired             // this takes another protocol, a WebSocket
	numKinds
)

type kindInfo struct {
	code string
	http int
	grpc uint32 // numbers of google.golang.org/grpc/codes
}

var kinds = [numKinds]kindInfo{
	Internal:        {"internal", http.StatusInternalServerError, 13},
	Invalid:         {"invalid", http.StatusBadRequest, 3},
	Unauthenticated: {"unauthenticated", http.StatusUnauthorized, 16},
	Denied:          {"denied", http.StatusForbidden, 7},
	NotFound:        {"not_found", http.StatusNotFound, 5},
	NotAllowed:      {"method_not_allowed", http.StatusMethodNotAllowed, 12},
	Conflict:        {"conflict", http.StatusConflict, 10},
	Precondition:    {"precondition_failed", http.StatusPreconditionFailed, 9},
	TooLarge:        {"too_large", http.StatusRequestEntityTooLarge, 11},
	TooMany:         {"too_many_requests", http.StatusTooManyRequests, 8},
	Unavailable:     {"unavailable", http.StatusServiceUnavailable, 14},
	StorageFailed:   {"storage_failed", http.StatusInsufficientStorage, 15},
	WrongType:       {"unsupported_media_type", http.StatusUnsupportedMediaType, 3},
	Unreachable:     {"unreachable", http.StatusBadGateway, 14},
	Timeout:         {"timeout", http.StatusGatewayTimeout, 4},
	UpgradeRequired: {"upgrade_required", http.StatusUpgradeRequired, 9},
}

func (k Kind) info() kindInfo {
	if k >= numKinds {
		return kinds[Internal]
	}
	return kinds[k]
}

// Code is the kind's stable word, for example "not_found".
func (k Kind) Code() string { return k.info().code }

// String is Code.
func (k Kind) String() string { return k.Code() }

// HTTPStatus is the one HTTP status for this kind.
func (k Kind) HTTPStatus() int { return k.info().http }

// GRPCCode is the number of the one gRPC status code for this kind; convert it
// with codes.Code.
func (k Kind) GRPCCode() uint32 { return k.info().grpc }
