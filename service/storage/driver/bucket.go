package driver

import (
	"context"
	"time"
)

// BucketName identifies a bucket and its user, to whom it belongs in the object gateway.
type BucketName struct {
	Bucket string
	User   string // empty: of a bucket that is only read
}

// NameBucket returns the name in the object gateway of the bucket with a name and an id of the gateway. The end of the
// id tells buckets of different tenants apart.
func NameBucket(name, id string) BucketName {
	const most, suffix = 63, 12 // what S3 allows, and the random part of an id
	if room := most - suffix - 1; len(name) > room {
		name = name[:room]
	}
	return BucketName{Bucket: name + "-" + id[len(id)-suffix:], User: "mainstay-" + id}
}

// BucketSpec describes a bucket to make.
type BucketSpec struct {
	BucketName
	MaxObjects int64 // 0: no limit
	MaxSize    int64 // bytes; 0: no limit
	Versioning bool  // keep what is overwritten or deleted
}

// BucketKeys are the keys of a bucket's user. They never go into answers, logs or faults.
type BucketKeys struct {
	Access string `json:"access_key"`
	Secret string `json:"secret_key"`
}

// Versioning says whether a bucket keeps what is overwritten or deleted.
type Versioning string

// The ways of versioning.
const (
	VersioningDisabled  Versioning = "disabled"
	VersioningEnabled   Versioning = "enabled"
	VersioningSuspended Versioning = "suspended"
	VersioningUnknown   Versioning = "unknown" // its keys may not know
)

// BucketRule says what the object gateway does with objects in time. Days are 0 for never.
type BucketRule struct {
	ID, Prefix                               string
	Enabled                                  bool
	ExpireDays, NoncurrentDays, AbortUploads int
}

// Bucket is a bucket as the object gateway has it.
type Bucket struct {
	BucketName
	Endpoint   string // the URL of the object gateway
	Region     string
	Objects    int64
	Size       int64 // bytes
	MaxObjects int64 // 0: no limit
	MaxSize    int64 // bytes; 0: no limit
	Versioning Versioning
	Rules      []BucketRule
}

// BucketObject is an object of a bucket, or a folder: what other keys begin with, up to a slash.
type BucketObject struct {
	Key      string
	Folder   bool
	Size     int64     // bytes; 0 for folders
	Modified time.Time // zero for folders
}

// ObjectsQuery selects a page of the objects of a bucket.
type ObjectsQuery struct {
	Prefix string // what keys begin with
	After  string // ObjectsPage.Next of the page before; empty: the first page
	Limit  int
}

// ObjectsPage is a page of a folder of a bucket, by name.
type ObjectsPage struct {
	Objects []BucketObject
	Next    string // empty on the last page
}

// BucketAccess says how the content of a bucket is reached. It goes into no answer, log or fault.
type BucketAccess struct {
	Endpoint, Region, Bucket string
	CAFile                   string // path of certificates to trust; empty: those of the system
	BucketKeys
}

// BucketReader is implemented by what can look into buckets.
type BucketReader interface {
	// Bucket returns a bucket, or a fault of kind NotFound. A bucket that belongs to another user is one of kind Conflict.
	Bucket(ctx context.Context, name BucketName) (Bucket, error)
	// Objects lists a folder of a bucket.
	Objects(ctx context.Context, name BucketName, q ObjectsQuery) (ObjectsPage, error)
}

// SingleBucket looks into one bucket that exists, whatever name it is asked for.
type SingleBucket interface {
	BucketReader
	Access() BucketAccess
	// Reach returns what is known of the bucket besides its content. It fails if its keys do not list it.
	Reach(ctx context.Context) (Bucket, error)
}

// Buckets is implemented by drivers of storage systems with an object gateway.
type Buckets interface {
	BucketReader
	Access(name BucketName, keys BucketKeys) BucketAccess
	// CreateBucket makes a user and its bucket, and returns the user's keys. If they are there, it makes them as they
	// are asked for. A bucket that belongs to somebody else is a fault of kind Conflict, and stays as it is.
	CreateBucket(ctx context.Context, spec BucketSpec) (BucketKeys, error)
	// DeleteBucket removes a bucket with all versions of its objects and its unfinished uploads, and then its user. From
	// its beginning, the keys of the user open nothing any more. progress gets the part that is done, from 0 to 1.
	DeleteBucket(ctx context.Context, name BucketName, progress func(float64)) error
}
