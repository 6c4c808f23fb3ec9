package contract

import (
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mainstay-infra/mainstay/kit/text"
)

// defineFormats gives formats of strings their meaning. The validator keeps them in a table of the
// process, and by itself looks at the form of a date only.
var defineFormats = sync.OnceFunc(func() {
	openapi3.DefineStringFormatValidator("date-time", openapi3.NewCallbackValidator(func(s string) error {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return text.NotATime
		}
		return text.CheckTime("", t)
	}))
})
