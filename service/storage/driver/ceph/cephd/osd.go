//go:build ceph

package cephd

import (
	"encoding/json"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// changeOSD takes an OSD out or in, and changes its weight.
func (c *cluster) changeOSD(r *wire.Request) error {
	if r.In != nil {
		word := "osd out"
		if *r.In {
			word = "osd in"
		}
		if err := c.tell(r.OSD, map[string]any{"prefix": word, "ids": []string{strconv.Itoa(r.OSD)}}); err != nil {
			return err
		}
	}
	if r.Weight != nil {
		// Monitors refuse a number without a decimal point.
		weight := json.RawMessage(strconv.FormatFloat(*r.Weight, 'f', 6, 64))
		return c.tell(r.OSD, map[string]any{"prefix": "osd reweight", "id": r.OSD, "weight": weight})
	}
	return nil
}

// tell gives a command about an OSD.
func (c *cluster) tell(osd int, command map[string]any) error {
	// "osd out" says yes to numbers that there are not.
	text, err := json.Marshal(map[string]any{"prefix": "osd find", "id": osd, "format": "json"})
	if err != nil {
		return err
	}
	if _, _, err := c.conn.MonCommand(text); errno(err) == unix.ENOENT {
		return &wire.Error{Reason: wire.NotFound, Message: fmt.Sprintf("the storage has no osd.%d", osd)}
	} else if err != nil {
		return err
	}
	if text, err = json.Marshal(command); err != nil {
		return err
	}
	_, said, err := c.conn.MonCommand(text)
	if errno(err) == unix.EACCES {
		return &wire.Error{
			Reason: wire.Refused, Message: fmt.Sprintf("the gateway's user may not give the command %q", command["prefix"]),
			Cause: said,
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", said, err)
	}
	return nil
}
