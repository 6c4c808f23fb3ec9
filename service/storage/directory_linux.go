package storage

import (
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/directory"
)

func openDirectory(path string) (driver.Driver, error) { return directory.Open(path) }
