//go:build linux && ceph

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"github.com/ceph/go-ceph/rbd"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/mainstay-infra/mainstay/kit/cephlab"
)

const (
	mib     = 1 << 20
	byHand  = "by-hand"
	partMiB = 16
)

// archive is where backups go: a bucket of the gateway, and one of the administrator's for what is done by hand.
type archive struct {
	*gateway
	lab    *cephlab.Lab
	raw    *raw
	s3     *minio.Client
	bucket string // id
}

func (b *bench) archive(ctx context.Context, name string) (*archive, error) {
	text, err := os.ReadFile(b.lab.AccessFile())
	if err != nil {
		return nil, err
	}
	var access cephlab.Access
	if err := json.Unmarshal(text, &access); err != nil {
		return nil, err
	}
	at, err := url.Parse(access.Endpoint)
	if err != nil {
		return nil, err
	}
	s3, err := minio.New(at.Host, &minio.Options{Creds: credentials.NewStaticV4(access.AccessKey, access.SecretKey, "")})
	if err != nil {
		return nil, err
	}
	if found, err := s3.BucketExists(ctx, byHand); err != nil || !found {
		if err := errors.Join(err, s3.MakeBucket(ctx, byHand, minio.MakeBucketOptions{})); err != nil {
			return nil, err
		}
	}
	g, err := b.start(ctx, name, b.lab)
	if err != nil {
		return nil, err
	}
	r, err := connect(b.lab)
	if err == nil {
		a := &archive{g, b.lab, r, s3, ""}
		a.bucket, err = g.job("POST", "/buckets", object{"name": name, "backend_id": b.lab.Name})
		if err == nil {
			return a, nil
		}
	}
	g.stop()
	return nil, err
}

func (a *archive) close() {
	a.raw.close()
	a.stop()
}

// put uploads what a reader has, in parts of 16 MiB, four at once.
func (a *archive) put(ctx context.Context, name string, from io.Reader, size int64) error {
	_, err := a.s3.PutObject(ctx, byHand, name, from, size, minio.PutObjectOptions{
		PartSize: partMiB * mib, NumThreads: 4, ConcurrentStreamParts: true,
	})
	return err
}

// pipe runs commands of a shell in which $RBD is the command rbd with the cluster, and passes what they print to do.
func (a *archive) pipe(ctx context.Context, line string, in io.Reader, do func(io.Reader) error) error {
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", line)
	cmd.Env = append(os.Environ(), "RBD=rbd -c "+a.lab.Conf()+" --id "+cephlab.User)
	cmd.Stdin = in
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := do(out)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, said.Bytes())
	}
	return done
}

// fill writes to an image: half of it is noise, and the other half text. Each call writes something else.
func (r *raw) fill(name string, size int64, random *rand.ChaCha8) error {
	return r.with(name, func(image *rbd.Image) error {
		piece := make([]byte, 4*mib)
		for at := int64(0); at < size; at += int64(len(piece)) {
			half := len(piece) / 2
			_, _ = random.Read(piece[:half])
			text := []byte(fmt.Sprintf("line %d of a log, which says little; ", at+int64(piece[0])))
			copy(piece[half:], bytes.Repeat(text, half/len(text)+1))
			if _, err := image.WriteAt(piece[:min(int64(len(piece)), size-at)], at); err != nil {
				return err
			}
		}
		return image.Flush()
	})
}

// backups compares backups and restores with pipes by hand.
func backups(ctx context.Context, b *bench) error {
	a, err := b.archive(ctx, "archive")
	if err != nil {
		return err
	}
	defer a.close()
	size := b.megabytes * mib
	id, err := a.job("POST", "/volumes", object{"name": "data", "size_bytes": size, "policy": b.lab.Name})
	if err != nil {
		return err
	}
	image := "vol-" + id
	random := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, size)
	_, _ = random.Read(noise)
	var ours, hand, plain, restored, imported times
	stop := a.peak()
	last := ""
	for round := range b.rounds {
		if err := a.raw.fill(image, size, random); err != nil {
			return err
		}
		name := fmt.Sprint("backup-", round)
		all, err := each(1,
			func(int) error {
				last, err = a.job("POST", "/backup-jobs", object{
					"volume_id": id, "bucket_id": a.bucket, "mode": "data", "full": true,
				})
				return err
			},
			func(int) error {
				return a.pipe(ctx, "$RBD export --no-progress rbd/"+image+" - | zstd -q -T2 -3", nil, func(out io.Reader) error {
					return a.put(ctx, name, out, -1)
				})
			},
			func(int) error { return a.put(ctx, "plain", bytes.NewReader(noise), size) },
			func(int) error {
				_, err := a.job("POST", "/backups/"+last+"/restore", object{"name": fmt.Sprint("restored-", round)})
				return err
			},
			func(int) error {
				o, err := a.s3.GetObject(ctx, byHand, name, minio.GetObjectOptions{})
				if err != nil {
					return err
				}
				defer func() { _ = o.Close() }()
				return a.pipe(ctx, "zstd -q -d | $RBD import --no-progress - rbd/"+name, o, func(out io.Reader) error {
					_, err := io.Copy(io.Discard, out)
					return err
				})
			})
		if err != nil {
			return err
		}
		ours, hand, plain = append(ours, all[0]...), append(hand, all[1]...), append(plain, all[2]...)
		restored, imported = append(restored, all[3]...), append(imported, all[4]...)
	}
	memory := stop()
	speed(fmt.Sprintf("back up %d MiB, half of it text, compared", b.megabytes), size, ours,
		other{"rbd export | zstd | upload", hand}, other{"upload of as much noise", plain})
	speed("restore it", size, restored, other{"download | zstd -d | rbd import", imported})
	fmt.Printf("%-46s %.0f MiB with its helpers\n", "memory meanwhile", float64(memory)/mib)
	return a.incremental(ctx, b, id, random)
}

