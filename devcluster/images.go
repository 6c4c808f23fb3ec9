package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// The images that a real node has from the beginning, since it may reach no registry. Both are the host's busybox.
const (
	pauseImage   = "docker.io/devcluster/pause:1"   // of what holds the namespaces of a pod
	busyboxImage = "docker.io/devcluster/busybox:1" // for people and tests
)

// importImages gives containerd the images.
func (n *node) importImages() error {
	layer, err := busyboxLayer()
	if err != nil {
		return err
	}
	for name, config := range map[string]map[string]any{
		pauseImage:   {"Entrypoint": []string{"/bin/sleep", "2147483647"}},
		busyboxImage: {"Cmd": []string{"/bin/sh"}, "Env": []string{"PATH=/bin"}},
	} {
		archive, err := imageArchive(name, layer, config)
		if err != nil {
			return err
		}
		path := n.in("image.tar")
		if err := errors.Join(os.WriteFile(path, archive, 0o600), n.ctr("images", "import", path), os.Remove(path)); err != nil {
			return err
		}
	}
	return nil
}

// busyboxLayer returns the file system of the images: busybox, under the names of all its programs.
func busyboxLayer() ([]byte, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	names, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", path, err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(h *tar.Header, content []byte) error {
		h.Size = int64(len(content))
		err := w.WriteHeader(h)
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	}
	err = errors.Join(
		add(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil),
		add(&tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}, nil),
		add(&tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, program),
	)
	for _, name := range strings.Fields(string(names)) {
		if name != "busybox" {
			err = errors.Join(err, add(&tar.Header{
				Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777,
			}, nil))
		}
	}
	return out.Bytes(), errors.Join(err, w.Close())
}

// imageArchive returns an image of one layer, in the form that docker save writes.
func imageArchive(name string, layer []byte, config map[string]any) ([]byte, error) {
	digest := func(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) }
	about, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	if err != nil {
		return nil, err
	}
	files := []struct {
		name    string
		content []byte
	}{{digest(about) + ".json", about}, {digest(layer) + ".tar", layer}}
	manifest, err := json.Marshal([]map[string]any{
		{"Config": files[0].name, "RepoTags": []string{name}, "Layers": []string{files[1].name}},
	})
	if err != nil {
		return nil, err
	}
	files = append(files, struct {
		name    string
		content []byte
	}{"manifest.json", manifest})
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}
