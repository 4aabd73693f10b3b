# What to type here. Continuous integration uses the same names.
#   make run        build, and serve a device (ARGS="--scheme lazyftl /dev/ublkb0" and the like); needs
#                   a C compiler, libclang and Rust
#   make check      the quick gate: format, lints, unit tests, and that scripts fail without evidence
#   make test       the check of a push: a quarter of an hour on two cores
#   make nightly    everything a machine can do: three quarters of an hour
#   make long-test  the same at acceptance length
#   make bench      speed beside the peers, into target/bench/RESULT.json (BENCH_ARGS=--short for a
#                   short run; FTLSIM=DIR, a clone of sssl-ftlsim)
#   make reproduction  the papers' claims judged from measured rows (TRACES=DIR with the real traces)
#   make mutants    tests/mutants.py: the mutants of the sample that have no verdict yet (COUNT=20 for some)
#   make policy     licences and sources of all dependencies
#   make packages   target/packages/ftld.deb and ftld.rpm
#   make release    deploy/release.sh: everything that a release has, in target/release-VERSION (TRIAL=--trial before the tag)
#   make deps       install what the tests need; as another user than root, say what to type

CARGO ?= cargo
ARGS ?=
BENCH_ARGS ?=

TOOLS := target/tools
DENY := $(TOOLS)/bin/cargo-deny
FSX := $(TOOLS)/bin/fsx
MUTANTS := $(TOOLS)/bin/cargo-mutants
RUBLK := $(TOOLS)/bin/rublk
FLAMEGRAPH := $(TOOLS)/bin/inferno-flamegraph

.PHONY: run check scripts test nightly long-test bench mutants reproduction packages release deps policy

run:
	@tests/deps.sh run
	$(CARGO) run --release -p ftld --bin ftld -- $(ARGS)

check:
	$(CARGO) fmt --check
	$(CARGO) fmt --check --manifest-path docs/models/pair-rule/Cargo.toml
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --workspace --lib --no-run
	$(CARGO) test -p ftld --test program first_contact
	BUILT=target/debug $(MAKE) scripts > target/scripts.log 2>&1 & \
	  $(CARGO) test -q --workspace --lib; rc=$$?; \
	  wait $$! || rc=1; cat target/scripts.log; exit $$rc

# Shell scripts have no finding of shellcheck, the helpers of the suites fail when their evidence is
# taken away, documents name what there is, and docs/RESULTS.md is what its command writes. Debian's
# python has pytest; another one on the PATH may not. BUILT is the folder of a program that is built:
# in `make check` first_contact has built it, which runs the program. Most helpers wait for a timeout,
# so they run side by side.
scripts:
	shellcheck $$(find tests deploy -name '*.sh') $$(grep -rlE --exclude='*.sh' --exclude-dir=run '^#!.*sh$$' tests deploy .ci)
	[ -n "$$BUILT" ] || $(CARGO) build -q -p ftld
	pytest() { /usr/bin/python3 -B -m pytest -q -p no:cacheprovider "$$@"; }; \
	  pytest -k busybox tests/test_helpers.py & one=$$!; \
	  pytest -k "not busybox" tests/test_helpers.py & two=$$!; \
	  pytest tests/test_bench.py tests/test_validation.py tests/test_reproduction.py tests/test_results.py tests/test_release.py tests/test_docs.py tests/test_referee.py; rc=$$?; \
	  wait $$one || rc=1; wait $$two || rc=1; exit $$rc
	tests/results.py --check

test: deps
	tests/run.sh

nightly: deps
	tests/run.sh nightly

# Licences, sources and duplicates of everything that is linked in: deny.toml. The tool takes minutes to build, and its verdict
# depends on two files alone: tests/policy.sha256 says which ones passed.
policy: $(DENY)
	$(DENY) check bans licenses sources
	sha256sum Cargo.lock deny.toml > tests/policy.sha256

$(DENY):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install -q --locked --debug --root $(TOOLS) --target-dir $(TOOLS)/build cargo-deny@0.20.2
	rm -rf $(TOOLS)/build

# Random file I/O that compares what it reads; a program of its own, nothing of it is linked in.
$(FSX):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install -q --locked --debug --root $(TOOLS) --target-dir $(TOOLS)/build fsx@0.3.2
	rm -rf $(TOOLS)/build

# Makes the mutants; tests/mutants.py judges them.
$(MUTANTS):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install -q --locked --debug --root $(TOOLS) --target-dir $(TOOLS)/build cargo-mutants@27.1.0
	rm -rf $(TOOLS)/build

