#!/usr/bin/env bash
# Everything that wants a GPU, on a machine that has one and no Go: records vectors, compiles the bundled models there,
# holds their outputs against golden ones, measures the device itself and the models' latency, launch by launch beside what is
# predicted, and PyTorch's where it is installed.
#
#   .gpu/run.sh [MODEL…]        default: every model in the bundle
#
#   OUT           where results go (default: out beside this script): at most 8 files
#   SPARK_DEVICE  cuda, or emu for a dry run on the CPU device
#   RUNS          runs that are timed (default 500)
#   PRECISIONS    what each model is compiled to (default fp16 fp32 bf16 fp8 nvfp4)
#   STEP_SECONDS  most that one step may take (default 300)
#   TUNE          how long schedules of each model are searched: a time or a number of kernels (default 3m)
#   PYTHON        the Python that has torch (default python3)
#
# A step that fails is reported and the next one runs. The exit status is 1 if any failed.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-$here/out}
export SPARK_DEVICE=${SPARK_DEVICE:-cuda}
runs=${RUNS:-500}
limit=${STEP_SECONDS:-300}
tune=${TUNE:-3m}
python=${PYTHON:-python3}

mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
work=$(mktemp -d) || exit 2
sampler=
trap 'test -n "$sampler" && kill "$sampler" 2>/dev/null; rm -rf "$work"' EXIT
log=$out/log.txt summary=$out/summary.txt machine=$out/machine.txt
: >"$log"; : >"$summary"; : >"$out/reports.jsonl"; : >"$work/torch.jsonl"; : >"$work/bench.txt"
failed=0

say() { printf '%s\n' "$*" | tee -a "$summary"; }

# step NAME FILE COMMAND…: runs a command; its standard output goes to FILE, or to the log if that is -.
step() {
  local name=$1 file=$2 begin=$SECONDS rc
  shift 2
  : >"$work/output"; : >"$work/errors"
  timeout -k 10 "$limit" "$@" >"$work/output" 2>"$work/errors"
  rc=$?
  { printf '\n=== %s\n' "$name"; cat "$work/errors"; if [ "$file" = - ]; then cat "$work/output"; fi; } >>"$log"
  if [ "$file" != - ]; then cat "$work/output" >>"$file"; fi
  if [ $rc -eq 0 ]; then
    say "ok    $name ($((SECONDS - begin)) s)"
  else
    say "FAIL  $name (exit status $rc, $((SECONDS - begin)) s)"
    { tail -n 15 "$work/output"; tail -n 5 "$work/errors"; } | cut -c1-300 | sed 's/^/      /' | tee -a "$summary"
    failed=$((failed + 1))
  fi
  return $rc
}

for packed in "$here"/bin/*.gz; do
  name=$(basename "$packed" .gz)
  gunzip -c "$packed" >"$work/$name" && chmod +x "$work/$name" || { say "cannot unpack $packed"; exit 2; }
done

{
  uname -a
  grep -m1 -E 'model name|Model' /proc/cpuinfo
  nproc
  head -n 3 /proc/meminfo
  if [ -r /proc/device-tree/model ]; then tr -d '\0' </proc/device-tree/model; echo; fi
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi
    nvidia-smi -q -d CLOCK,POWER,PERFORMANCE,TEMPERATURE
  else
    echo "no nvidia-smi"
  fi
} >"$machine" 2>&1

# The vectors first: what they show explains everything after them.
step "vectors" - env SPARK_RECORD="$out" "$work/gputest.test" -test.run 'TestVectors$' -test.v
grep -o 'mma[^ ]*: sums in .*' "$work/output" | sed 's/^/      /' | tee -a "$summary"
if [ "$SPARK_DEVICE" = cuda ]; then
  step "device" - "$work/cuda.test" -test.run TestGPU -test.v
fi

# The machine's own constants, by which the report predicts; made on the CPU device they describe no GPU.
step "constants of the machine" - "$work/spark" bench --machine --device "$SPARK_DEVICE" -o "$out/machine.json"
figures=()
if [ "$SPARK_DEVICE" = cuda ] && [ -f "$out/machine.json" ]; then figures=(--machine-file "$out/machine.json"); fi

if [ $# -eq 0 ]; then
  for dir in "$here"/*/; do
    if ls "$dir"*.onnx.gz >/dev/null 2>&1; then set -- "$@" "$(basename "$dir")"; fi
  done
fi

# bound MODEL PRECISION: the least cosine against the golden outputs. TestModelsOnGPU bounds relative L2 as well, of
# quantised models by the CPU device's.
bound() {
  case "$1 $2" in
  "driving_vision fp16") echo 0.99998 ;;
  "driving_policy fp16") echo 0.999999 ;;
  "dmonitoring_model fp16") echo 0.99999 ;;
  *\ fp16) echo 0.9999 ;;
  *bf16) echo 0.999 ;;
  *fp8 | *nvfp4) echo 0.5 ;;
  *) echo 0.99999999 ;;
  esac
}

# run NAME ARGUMENTS…: spark-run, with its report kept.
run() {
  local name=$1
  shift
  rm -f "$work/report.json"
  step "$name" - "$work/spark" run "$@" --device "$SPARK_DEVICE" --json "$work/report.json"
  if [ -f "$work/report.json" ]; then
    printf '{"step": "%s", "report": %s}\n' "$name" "$(tr -d '\n' <"$work/report.json")" >>"$out/reports.jsonl"
  fi
}

# Clocks and power under load, twice a second.
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu --format=csv -lms 500 >"$work/clocks" 2>&1 &
  sampler=$!
fi

