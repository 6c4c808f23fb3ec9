// Package zfstest is a ZFS of its own for tests: the programs zfs and zpool (testdata/fakezfs), whose pool is the
// folder that they are started from: state.json, and the content of datasets in files. They keep to the rules and the
// words of the manual pages zfs(8), zfsprops(7) and of OpenZFS's own programs, as far as the driver uses them, and
// those of hold and promote, which only operators use. Two files steer them: while there is the file hang, they hang;
// with "before N" or "after N" in the file die, they end as by kill -9 before or after the change with the number N.
package zfstest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Disk is the state of a pool.
type Disk struct {
	Pool     string
	Size     int64
	Full     bool
	Health   string
	Changes  int // commands that changed something, or tried to
	Txg      int64
	Datasets map[string]*Node
}

// Node is a dataset or a snapshot.
type Node struct {
	Type     string // filesystem, volume or snapshot
	GUID     int64
	Txg      int64
	VolSize  int64
	RefQuota int64
	Quota    int64
	Used     int64
	Origin   string
	Props    map[string]string // of the user
	Mounted  bool
	CanMount string
	Mount    string // where it belongs: its mountpoint; empty: below the parent
	Busy     bool   // a device or a file of it is open
	Defer    bool   // of a snapshot
	Holds    int
}

// volblocksize is that of all volumes.
const volblocksize = 16 << 10

// Load reads the pool of a folder.
func Load(dir string) *Disk {
	raw, err := os.ReadFile(filepath.Join(dir, "state.json"))
	d := &Disk{}
	if err == nil {
		err = json.Unmarshal(raw, d)
	}
	if err != nil {
		panic(err)
	}
	return d
}

// Save writes the pool of a folder.
func (d *Disk) Save(dir string) {
	raw, err := json.MarshalIndent(d, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "state.new"), raw, 0o600)
	}
	if err == nil {
		err = os.Rename(filepath.Join(dir, "state.new"), filepath.Join(dir, "state.json"))
	}
	if err != nil {
		panic(err)
	}
}

// Lock locks the state of a folder.
func Lock(dir string) (unlock func()) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX) //nolint:gosec // descriptors are small
	}
	if err != nil {
		panic(err)
	}
	return func() { _ = f.Close() }
}

// Main is zfs or zpool, with the pool of a folder. It returns the exit code.
func Main(dir, program string, args []string) int {
	defer Lock(dir)()
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintln(log, strings.Join(append([]string{program}, args...), "\t"))
	_ = log.Close()
	if _, err := os.Stat(filepath.Join(dir, "hang")); err == nil {
		time.Sleep(time.Hour)
	}
	d := Load(dir)
	f := &fake{Disk: d, dir: dir}
	reads := program == "zpool" || args[0] == "list"
	if !reads {
		d.Changes++
		d.Save(dir)
		dieIf(dir, "before", d.Changes)
	}
	err = f.command(program, args)
	if err == nil && !reads {
		d.Save(dir)
		dieIf(dir, "after", d.Changes)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// dieIf ends the program as kill -9 does, if the file die says so of this change.
func dieIf(dir, when string, change int) {
	raw, err := os.ReadFile(filepath.Join(dir, "die"))
	if err == nil && string(raw) == fmt.Sprintf("%s %d", when, change) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
	}
}

// fake carries a command out.
type fake struct {
	*Disk
	dir string
}

func (f *fake) command(program string, args []string) error {
	verb, args := args[0], args[1:]
	var options []string // with their values
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		options = append(options, args[0])
		if strings.Contains("-o -V -d -t -b", args[0]) && (args[0] != "-d" || verb == "list") {
			options = append(options, args[1])
			args = args[1:]
		}
		args = args[1:]
	}
	if program == "zpool" {
		return f.zpool(args)
	}
	switch verb {
	case "list":
		return f.list(options, args[0])
	case "create":
		return f.create(options, args[0])
	case "set":
		return f.set(args[0], args[1])
	case "destroy":
		return f.destroy(args[0], slices.Contains(options, "-d"))
	case "rename":
		return f.rename(args[0], args[1])
	case "snapshot":
		return f.snapshot(options, args[0])
	case "clone":
		return f.clone(options, args[0], args[1])
	case "promote":
		return f.promote(args[0])
	case "hold":
		return f.hold(args[1])
	case "mount", "unmount":
		return f.mount(args[0], verb == "mount")
	}
	return fmt.Errorf("unrecognized command '%s'", verb)
}

