# What people type. The work itself is in scripts/ and in cargo; `make help` lists the targets.
PREFIX  ?= /usr/local
DESTDIR ?=
BINDIR   = $(DESTDIR)$(PREFIX)/bin
MANDIR   = $(DESTDIR)$(PREFIX)/share/man/man1
# Where bash, zsh and fish look for what packages bring.
BASHDIR  = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSHDIR   = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISHDIR  = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
LIBDIR   = $(DESTDIR)$(PREFIX)/lib/weir
SHAREDIR = $(DESTDIR)$(PREFIX)/share/weir
DOCDIR   = $(DESTDIR)$(PREFIX)/share/doc/weir
ETCDIR   = $(DESTDIR)/etc/weir
UNITDIR  = $(DESTDIR)/usr/lib/systemd/system
USERDIR  = $(DESTDIR)/usr/lib/sysusers.d
BUILT    = $(or $(CARGO_TARGET_DIR),target)/release
SEEDS   ?= 3000
SCRIPTS ?= 1000
SEED    ?= 1
SECONDS ?= 60

# Where scripts/tools.bash puts Rust, before the distribution's own.
export PATH := $(CURDIR)/target/toolchain:$(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help demo demo-replicas demo-fleet test test-all bench bench-full sim differential sessions load cache-figures fairness-figures quota-figures auto-figures dist dist-check image docs panel build advisories fmt lint install uninstall clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: ## a private PostgreSQL, Weir and its panel before it, and what a pool is worth, measured
	@scripts/demo $(if $(REPLICAS),replicas --standbys $(REPLICAS))

demo-replicas: ## a primary with two standbys behind one entry: reads spread, the primary is killed under load, nothing acknowledged is lost
	@scripts/demo replicas

demo-fleet: ## five nodes that share a limit by way of etcd: one is killed, one cut off, one upgraded, under load; PostgreSQL never has more connections
	@scripts/demo fleet

test: ## every test; installs what it needs and ends with one line: N passed, N failed, N skipped
	@python3 scripts/run-tests

test-all: ## the same on both I/O drivers, on two versions of PostgreSQL and on the release build, and the fuzzers; hours
	@WEIR_ALL=1 python3 scripts/run-tests

bench: ## Weir, PgBouncer and no pooler, side by side
	@scripts/bench

bench-full: ## every scenario and every subject, with intervals and bars; hours
	@scripts/bench-full

sim: ## the simulator over SEEDS seeds, or with HOURS=8 for eight hours on all cores
	cargo run --release -p weir-sim -- $(if $(HOURS),--hours $(HOURS) --start $(or $(START),$(shell date +%s)000) --jobs 0,--seeds $(SEEDS))

differential: ## SCRIPTS random scripts from SEED on for each driver, pool mode and size and PostgreSQL, against PostgreSQL itself
	@WEIR_SCRIPTS=$(SCRIPTS) WEIR_SEED=$(SEED) .venv/bin/python -m pytest tests/e2e/test_random_scripts.py -q -s

sessions: ## SCRIPTS random scripts of session state from SEED on, each by 200 clients over ten servers, against 200 direct connections
	@WEIR_SCRIPTS=$(SCRIPTS) WEIR_SEED=$(SEED) .venv/bin/python -m pytest tests/e2e/test_session_model.py -q -s

load: ## thousands of clients, idle, active, waiting, logging in, coming and going, not reading; the lasting ones for SECONDS
	@WEIR_LOAD_FIGURES=$(SECONDS) .venv/bin/python -m pytest tests/e2e/test_load_figures.py -q -s

cache-figures: ## what query_cache is worth: pgbench direct, by a pool, with the cache, and by pgpool-II with its own, SECONDS each
	@WEIR_CACHE_FIGURES=$(SECONDS) .venv/bin/python -m pytest tests/e2e/test_query_cache_figures.py -q -s --one-variant

fairness-figures: ## what queue = fair and queue_target are worth: one tenant with 500 clients beside 20 with 5, and three times the load, SECONDS each
	@WEIR_FAIRNESS_FIGURES=$(SECONDS) .venv/bin/python -m pytest tests/e2e/test_fair_queue_figures.py -q -s --one-variant

auto-figures: ## what pool_size = auto reaches of the best fixed size, loads of which the best size differs after one another, SECONDS each
	@WEIR_AUTO_FIGURES=$(SECONDS) .venv/bin/python -m pytest tests/e2e/test_auto_size_figures.py -q -s --one-variant

quota-figures: ## what quotas of 10,000 databases with a client each cost
	@WEIR_QUOTA_FIGURES=1 .venv/bin/python -m pytest tests/e2e/test_quota_figures.py -q -s --one-variant

dist: ## target/dist: what a release consists of, packages and tarballs for x86_64 and arm64
	@scripts/dist

dist-check: ## a release made twice, compared byte for byte, and its programs run, arm64's by qemu (an hour)
	@scripts/check-dist

docs: ## target/docs: the documentation as a site, with search (mdBook)
	@scripts/docs

image: ## target/dist: an OCI image of the program that `make build` has made (BASE: an image of a registry to build it from)
	@scripts/image $(BASE)

panel: ## web/dist: the control panel, which `make build` puts into the binary
	@scripts/panel

build: ## target/release/weir and weir-bench, the lab; without the panel where Node is missing and cannot be installed
	@scripts/build

advisories: ## asks the RustSec database about the libraries (needs cargo-deny and the network)
	PATH="$(CURDIR)/target/deny/bin:$$PATH" cargo deny --locked check advisories

fmt: ## formats the Rust code
	cargo fmt --all

lint: ## what `make test` checks before it runs anything
	@python3 scripts/run-tests format clippy layers tidy

# Run `make build` as yourself first: installing as root then needs no compiler.
install: ## both binaries, man pages, completions, sample configuration, systemd units, dashboard and alerts, licences (PREFIX, DESTDIR)
	@test -x $(BUILT)/weir -a -x $(BUILT)/weir-bench || $(MAKE) build
	install -Dm755 $(BUILT)/weir $(BINDIR)/weir
	install -Dm755 $(BUILT)/weir-bench $(BINDIR)/weir-bench
	install -Dm644 packaging/weir.1 $(MANDIR)/weir.1
	install -Dm644 packaging/weir-bench.1 $(MANDIR)/weir-bench.1
	install -d $(BASHDIR) $(ZSHDIR) $(FISHDIR)
	@# Made by the programs themselves, so that they fit.
	for program in weir weir-bench; do \
	  $(BUILT)/$$program --generate completions-bash > $(BASHDIR)/$$program && \
	  $(BUILT)/$$program --generate completions-zsh > $(ZSHDIR)/_$$program && \
	  $(BUILT)/$$program --generate completions-fish > $(FISHDIR)/$$program.fish || exit; \
	done
	chmod 644 $(BASHDIR)/weir* $(ZSHDIR)/_weir* $(FISHDIR)/weir*
	install -d $(ETCDIR)
	@# Under systemd /tmp is private, so the unix socket is in the directory that the unit makes.
	sed 's|^;unix_socket_dir = .*|unix_socket_dir = /run/weir|' packaging/weir.ini > $(ETCDIR)/weir.ini.sample
	chmod 640 $(ETCDIR)/weir.ini.sample
	@# A configuration that is there already is the administrator's.
	test -e $(ETCDIR)/weir.ini || install -m640 $(ETCDIR)/weir.ini.sample $(ETCDIR)/weir.ini
	install -Dm644 packaging/systemd/weir.sysusers $(USERDIR)/weir.conf
	install -Dm755 packaging/systemd/reload $(LIBDIR)/reload
	install -d $(UNITDIR)
	for unit in weir.service weir.socket; do \
	  sed 's|@BINDIR@|$(PREFIX)/bin|; s|@LIBDIR@|$(PREFIX)/lib/weir|' packaging/systemd/$$unit > $(UNITDIR)/$$unit && \
	  chmod 644 $(UNITDIR)/$$unit || exit; \
	done
	install -Dm644 packaging/logrotate/weir $(DESTDIR)/etc/logrotate.d/weir
	install -Dm644 packaging/grafana/weir.json $(SHAREDIR)/grafana/weir.json
	install -Dm644 packaging/prometheus/weir-rules.yml $(SHAREDIR)/prometheus/weir-rules.yml
	install -d $(DOCDIR)
	install -m644 LICENSE-APACHE LICENSE-MIT $(DOCDIR)/
	@echo 'Next: systemd-sysusers; chgrp -R weir /etc/weir; edit /etc/weir/weir.ini; systemctl enable --now weir'

uninstall: ## removes what `make install` wrote, except an edited weir.ini (PREFIX, DESTDIR)
	rm -f $(BINDIR)/weir $(BINDIR)/weir-bench $(MANDIR)/weir.1 $(MANDIR)/weir-bench.1 $(USERDIR)/weir.conf $(UNITDIR)/weir.service $(UNITDIR)/weir.socket
	rm -f $(LIBDIR)/reload $(DESTDIR)/etc/logrotate.d/weir $(SHAREDIR)/grafana/weir.json $(SHAREDIR)/prometheus/weir-rules.yml
	rm -f $(DOCDIR)/LICENSE-APACHE $(DOCDIR)/LICENSE-MIT
	-rmdir --ignore-fail-on-non-empty $(LIBDIR) $(SHAREDIR)/grafana $(SHAREDIR)/prometheus $(SHAREDIR) $(DOCDIR) 2>/dev/null
	rm -f $(BASHDIR)/weir $(BASHDIR)/weir-bench $(ZSHDIR)/_weir $(ZSHDIR)/_weir-bench $(FISHDIR)/weir.fish $(FISHDIR)/weir-bench.fish
	! cmp -s $(ETCDIR)/weir.ini $(ETCDIR)/weir.ini.sample || rm -f $(ETCDIR)/weir.ini
	rm -f $(ETCDIR)/weir.ini.sample
	-test ! -d $(ETCDIR) || rmdir --ignore-fail-on-non-empty $(ETCDIR)

clean: ## removes what was built
	cargo clean
