// Package s3test tests the backup repository on versitygw, a real S3 server in Go. It is a module of
// its own, so that nothing of the server is among what Mainstay depends on.
package s3test
