# `make test` is all that CI runs. It installs what the tests need and lacks.

CARGO ?= cargo
# Warnings are errors here and not in Cargo.toml: who builds the program with a later compiler must not be stopped by a new lint.
CHECK_FLAGS := -D warnings

.PHONY: test deps fmt clippy unit doc filter-rates run

test: deps fmt clippy unit doc

deps:
	@sh tests/install-servers.sh

fmt:
	$(CARGO) fmt --all -- --check

clippy:
	$(CARGO) clippy --locked --all-targets -- $(CHECK_FLAGS)

unit:
	$(CARGO) test --locked --lib --bins --tests

doc:
	$(CARGO) test --locked --doc
	RUSTDOCFLAGS="$(CHECK_FLAGS)" $(CARGO) doc --locked --no-deps --quiet

# Every kind of filter, form of keys and size, up to 10M keys: too long for CI.
filter-rates:
	$(CARGO) test --locked --release --lib filter::contract -- --ignored --nocapture

run:
	$(CARGO) run --locked --release

# The raw memory of filters and what is done with it. Miri runs the scalar form of the probe, and no mappings: those are system calls.
miri:
	MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --locked --lib -- filter::memory filter::ones \
		filter::split_block::golden filter::split_block::tests::a_union filter::split_block::tests::bits_are \
		filter::split_block::tests::filters_that filter::split_block::probe::tests::every_form
