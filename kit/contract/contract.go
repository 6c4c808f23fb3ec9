package contract

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
)

// Contract is a parsed and validated OpenAPI document.
type Contract struct {
	doc        *openapi3.T
	raw        []byte
	basePath   string
	operations []*Operation
	byPattern  map[string]*Operation
}

// Operation is one method on one path.
type Operation struct {
	// ID is the document's operationId.
	ID string
	// Method and Path are as in the document; the path holds {placeholders} and no base path.
	Method, Path string
	// Pattern is the http.ServeMux pattern: method, base path and path.
	Pattern string
	// Access is the access class of the operation (x-access).
	Access string
	// Audit is the action of the audit entry that a successful call records (x-audit). It is empty
	// for operations that change nothing, and "none" for changes that are recorded elsewhere.
	Audit string
	// HandlerValidates means that the handler validates the request itself (x-validation: handler),
	// which the hottest operations do for speed.
	HandlerValidates bool
	// MaxBody is the limit on a body in bytes (x-body); 0 means the service's default.
	MaxBody int64
	// Time is the operation's time limit (x-time).
	Time Time
	// Credential names a special credential that the operation accepts (x-credential). It is empty
	// if it accepts only the usual ones. Each service defines its names.
	Credential string
	// Rate is the class of the operation's rate limit (x-rate), empty for the usual one. Each
	// service defines its classes.
	Rate string
	// Statuses are the documented status codes.
	Statuses []int

	route      *routers.Route
	pathParams []string
	scalars    []string // query parameters that take one value
	takesJSON  bool
	bodyKeys   *keys    // keys of the JSON body
	otherMedia []string // accepted body types besides JSON, such as files
}

// Time is the kind of time limit that an operation has.
type Time string

// The kinds of time limits.
const (
	Usual  Time = ""       // the usual request timeouts
	Long   Time = "long"   // no request timeouts: the operation has its own limits
	Stream Time = "stream" // until the client disconnects; not counted among requests in flight
)

// planned is the tag of operations that the contract describes and the service does not serve yet.
const planned = "planned"

// Load parses document. Operations with the tag "planned" are documentation only. It checks that every
// other operation has an id and an access class from classes,
// that every operation except GET has x-audit, and that operations have no unknown extensions
// (x-…). basePath is the path of the document's server, for example "/api/v1". Paths with a server
// of their own, such as /healthz, are documentation only: the service serves them separately.
func Load(document []byte, basePath string, classes []string) (*Contract, error) {
	defineFormats()
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		return nil, fmt.Errorf("parse OpenAPI document: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	c := &Contract{doc: doc, raw: document, basePath: basePath, byPattern: map[string]*Operation{}}
	var problems []error
	for path, item := range doc.Paths.Map() {
		if len(item.Servers) > 0 {
			continue
		}
		for method, o := range item.Operations() {
			if slices.Contains(o.Tags, planned) {
				continue
			}
			op, err := newOperation(doc, basePath, path, item, method, o)
			if err == nil && !slices.Contains(classes, op.Access) {
				err = fmt.Errorf("x-access is %q, not one of %s", op.Access, strings.Join(classes, ", "))
			}
			if err == nil && method != http.MethodGet && op.Audit == "" {
				err = errors.New("x-audit is missing on an operation that changes something")
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("%s %s: %w", method, path, err))
				continue
			}
			c.operations = append(c.operations, op)
			c.byPattern[op.Pattern] = op
		}
	}
	slices.SortFunc(c.operations, func(a, b *Operation) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	})
	return c, errors.Join(problems...)
}

func newOperation(
	doc *openapi3.T, basePath, path string, item *openapi3.PathItem, method string, o *openapi3.Operation,
) (*Operation, error) {
	op := &Operation{
		ID: o.OperationID, Method: method, Path: path, Pattern: method + " " + basePath + path,
		Access: extension(o, "x-access"), Audit: extension(o, "x-audit"),
		Time: Time(extension(o, "x-time")), Credential: extension(o, "x-credential"), Rate: extension(o, "x-rate"),
		route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: o},
	}
	if op.ID == "" {
		return nil, errors.New("operationId is missing")
	}
	if err := op.readExtensions(o.Extensions); err != nil {
		return nil, err
	}
	for _, params := range []openapi3.Parameters{item.Parameters, o.Parameters} {
		for _, p := range params {
			switch {
			case p.Value.In == openapi3.ParameterInPath:
				op.pathParams = append(op.pathParams, p.Value.Name)
			case p.Value.In == openapi3.ParameterInQuery && !isCompound(p.Value.Schema):
				op.scalars = append(op.scalars, p.Value.Name)
			}
		}
	}
	if o.RequestBody != nil {
		if media := o.RequestBody.Value.Content.Get("application/json"); media != nil {
			op.takesJSON, op.bodyKeys = true, keysOf(media.Schema, map[*openapi3.Schema]*keys{})
		}
		for media := range o.RequestBody.Value.Content {
			if media != "application/json" {
				op.otherMedia = append(op.otherMedia, media)
			}
		}
	}
	for status := range o.Responses.Map() {
		var n int
		if _, err := fmt.Sscanf(status, "%d", &n); err != nil {
			return nil, fmt.Errorf("response %q is not a status code", status)
		}
		op.Statuses = append(op.Statuses, n)
	}
	slices.Sort(op.Statuses)
	return op, nil
}

// isCompound reports whether the values of a schema have several parts, as those of lists have.
func isCompound(ref *openapi3.SchemaRef) bool {
	return ref != nil && ref.Value != nil && (ref.Value.Type.Is("array") || ref.Value.Type.Is("object"))
}

// readExtensions parses the extensions that are not words, and rejects unknown ones.
func (op *Operation) readExtensions(extensions map[string]any) error {
	for name, value := range extensions {
		switch name {
		case "x-access", "x-audit", "x-credential", "x-rate":
			if _, ok := value.(string); !ok {
				return fmt.Errorf("%s is %v, not a word", name, value)
			}
		case "x-validation":
			if op.HandlerValidates = value == "handler"; !op.HandlerValidates {
				return fmt.Errorf("x-validation is %v, not handler", value)
			}
		case "x-time":
			if op.Time != Long && op.Time != Stream {
				return fmt.Errorf("x-time is %v, not %s or %s", value, Long, Stream)
			}
		case "x-body":
			size, ok := value.(float64)
			if op.MaxBody = int64(size); !ok || op.MaxBody < 1 {
				return fmt.Errorf("x-body is %v, not a number of bytes", value)
			}
		default:
			return fmt.Errorf("there is no extension %s", name)
		}
	}
	return nil
}

func extension(o *openapi3.Operation, name string) string {
	s, _ := o.Extensions[name].(string)
	return s
}

// Operations returns all operations, ordered by path and method.
func (c *Contract) Operations() []*Operation { return c.operations }

// BasePath returns the path of the document's server, for example "/api/v1".
func (c *Contract) BasePath() string { return c.basePath }

// Operation returns the operation that is registered under a pattern.
func (c *Contract) Operation(pattern string) (*Operation, bool) {
	op, ok := c.byPattern[pattern]
	return op, ok
}
