//go:build linux

package ceph

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// Token is what a bootstrap token of a peer holds.
type Token struct {
	FSID     string      `json:"fsid"`
	User     string      `json:"client_id"` // without "client."
	Key      wire.Secret `json:"key"`
	MonHosts string      `json:"mon_host"`
}

// ParseToken reads a token as "rbd mirror pool peer bootstrap create" prints it.
func ParseToken(text string) (t Token, err error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil || t.FSID == "" || t.User == "" || t.Key == "" || t.MonHosts == "" {
		return Token{}, errors.New("it is not a token as rbd mirror pool peer bootstrap create prints it")
	}
	return t, nil
}

// Dial connects to the cluster that a token is of, and closes the connection again.
func (t Token) Dial(ctx context.Context, cfg Config) error {
	cfg.Connection = wire.Connection{MonHosts: []string{t.MonHosts}, User: t.User, Key: t.Key}
	cfg.FSID = t.FSID
	d, err := Open(cfg)
	if err != nil {
		return err
	}
	_, err = d.current(ctx)
	if err != nil {
		err = d.judgeStart(ctx, err)
	}
	return errors.Join(err, d.Close())
}

// MirrorScope returns what of a pool is mirrored.
func (d *Driver) MirrorScope(ctx context.Context, pool string) (driver.MirrorScope, error) {
	answer, err := d.call(ctx, wire.Request{Op: wire.MirrorPool, Pool: pool})
	return driver.MirrorScope(answer.Scope), err
}

// SetMirrorScope changes what of a pool is mirrored.
func (d *Driver) SetMirrorScope(ctx context.Context, pool string, scope driver.MirrorScope) error {
	_, err := d.call(ctx, wire.Request{Op: wire.MirrorPool, Pool: pool, Scope: string(scope)})
	return err
}

// AddMirrorPeer makes another cluster a peer of a pool. It connects to that, so it may take longer than short calls.
func (d *Driver) AddMirrorPeer(ctx context.Context, pool, token string, oneWay bool) error {
	t, err := ParseToken(token)
	if err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	_, err = d.work(ctx, wire.Request{
		Op: wire.MirrorPeer, Pool: pool, Peer: t.FSID, Token: wire.Secret(strings.TrimSpace(token)), OneWay: oneWay,
	}, nil)
	return err
}

// mirrored does something with a mirrored volume.
func (d *Driver) mirrored(ctx context.Context, r wire.Request) error {
	_, err := d.longer(ctx, r, nil)
	return err
}

// EnableMirror has a volume copied to the peers of its pool.
func (d *Driver) EnableMirror(ctx context.Context, n driver.Name, mode driver.MirrorMode) error {
	r := request(wire.MirrorOn, n)
	r.Mode = string(mode)
	return d.mirrored(ctx, r)
}

// DisableMirror removes the copies of a volume.
func (d *Driver) DisableMirror(ctx context.Context, n driver.Name) error {
	return d.mirrored(ctx, request(wire.MirrorOff, n))
}

// sendAtOnce is how many mirror snapshots are taken at once.
const sendAtOnce = 4

// SendChanges takes mirror snapshots. That waits for the daemons of the other site, which may hang, so a process of its
// own does it.
func (d *Driver) SendChanges(ctx context.Context, names []driver.Name, sent func(driver.Name, error)) error {
	return d.session(ctx, nil, func(ask func(wire.Request) (wire.Response, error)) error {
		var work sync.WaitGroup
		var telling sync.Mutex
		slots := make(chan struct{}, sendAtOnce)
		for _, n := range names {
			work.Go(func() {
				_ = routine.Run(d.cfg.Log, "changes for the other site", func() { // a panic was logged
					slots <- struct{}{}
					defer func() { <-slots }()
					err := check("volume", n.Native)
					if err == nil {
						_, err = ask(request(wire.MirrorSnap, n))
					}
					telling.Lock()
					defer telling.Unlock()
					sent(n, err)
				})
			})
		}
		work.Wait()
		return nil
	})
}

// Promote makes a volume the one that is written to.
func (d *Driver) Promote(ctx context.Context, n driver.Name, force bool) error {
	r := request(wire.Promote, n)
	r.Force = force
	return d.mirrored(ctx, r)
}

// Demote makes a volume a copy.
func (d *Driver) Demote(ctx context.Context, n driver.Name, force bool) error {
	r := request(wire.Demote, n)
	r.Force, r.Ours = force, d.ours()
	return d.mirrored(ctx, r)
}

// Resync copies a volume again from its peer.
func (d *Driver) Resync(ctx context.Context, n driver.Name) error {
	return d.mirrored(ctx, request(wire.Resync, n))
}

// Mirror returns how a volume is mirrored.
func (d *Driver) Mirror(ctx context.Context, n driver.Name) (driver.Mirror, error) {
	if err := check("volume", n.Native); err != nil {
		return driver.Mirror{}, err
	}
	r := request(wire.MirrorLook, n)
	r.Ours = d.ours()
	answer, err := d.call(ctx, r)
	if err != nil {
		return driver.Mirror{}, err
	}
	if len(answer.Mirrors) != 1 {
		return driver.Mirror{}, fault.New(fault.Unavailable, "the helper's answer lacks the mirror")
	}
	return mirrorOf(&answer.Mirrors[0]), nil
}

func mirrorOf(m *wire.Mirror) driver.Mirror {
	out := driver.Mirror{
		Shown: m.Image, GlobalID: m.GlobalID, Mode: driver.MirrorMode(m.Mode), Enabled: m.Enabled, Primary: m.Primary,
		InUse: m.InUse,
	}
	for _, s := range m.Sites {
		out.Sites = append(out.Sites, driver.MirrorSite{
			Here: s.Peer == "", Name: s.Peer, Up: s.Up, State: s.State, Description: s.Description, UpdatedAt: s.UpdatedAt,
		})
	}
	for _, c := range m.Snapshots {
		out.Copies = append(out.Copies, driver.MirrorCopy(c))
	}
	return out
}

// EachMirror calls do with the mirrored volumes of a pool.
func (d *Driver) EachMirror(ctx context.Context, pool string, do func(driver.Mirror) error) error {
	for after := ""; ; {
		page, err := d.call(ctx, wire.Request{Op: wire.MirrorPage, Pool: pool, After: after})
		if err != nil {
			return err
		}
		for i := range page.Mirrors {
			if err := do(mirrorOf(&page.Mirrors[i])); err != nil {
				return err
			}
		}
		if page.Next <= after {
			return nil
		}
		after = page.Next
	}
}

// ReadMirror reads a snapshot of a volume, or its newest complete copy.
func (d *Driver) ReadMirror(
	ctx context.Context, n driver.Name, snapshot, clone string, progress func(float64),
) (driver.Digest, error) {
	r := request(wire.Digest, n)
	r.Snap, r.To = snapshot, clone
	answer, err := d.longer(ctx, r, progress)
	return driver.Digest{Sum: answer.Digest, Read: answer.Read}, err
}
