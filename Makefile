# `make test` is all that CI runs. It installs what the tests need and lacks.

CARGO ?= cargo
# Warnings are errors here and not in Cargo.toml: who builds the program with a later compiler must not be stopped by a new lint.
CHECK_FLAGS := -D warnings

.PHONY: test attacks deps fmt clippy audit unit charts doc reference filter-rates model loom fuzz run miri bench bench-full bench-http bench-http-build bench-check bench-tools

test: deps fmt clippy audit unit charts doc

deps:
	@sh tests/install-servers.sh

fmt:
	$(CARGO) fmt --all -- --check

clippy:
	$(CARGO) clippy --locked --workspace --all-targets -- $(CHECK_FLAGS)

# Dependencies: licences, sources, bans, and advisories where their database can be reached. Seconds.
audit:
	@sh tests/audit.sh

unit:
	$(CARGO) test --locked --workspace --lib --bins --tests

# The chart and what else Kubernetes, Prometheus and Grafana are given. Without Go, which builds helm, this is skipped and said so.
charts:
	@$(CARGO) build --locked --quiet --bin bloomguard
	@if sh tests/kubernetes/tools.sh; then target/tools/python/bin/python -B -m unittest discover -s tests/kubernetes -p 'check_*.py'; else [ $$? -eq 3 ]; fi

# docs/configuration.md and docs/metrics.md, from the code. The tests compare them.
reference:
	BLOOMGUARD_WRITE_REFERENCE=1 $(CARGO) test --locked --workspace --lib --bins --tests -- documents::reference::

doc:
	$(CARGO) test --locked --doc
	RUSTDOCFLAGS="$(CHECK_FLAGS)" $(CARGO) doc --locked --no-deps --quiet

# Every kind of filter, form of keys and size, up to 10M keys: too long for CI.
filter-rates:
	$(CARGO) test --locked --release --lib filter::contract -- --ignored --nocapture

# Every search of the model, then each rule taken away; hours, see docs/consistency.md. `make test` runs the short ones.
model:
	$(CARGO) run --locked --release -p bloomguard-model -- all
	$(CARGO) run --locked --release -p bloomguard-model -- mutate

# Needs a nightly compiler and cargo-fuzz: `cargo install cargo-fuzz --locked`. The suite tries the corpus, and mutations of it, with any compiler.
# TARGET is a file of fuzz/fuzz_targets; new finds go to target/fuzz-corpus, and those worth keeping into fuzz/corpus.
TARGET ?= snapshot
SECONDS ?= 60
fuzz:
	mkdir -p target/fuzz-corpus/$(TARGET)
	cd fuzz && $(CARGO) +nightly fuzz run $(TARGET) ../target/fuzz-corpus/$(TARGET) corpus/$(TARGET) -- -max_total_time=$(SECONDS) -max_len=16384

# Every interleaving around the swap of filters. Loom and what it needs are built once, in a folder of their own; the runs take seconds.
loom:
	$(CARGO) run --locked --manifest-path tests/loom/Cargo.toml --target-dir target/loom

# The filter beside others of its kind, exact sets, locks and hashes, docs/benchmarks.md; minutes.
bench:
	$(CARGO) bench --locked --bench filter

# The same with 100M keys: an hour perhaps, and 16 GiB of memory.
bench-full:
	BLOOMGUARD_BENCH_KEYS=100000000 $(CARGO) bench --locked --bench filter

# The product over HTTP beside other servers, docs/benchmarks.md; minutes.
bench-http: bench-http-build
	target/release/bloomguard-bench-http

# Whether it is still as fast beside other servers as it was; less than two minutes once it is built.
bench-check: bench-http-build
	target/release/bloomguard-bench-http check

# The load generator that speaks HTTP/2.
bench-tools:
	$(CARGO) install oha --version 1.16.0 --locked --root target/tools

# Each attack of docs/security.md against the release binary, with a well-behaved client beside it: the table of figures there.
attacks:
	$(CARGO) build --locked --release --bin bloomguard
	BLOOMGUARD_TEST_BINARY=$(CURDIR)/target/release/bloomguard BLOOMGUARD_ATTACK_SECONDS=3 \
		$(CARGO) test --locked --test it attacks::figures -- --nocapture

bench-http-build:
	$(CARGO) build --locked --release --package bloomguard --package bloomguard-bench-http

run:
	$(CARGO) run --locked --release

# The raw memory of filters and what is done with it. Miri runs the scalar form of the probe, and no mappings: those are system calls.
miri:
	MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --locked --lib -- filter::memory filter::ones \
		filter::split_block::golden filter::split_block::tests::a_union filter::split_block::tests::bits_are \
		filter::split_block::tests::filters_that filter::split_block::probe::tests::every_form
