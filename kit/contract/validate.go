package contract

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
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

// givenOnce refuses a query that repeats a parameter of one value. The validator reads only the first
// value, and so does the decoder of times: a list would be shown for another time than the last one
// that was asked for.
func (op *Operation) givenOnce(r *http.Request) error {
	if !strings.Contains(r.URL.RawQuery, "&") {
		return nil
	}
	query := r.URL.Query()
	for _, name := range op.scalars {
		if len(query[name]) > 1 {
			return fault.InvalidField(name, "is given twice")
		}
	}
	return nil
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
		return fault.Wrap(fault.TooLarge, err, "the request body is larger than %d bytes", tooLarge.Limit)
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
				return fault.Wrap(fault.Invalid, err, "the request body is not valid JSON: %s", rootCause(pe))
			}
			return fault.InvalidField(field, "%s", parseReason(re.Parameter, pe))
		}
		if field == "" {
			return fault.Wrap(fault.Invalid, err, "the request body is missing or cannot be read")
		}
	}
	if field == "" {
		return fault.Wrap(fault.Invalid, err, "the request does not fit the API; see /docs")
	}
	return fault.InvalidField(field, "%s", rootCause(err))
}

// unknownKey matches the validator's reason for a key of an object that has only known ones.
var unknownKey = regexp.MustCompile(`^property "(.{1,64})" is unsupported$`)

func schemaFault(field string, se *openapi3.SchemaError) error {
	path := se.JSONPointer()
	if field != "" {
		path = append([]string{field}, path...)
	}
	reason := reasonOf(se)
	if unknown := unknownKey.FindStringSubmatch(se.Reason); se.SchemaField == "properties" && unknown != nil {
		path, reason = append(path, unknown[1]), "is not a known field"
	}
	name := strings.Join(path, ".")
	if name == "" {
		return fault.New(fault.Invalid, "the request body %s", reason)
	}
	return fault.InvalidField(name, "%s", reason)
}

// reasonOf says what is wrong with a value in words that follow its name.
func reasonOf(se *openapi3.SchemaError) string {
	schema := se.Schema
	if schema == nil {
		return se.Reason
	}
	switch se.SchemaField {
	case "required":
		return "is required"
	case "nullable":
		return "must not be null"
	case "type":
		if types := schema.Type.Slice(); len(types) > 0 {
			return "must be " + aTypeName[types[0]]
		}
	case "minLength":
		return fmt.Sprintf("must have at least %d characters", schema.MinLength)
	case "maxLength":
		return fmt.Sprintf("must have at most %d characters", *schema.MaxLength)
	case "minItems":
		return fmt.Sprintf("must have at least %d items", schema.MinItems)
	case "maxItems":
		return fmt.Sprintf("must have at most %d items", *schema.MaxItems)
	case "minProperties":
		return fmt.Sprintf("must have at least %d keys", schema.MinProps)
	case "maxProperties":
		return fmt.Sprintf("must have at most %d keys", *schema.MaxProps)
	case "uniqueItems":
		return "must not have an item twice"
	case "pattern":
		return fmt.Sprintf("must match the regular expression %s", schema.Pattern)
	case "minimum":
		return "must be at least " + strconv.FormatFloat(*schema.Min, 'f', -1, 64)
	case "maximum":
		return "must be at most " + strconv.FormatFloat(*schema.Max, 'f', -1, 64)
	case "enum":
		values := make([]string, len(schema.Enum))
		for i, v := range schema.Enum {
			values[i] = fmt.Sprint(v)
		}
		return "must be one of: " + strings.Join(values, ", ")
	case "format":
		return fmt.Sprintf("is not a valid %s", schema.Format)
	}
	return se.Reason
}

var aTypeName = map[string]string{
	"string": "a string", "integer": "an integer", "number": "a number", "boolean": "a boolean",
	"array": "an array", "object": "an object", "null": "null",
}

// parseReason says what is wrong with a parameter that cannot be parsed.
func parseReason(p *openapi3.Parameter, pe *openapi3filter.ParseError) string {
	if p != nil && p.Schema != nil && p.Schema.Value != nil {
		if types := p.Schema.Value.Type.Slice(); len(types) > 0 && aTypeName[types[0]] != "" {
			return "must be " + aTypeName[types[0]]
		}
	}
	return rootCause(pe)
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
