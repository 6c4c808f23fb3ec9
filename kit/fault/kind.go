package fault

import "net/http"

// Kind classifies an error from the caller's point of view.
type Kind uint8

// The closed set of kinds. The zero value is Internal, so a missing kind never exposes an internal
// message.
const (
	Internal        Kind = iota // a defect or an unexpected failure of the server
	Invalid                     // the input is malformed or out of range
	Unauthenticated             // no credentials, or none that are valid
	Denied                      // valid credentials that do not permit this
	NotFound                    // no such object in the caller's scope
	NotAllowed                  // the path exists, but not with this method
	Conflict                    // the object's current state forbids it
	Precondition                // a stated precondition (If-Match) does not hold
	TooLarge                    // the input is larger than the limit
	TooMany                     // the caller's rate or quota is used up
	Unavailable                 // an engine, queue or feature is not available now
	StorageFailed               // the write could not be made durable (disk full or refused)
	WrongType                   // the input's media type is not supported
	Unreachable                 // an upstream server cannot be reached or sends an invalid response
	Timeout                     // an upstream server has not responded in time
	UpgradeRequired             // the endpoint requires another protocol (WebSocket)
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

// Code returns the kind's stable word, for example "not_found".
func (k Kind) Code() string { return k.info().code }

// String returns Code.
func (k Kind) String() string { return k.Code() }

// HTTPStatus returns the HTTP status for this kind.
func (k Kind) HTTPStatus() int { return k.info().http }

// GRPCCode returns the number of the gRPC status code for this kind. Convert it with codes.Code.
func (k Kind) GRPCCode() uint32 { return k.info().grpc }
