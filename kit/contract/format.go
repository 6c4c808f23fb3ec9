package contract

import (
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mainstay-infra/mainstay/kit/text"
)

// defineFormats registers validators for string formats. The library keeps them in a process-wide
// table, and by default checks only the shape of a date.
var defineFormats = sync.OnceFunc(func() {
	openapi3.DefineStringFormatValidator("date-time", openapi3.NewCallbackValidator(func(s string) error {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return text.NotATime
		}
		return text.CheckTime("", t)
	}))
})