func (f *fake) zpool(args []string) error {
	if args[0] != f.Pool {
		return fmt.Errorf("cannot open '%s': no such pool", args[0])
	}
	_, _ = fmt.Fprintf(os.Stdout, "%d\t%d\t%s\n", f.Size, f.used(), f.Health)
	return nil
}

func (f *fake) used() (n int64) {
	for _, d := range f.Datasets {
		n += d.Used
	}
	return n
}

func (f *fake) open(name string) (*Node, error) {
	d := f.Datasets[name]
	if d == nil {
		return nil, fmt.Errorf("cannot open '%s': dataset does not exist", name)
	}
	return d, nil
}

func parent(name string) string { return name[:max(0, strings.LastIndexAny(name, "/@"))] }

func (f *fake) list(options []string, target string) error {
	if _, err := f.open(target); err != nil {
		return err
	}
	depth, types, columns := 0, []string{"filesystem", "volume"}, []string(nil)
	for i := 0; i+1 < len(options); i++ {
		switch options[i] {
		case "-d":
			depth, _ = strconv.Atoi(options[i+1])
		case "-t":
			types = strings.Split(options[i+1], ",")
		case "-o":
			columns = strings.Split(options[i+1], ",")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Datasets)) {
		rest, below := strings.CutPrefix(name, target)
		if !below || rest != "" && rest[0] != '/' && rest[0] != '@' || strings.Count(rest, "/")+strings.Count(rest, "@") > depth ||
			!slices.Contains(types, f.Datasets[name].Type) {
			continue
		}
		var cells []string
		for _, c := range columns {
			cells = append(cells, f.property(name, c))
		}
		_, _ = fmt.Fprintln(os.Stdout, strings.Join(cells, "\t"))
	}
	return nil
}

// property returns a property as `zfs list -p` shows it.
func (f *fake) property(name, property string) string {
	n := f.Datasets[name]
	only := func(kind, value string) string {
		if n.Type != kind {
			return "-"
		}
		return value
	}
	number := func(v int64) string { return strconv.FormatInt(v, 10) }
	yes := func(v bool, t, f string) string {
		if v {
			return t
		}
		return f
	}
	switch property {
	case "name":
		return name
	case "type":
		return n.Type
	case "guid":
		return number(n.GUID)
	case "used", "referenced":
		return number(n.Used)
	case "available":
		return number(f.Size - f.used())
	case "creation":
		return number(1_700_000_000 + n.Txg)
	case "volsize":
		return yes(n.VolSize > 0, number(n.VolSize), "-")
	case "refquota":
		return only("filesystem", number(n.RefQuota))
	case "quota":
		return only("filesystem", number(n.Quota))
	case "origin":
		return cmp.Or(n.Origin, "-")
	case "mounted":
		return only("filesystem", yes(n.Mounted, "yes", "no"))
	case "mountpoint":
		return only("filesystem", cmp.Or(n.Mount, "/"+name))
	case "canmount":
		return only("filesystem", n.CanMount)
	case "defer_destroy":
		return only("snapshot", yes(n.Defer, "on", "off"))
	}
	for at := name; at != ""; at = parent(at) { // properties of users are inherited, also by snapshots
		if v, ok := f.Datasets[at].Props[property]; ok {
			return v
		}
	}
	return "-"
}

// properties gives a Node those of -o, and -V.
func (n *Node) properties(of string, options []string) error {
	for i := 0; i+1 < len(options); i++ {
		switch options[i] {
		case "-V":
			n.Type = "volume"
			if err := n.set("volsize", options[i+1]); err != nil {
				return fmt.Errorf("cannot create '%s': %w", of, err)
			}
		case "-o":
			key, value, _ := strings.Cut(options[i+1], "=")
			if err := n.set(key, value); err != nil {
				return fmt.Errorf("cannot create '%s': %w", of, err)
			}
		}
	}
	return nil
}

