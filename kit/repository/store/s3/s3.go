// Package s3 keeps the objects of a backup repository in a bucket of an S3 service: AWS, MinIO,
// versitygw, Ceph's RGW.
//
// # Invariants
//
//   - The service must support conditional writes (If-None-Match: *), without which Put would
//     overwrite. repository.Create probes for it.
//   - Requests are tried again a bounded number of times, with a backoff. A Put whose answer was lost
//     may have been done: when it is tried again and finds the very same content, it has succeeded.
//   - What the service says it stored is held against what was sent, and lengths of answers against
//     what was asked for. Contents are authenticated by the repository.
package s3

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/repository/store"
)

const (
	// attempts is how often a request is tried.
	attempts = 5
	// requestTime bounds one try.
	requestTime = 5 * time.Minute
)

// Config says where the bucket is.
type Config struct {
	Endpoint  string // https://host[:port]; http only for tests and trusted networks
	Region    string // empty: us-east-1
	Bucket    string // it must exist
	Prefix    string // of all names: empty, or a path that ends with a slash
	AccessKey string
	SecretKey string
	CAFile    string // PEM of the authorities to trust; empty: those of the system
	PathStyle bool   // the bucket is in the path, as most services other than AWS want it
}

// S3 is a bucket.
type S3 struct {
	client *minio.Client
	bucket string
	prefix string
}

// Open checks the settings and that the bucket can be reached. Faults name the settings.
func Open(ctx context.Context, c Config) (*S3, error) {
	at, err := url.Parse(c.Endpoint)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" || strings.Trim(at.Path, "/") != "" {
		return nil, fault.InvalidField("endpoint", "must be like https://host or https://host:port")
	}
	if err := store.CheckPrefix(c.Prefix); err != nil {
		return nil, fault.InvalidField("prefix", "must be empty, or a path that ends with a slash")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // a range is of the object, not of its compressed form
	transport.ResponseHeaderTimeout = time.Minute
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fault.InvalidField("ca_file", "cannot be read: %v", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fault.InvalidField("ca_file", "has no certificates in PEM")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if c.Region == "" {
		c.Region = "us-east-1"
	}
	lookup := minio.BucketLookupDNS
	if c.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(at.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(c.AccessKey, c.SecretKey, ""),
		Secure: at.Scheme == "https", Transport: transport, Region: c.Region, BucketLookup: lookup,
		MaxRetries: 1, // this package tries again itself
	})
	if err != nil {
		return nil, fault.InvalidField("endpoint", "is not valid: %v", err)
	}
	s := &S3{client, c.Bucket, c.Prefix}
	var found bool
	err = s.try(ctx, "bucket "+c.Bucket, func(ctx context.Context) error {
		found, err = client.BucketExists(ctx, c.Bucket)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fault.InvalidField("bucket", "%q does not exist; create it first", c.Bucket)
	}
	return s, nil
}

// Put creates an object.
func (s *S3) Put(ctx context.Context, name string, content []byte) error {
	if err := store.CheckName(name); err != nil {
		return err
	}
	o := minio.PutObjectOptions{
		ContentType: "application/octet-stream", SendContentMd5: true,
		// Services decide about conditions for an object in one request only, and RGW does not confirm what came in parts.
		DisableMultipart: true,
	}
	o.SetMatchETagExcept("*")
	lost := false // an earlier try may have been done
	return s.try(ctx, name, func(ctx context.Context) error {
		info, err := s.client.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(content), int64(len(content)), o)
		switch status := minio.ToErrorResponse(err).StatusCode; {
		case err == nil && info.ETag == "":
			return fault.New(fault.Unreachable, "the service did not confirm %s", name)
		case err == nil:
			return nil
		case status == http.StatusPreconditionFailed || status == http.StatusConflict && taken(err):
			if lost {
				if there, err := s.Get(ctx, name, int64(len(content))); err == nil && bytes.Equal(there, content) {
					return nil
				}
			}
			return fs.ErrExist
		default:
			lost = true
			return err
		}
	})
}

// taken reports whether a conflict means that the name is taken. Others are of Puts that race, and
// are tried again.
func taken(err error) bool { return minio.ToErrorResponse(err).Code == "PreconditionFailed" }

// Get reads an object.
func (s *S3) Get(ctx context.Context, name string, limit int64) (content []byte, err error) {
	if err := store.CheckName(name); err != nil {
		return nil, err
	}
	err = s.try(ctx, name, func(ctx context.Context) error {
		o, info, _, err := s.core().GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer o.Close()
		if info.Size > limit {
			return fault.New(fault.TooLarge, "%s has %d bytes, more than %d", name, info.Size, limit)
		}
		content, err = io.ReadAll(io.LimitReader(o, limit+1))
		if err == nil && int64(len(content)) != info.Size {
			err = fmt.Errorf("%d bytes came instead of %d: %w", len(content), info.Size, io.ErrUnexpectedEOF)
		}
		return err
	})
	return content, err
}

func (s *S3) core() minio.Core { return minio.Core{Client: s.client} }

