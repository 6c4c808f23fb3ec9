package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// fieldManager owns the fields that this program sets.
const fieldManager = "devcluster"

// readCRDs reads CRDs of files, and of the files *.yaml of folders.
func readCRDs(paths []string) (all []*unstructured.Unstructured, err error) {
	for _, path := range paths {
		files := []string{path}
		if info, err := os.Stat(path); err != nil {
			return nil, err
		} else if info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			some, err := parseCRDs(raw)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, some...)
		}
	}
	return all, nil
}

// readOwnCRDs reads those that this program has.
func readOwnCRDs() (all []*unstructured.Unstructured, err error) {
	files, err := vmCRDs.ReadDir("crds")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		raw, err := vmCRDs.ReadFile("crds/" + file.Name())
		if err != nil {
			return nil, err
		}
		some, err := parseCRDs(raw)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// parseCRDs reads the documents of a YAML file. All of them must be CRDs.
func parseCRDs(raw []byte) (all []*unstructured.Unstructured, err error) {
	for docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &u.Object); err != nil {
			return nil, err
		}
		switch {
		case len(u.Object) == 0:
		case u.GetKind() != "CustomResourceDefinition" || !strings.HasPrefix(u.GetAPIVersion(), "apiextensions.k8s.io/"):
			return nil, fmt.Errorf("%s %s is not a CRD", u.GetKind(), u.GetName())
		default:
			all = append(all, u)
		}
	}
}

// installCRDs makes or changes CRDs, and returns when they are served.
func installCRDs(ctx context.Context, client dynamic.Interface, all []*unstructured.Unstructured) error {
	crds := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	for _, u := range all {
		if _, err := crds.Apply(
			ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true},
		); err != nil {
			return fmt.Errorf("CRD %s: %w", u.GetName(), err)
		}
	}
	for _, u := range all {
		if err := await(ctx, func(ctx context.Context) bool {
			now, err := crds.Get(ctx, u.GetName(), metav1.GetOptions{})
			return err == nil && served(now)
		}); err != nil {
			return fmt.Errorf("CRD %s: %w", u.GetName(), err)
		}
	}
	return nil
}

func served(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}
