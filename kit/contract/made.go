package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Named returns the operation with an id. It panics if there is none, which is a defect of the service.
func (c *Contract) Named(id string) *Operation {
	for _, op := range c.operations {
		if op.ID == id {
			return op
		}
	}
	panic("contract: no operation " + id)
}

// NewRequest returns the request that a call would be over HTTP which has come another way, so that the same rules
// apply to it. id is the path's parameter of that name. params holds the others by their names, as a struct that is
// marshalled to JSON; body, if it is not nil, is marshalled, too. A parameter with NUL, which no name, id or filter can
// hold and databases refuse, is a fault. CheckMade checks the rest.
func (op *Operation) NewRequest(ctx context.Context, id string, params, body any) (*http.Request, error) {
	values, err := valuesOf(params)
	if err != nil {
		return nil, err
	}
	values["id"] = id
	_, path, _ := strings.Cut(op.Pattern, " ")
	query, header := url.Values{}, http.Header{}
	inPath := map[string]string{}
	for _, list := range []openapi3.Parameters{op.route.PathItem.Parameters, op.route.Operation.Parameters} {
		for _, p := range list {
			name := p.Value.Name
			value, given := values[name]
			if !given {
				continue
			}
			if !storable(value) {
				return nil, fault.InvalidField(name, "holds NUL or is not valid UTF-8")
			}
			switch p.Value.In {
			case openapi3.ParameterInPath:
				inPath[name] = value
				path = strings.Replace(path, "{"+name+"}", url.PathEscape(value), 1)
			case openapi3.ParameterInQuery:
				query.Set(name, value)
			case openapi3.ParameterInHeader:
				header.Set(name, value)
			}
		}
	}
	var content io.Reader = http.NoBody
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, op.Method, path+"?"+query.Encode(), content)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the request does not fit the API")
	}
	r.Header = header
	for name, value := range inPath {
		r.SetPathValue(name, value)
	}
	return r, nil
}

// CheckMade validates a request of NewRequest against the operation.
func (op *Operation) CheckMade(r *http.Request) error {
	if err := op.CheckRequest(r); err != nil {
		return err
	}
	return op.exactKeys(r)
}

// valuesOf returns parameters as they are written in a URL.
func valuesOf(params any) (map[string]string, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var all map[string]any
	if err := decoder.Decode(&all); err != nil {
		return nil, fmt.Errorf("contract: parameters: %w", err)
	}
	values := map[string]string{}
	for name, value := range all {
		// Parameters are words, numbers and booleans.
		values[name] = fmt.Sprint(value)
	}
	return values, nil
}
