# make alone explains itself. Nothing here is needed to use curfew: go build works too.
.DEFAULT_GOAL := help
.PHONY: help build demo test lint fuzz bench vuln servers servers-stop clean

# Passed on to scripts/test.sh: make test PKG=./internal/target RUN=TestReceipt ARGS='-v -count=3'
export PKG RUN ARGS RACE

# Go stamps the version from git, and stops where git will not answer (no .git, another owner).
STAMP := $(shell git rev-parse HEAD >/dev/null 2>&1 || echo -buildvcs=false)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/curfew: one static binary
	CGO_ENABLED=0 GOFLAGS= go build -trimpath $(STAMP) -o bin/curfew ./cmd/curfew

demo: build ## make a library in ./demo and watch its overdue records leave
	bin/curfew demo

test: ## lint and run all tests on scratch databases (PKG=./policy RUN=TestX ARGS=-v for a part)
	@scripts/test.sh

lint: ## gofmt, go vet, staticcheck
	@scripts/lint.sh

fuzz: ## run every fuzz test for ten seconds (TIME=1m for longer)
	@scripts/fuzz.sh $(TIME)

bench: ## compare curfew with plain SQL and pt-archiver, into docs/benchmarks.md (ARGS=--help)
	@scripts/bench.sh

vuln: ## look for known vulnerabilities in what we depend on
	go run golang.org/x/vuln/cmd/govulncheck@latest ./...

servers: ## start test databases that stay up, and print their variables: eval "$(make -s servers)"
	@scripts/need.sh postgres mariadb && scripts/servers.sh start

servers-stop: ## stop them
	@scripts/servers.sh stop

clean: ## remove what was built
	rm -rf bin