func (n *Node) set(key, value string) error {
	size, err := strconv.ParseInt(value, 10, 64)
	switch {
	case strings.Contains(key, ":"):
		n.Props[key] = value
		return nil
	case key == "canmount" && n.Type == "filesystem":
		n.CanMount = value
		return nil
	case key == "volsize" && n.Type == "volume" && err == nil:
		if size == 0 {
			return errors.New("volume size cannot be zero")
		}
		if size%volblocksize != 0 {
			return errors.New("volume size must be a multiple of volume block size")
		}
		n.VolSize = size
		return nil
	case key == "refquota" && n.Type == "filesystem" && err == nil:
		if size > 0 && size < n.Used {
			return errors.New("size is less than current used or reserved space")
		}
		n.RefQuota = size
		return nil
	}
	return fmt.Errorf("invalid property '%s'", key)
}

// place checks where something is to be made.
func (f *fake) place(name string) error {
	if at := f.Datasets[parent(name)]; at == nil || strings.ContainsAny(name, "@#") {
		return fmt.Errorf("cannot create '%s': parent does not exist", name)
	} else if at.Type != "filesystem" {
		return fmt.Errorf("cannot create '%s': parent is not a filesystem", name)
	}
	if f.Datasets[name] != nil {
		return fmt.Errorf("cannot create '%s': dataset already exists", name)
	}
	if f.Full {
		return fmt.Errorf("cannot create '%s': out of space", name)
	}
	return nil
}

func (f *fake) add(name string, n *Node) {
	f.Txg++
	n.Txg, n.GUID = f.Txg, 9_000_000_000+f.Txg
	f.Datasets[name] = n
}

func (f *fake) create(options []string, name string) error {
	if err := f.place(name); err != nil {
		return err
	}
	n := &Node{Type: "filesystem", Props: map[string]string{}, CanMount: "on"}
	if err := n.properties(name, options); err != nil {
		return err
	}
	if n.Type == "volume" && !slices.Contains(options, "-s") && n.VolSize > f.Size-f.used() {
		return fmt.Errorf("cannot create '%s': out of space", name)
	}
	f.add(name, n)
	if n.Type == "filesystem" {
		n.Mounted = true
	}
	return nil
}

func (f *fake) set(assignment, name string) error {
	n, err := f.open(name)
	if err != nil {
		return err
	}
	key, value, _ := strings.Cut(assignment, "=")
	if err := n.set(key, value); err != nil {
		return fmt.Errorf("cannot set property for '%s': %w", name, err)
	}
	return nil
}