packages=()
for model in "$@"; do
  mkdir -p "$work/models/$model"
  gunzip -c "$here/$model/$model.onnx.gz" >"$work/$model.onnx" && cp "$here/$model"/*.npz "$work/models/$model/" || { say "FAIL  no bundled model $model"; failed=$((failed + 1)); continue; }
  for precision in ${PRECISIONS:-fp16 fp32 bf16 fp8 nvfp4}; do
    package=$work/models/$model/$precision
    # Everything forced, and calibrated on what travels along: whether the kernels are right, not how accurate the model is.
    # Nor does rounding outputs hide what kernels do in fp32.
    case $precision in fp8 | nvfp4) force=(--calibrate "$work/models/$model" --min-cosine 0) ;; fp32) force=(--io f32) ;; *) force=() ;; esac
    step "$model $precision: compile" - "$work/spark" compile "$work/$model.onnx" --precision "$precision" --target sm_121,sm_90,sm_80 "${force[@]}" -o "$package" || continue
    packages+=("$package")
    first=
    for golden in "$work/models/$model"/*.npz; do
      first=${first:-$golden}
      run "$model $precision: $(basename "$golden" .npz)" "$package" --input "$golden" --expect "$golden" --min-cosine "$(bound "$model" $precision)"
    done
    run "$model $precision: $runs runs" "$package" --input "$first" --runs "$runs"
  done
done

export SPARK_GPU_MODELS=$work/models
step "models against golden outputs and the CPU device" - "$work/gputest.test" -test.run TestModelsOnGPU -test.v -test.timeout "${limit}s"
step "latency" "$work/bench.txt" "$work/gputest.test" -test.run '^$' -test.bench Models -test.benchtime "${runs}x" -test.timeout "${limit}s"

step "report" - "$work/spark" bench "${packages[@]}" --device "$SPARK_DEVICE" --runs "$runs" --layers --timeline "$work/trace.json" --no-peer "${figures[@]}" --json "$out/bench.json" --html "$out/report.html"

# Schedules by what kernels take here, and the tuned program beside the other one.
target=$(sed -nE 's/.*"target": "(sm_[0-9]+)".*/\1/p' "$out/machine.json" 2>/dev/null | head -n 1)
for model in "$@"; do
  [ -f "$work/$model.onnx" ] || continue
  for tuned in 0 1; do
    search=()
    if [ $tuned -eq 1 ]; then search=(--tune --tune-budget "$tune" --tune-file "$work/$model.tuning.json"); fi
    step "$model: compile, tuned $tuned" - "$work/spark" compile "$work/$model.onnx" --precision fp16 --target "${target:-sm_121}" "${search[@]}" -o "$work/tuned/$model$tuned"
    grep '^tuning: ' "$work/output" | sed 's/^/      /' | tee -a "$summary"
  done
  if [ -f "$work/$model.tuning.json" ]; then
    printf '{"step": "%s: tuning file", "report": %s}\n' "$model" "$(tr -d '\n' <"$work/$model.tuning.json")" >>"$out/reports.jsonl"
  fi
  for golden in "$work/models/$model"/*.npz; do
    run "$model tuned: $(basename "$golden" .npz)" "$work/tuned/${model}1" --input "$golden" --expect "$golden" --min-cosine "$(bound "$model" fp16)"
  done
  step "$model: tuned beside untuned" "$summary" "$work/spark" bench "$work/tuned/${model}0" "$work/tuned/${model}1" --device "$SPARK_DEVICE" --runs "$runs" --no-peer
done

if "$python" -c 'import torch, onnx' 2>>"$log"; then
  for model in "$@"; do
    golden=$(ls "$work/models/$model"/*.npz | head -n 1)
    for dtype in fp16 fp32; do
      for modes in eager,graph compile; do # compile takes minutes, and may not end in time
        step "$model: PyTorch $dtype $modes" "$work/torch.jsonl" "$python" "$here/bin/torch_latency.py" "$work/$model.onnx" "$golden" --dtype $dtype --modes $modes --runs "$runs"
      done
    done
    if "$python" -c 'import onnxruntime' 2>/dev/null; then
      step "$model: ONNX Runtime, CPU" "$work/torch.jsonl" "$python" "$here/bin/torch_latency.py" "$work/$model.onnx" "$golden" --modes ort --runs 50
    fi
  done
else
  say "skip  PyTorch: $python has no torch and onnx"
fi

if [ -n "$sampler" ]; then
  kill "$sampler" 2>/dev/null
  { echo; echo "Clocks during the runs:"; cat "$work/clocks"; } >>"$machine"
  sampler=
fi
# Peers' lines of JSON, without compilers' chatter, beside ours; and no file beyond 16 MiB.
grep '^{' "$work/torch.jsonl" | sed 's/.*/{"step": "peer", "report": &}/' >>"$out/reports.jsonl"
for file in "$log" "$machine"; do
  if [ "$(wc -c <"$file")" -gt 16000000 ]; then tail -c 16000000 "$file" >"$work/tail" && cp "$work/tail" "$file"; fi
done

say ""
grep '^Benchmark' "$work/bench.txt" | tee -a "$summary"
sed -nE 's/.*"model": "([^"]*)", "mode": "([^"]*)", "asked": "([^"]*)".*"wall": \{"mean_ms": [0-9.e-]*, "p50_ms": ([0-9.e-]*), "p99_ms": ([0-9.e-]*).*/\1 \2 \3: wall p50 \4, p99 \5 ms &/
  t found
  d
  :found
  s/ms \{.*"event": \{"mean_ms": [0-9.e-]*, "p50_ms": ([0-9.e-]*), "p99_ms": ([0-9.e-]*).*/ms; on the device p50 \1, p99 \2 ms/
  s/ms \{.*/ms/
  p' "$work/torch.jsonl" | tee -a "$summary"
say "$failed steps failed; results are in $out"
[ $failed -eq 0 ]
