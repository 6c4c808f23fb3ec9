package vm

import (
	"path/filepath"
	"testing"
)

// Messages are shown without absolute paths to whoever does not see everything, so all folders are.
func TestFoldersAreAbsoluteAndBucketsStay(t *testing.T) {
	t.Parallel()
	c := Config{Data: "data", BackupRepository: "repo"}
	if err := c.absolute(); err != nil || !filepath.IsAbs(c.Data) || !filepath.IsAbs(c.BackupRepository) || c.ImageFolder != "" {
		t.Errorf("%v, %+v", err, c)
	}
	if where := c.repository().URL; where != c.BackupRepository {
		t.Errorf("%s", where)
	}
	c = Config{Data: "data", BackupRepository: "s3+https://s3.example.com/bucket/prefix"}
	if err := c.absolute(); err != nil || c.repository().URL != "s3+https://s3.example.com/bucket/prefix" {
		t.Errorf("%v, %+v", err, c)
	}
}