// clones returns what was cloned from a snapshot.
func (f *fake) clones(snapshot string) (names []string) {
	for name, n := range f.Datasets {
		if n.Origin == snapshot {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (f *fake) destroy(name string, later bool) error {
	n := f.Datasets[name]
	if strings.Contains(name, "@") {
		if n == nil {
			return errors.New("could not find any snapshots to destroy; check snapshot names.")
		}
		clones := f.clones(name)
		switch {
		case len(clones) == 0 && n.Holds == 0:
			f.remove(name)
		case later:
			n.Defer = true
		case len(clones) > 0:
			return fmt.Errorf("cannot destroy '%s': snapshot has dependent clones\nuse '-R' to destroy the following datasets:\n%s",
				name, strings.Join(clones, "\n"))
		default:
			return fmt.Errorf("cannot destroy snapshot %s: dataset is busy", name)
		}
		return nil
	}
	if n == nil {
		return fmt.Errorf("cannot open '%s': dataset does not exist", name)
	}
	var below []string
	for other := range f.Datasets {
		if strings.HasPrefix(other, name+"/") || strings.HasPrefix(other, name+"@") {
			below = append(below, other)
		}
	}
	if slices.Sort(below); len(below) > 0 {
		return fmt.Errorf("cannot destroy '%s': %s has children\nuse '-r' to destroy the following datasets:\n%s",
			name, n.Type, strings.Join(below, "\n"))
	}
	if n.Busy && n.Mounted {
		return fmt.Errorf("cannot unmount '/%s': pool or dataset is busy", name)
	}
	if n.Busy {
		return fmt.Errorf("cannot destroy '%s': dataset is busy", name)
	}
	f.remove(name)
	// What only waited for this clone goes with it.
	if s := f.Datasets[n.Origin]; s != nil && s.Defer && len(f.clones(n.Origin)) == 0 && s.Holds == 0 {
		f.remove(n.Origin)
	}
	return nil
}

func (f *fake) remove(name string) {
	_ = os.Remove(f.content(f.Datasets[name]))
	delete(f.Datasets, name)
}

func (f *fake) rename(from, to string) error {
	n, err := f.open(from)
	if err != nil {
		return err
	}
	if f.Datasets[to] != nil {
		return fmt.Errorf("cannot rename '%s': dataset already exists", from)
	}
	if f.Datasets[parent(to)] == nil {
		return fmt.Errorf("cannot create '%s': parent does not exist", to)
	}
	if n.Busy && n.Mounted {
		return fmt.Errorf("cannot unmount '/%s': pool or dataset is busy", from)
	}
	moved := map[string]*Node{}
	for name, other := range f.Datasets {
		if rest, ok := strings.CutPrefix(name, from); ok && (rest == "" || rest[0] == '/' || rest[0] == '@') {
			name = to + rest
		}
		moved[name] = other
	}
	for _, other := range moved {
		if rest, ok := strings.CutPrefix(other.Origin, from+"@"); ok {
			other.Origin = to + "@" + rest
		}
	}
	f.Datasets = moved
	return nil
}

func (f *fake) snapshot(options []string, name string) error {
	of, err := f.open(parent(name))
	if err != nil {
		return err
	}
	if f.Datasets[name] != nil {
		return fmt.Errorf("cannot create snapshot '%s': dataset already exists", name)
	}
	if f.Full {
		return fmt.Errorf("cannot create snapshot '%s': out of space", name)
	}
	n := &Node{Type: "snapshot", Props: map[string]string{}, VolSize: of.VolSize}
	if err := n.properties(name, options); err != nil {
		return err
	}
	f.add(name, n)
	f.copy(of, n)
	return nil
}

func (f *fake) clone(options []string, origin, name string) error {
	s, err := f.open(origin)
	if err != nil {
		return err
	}
	if err := f.place(name); err != nil {
		return err
	}
	n := &Node{Type: f.Datasets[parent(origin)].Type, Props: map[string]string{}, Origin: origin, VolSize: s.VolSize}
	if n.Type == "filesystem" {
		n.CanMount, n.Mounted = "on", true
	}
	if err := n.properties(name, options); err != nil {
		return err
	}
	f.add(name, n)
	f.copy(s, n)
	return nil
}

// promote moves the snapshots of an origin, up to that of the clone, to the clone.
func (f *fake) promote(name string) error {
	n, err := f.open(name)
	if err != nil {
		return err
	}
	if n.Origin == "" {
		return fmt.Errorf("cannot promote '%s': not a cloned filesystem", name)
	}
	from, pivot := parent(n.Origin), f.Datasets[n.Origin].Txg
	for _, s := range slices.Collect(maps.Keys(f.Datasets)) {
		if rest, ok := strings.CutPrefix(s, from+"@"); ok && f.Datasets[s].Txg <= pivot {
			moved := name + "@" + rest
			f.Datasets[moved] = f.Datasets[s]
			delete(f.Datasets, s)
			for _, other := range f.Datasets {
				if other.Origin == s {
					other.Origin = moved
				}
			}
		}
	}
	old := f.Datasets[from]
	n.Origin, old.Origin = old.Origin, n.Origin
	return nil
}

func (f *fake) hold(name string) error {
	n, err := f.open(name)
	if err == nil {
		n.Holds++
	}
	return err
}

func (f *fake) mount(name string, mounted bool) error {
	n, err := f.open(name)
	switch {
	case err != nil:
		return err
	case n.Type != "filesystem":
		return fmt.Errorf("cannot open '%s': operation not applicable to datasets of this type", name)
	case n.Mounted && mounted:
		return fmt.Errorf("cannot mount '%s': filesystem already mounted", name)
	case !n.Mounted && !mounted:
		return fmt.Errorf("cannot unmount '%s': not currently mounted", name)
	case n.Busy && !mounted:
		return fmt.Errorf("cannot unmount '/%s': pool or dataset is busy", name)
	}
	n.Mounted = mounted
	return nil
}

// Content returns the path of what a dataset holds.
func Content(dir string, n *Node) string {
	return filepath.Join(dir, "content-"+strconv.FormatInt(n.GUID, 10))
}

func (f *fake) content(n *Node) string { return Content(f.dir, n) }

func (f *fake) copy(from, to *Node) {
	in, err := os.Open(f.content(from))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		panic(err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(f.content(to))
	if err == nil {
		_, err = io.Copy(out, in)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		panic(err)
	}
}
