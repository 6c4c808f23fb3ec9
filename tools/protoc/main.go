// Command protoc generates the Go code of a .proto file, with the plugins that tools/go.mod pins. It compiles the file
// itself, so that nothing needs to be installed, and refuses one in which something has no comment.
//
//	protoc FOLDER FILE
//
// writes the code beside the file. FOLDER is what imports are relative to, and FILE is relative to it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: protoc FOLDER FILE")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func generate(folder, file string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{folder}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), file)
	if err != nil {
		return err
	}
	if err := commented(compiled[0]); err != nil {
		return err
	}
	req := &pluginpb.CodeGeneratorRequest{FileToGenerate: []string{file}, Parameter: new("paths=source_relative")}
	collect(req, compiled[0], map[string]bool{})
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(plugin, req, folder); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// collect adds a file to the request, after those that it imports.
func collect(req *pluginpb.CodeGeneratorRequest, f protoreflect.FileDescriptor, seen map[string]bool) {
	if seen[f.Path()] {
		return
	}
	seen[f.Path()] = true
	for i := range f.Imports().Len() {
		collect(req, f.Imports().Get(i).FileDescriptor, seen)
	}
	described, ok := f.(interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	})
	if ok {
		req.ProtoFile = append(req.ProtoFile, described.FileDescriptorProto())
		return
	}
	req.ProtoFile = append(req.ProtoFile, protodesc.ToFileDescriptorProto(f))
}

// run has a plugin make its files.
func run(plugin string, req *pluginpb.CodeGeneratorRequest, folder string) error {
	in, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var answer pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return errors.New(answer.GetError())
	}
	for _, f := range answer.File {
		if err := os.WriteFile(filepath.Join(folder, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// commented returns an error for each service, method, message and field without a comment: the file is what callers
// read.
func commented(f protoreflect.FileDescriptor) error {
	var missing []error
	check := func(d protoreflect.Descriptor) {
		at := f.SourceLocations().ByDescriptor(d)
		if at.LeadingComments == "" && at.TrailingComments == "" {
			missing = append(missing, fmt.Errorf("%s:%d: %s has no comment", f.Path(), at.StartLine+1, d.FullName()))
		}
	}
	for i := range f.Services().Len() {
		s := f.Services().Get(i)
		check(s)
		for j := range s.Methods().Len() {
			check(s.Methods().Get(j))
		}
	}
	for i := range f.Messages().Len() {
		m := f.Messages().Get(i)
		check(m)
		for j := range m.Fields().Len() {
			check(m.Fields().Get(j))
		}
	}
	return errors.Join(missing...)
}
