package contract

import (
	"errors"
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

var validation = &openapi3filter.Options{
	// Authorization has happened before. Defaults are left to the handlers, since writing them into
	// the request would change the links made from it.
	AuthenticationFunc:    openapi3filter.NoopAuthenticationFunc,
	SkipSettingDefaults:   true,
	IncludeResponseStatus: true,
}

// CheckRequest validates a request against the operation. It reads the body and restores it. Bodies
// are treated as JSON whatever their Content-Type, since no operation that accepts JSON accepts
// anything else, and `curl -d` sends another type.
func (op *Operation) CheckRequest(r *http.Request) error {
	if op.takesJSON {
		r.Header.Set("Content-Type", "application/json")
	}
	return requestFault(openapi3filter.ValidateRequest(r.Context(), op.validationInput(r)))
}

func (op *Operation) validationInput(r *http.Request) *openapi3filter.RequestValidationInput {
	params := make(map[string]string, len(op.pathParams))
	for _, name := range op.pathParams {
		params[name] = r.PathValue(name)
	}
	return &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: op.route, Options: validation}
}

// requestFault converts the validator's error to a fault that names the field.
func requestFault(err error) error {
	if err == nil {
		return nil
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return fault.Wrap(fault.TooLarge, err, "the body is larger than %d bytes", tooLarge.Limit)
	}
	field := ""
	if re := (*openapi3filter.RequestError)(nil); errors.As(err, &re) {
		if re.Parameter != nil {
			field = re.Parameter.Name
		}
		if se := (*openapi3.SchemaError)(nil); errors.As(err, &se) {
			return schemaFault(field, se)
		}
		if pe := (*openapi3filter.ParseError)(nil); errors.As(err, &pe) {
			if field == "" {
				return fault.Wrap(fault.Invalid, err, "the body is not valid JSON: %s", rootCause(pe))
			}
			return fault.InvalidField(field, "%s", rootCause(pe))
		}
		if field == "" {
			return fault.Wrap(fault.Invalid, err, "the body is missing or unreadable")
		}
	}
	if field == "" {
		return fault.Wrap(fault.Invalid, err, "the request does not fit the API; see /docs")
	}
	return fault.InvalidField(field, "%s", rootCause(err))
}

func schemaFault(field string, se *openapi3.SchemaError) error {
	path := se.JSONPointer()
	if field != "" {
		path = append([]string{field}, path...)
	}
	name := strings.Join(path, ".")
	reason := se.Reason
	// "property X is missing" already contains the path's last part.
	if se.SchemaField == "required" {
		reason = "is required"
	}
	if name == "" {
		return fault.New(fault.Invalid, "the body: %s", reason)
	}
	return fault.InvalidField(name, "%s", reason)
}

func rootCause(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

// CheckResponse validates a response against the operation: status, content type and body must be
// documented. It is for tests; contracttest calls it.
func (op *Operation) CheckResponse(r *http.Request, status int, header http.Header, body []byte) error {
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: op.validationInput(r),
		Status:                 status, Header: header, Options: validation,
	}
	// Bodies that are not JSON have no schema worth checking.
	if !strings.HasPrefix(header.Get("Content-Type"), "application/json") && status != http.StatusNoContent &&
		len(body) > 0 {
		opts := *validation
		opts.ExcludeResponseBody = true
		in.Options = &opts
	}
	in.SetBodyBytes(body)
	return openapi3filter.ValidateResponse(r.Context(), in)
}
