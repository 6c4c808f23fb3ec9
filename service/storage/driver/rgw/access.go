package rgw

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// Access says where an S3 service is, and holds keys for it.
type Access struct {
	Endpoint string `json:"endpoint"` // https://HOST[:PORT]; http for trusted networks
	Region   string `json:"region"`   // empty: us-east-1
	CAFile   string `json:"ca_file"`  // PEM of the authorities to trust; empty: those of the system
	Bucket   string `json:"bucket"`   // only of a bucket that exists
	driver.BucketKeys
}

// maxFile is more than a file with an Access has, in bytes.
const maxFile = 64 << 10

// ReadFile reads an Access. Faults name the setting, and hold nothing of the file's content.
func ReadFile(setting, path string) (a Access, err error) {
	f, err := os.Open(path)
	if err != nil {
		return a, fault.Wrap(fault.Invalid, err, "%s: cannot read %s", setting, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err := errors.Join(err, f.Close()); err != nil || len(text) > maxFile {
		return a, fault.Wrap(fault.Invalid, err, "%s: cannot read %s, or it is too large", setting, path)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil || d.More() {
		return a, fault.InvalidField(setting, "%s is not a JSON object with the text fields endpoint, access_key, secret_key, "+
			"region, ca_file and bucket only", path)
	}
	if err := a.complete(); err != nil {
		return a, fault.InvalidField(setting, "%s: %s", path, fault.From(err).Message)
	}
	return a, nil
}

// complete checks an Access, and fills in what is usual.
func (a *Access) complete() error {
	at, err := url.Parse(a.Endpoint)
	switch {
	case err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" || at.Port() == "0",
		strings.Trim(at.Path, "/") != "", at.RawQuery != "", at.Fragment != "", at.User != nil:
		return fault.InvalidField("endpoint", "must be like https://host or https://host:port")
	case a.Access == "" || a.Secret == "":
		return fault.InvalidField("access_key", "access_key and secret_key must be given")
	case a.CAFile != "" && !filepath.IsAbs(a.CAFile):
		return fault.InvalidField("ca_file", "must be an absolute path")
	}
	a.Endpoint, a.Region = at.Scheme+"://"+at.Host, cmp.Or(a.Region, "us-east-1")
	return nil
}

func (a *Access) bucketAccess() driver.BucketAccess {
	return driver.BucketAccess{
		Endpoint: a.Endpoint, Region: a.Region, Bucket: a.Bucket, CAFile: a.CAFile, BucketKeys: a.BucketKeys,
	}
}

// transport returns what requests go through.
func (a *Access) transport() (http.RoundTripper, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // so that answers are as large as they say
	if a.CAFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(a.CAFile)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "ca_file: cannot be read")
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fault.InvalidField("ca_file", "has no certificates in PEM")
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}
