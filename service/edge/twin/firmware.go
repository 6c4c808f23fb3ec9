package twin

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/text"
)

// firmwareKeys are where a device reports its firmware, the first that it uses.
var firmwareKeys = []string{"firmware_version", "firmware"}

// maxFirmware is how many characters a version may have, as with a registration.
const maxFirmware = 128

// Firmware is the version that a report names at one of its keys for it. What is not a version,
// such as an object that a device keeps there for itself, says nothing.
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