# ublk servers that do nothing, or pass requests to a file: the peers of tests/bench/ublk.py.
$(RUBLK):
	$(CARGO) install -q --locked --root $(TOOLS) --target-dir $(TOOLS)/build rublk@0.2.15 --no-default-features
	rm -rf $(TOOLS)/build

# Draws flame graphs: tests/bench/flame.sh.
$(FLAMEGRAPH):
	CARGO_PROFILE_RELEASE_DEBUG=0 $(CARGO) install -q --locked --root $(TOOLS) --target-dir $(TOOLS)/build inferno@0.12.8
	rm -rf $(TOOLS)/build

mutants: deps $(MUTANTS)
	tests/mutants.py $(if $(COUNT),--count $(COUNT))

packages:
	@tests/deps.sh packages
	deploy/packages.sh deb rpm

release:
	tests/deps.sh release
	deploy/release.sh $(TRIAL)

# What needs more than a stable toolchain and Debian's packages fails with the name of what is missing.
# What passed is recorded in tests/results/ and docs/RESULTS.md, to be committed.
long-test: deps
	tests/deps.sh long
	$(MAKE) policy
	$(CARGO) publish --workspace --dry-run
	tests/reproducible.sh
	tests/static.sh
	tests/container.sh
	tests/results.py record run-suites env FTLD_LONG=1 $(CARGO) test -p ftld-tests -- --nocapture
	FTLD_SWARM_SECONDS=7200 FTLD_SWARM_LEDGER=$(CURDIR)/tests/results/swarm.tsv $(CARGO) test -p ftld-tests --test suites swarm:: -- --nocapture
	FTLD_SWARM_SECONDS=3600 FTLD_SWARM_LEDGER=$(CURDIR)/tests/results/daemon_swarm.tsv $(CARGO) test -p ftld-tests --test daemon daemon_swarm:: -- --nocapture
	tests/results.py record coverage tests/coverage.py
	tests/canaries/run.py --state target/canaries/state.jsonl --table tests/results/canaries.md
	tests/toy_scheme.sh
	tests/template.sh test -- --nocapture
	tests/template.sh run --release --features program -- schemes
	$(CARGO) run --release --locked --manifest-path docs/models/pair-rule/Cargo.toml
	tests/results.py record run-fuzz env FUZZ_SECONDS=1200 tests/fuzz/run.sh
	tests/results.py record run-native env FIO_SECONDS=60 CPU_SECONDS=60 KILLS=50 DATA_MIB=1024 SESSIONS=1000000 CUTS=200 CANARY=yes FSX_OPS=200000 BLOCK_CALLS=20000 SCHEMES=all BROWSERS="chromium firefox" tests/native/run.sh
	AT=request tests/native/run.sh crash_postgres
	SEED=new FAULTS=50 STACKS="sqlite redb ext4 postgres" tests/native/run.sh stacks
	FAULTS=50 GUEST_TIMEOUT=14400 tests/guest/run.sh sqlite
	tests/results.py record run-guest env STACKED=all SIZE=1GiB SWAP_MIB=250 FIO_MIB=128 FIO_SECONDS=120 KILLS=10 CRASHES=20 GUEST_TIMEOUT=14400 SCHEMES=all tests/guest/run.sh all
	tests/results.py record run-systemd tests/systemd/run.sh
	DEBIAN=trixie tests/systemd/run.sh
	DEBIAN=testing tests/systemd/run.sh
	tests/results.py record run-sanitizers tests/sanitize.sh asan miri
	$(DENY) check advisories

# Each adds its section to the file; tests/bench/against.py compares two such files.
BENCH_RESULT ?= target/bench/RESULT.json

bench: deps $(RUBLK)
	rm -f $(BENCH_RESULT)
	tests/bench/sim.py $(BENCH_ARGS) --json $(BENCH_RESULT) $(if $(FTLSIM),--ftlsim $(FTLSIM))
	tests/bench/volume.py $(BENCH_ARGS) --json $(BENCH_RESULT)
	tests/bench/nbd.py $(BENCH_ARGS) --json $(BENCH_RESULT)
	tests/bench/mount.py $(BENCH_ARGS) --json $(BENCH_RESULT)
	tests/bench/model.py $(BENCH_ARGS) --json $(BENCH_RESULT)
	tests/bench/ublk.py $(BENCH_ARGS) --json $(BENCH_RESULT)

reproduction: deps
	tests/reproduction.py $(if $(TRACES),--traces $(TRACES))

deps:
	@tests/deps.sh
