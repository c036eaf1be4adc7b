# `make test` is all that CI runs. It installs what the tests need and lacks.

CARGO ?= cargo
# Warnings are errors here and not in Cargo.toml: who builds the program with a later compiler must not be stopped by a new lint.
CHECK_FLAGS := -D warnings

.PHONY: test deps fmt clippy unit charts doc run

test: deps fmt clippy unit charts doc

deps:
	@sh tests/install-servers.sh

fmt:
	$(CARGO) fmt --all -- --check

clippy:
	$(CARGO) clippy --locked --all-targets -- $(CHECK_FLAGS)

unit:
	$(CARGO) test --locked --lib --bins --tests

# The chart and what else Kubernetes, Prometheus and Grafana are given. Without Go, which builds helm, this is skipped and said so.
charts:
	@$(CARGO) build --locked --quiet --bin bloomguard
	@if sh tests/kubernetes/tools.sh; then target/tools/python/bin/python -B -m unittest discover -s tests/kubernetes -p 'check_*.py'; else [ $$? -eq 3 ]; fi

doc:
	$(CARGO) test --locked --doc
	RUSTDOCFLAGS="$(CHECK_FLAGS)" $(CARGO) doc --locked --no-deps --quiet

run:
	$(CARGO) run --locked --release
