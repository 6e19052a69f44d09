# For those who work on Plateau. To use it: ./run. To test all of it: ./test.
.PHONY: all check bench gates install deb tar sim format clean help

all: ## build/plateau, build/golden and the tests, optimised (the default)
	@tools/install-packages run test
	@tools/configure release build -DPLATEAU_TESTS=ON
	@ninja -C build

check: ## checks, tests, ASan + UBSan: before you send a change
	@./test checks release asan

bench: all ## the benchmarks of bench/
	@for b in build/bench/run/*; do echo "== $$b" && $$b || exit 1; done

gates: all ## the release gates of bench/gates; GATES="soak jitter" some of them, ARGS="--model DIR" their options
	@tools/install-packages bench
	@/usr/bin/python3 bench/gates/gate.py $(ARGS) $(GATES)

install: ## build/plateau with its model, manual pages and completions; PREFIX=/usr/local, DESTDIR
	@tools/install-packages run
	@tools/configure --once release build -DPLATEAU_TESTS=OFF
	@ninja -C build plateau && cmake --install build --prefix $(or $(PREFIX),/usr/local)

deb: ## build/packages/plateau_*.deb, for this release of Debian; its dependencies are computed
	@tools/install-packages run package
	@tools/configure --once release build -DPLATEAU_TESTS=OFF
	@ninja -C build plateau && cd build && cpack -G DEB
	@! command -v lintian >/dev/null || lintian --fail-on warning,error build/packages/plateau_*.deb

tar: ## build/packages/plateau-*.tar.gz
	@tools/install-packages run
	@tools/configure --once release build -DPLATEAU_TESTS=OFF
	@ninja -C build plateau && cd build && cpack -G TGZ

sim: all ## 10^7 steps of scheduler and caches, simulated; STEPS and SEED say otherwise
	@tools/sim $(or $(STEPS),10000000) $(SEED)

format: ## every C file as the format check wants it
	@tools/check-format --fix

clean: ## all that was built
	@rm -rf build build-debug build-asan build-tsan build-fuzz build-logs

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' Makefile | expand -t 10
