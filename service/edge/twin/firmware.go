package twin

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/text"
)

// firmwareKeys are the keys under which devices report their firmware version, in order of
// precedence.
var firmwareKeys = []string{"firmware_version", "firmware"}

// maxFirmware is the maximum length of a version in characters, as for a registration.
const maxFirmware = 128

// Firmware returns the firmware version in a report. said is false if no key holds a valid version:
// a device may use these keys for something else, such as an object.
func Firmware(patch json.RawMessage) (version string, said bool) {
	var object map[string]json.RawMessage
	if json.Unmarshal(patch, &object) != nil {
		return "", false
	}
	for _, key := range firmwareKeys {
		if json.Unmarshal(object[key], &version) == nil && version != "" &&
			utf8.RuneCountInString(version) <= maxFirmware &&
			text.Check(key, version) == nil {
			return version, true
		}
	}
	return "", false
}