// GetRange reads a part of an object.
func (s *S3) GetRange(ctx context.Context, name string, offset int64, p []byte) error {
	if err := store.CheckName(name); err != nil {
		return err
	}
	if len(p) == 0 {
		return nil
	}
	return s.try(ctx, name, func(ctx context.Context) error {
		o := minio.GetObjectOptions{}
		if err := o.SetRange(offset, offset+int64(len(p))-1); err != nil {
			return fault.InvalidField("offset", "must not be negative")
		}
		body, info, _, err := s.core().GetObject(ctx, s.bucket, s.prefix+name, o)
		if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
			return fault.New(fault.Invalid, "%s is too short for %d bytes from %d on", name, len(p), offset)
		}
		if err != nil {
			return err
		}
		defer body.Close()
		if info.Size < int64(len(p)) {
			return fault.New(fault.Invalid, "%s is too short for %d bytes from %d on", name, len(p), offset)
		}
		if info.Size > int64(len(p)) {
			return fault.New(fault.Unreachable, "the service ignores ranges, which it must support")
		}
		_, err = io.ReadFull(body, p)
		return err
	})
}

// List lists objects, by pages of a thousand.
func (s *S3) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if err := store.CheckPrefix(prefix); err != nil {
			yield(store.Info{}, err)
			return
		}
		for token := ""; ; {
			var page minio.ListBucketV2Result
			err := s.try(ctx, prefix, func(context.Context) (err error) {
				page, err = s.core().ListObjectsV2(s.bucket, s.prefix+prefix, "", token, "", 1000)
				return err
			})
			if err != nil {
				yield(store.Info{}, err)
				return
			}
			for _, o := range page.Contents {
				name := strings.TrimPrefix(o.Key, s.prefix)
				if !yield(store.Info{Name: name, Size: o.Size, Modified: o.LastModified}, nil) {
					return
				}
			}
			if !page.IsTruncated {
				return
			}
			if page.NextContinuationToken == "" || page.NextContinuationToken == token {
				yield(store.Info{}, fault.New(fault.Unreachable, "the service does not say how its list of %s goes on", prefix))
				return
			}
			token = page.NextContinuationToken
		}
	}
}

// Delete removes an object.
func (s *S3) Delete(ctx context.Context, name string) error {
	if err := store.CheckName(name); err != nil {
		return err
	}
	err := s.try(ctx, name, func(ctx context.Context) error {
		return s.client.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Stat describes an object.
func (s *S3) Stat(ctx context.Context, name string) (info store.Info, err error) {
	if err := store.CheckName(name); err != nil {
		return info, err
	}
	err = s.try(ctx, name, func(ctx context.Context) error {
		o, err := s.client.StatObject(ctx, s.bucket, s.prefix+name, minio.StatObjectOptions{})
		info = store.Info{Name: name, Size: o.Size, Modified: o.LastModified}
		return err
	})
	return info, err
}

// try calls f until it succeeds, or fails for good, or has failed too often.
func (s *S3) try(ctx context.Context, name string, f func(context.Context) error) error {
	schedule := backoff.Schedule{Min: 50 * time.Millisecond, Base: 200 * time.Millisecond, Max: 10 * time.Second}
	for attempt := 0; ; attempt++ {
		bounded, cancel := context.WithTimeout(ctx, requestTime)
		err := f(bounded)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		again, err := judge(err, name, s.bucket)
		if !again || attempt == attempts-1 {
			return err
		}
		if !backoff.Sleep(ctx, schedule.Delay(attempt, rand.Float64)) {
			return context.Cause(ctx)
		}
	}
}

// judge returns the error for the caller, and whether another try may help.
func judge(err error, name, bucket string) (again bool, _ error) {
	answer := minio.ToErrorResponse(err)
	ours := new(fault.Error)
	switch {
	case errors.Is(err, fs.ErrExist):
		return false, err
	case errors.As(err, &ours):
		return ours.Kind == fault.Unreachable, err
	case answer.Code == "NoSuchBucket":
		return false, fault.Wrap(fault.Unreachable, err, "the bucket %s does not exist", bucket)
	case answer.StatusCode == http.StatusNotFound:
		return false, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	case answer.StatusCode == http.StatusForbidden, answer.StatusCode == http.StatusUnauthorized:
		return false, fault.Wrap(fault.Unreachable, err, "the S3 service refuses the access key for the bucket %s", bucket)
	case answer.StatusCode == http.StatusInsufficientStorage, strings.Contains(answer.Code, "QuotaExceeded"):
		return false, fault.Wrap(fault.StorageFailed, err,
			"the storage is full: %s cannot be written to the bucket %s; delete backups, whose room is free some hours later, or enlarge it", name, bucket)
	case answer.StatusCode >= 400 && answer.StatusCode < 500 && answer.StatusCode != http.StatusRequestTimeout &&
		answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode != http.StatusConflict:
		return false, fault.Wrap(fault.Unreachable, err, "the S3 service refuses %s in the bucket %s: %s", name, bucket, answer.Code)
	}
	return true, fault.Wrap(fault.Unreachable, err, "the S3 service cannot be reached, or fails, for %s in the bucket %s", name, bucket)
}