// incremental compares backups of one percent of changes.
func (a *archive) incremental(ctx context.Context, b *bench, id string, random *rand.ChaCha8) error {
	image, size := "vol-"+id, b.megabytes*mib
	if err := rbdCommand(ctx, a.lab, "snap", "create", "rbd/"+image+"@hand-0"); err != nil {
		return err
	}
	var ours, hand times
	for round := range b.rounds {
		if err := a.raw.with(image, func(image *rbd.Image) error {
			piece := make([]byte, mib)
			for range max(1, b.megabytes/100) {
				_, _ = random.Read(piece)
				if _, err := image.WriteAt(piece, rand.Int64N(size/mib)*mib); err != nil {
					return err
				}
			}
			return image.Flush()
		}); err != nil {
			return err
		}
		from, to := fmt.Sprint("hand-", round), fmt.Sprint("hand-", round+1)
		all, err := each(1,
			func(int) error {
				made, err := a.job("POST", "/backup-jobs", object{"volume_id": id, "bucket_id": a.bucket, "mode": "data"})
				if err != nil {
					return err
				}
				var about struct{ Incremental bool }
				if err := a.call("GET", "/backups/"+made, nil, &about); err == nil && !about.Incremental {
					return errors.New("the backup is a whole one")
				}
				return nil
			},
			func(int) error {
				line := strings.NewReplacer("IMAGE", "rbd/"+image, "FROM", from, "TO", to).Replace("$RBD snap create IMAGE@TO && " +
					"$RBD export-diff --no-progress --from-snap FROM IMAGE@TO - | zstd -q -T2 -3")
				return a.pipe(ctx, line, nil, func(out io.Reader) error { return a.put(ctx, to, out, -1) })
			})
		if err != nil {
			return err
		}
		ours, hand = append(ours, all[0]...), append(hand, all[1]...)
	}
	compare("back up 1 % of changes, compared", ours, other{"rbd export-diff | zstd | upload", hand})
	return nil
}

// sparse measures the memory that a backup and a restore of a large image take.
func sparse(ctx context.Context, b *bench) error {
	a, err := b.archive(ctx, "sparse")
	if err != nil {
		return err
	}
	defer a.close()
	id, err := a.job("POST", "/volumes", object{"name": "large", "size_bytes": b.sparse << 30, "policy": b.lab.Name})
	if err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{2})
	if err := a.raw.with("vol-"+id, func(image *rbd.Image) error {
		piece := make([]byte, 4*mib)
		for at := int64(0); at < b.sparse<<30; at += b.sparse << 30 / 64 {
			_, _ = random.Read(piece)
			if _, err := image.WriteAt(piece, at); err != nil {
				return err
			}
		}
		return image.Flush()
	}); err != nil {
		return err
	}
	idle := a.memory()
	stop := a.peak()
	made := ""
	backed, err := took(func() error {
		made, err = a.job("POST", "/backup-jobs", object{"volume_id": id, "bucket_id": a.bucket, "mode": "data"})
		return err
	})
	most := stop()
	if err != nil {
		return err
	}
	stop = a.peak()
	restored, err := took(func() error {
		_, err := a.job("POST", "/backups/"+made+"/restore", object{"name": "again"})
		return err
	})
	back := stop()
	if err != nil {
		return err
	}
	fmt.Printf("%-46s %.1f s and %.0f MiB, with its helpers (idle: %.0f MiB)\n",
		fmt.Sprintf("back up %d GiB with 256 MiB of content", b.sparse), backed.Seconds(), float64(most)/mib, float64(idle)/mib)
	fmt.Printf("%-46s %.1f s and %.0f MiB\n", "restore it", restored.Seconds(), float64(back)/mib)
	return nil
}
