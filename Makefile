# Two commands do everything on a fresh machine with Go, Python 3.11+ and make: `make demo` and `make test`.

GO      ?= go
PYTHON  ?= python3
VENV    := .venv
CACHE   := .cache
# Go packages under testdata are not part of ./... and are named.
GEN     := ./testdata/gen/...
# Experiments, of which no command links anything: a module of their own.
EXPERIMENTS := testdata/experiments
# Packages whose tests take longest are named first, so that none of them runs alone at the end.
SLOW    := ./internal/compile ./dora ./codegen/contraction ./docs/guide ./dora/train ./internal/calibrate
PKGS    := ./... $(GEN)
# The demo's model and size: vision, policy, dmonitoring or supercombo; small or full.
MODEL   ?= vision
SIZE    ?= small

export SPARK_CACHE := $(CURDIR)/$(CACHE)
# go-nvml binds functions that NVIDIA's header calls deprecated.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations

.PHONY: all build demo test test-full tools check-tools vet lint cross gpu-bundle bench-compile clean

all: build

# One program, and a link to it for each command.
build:
	CGO_ENABLED=0 $(GO) build -o bin/ ./cmd/spark
	@cd bin && for command in ../cmd/spark-*; do ln -sf spark $${command##*/}; done

# A driving model from the repository's own generator, compiled, run on the GPU if there is one, else on the CPU device,
# and compared with the reference evaluator: by spark-run, and by the generated package's own test. In fp16, then in fp8,
# calibrated on inputs that are not those of the comparison, with the report of that. The budget is lower than the default
# since random weights are harsher to low precision than trained ones.
DEMO := out/demo/$(MODEL)_$(SIZE)
demo: build
	@rm -rf $(DEMO) && mkdir -p $(DEMO)/calibration
	$(GO) run ./testdata/gen -o $(DEMO) -model $(MODEL) -size $(SIZE) -inputs 17
	@mv $(DEMO)/$(MODEL)_*.npz $(DEMO)/calibration/
	bin/spark-compile $(DEMO)/$(MODEL).onnx -o $(DEMO)/drivingdemo --precision fp16
	bin/spark-run $(DEMO)/drivingdemo --input $(DEMO)/$(MODEL).npz --expect $(DEMO)/$(MODEL).npz --min-cosine 0.999
	$(GO) test ./$(DEMO)/drivingdemo
	bin/spark-compile $(DEMO)/$(MODEL).onnx -o $(DEMO)/drivingdemo8 --precision fp8 --min-cosine 0.99 --calibrate $(DEMO)/calibration --report $(DEMO)/fp8.json
	$(GO) test ./$(DEMO)/drivingdemo8
	bin/spark-run $(DEMO)/drivingdemo8 --input $(DEMO)/$(MODEL).npz --expect $(DEMO)/$(MODEL).npz --min-cosine 0.98

# Routes of a drawn drive, a policy that was damaged, and the one that it was: an adapter is trained on features of a vision model until the first computes what the
# second does, merged into the file, compiled, and compared with the second on a sample of a route that was kept from training. The curves are in a page.
TRAINED := out/demo-train
.PHONY: demo-train
demo-train: build
	@rm -rf $(TRAINED) && mkdir -p $(TRAINED)
	$(GO) run ./testdata/gen -o $(TRAINED) -model vision -size small -inputs 0
	$(GO) run ./testdata/gen -o $(TRAINED) -model policy -size small -inputs 0 -damage 0.2
	bin/spark-dora data --synthesise $(TRAINED)/routes --routes 4 --seconds 14
	bin/spark-dora data --check $(TRAINED)/routes --sheet $(TRAINED)/samples.png
	bin/spark-dora train --data $(TRAINED)/routes --model $(TRAINED)/policy_damaged.onnx --teacher $(TRAINED)/policy.onnx --vision $(TRAINED)/vision.onnx \
		-o $(TRAINED)/checkpoints --epochs 4 --batch-size 8 --dora-rank 2 --lr 1e-2 --precision fp32 --val 0.25
	bin/spark-dora merge $(TRAINED)/policy_damaged.onnx $(TRAINED)/checkpoints/best.safetensors -o $(TRAINED)/policy_trained.onnx
	bin/spark-compile $(TRAINED)/policy_trained.onnx -o $(TRAINED)/policytrained --precision fp16
	bin/spark-run $(TRAINED)/policytrained --input $(TRAINED)/checkpoints/validation.npz --expect $(TRAINED)/checkpoints/validation.npz --min-cosine 0.99
	@echo "the curves: $(TRAINED)/checkpoints/report.html"

# A policy that imitates a controller is fitted, damaged, and repaired by an adapter; a page shows the damaged one beside the repaired one on draws
# that nothing was fitted to.
DRIVEN := out/demo-sim
.PHONY: demo-sim
demo-sim: build
	@rm -rf $(DRIVEN) && mkdir -p $(DRIVEN)
	$(GO) run ./testdata/gen -o $(DRIVEN) -clone -damage 0.05
	cd $(DRIVEN) && ../../bin/spark-dora train --data clone --model clone_damaged.onnx --teacher clone.onnx -o adapter --epochs 8 --batch-size 16 --dora-rank 8 \
		--lr 1e-2 --precision fp32 --quiet
	cd $(DRIVEN) && ../../bin/spark-dora merge clone_damaged.onnx adapter/best.safetensors -o clone_adapted.onnx
	cp testdata/gen/clone/testdata/noisy.yaml $(DRIVEN)
	cd $(DRIVEN) && ../../bin/spark-sim compare clone_damaged.onnx clone_adapted.onnx --scenarios noisy.yaml --n 60 --seed 7 --tolerance 0.01 \
		--metrics collision,out_of_lane,disengaged,offset_mean,offset_max --html compare.html --quiet
	@echo "the page: $(DRIVEN)/compare.html"

# Pictures of the documents: the demos' pages, one of spark-bench, and that of spark-run --view, in headless Chromium.
PICTURED := out/pictures
.PHONY: pictures
pictures: demo-train demo-sim
	@rm -rf $(PICTURED) && mkdir -p $(PICTURED)
	$(GO) run ./testdata/gen -o $(PICTURED) -model policy -size small -inputs 1
	bin/spark-bench $(PICTURED)/policy.onnx --device emu --runs 200 --precision fp32,fp16 --no-peer --html $(PICTURED)/bench.html
	cp $(TRAINED)/samples.png docs/spark-dora-data.png
	$(GO) test ./internal/testing/browser -count=1 -run TestPictures -args "$(CURDIR)/$(PICTURED)/bench.html=$(CURDIR)/docs/spark-bench.png" \
		"$(CURDIR)/$(TRAINED)/checkpoints/report.html=$(CURDIR)/docs/spark-dora-train.png" "$(CURDIR)/$(DRIVEN)/compare.html=$(CURDIR)/docs/spark-sim-compare.png"
	SPARK_FULL=1 $(GO) test ./cmd/internal/run -count=1 -run TestThePageDraws -update

# What the tests hold us against; without Python 3.11 those tests are skipped by name.
tools: $(VENV)/.done
$(VENV)/.done: testdata/requirements.txt
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		$(PYTHON) -m venv $(VENV) && $(VENV)/bin/python -m pip install -q --disable-pip-version-check -r $< && touch $@; \
	else echo "Python 3.11 or newer is missing: tests against onnx, onnxruntime and ptxas will be skipped"; fi

TESTENV = SPARK_PYTHON=$$(test -x $(VENV)/bin/python && echo "$(CURDIR)/$(VENV)/bin/python") \
	PTXAS=$${PTXAS:-$$(ls "$(CURDIR)/$(VENV)"/lib/python3*/site-packages/nvidia/cu*/bin/ptxas 2>/dev/null | head -1)}

# Tests compile small models by the hundred: collections of garbage, and samples of where it was made, took a fifth of their time. The limit bounds what a
# package with much in use may take.
TESTENV += GOGC=400 GOMEMLIMIT=3GiB GODEBUG=memprofilerate=0

# FULL=fixed adds a fixed part of the long tests (internal/testing/fulltest), as continuous integration does.
FULL    ?=
TESTFLAGS ?=
test: tools nodecases
	$(TESTENV) SPARK_FULL=$(FULL) $(GO) test $(TESTFLAGS) -timeout 40m $(SLOW) $(PKGS)
	$(TESTENV) SPARK_FULL=$(FULL) $(GO) test -C $(EXPERIMENTS) $(TESTFLAGS) -timeout 40m ./...
	@$(MAKE) -s check-tools

# The whole matrix at full size.
test-full: tools nodecases
	$(TESTENV) SPARK_FULL=1 $(GO) test -timeout 120m $(SLOW) $(PKGS)
	$(TESTENV) SPARK_FULL=1 $(GO) test -C $(EXPERIMENTS) -timeout 120m ./...
	@$(MAKE) -s check-tools FULL=1

# Every fuzz target, one after the other, for so long each; make test runs their seeds.
FUZZTIME ?= 10m
.PHONY: fuzz
fuzz:
	@for dir in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
		for target in $$($(GO) test -list '^Fuzz' ./$$dir | grep '^Fuzz'); do echo "$$dir $$target"; \
		$(GO) test ./$$dir -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 50x || exit 1; \
	done; done

# The closing lines: what was left out, and why.
SHARED  ?= ../shared
check-tools:
	@case "$(FULL)" in 1) ;; "") echo "skipped: the long tests (.ci/run has a fixed part, make test-full all)";; \
		*) echo "skipped: long tests outside the fixed part (make test-full)";; esac
	@test -d $(SHARED)/models || echo "skipped: everything that needs the full-size models, in $(SHARED)/models"
	@ls internal/testing/gputest/testdata/vectors/*.npz >/dev/null 2>&1 || echo "skipped: the comparison with what GPUs computed, of which nothing was recorded (docs/gpu.md)"
	@test -n "$$SPARK_NCCL" || echo "skipped: NCCL's own library, which SPARK_NCCL names (its stand-in is tested where gcc is)"
	@for tool in zsh fish groff qemu-aarch64; do command -v $$tool >/dev/null || echo "skipped: what needs $$tool"; done
	@test -n "$$CHROMIUM" || command -v chromium chromium-browser google-chrome headless-shell >/dev/null || echo "skipped: what the page of spark-run --view draws, which needs chromium"
	@test -x $(VENV)/bin/python || echo "skipped: everything that needs Python (onnx round trips, ONNX Runtime, node cases)"
	@ls $(VENV)/lib/python3*/site-packages/nvidia/cu*/bin/ptxas >/dev/null 2>&1 || test -n "$$PTXAS" || echo "skipped: everything that needs ptxas"
	@count=$$(cat docs/measurements/*.md | grep -c ', \*\*stale\*\*$$'); test $$count = 0 || echo "stale: $$count tables of docs/measurements.md"

# The onnx package's node cases as directories, for the operators' tests and for spark-run --suite.
.PHONY: nodecases
nodecases: tools
	@if test -x $(VENV)/bin/python; then $(VENV)/bin/python testdata/nodecases.py $(CACHE)/nodecases; fi

# Counts that CONTRIBUTING.md bounds.
.PHONY: house
house:
	@$(GO) run ./internal/testing/house

vet:
	test -z "$$(gofmt -l $$(git ls-files '*.go' | grep -v '\.pb\.go$$'))"
	$(GO) vet $(PKGS)
	$(GO) vet -C $(EXPERIMENTS) ./...

lint: vet
	GOBIN="$(CURDIR)/$(CACHE)/bin" $(GO) install honnef.co/go/tools/cmd/staticcheck@v0.7.0
	$(CACHE)/bin/staticcheck $(PKGS)
	cd $(EXPERIMENTS) && "$(CURDIR)/$(CACHE)/bin/staticcheck" ./...

cross:
	CGO_ENABLED=0 GOARCH=amd64 $(GO) build -o /dev/null ./cmd/...
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build -o /dev/null ./cmd/...
	CGO_ENABLED=0 GOARCH=amd64 $(GO) build -C $(EXPERIMENTS) -o /dev/null ./...
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build -C $(EXPERIMENTS) -o /dev/null ./...

# What runs on a machine with a GPU and without Go (docs/gpu.md): tests, commands, models, packages for GPU_TARGET, a script.
# GPU_MODELS holds dmonitoring_model.onnx and golden/dmonitoring_model_*.npz; other models, or all without it, are the
# generator's. GPU_MACHINE is a machine file to predict by. Bundle and checkout together are held to GPU_MIB.
GPU_TARGET  ?= sm_90
GPU_ARCH    ?= amd64
GPU_MODELS  ?= ../shared/models
GPU_MACHINE ?= $(if $(filter sm_90,$(GPU_TARGET)),internal/testing/gputest/h100.json)
GPU_SIZE    ?= full
GPU_DIR     ?= .gpu
GPU_MIB     ?= 60
GPU_FLAGS   := -trimpath -ldflags=-s
gpu-bundle:
	@$(TESTENV) GO='$(GO)' GPU_TARGET=$(GPU_TARGET) GPU_ARCH=$(GPU_ARCH) GPU_MODELS='$(GPU_MODELS)' \
		GPU_MACHINE='$(GPU_MACHINE)' GPU_SIZE=$(GPU_SIZE) GPU_DIR='$(GPU_DIR)' GPU_MIB=$(GPU_MIB) \
		GPU_FLAGS="$(GPU_FLAGS)" internal/testing/gputest/bundle.sh

# What came back from it as Markdown: predicted and measured. UPDATE=1 fills in docs/data/gpu-times.csv.
RESULTS ?= .gpu/out
.PHONY: gpu-report
gpu-report:
	@$(GO) run ./internal/testing/gpureport $(if $(UPDATE),-fill docs/data/gpu-times.csv) '$(RESULTS)'

# The backend over gorgonia.org/cu: a module of its own, against CUDA 12.9's headers and the tests' stand-in driver.
CUDA12 := $(CURDIR)/$(CACHE)/cuda12
.PHONY: gorgonia
gorgonia: tools
	@if ! test -x $(VENV)/bin/python; then echo "skipped: gorgonia, whose headers come from PyPI"; \
	elif ! command -v gcc >/dev/null; then echo "skipped: gorgonia, which needs gcc"; \
	elif test "$$($(GO) env GOARCH)" != amd64; then echo "skipped: gorgonia, which is tested on amd64"; else set -e; \
	test -d "$(CUDA12)/nvidia" || $(VENV)/bin/python -m pip install -q --disable-pip-version-check --no-deps --target "$(CUDA12)" nvidia-cuda-runtime-cu12==12.9.79; \
	gcc -shared -fPIC -O1 -w -Wl,-soname,libcuda.so.1 -o "$(CUDA12)/libcuda.so.1" hal/gorgonia/testdata/fakecuda.c; ln -sf libcuda.so.1 "$(CUDA12)/libcuda.so"; \
	cd hal/gorgonia; CGO_ENABLED=1 CGO_CFLAGS="-O2 -w '-I$(CUDA12)/nvidia/cuda_runtime/include'" \
		CGO_LDFLAGS="'-L$(CUDA12)' -Wl,--unresolved-symbols=ignore-all" LD_LIBRARY_PATH="$(CUDA12)" \
		$(GO) test -tags gorgonia . ; fi

# Writes docs/measurements.md and the pages of docs/measurements/ from their tables, and lists stale tables with the commands that
# make them anew. An entry of index.json whose commit is "now" gets commit, date and digest.
.PHONY: measurements
measurements:
	@$(GO) test ./docs -count=1 -v -run TestMeasurements_PagesAreOfTheData -update

# Tables that tests of the shared models log: accuracy in fp32 and fp16, and of files that others have quantised.
.PHONY: measure-accuracy
measure-accuracy: tools
	@log=$$($(TESTENV) SPARK_FULL=$${SPARK_FULL:-fixed} $(GO) test ./internal/compile -count=1 -v -run 'FullModelsAgainst|QuantisedFiles') || { echo "$$log"; exit 1; }; \
	echo "$$log" | grep -e SKIP -e 'test.go:[0-9]*: .*,[^ ]' | sed 's/^ *[a-z_]*test.go:[0-9]*: //; s/^\(model\|file\),/\n&/'

# How good low precision of the trained network is on inputs that chose nothing (testdata/experiments/judge.py). Run it when all is
# chosen, and change nothing by what it prints.
MODELS ?= ../shared/models
JUDGE  := $(CACHE)/judge
.PHONY: judge-precision
judge-precision: build
	@test -x $(JUDGE)/bin/python || $(PYTHON) -m venv $(JUDGE)
	@$(JUDGE)/bin/pip install -q --disable-pip-version-check -r $(EXPERIMENTS)/requirements.txt
	@PYTHONDONTWRITEBYTECODE=1 $(JUDGE)/bin/python $(EXPERIMENTS)/judge.py bin $(MODELS)

# Whether the accuracy budget holds on inputs that the compiler has not seen: 30 combinations of network, precision, calibration
# inputs and budget. As above: where its result has changed something, SEED names another draw of inputs for the verdict.
SEED ?= 1
.PHONY: judge-budget
judge-budget:
	@$(GO) build -C $(EXPERIMENTS) -o "$(CURDIR)/bin/budget" ./budget
	@bin/budget -models $(MODELS) -seed $(SEED)

# How much of the trained network adapters bring back after damage, on inputs that training never saw. PEFT is a Python with the
# packages that testdata/experiments/recover/reference.py names: then PyTorch and PEFT train the same adapters. An hour on two cores;
# ROWS keeps what has been made, so that a run of the same commit goes on where it was interrupted.
PEFT ?=
ROWS ?= $(CACHE)/adapters-$(shell git describe --always --dirty --exclude '*').json
.PHONY: measure-adapters
measure-adapters:
	@mkdir -p $(CACHE) && $(GO) build -C $(EXPERIMENTS) -o "$(CURDIR)/bin/recover" ./recover
	@bin/recover -models $(MODELS) -results $(ROWS) -peft "$(PEFT)" -damage mendable
	@bin/recover -models $(MODELS) -results $(ROWS) -damage mendable -kinds dora -by norms,outputs
	@bin/recover -models $(MODELS) -results $(ROWS) -peft "$(PEFT)" $(SHORT) -damage int8,nvfp4,noise
	@bin/recover -models $(MODELS) -results $(ROWS) $(SHORT) -damage int8 -kinds dora -by norms,outputs

# The same beside narrow bases: what the step's program computes, and the merged file. Half an hour on two cores.
.PHONY: measure-bases
measure-bases:
	@mkdir -p $(CACHE) && $(GO) build -C $(EXPERIMENTS) -o "$(CURDIR)/bin/recover" ./recover
	@bin/recover -models $(MODELS) -results $(ROWS) -damage mendable -kinds dora,lora -precision bf16 -base wide,fp8,nvfp4
	@bin/recover -models $(MODELS) -results $(ROWS) $(SHORT) -damage int8 -kinds dora,lora -precision bf16 -base wide,fp8,nvfp4
SHORT := -largest 131072 -rank 16 -steps 80 -last 40

# CPU time, time and memory of compiling the shared models in low precisions, with the load of the machine. Wants an idle one.
.PHONY: measure-compile
measure-compile: build
	@$(GO) build -C $(EXPERIMENTS) -o "$(CURDIR)/bin/compiletimes" ./compiletimes
	@bin/compiletimes -models $(MODELS) bin/spark-compile

# Archives of the last commit for both architectures, checksums and SBOMs (docs/guide/install.md).
.PHONY: release
release:
	$(GO) run ./internal/release -o dist

# Wheels of the Python package for both architectures (docs/guide/python.md), with the C library in them. The C compiler for either is zig's,
# from PyPI, against glibc 2.17.
WHEEL := $(CACHE)/wheel
.PHONY: wheel
wheel:
	@test -x $(WHEEL)/bin/python || $(PYTHON) -m venv $(WHEEL)
	@if ! $(WHEEL)/bin/python -m pip install -q --disable-pip-version-check -r python/requirements.txt; then \
		echo "skipped: wheels, whose compiler for both architectures (ziglang) comes from PyPI"; \
	else set -e; mkdir -p dist; for pair in amd64:x86_64 arm64:aarch64; do cpu=$${pair#*:}; rm -rf python/build; \
		echo "building the wheel for $$cpu: the first time this takes some minutes"; \
		SPARKCOMPILE_LIBRARY= GOARCH=$${pair%:*} CC="'$(CURDIR)/$(WHEEL)/bin/python' -m ziglang cc -target $$cpu-linux-gnu.2.17" SPARKCOMPILE_PLATFORM=manylinux_2_17_$$cpu \
		$(WHEEL)/bin/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w dist ./python; \
	done; rm -rf python/build; ls -l dist/*.whl; fi

clean:
	rm -rf bin out dist python/build python/*.egg-info python/sparkcompile/*.so python/sparkcompile/*.h python/sparkcompile/*LICENSE* $(CACHE) .gpu

# Compile time beside tinygrad's, in one run. Wants clang; not part of the tests. PEER_MODEL is any driving model.
PEER_MODEL ?= out/bench/vision.onnx
bench-compile: build tools
	@command -v clang >/dev/null || { echo "bench-compile needs clang, for tinygrad's CPU backend"; exit 1; }
	test -f $(PEER_MODEL) || $(GO) run ./testdata/gen -o out/bench -model vision -size full
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check tinygrad==0.14.0
	$(VENV)/bin/python bench/compile_peer.py $(PEER_MODEL)
