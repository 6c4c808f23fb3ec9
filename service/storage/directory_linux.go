package storage

import (
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/directory"
)

func openDirectory(path, id string) (driver.Driver, error) { return directory.Open(path, id) }
