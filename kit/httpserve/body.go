package httpserve

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// BodyError converts an error from reading or decoding a request's JSON body to a fault: TooLarge
// beyond the limit of LimitBody, otherwise Invalid with the field and the expected type if
// encoding/json reports them. Faults are returned unchanged, and so is *json.InvalidUnmarshalError,
// which is a bug in the handler. It returns nil for nil.
func BodyError(err error) error {
	var (
		f        *fault.Error
		tooLarge *http.MaxBytesError
		syntax   *json.SyntaxError
		typ      *json.UnmarshalTypeError
		misuse   *json.InvalidUnmarshalError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f), errors.As(err, &misuse):
		return err
	case errors.As(err, &tooLarge):
		return fault.Wrap(fault.TooLarge, err, "the request body is larger than %d bytes", tooLarge.Limit)
	case errors.As(err, &syntax):
		return fault.Wrap(fault.Invalid, err, "the request body is not valid JSON: error at byte %d", syntax.Offset)
	case errors.As(err, &typ):
		return typeFault(typ)
	case errors.Is(err, io.EOF):
		return fault.Wrap(fault.Invalid, err, "the request body is empty; JSON is expected")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Wrap(fault.Invalid, err, "the request body ends before its JSON does")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.Wrap(fault.Invalid, err, "the request body did not arrive in time")
	}
	// encoding/json has no error type for this case.
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if unquoted, e := strconv.Unquote(name); e == nil {
			name = unquoted
		}
		name = clip(name, 64)
		e := fault.Wrap(fault.Invalid, err, "%s: there is no such field", name)
		e.Field = name
		return e
	}
	if isTimeError(err) { // it does not report the field
		return fault.Wrap(fault.Invalid, err, "a time in the request body "+notATime)
	}
	// Anything else comes from a type's UnmarshalJSON, or from a client that stopped sending. Both
	// are the input's fault.
	return fault.Wrap(fault.Invalid, err, "the request body cannot be read")
}

// FieldError converts an error from decoding the value at a path in a request's JSON body, such as
// events.3.event_time, to a fault that names the path. An empty path is the whole body.
func FieldError(path string, err error) error {
	if path == "" {
		return BodyError(err)
	}
	path = clip(path, 256)
	var typ *json.UnmarshalTypeError
	var f *fault.Error
	switch {
	case errors.As(err, &typ):
		at := *typ
		if at.Field = path; typ.Field != "" {
			at.Field += "." + typ.Field
		}
		return typeFault(&at)
	case isTimeError(err):
		f = fault.Wrap(fault.Invalid, err, "%s: "+notATime, path)
	default:
		f = fault.Wrap(fault.Invalid, err, "%s: is not a valid value", path)
	}
	f.Field = path
	return f
}

const notATime = "is not a time as RFC 3339 has it, for example 2006-01-02T15:04:05Z"

// isTimeError reports whether decoding failed because of a time.Time.
func isTimeError(err error) bool {
	var parse *time.ParseError
	return errors.As(err, &parse) || strings.Contains(err.Error(), "Time.UnmarshalJSON: ")
}

func typeFault(err *json.UnmarshalTypeError) error {
	field := err.Field
	if field == "" {
		return fault.Wrap(fault.Invalid, err, "the request body must be %s, not %s", jsonType(err.Type), err.Value)
	}
	f := fault.Wrap(fault.Invalid, err, "%s: must be %s, not %s", field, jsonType(err.Type), clip(err.Value, 64))
	f.Field = field
	return f
}

// jsonType returns the JSON name of a Go type.
func jsonType(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "a boolean"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer in range"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a non-negative integer in range"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "another type"
}
