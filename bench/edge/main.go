package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// options are the values of the flags.
type options struct {
	duration time.Duration
	warmup   time.Duration
	rounds   int
	quick    bool
	dir      string // folder for all files that are written
	product  string // path of the built binary
	before   string // path of an older one to compare ingest with
	engines  string // the engines of the lists and searches
	requests int    // of each of them
	sizes    fleetSizes
	paths    *regexp.Regexp // which of them
}

var sections = []struct {
	name string
	run  func(context.Context, options, *report) error
}{
	{
		"1",
		ingestSection,
	},
	{"2", deliverySection},
	{"3", fleetSection},
	{"4", campaignSection},
	{"5", heartbeatSection},
	{"6", simulationSection},
	{"7", hostileSection},
	{"8", findSection},
	{"9", beforeSection},
}

func main() {
	o := options{paths: regexp.MustCompile("")}
	chosen := flag.String("sections", "1,2,3,4,5,6,7", "sections to run, of 1 to 9")
	data := flag.String("data", "", "folder for data (default: a temporary one); choose one on the disk to measure")
	flag.DurationVar(&o.duration, "duration", 8*time.Second, "how long each load lasts")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of the ingest comparison, of which the median counts")
	flag.BoolVar(&o.quick, "quick", false, "everything short, to see that it works")
	flag.StringVar(&o.product, "product", "", "the program to measure, such as an older one (default: it is built)")
	flag.StringVar(&o.before, "before", "", "section 9: the older program to compare ingest with")
	flag.StringVar(&o.engines, "engines", "sqlite,postgres", "section 8: the engines to measure")
	flag.IntVar(&o.requests, "requests", 30, "section 8: requests of each list")
	flag.IntVar(&o.sizes.orgs, "orgs", 10, "section 8: tenants")
	flag.IntVar(&o.sizes.sites, "sites", 10_000, "section 8: sites")
	flag.IntVar(&o.sizes.devices, "devices", 100_000, "section 8: devices")
	flag.IntVar(&o.sizes.routes, "routes", 10_000, "section 8: routes")
	flag.IntVar(&o.sizes.deployments, "deployments", 10_000, "section 8: deployments")
	flag.IntVar(&o.sizes.campaigns, "campaigns", 1_000, "section 8: campaigns")
	flag.Func("paths", "section 8: only lists whose path matches this regular expression", func(text string) (err error) {
		o.paths, err = regexp.Compile(text)
		return err
	})
	flag.IntVar(&o.sizes.events, "events", 10_000_000, "section 8: events")
	flag.IntVar(&o.sizes.topics, "topics", 50, "section 8: topics that are in use all the time")
	flag.IntVar(&o.sizes.letters, "deadletters", 1_000_000, "section 8: dead letters")
	flag.IntVar(&o.sizes.audit, "audit", 1_000_000, "section 8: audit entries")
	reference := flag.String("reference", "", "serve as a reference (used by this program itself)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *reference != "" {
		exit(serveReference(ctx, *reference, *data))
		return
	}
	o.warmup = 2 * time.Second
	if o.quick {
		o.duration, o.warmup, o.rounds = time.Second, 300*time.Millisecond, 1
	}
	exit(run(ctx, o, *data, strings.Split(*chosen, ",")))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, data string, chosen []string) (err error) {
	if data != "" {
		if err := os.MkdirAll(data, 0o700); err != nil {
			return err
		}
	}
	if o.dir, err = os.MkdirTemp(data, "mainstay-bench-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(o.dir) }()
	if o.product == "" {
		o.product = filepath.Join(o.dir, "mainstay")
		progress("building the product")
		if err := buildProduct(ctx, o.product); err != nil {
			return fmt.Errorf("build the product: %w", err)
		}
	}
	r := &report{w: os.Stdout}
	r.header(o.dir)
	for _, s := range sections {
		for _, name := range chosen {
			if strings.TrimSpace(name) != s.name {
				continue
			}
			if err := s.run(ctx, o, r); err != nil {
				return fmt.Errorf("section %s: %w", s.name, err)
			}
		}
	}
	return nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// buildProduct builds the product in its own module, so that it uses the versions of dependencies
// that it is shipped with, not those of the benchmark module.
func buildProduct(ctx context.Context, out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	module, err := exec.CommandContext(
		ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/mainstay-infra/mainstay",
	).Output()
	if err != nil {
		return err
	}
	build := exec.CommandContext(
		ctx, "go", "build", "-C", strings.TrimSpace(string(module)), "-o", out, "./cmd/mainstay",
	)
	build.Stderr = os.Stderr
	return build.Run()
}
