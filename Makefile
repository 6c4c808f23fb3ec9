# Mainstay. `make help` lists what can be made.

GO       ?= go
TOOL      = $(GO) tool -modfile=tools/go.mod
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   = -s -w -X main.version=$(VERSION) -X github.com/mainstay-infra/mainstay/kit/telemetry.version=$(VERSION)

# The programs that are built are the same wherever they are built. Tests are compiled alike, so that they share the cache.
export GOFLAGS ?= -trimpath

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The consoles are built anew when a source of theirs is newer than the last build.
WEB_SOURCES = $(shell find web -path web/node_modules -prune -o -path web/dist -prune -o -path web/e2e -prune -o -type f -print)

# Without this, what is missing shows as an error of make.
.PHONY: tools
tools:
	@GO='$(GO)' ./scripts/check-tools.sh

web/node_modules/.package-lock.json: web/package-lock.json | tools
	cd web && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# One run builds all consoles, and the one of the load balancer comes last.
web/dist/lb/index.html: web/node_modules/.package-lock.json $(WEB_SOURCES)
	cd web && npm run --silent build

.PHONY: web
web: web/dist/lb/index.html ## Build the web consoles, which the binary embeds

.PHONY: web-dev
web-dev: web/node_modules/.package-lock.json ## Serve a console with hot reload in front of a running service (APP=edge)
	cd web && npm run dev

.PHONY: build
build: tools web ## Build bin/mainstay, static and with its consoles, and its helper programs
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...
	@GO='$(GO)' ./scripts/build-pam.sh -trimpath -ldflags '-s -w -X main.version=$(VERSION)'
	@GO='$(GO)' ./scripts/build-ceph.sh -trimpath -ldflags '-s -w -X main.version=$(VERSION)'

# Packages install this folder as /usr/share.
SHARE = bin/share

.PHONY: man
man: build ## Write the manual pages to bin/share/man
	rm -rf $(SHARE)/man
	./bin/mainstay man $(SHARE)/man/man1

.PHONY: completions
completions: build ## Write the completion files of bash, zsh and fish to bin/share
	@mkdir -p $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	./bin/mainstay completion bash >$(SHARE)/bash-completion/completions/mainstay
	./bin/mainstay completion zsh >$(SHARE)/zsh/site-functions/_mainstay
	./bin/mainstay completion fish >$(SHARE)/fish/vendor_completions.d/mainstay.fish

.PHONY: run
run: build ## Build and run all services on this machine, and install what they use (mainstay dev)
	@./scripts/run-deps.sh
	./bin/mainstay dev

.PHONY: test
test: deps build check-generated lint ## Run everything that CI runs
	./scripts/test.sh

.PHONY: race
race: deps build ## Run the Go tests with the race detector, also those of whole services, which CI runs without it
	MAINSTAY_REQUIRE=all $(GO) test -count=1 -race -vet=off -timeout 90m ./...

.PHONY: test-fast
test-fast: ## Run the tests that need nothing installed
	$(GO) test ./...

.PHONY: deps
deps: ## Install what the tests need (PostgreSQL, Podman, Chromium, clang and more), if it is missing
	./scripts/deps.sh
	@$(MAKE) --no-print-directory devcluster

# It is all of Kubernetes, so it is built anew only when a source of devcluster/ is newer. "go build" leaves a program
# alone that would be the same again.
bin/devcluster: devcluster/go.mod devcluster/go.sum $(wildcard devcluster/*.go devcluster/crds/*.yaml)
	@echo 'Building bin/devcluster, the Kubernetes of the tests: it takes some minutes the first time'
	@mkdir -p bin
	cd devcluster && version=$$(awk '$$1 == "k8s.io/kubernetes" {print $$2}' go.mod) && CGO_ENABLED=0 $(GO) build -trimpath \
		-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$version" -o ../bin/devcluster .
	@touch $@

.PHONY: devcluster
devcluster: bin/devcluster ## Build bin/devcluster, a Kubernetes control plane in one process, for tests

.PHONY: generate
generate: web/node_modules/.package-lock.json ## Make the generated code and the settings tables in the documentation anew
	$(GO) generate ./...
	cd bench && $(GO) generate ./...
	./scripts/settings.sh
	cd web && npm run --silent generate

.PHONY: check-generated
check-generated: generate ## Fail if generated files differ from their sources
	@git diff --exit-code -- api docs web/src/api service/lb/datapath bench/lb || { echo 'Generated files differ from their sources: run "make generate" and commit.'; exit 1; }

.PHONY: lint
lint: web/node_modules/.package-lock.json ## Look for mistakes that the compiler does not find
	$(TOOL) golangci-lint run ./...
	cd e2e && $(GO) vet ./...
	cd bench && $(GO) vet ./...
	cd web && npm run --silent lint && npm run --silent lint-api

.PHONY: fuzz
fuzz: ## Fuzz every decoder of outside bytes, FUZZTIME (10s) each
	./scripts/fuzz.sh

.PHONY: soak
soak: build ## Kill every service KILLS (50) times under load, where CI does so ten times
	cd e2e && MAINSTAY_KILLS=$(or $(KILLS),50) $(GO) test -count=1 -v -timeout 120m -run 'Kill|Killed' .

.PHONY: bench
bench: bench-edge bench-lb bench-hypervisor bench-vm bench-storage ## Run all benchmarks

.PHONY: bench-edge
bench-edge: ## Compare the edge control plane with its peers and the disk
	cd bench && $(GO) run ./edge $(BENCH_FLAGS)

.PHONY: bench-find
bench-find: ## Measure lists and searches with 100,000 devices and ten million events, on both engines
	cd bench && $(GO) run ./edge -sections 8 $(BENCH_FLAGS)

.PHONY: bench-lb
bench-lb: ## Compare the load balancer with routing, nftables and haproxy (root; nft, haproxy, wrk)
	$(GO) test -run '^$$' -bench . -count 5 ./service/lb/datapath ./service/lb/probe
	cd bench && $(GO) run ./lb $(BENCH_FLAGS)

.PHONY: bench-hypervisor
bench-hypervisor: build ## Compare the hypervisor daemon with QEMU, runsc and qemu-img by hand (root)
	cd bench && $(GO) run ./hypervisor $(BENCH_FLAGS)

.PHONY: bench-storage
bench-storage: build ## Compare the storage gateway with go-ceph, rbd and pipes by hand, on Ceph clusters of its own (root)
	cd bench && CGO_ENABLED=1 $(GO) run -tags 'ceph pacific' ./storage $(BENCH_FLAGS)

.PHONY: bench-vm
bench-vm: build ## Measure VM management: backups against qemu-img, zstd and restic, lists, starts, logins (root)
	cd bench && $(GO) run ./hypervisor -sections vm-backup,vm-load $(BENCH_FLAGS)

.PHONY: clean
clean: ## Remove what was built; state in .mainstay stays
	rm -rf bin web/dist/edge web/dist/hypervisor web/dist/lb web/dist/storage web/dist/vm web/node_modules
