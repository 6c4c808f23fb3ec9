package ota

import (
	"bytes"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
)

// Request is a request to update a device.
type Request struct {
	RequestID string `json:"request_id"`
	Version   string `json:"version"`
	URL       string `json:"url"`
	SHA256    string `json:"sha256"`
	Size      int64  `json:"size"`
	Force     bool   `json:"force"`
}

// Wanted is the update that a device's twin asks for.
type Wanted struct {
	DeviceID string
	// Request is nil if there is none, or if it has ended.
	Request *Request
	// State is the phase of the update as the control plane knows it.
	State Phase
}

var sha256Text = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ParseTwin parses desired.ota and reported.ota. If the update has ended or is invalid, Request is
// nil. If it is invalid, the error says why.
func ParseTwin(device string, desired, reported json.RawMessage) (Wanted, error) {
	w := Wanted{DeviceID: device}
	wanted, err := member(desired, "ota")
	if err != nil {
		return w, fault.Wrap(fault.Invalid, err, "desired: is not a JSON object")
	}
	if len(wanted) == 0 || bytes.Equal(wanted, []byte("null")) {
		return w, nil
	}
	var request Request
	if err := json.Unmarshal(wanted, &request); err != nil {
		return w, fault.Wrap(fault.Invalid, err, "desired.ota: is not a request")
	}
	request.SHA256 = strings.ToLower(request.SHA256)
	u, err := url.Parse(request.URL)
	switch {
	case request.RequestID == "" || len(request.RequestID) > 64:
		return w, fault.InvalidField("desired.ota.request_id", "must have 1 to 64 bytes")
	case text.Check("desired.ota.request_id", request.RequestID) != nil:
		return w, text.Check("desired.ota.request_id", request.RequestID)
	case !sha256Text.MatchString(request.SHA256):
		return w, fault.InvalidField("desired.ota.sha256", "must be 64 hexadecimal digits")
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return w, fault.InvalidField("desired.ota.url", "must be an http or https URL")
	case strings.ContainsRune(request.Version+device, 0):
		return w, fault.InvalidField("desired.ota.version", "holds a NUL, which no environment variable can")
	case request.Size < 0:
		return w, fault.InvalidField("desired.ota.size", "must not be negative")
	}
	var r struct {
		RequestID string `json:"request_id"`
		State     Phase  `json:"state"`
	}
	told, err := member(reported, "ota")
	if err == nil && len(told) > 0 {
		err = json.Unmarshal(told, &r)
	}
	if err != nil {
		return w, fault.Wrap(fault.Invalid, err, "reported.ota: is not a status")
	}
	w.State = Pending
	if r.RequestID == request.RequestID {
		w.State = r.State
	}
	switch w.State {
	case Pending, Downloading, Downloaded, Installing, Rebooting, Verifying, RollingBack:
		w.Request = &request
	}
	return w, nil
}

// member returns a member of an object. Decoding into a struct would also accept a key in another
// case, such as OTA, which is a different member.
func member(object json.RawMessage, key string) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	err := json.Unmarshal(object, &members)
	return members[key], err
}
