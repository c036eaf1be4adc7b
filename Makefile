# `make test` is all that CI runs. It installs what the tests need and lacks.

CARGO ?= cargo
# Warnings are errors here and not in Cargo.toml: who builds the program with a later compiler must not be stopped by a new lint.
CHECK_FLAGS := -D warnings

.PHONY: test deps fmt clippy unit doc loom run

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

# Every interleaving around the swap of filters. Loom and what it needs are built once, in a folder of their own; the runs take seconds.
loom:
	$(CARGO) run --locked --manifest-path tests/loom/Cargo.toml --target-dir target/loom

run:
	$(CARGO) run --locked --release
