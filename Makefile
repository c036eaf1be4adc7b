# `make help` lists what there is. `make test` is all that CI runs; it installs what the tests need and lacks.

CARGO ?= cargo
# Warnings are errors here and not in Cargo.toml: a later compiler's new lints must not stop a build of the program.
CHECK_FLAGS := -D warnings

.PHONY: help quick test deps fmt clippy audit unit charts doc reference invariants
.PHONY: long filter-rates model loom fuzz miri attacks run
.PHONY: bench bench-full bench-http bench-http-build bench-check bench-tools

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z][a-z-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Unit tests but for the slow ones, and the integration tests that take little time. Warm it takes 51 s on
# two cores (`time make quick`).
QUICK := house:: config:: http:: documents:: backend::http source::file source::http source::members \
	keyspace::lookup keyspace::state keyspace::check
SLOW := batch:: growth:: contract:: measured_rate
quick: ## the fast loop: formatter, unit tests, and the integration tests that take little time
	$(CARGO) fmt --all -- --check
	$(CARGO) test --locked --workspace --lib --bins --quiet -- $(addprefix --skip ,$(SLOW))
	$(CARGO) test --locked --workspace --test it --quiet -- $(QUICK)

test: ## all that CI checks, step by step
	@bash tests/run-all.sh

deps: ## install the servers that the tests start: PostgreSQL, MariaDB, Redis and others
	@sh tests/install-servers.sh

fmt: ## check the format of the source
	$(CARGO) fmt --all -- --check

clippy: ## lint everything, warnings are errors
	$(CARGO) clippy --locked --workspace --all-targets -- $(CHECK_FLAGS)

audit: ## licences, sources and bans of dependencies, and advisories where their database can be reached
	@sh tests/audit.sh

unit: ## every test of the workspace
	$(CARGO) test --locked --workspace --lib --bins --tests

# Without Go, which builds helm, this is skipped and says so.
charts: ## the chart and what else Kubernetes, Prometheus and Grafana are given
	@$(CARGO) build --locked --quiet --bin bloomguard
	@if sh tests/kubernetes/tools.sh; then \
		target/tools/python/bin/python -B -m unittest discover -s tests/kubernetes -p 'check_*.py'; \
	else [ $$? -eq 3 ]; fi

reference: ## write docs/configuration.md and docs/metrics.md from the code; the tests compare them
	BLOOMGUARD_WRITE_REFERENCE=1 $(CARGO) test --locked --workspace --lib --bins --tests -- documents::reference::

doc: ## doc tests, and the documentation of the source without warnings
	$(CARGO) test --locked --doc
	RUSTDOCFLAGS="$(CHECK_FLAGS)" $(CARGO) doc --locked --no-deps --quiet

invariants: ## write tests/INVARIANTS.md from the marks above the tests
	BLOOMGUARD_WRITE_INVARIANTS=1 $(CARGO) test --locked --workspace --lib --bins --tests --quiet -- house::invariants

# tests/it/support/long_run.rs has the sizes. The simulation needs assertions of debug builds.
LONG_RUNS := product::chaos product::kills product::soak product::load attacks::fuzz attacks::figures \
	documents::snapshot_reader
long: ## every long run, one after another: most of a day
	BLOOMGUARD_LONG=1 $(CARGO) test --locked --test it simulation -- --nocapture
	BLOOMGUARD_LONG=1 $(CARGO) test --locked --release --test it -- --nocapture --test-threads 1 $(LONG_RUNS)
	$(CARGO) test --locked --release --workspace --lib --tests -- --ignored --nocapture --test-threads 1
	$(MAKE) loom model

filter-rates: ## the false-positive rate of every kind of filter, form of keys and size up to 10M keys; minutes
	$(CARGO) test --locked --release --lib filter::contract -- --ignored --nocapture

# docs/consistency.md. `make test` runs the short searches.
model: ## every search of the model, then each rule taken away; hours
	$(CARGO) run --locked --release -p bloomguard-model -- all
	$(CARGO) run --locked --release -p bloomguard-model -- mutate

# Loom and what it needs are built once, in a folder of their own; the runs take seconds.
loom: ## every interleaving of threads around the swap of filters
	$(CARGO) run --locked --manifest-path tests/loom/Cargo.toml --target-dir target/loom

# Needs a nightly compiler and cargo-fuzz: `cargo install cargo-fuzz --locked`. `make test` tries the corpus, and
# mutations of it, with any compiler. New finds go to target/fuzz-corpus, and those worth keeping into fuzz/corpus.
TARGET ?= snapshot
SECONDS ?= 60
fuzz: ## libFuzzer on TARGET, a file of fuzz/fuzz_targets, for SECONDS
	mkdir -p target/fuzz-corpus/$(TARGET)
	cd fuzz && $(CARGO) +nightly fuzz run $(TARGET) ../target/fuzz-corpus/$(TARGET) corpus/$(TARGET) -- \
		-max_total_time=$(SECONDS) -max_len=16384

# Miri runs the scalar form of the probe, and no mappings: those are system calls.
miri: ## the unsafe code of filters under Miri (nightly with miri and rust-src); minutes
	MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --locked --lib -- filter::memory filter::ones \
		filter::split_block::golden filter::split_block::tests::a_union filter::split_block::tests::bits_are \
		filter::split_block::tests::filters_that filter::split_block::probe::tests::every_form

attacks: ## what each attack costs the release binary and a well-behaved client: the table of docs/security.md
	$(CARGO) build --locked --release --bin bloomguard
	BLOOMGUARD_TEST_BINARY=$(CURDIR)/target/release/bloomguard BLOOMGUARD_ATTACK_SECONDS=3 \
		$(CARGO) test --locked --test it attacks::figures -- --nocapture

bench: ## the filter beside others, exact sets, locks and hashes (docs/benchmarks.md); minutes
	$(CARGO) bench --locked --bench filter

bench-full: ## the same with 100M keys: about an hour, and 16 GiB of memory
	BLOOMGUARD_BENCH_KEYS=100000000 $(CARGO) bench --locked --bench filter

bench-http: bench-http-build ## the product over HTTP beside other servers (docs/benchmarks.md); twenty minutes
	target/release/bloomguard-bench-http

bench-check: bench-http-build ## whether it is still as fast beside other servers; two minutes once it is built
	target/release/bloomguard-bench-http check

bench-tools: ## the load generator that speaks HTTP/2
	$(CARGO) install oha --version 1.16.0 --locked --root target/tools

bench-http-build:
	$(CARGO) build --locked --release --package bloomguard --package bloomguard-bench-http

run: ## the release build, as `bloomguard` without arguments
	$(CARGO) run --locked --release
