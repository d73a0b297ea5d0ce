#!/usr/bin/env bash
# Runs on a machine with a GPU and without Go: the steps of the table below, in its order (docs/gpu.md).
#
#   .gpu/run.sh [QUICK|FULL]
#
#   OUT            directory of the results, at most 8 files (default: out beside this script)
#   SPARK_DEVICE   cuda, or emu for a dry run on the CPU device
#   STEPS          a regular expression: only these steps
#   TOTAL_SECONDS  limit of the whole script (default 570; FULL: a day)
#   SCALE          multiplies every limit (default 1)
#   RUNS           timed runs (default 500)
#   TUNE           time or number of kernels to search schedules (default 3m; FULL only)
#   PYTHON         the Python that has torch (default python3)
#
# A step that fails or exceeds its limit is reported and the next one runs. The exit status is 1 unless all passed.
set -uo pipefail

# Limits in seconds; the first word is a function below, the others are its arguments. Together the limits exceed
# TOTAL_SECONDS, since few steps use all of theirs.
QUICK='
 50 vectors
 35 device
 25 models
 90 machine

 10 golden policy fp16
 10 golden dmonitoring fp16
 15 bench policy fp16
 15 bench dmonitoring fp16
 40 peer policy fp16 graph
 40 peer dmonitoring fp16 graph

 20 golden vision fp16
 45 bench vision fp16
 60 ablate vision fp16
 35 ablate policy fp16
 40 peer vision fp16 eager,graph

 20 profile vision fp16
 20 sanitize racecheck policy fp16
 20 sanitize memcheck policy fp16

 10 golden policy fp8
 10 golden policy nvfp4
 10 golden dmonitoring fp8
 10 golden dmonitoring nvfp4
 10 bench policy fp8
 10 bench policy nvfp4
 10 bench dmonitoring fp8
 10 bench dmonitoring nvfp4
 60 compare

 60 peer policy fp16 compile
 60 peer dmonitoring fp16 compile
100 peer vision fp16 compile
'
# Where nobody waits.
FULL='
300 precision policy bf16
300 precision policy fp32
300 precision dmonitoring bf16
300 precision dmonitoring fp32
300 precision vision bf16
300 precision vision fp32
600 tune policy
600 tune dmonitoring
900 tune vision
600 peer policy fp32 graph,ort
600 peer dmonitoring fp32 graph,ort
600 peer vision fp32 graph,ort
'
# The generator's models are made while the first steps run, which time nothing.
generating=105

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case ${1:-QUICK} in
QUICK) table=$QUICK total=${TOTAL_SECONDS:-570} ;;
FULL) table=$QUICK$FULL total=${TOTAL_SECONDS:-86400} ;;
*) echo "usage: $0 [QUICK|FULL]"; exit 2 ;;
esac
export SPARK_DEVICE=${SPARK_DEVICE:-cuda}
runs=${RUNS:-500}
scale=${SCALE:-1}
python=${PYTHON:-python3}
target=$(cat "$here/target") || exit 2

now() { local t=${EPOCHREALTIME//[^0-9]/}; echo $((t / 1000)); }
scaled() { awk "BEGIN {printf \"%d\", $1 * 1000 * $scale}"; } # seconds to milliseconds
seconds() { printf '%d.%d' $(($1 / 1000)) $(($1 % 1000 / 100)); }

begin=$(now) end=$(($(now) + $(scaled "$total")))
out=${OUT:-$here/out}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
work=$(mktemp -d) || exit 2
export SPARK_CACHE=$work/cache
sampler=
trap 'test -n "$sampler" && kill "$sampler" 2>/dev/null; rm -rf "$work"' EXIT
log=$out/log.txt summary=$out/summary.txt machine=$out/machine.txt kernels=$out/profile.txt
: >"$log"; : >"$summary"; : >"$kernels"; : >"$out/reports.jsonl"; : >"$out/bench.jsonl"
failed=0

say() { printf '%s\n' "$*" | tee -a "$summary"; }

# limited COMMAND…: runs it within what is left of the step. Its output goes to the log; its standard output to $to if
# that is set.
limited() {
  local left=$((deadline - $(now)))
  if [ $left -le 0 ]; then echo "no time is left for $*" >>"$log"; return 124; fi
  timeout -k 3 "$(printf '%d.%03d' $((left / 1000)) $((left % 1000)))" "$@" </dev/null >>"${to:-$log}" 2>>"$log"
}

# keep FILE NAME JSON: appends a report as one line.
keep() {
  if [ -s "$3" ]; then printf '{"step": "%s", "report": %s}\n' "$2" "$(tr -d '\n' <"$3")" >>"$out/$1"; rm -f "$3"; fi
}

# absent WHY: the step cannot run here.
absent() { why=$1; return 77; }

# step LIMIT NAME…
step() {
  local limit=$1 started at rc took
  started=$(now) at=$(($(stat -c %s "$log") + 1)) rc=0
  shift
  deadline=$((started + $(scaled "$limit")))
  if [ $deadline -gt $end ]; then deadline=$end; fi
  if [ $((end - started)) -lt 1 ]; then
    say "LATE  $* (the script's time is up)"
    failed=$((failed + 1))
    return
  fi
  printf '\n=== %s\n' "$*" >>"$log"
  "$@" || rc=$?
  took=$(seconds $(($(now) - started)))
  case $rc in
  0) say "ok    $* ($took s)" ;;
  77) say "skip  $* ($why)" ;;
  124 | 137) say "LIMIT $* ($took s)" ;;
  *) say "FAIL  $* (exit status $rc, $took s)" ;;
  esac
  case $rc in
  0 | 77) ;;
  *)
    failed=$((failed + 1))
    tail -c +$at "$log" | grep -v -e '^=== ' -e '^$' | tail -n 15 | cut -c1-300 | sed 's/^/      /' | tee -a "$summary"
    ;;
  esac
  for file in "$log" "$kernels" "$machine"; do # a file of results has at most 16 MiB
    if [ "$(stat -c %s "$file")" -gt 15000000 ]; then
      tail -c 8000000 "$file" >"$work/tail" && cat "$work/tail" >"$file"
    fi
  done
}

# generate MODEL: has the generator write a model whose package travels without weights, and compiles it for them. If
# they differ from those of the package, the package is what was compiled here.
generate() {
  local dir=$work/models/$1 made=$work/made/$1 package=$work/models/$1/fp16 size digest
  size=$(cat "$dir/generated")
  limited "$work/gen" -o "$dir" -model "$1" -size "$size" -inputs 0 || return
  limited "$work/spark" compile "$dir/$1.onnx" --precision fp16 --target "$target" -o "$made" || return
  digest=$(sha256sum "$made/weights.bin")
  if ! grep -qF "${digest%% *}" "$package/program.json"; then
    echo "$1 fp16: not the weights of the bundle's package: the driver compiles PTX" >>"$log"
    rm -rf "$package" && cp -r "$made" "$package"
  fi
  mv "$made/weights.bin" "$package/"
}

generateAll() {
  local rc=0 file log=$work/generated.log
  deadline=$((begin + $(scaled $generating)))
  for file in "$work"/models/*/generated; do
    if [ -f "$file" ]; then generate "$(basename "$(dirname "$file")")" || rc=$?; fi
  done
  return $rc
}

models() {
  local rc=0
  wait "$generator" || rc=$?
  cat "$work/generated.log" >>"$log"
  return $rc
}

vectors() {
  local rc=0 at
  at=$(($(stat -c %s "$log") + 1))
  SPARK_RECORD=$out limited "$work/gputest.test" -test.run 'TestVectors$' -test.v || rc=$?
  tail -c +$at "$log" | grep -o 'mma[^ ]*: sums in .*' | sed 's/^/      /' | tee -a "$summary"
  return $rc
}

device() {
  if [ "$SPARK_DEVICE" != cuda ]; then absent "needs a GPU"; return; fi
  limited "$work/cuda.test" -test.run TestGPU -test.v
}

# What is measured on the CPU device describes no GPU, and nothing is predicted by it.
machine() {
  local rc=0
  rm -f "$out/machine.json"
  limited "$work/spark" bench --machine --device "$SPARK_DEVICE" -o "$out/machine.json" || rc=$?
  # If it ended early, the file has what was measured until then.
  if [ "$SPARK_DEVICE" = cuda ] && [ -s "$out/machine.json" ]; then figures=(--machine-file "$out/machine.json"); fi
  return $rc
}
figures=()

# golden MODEL PRECISION: outputs against those of the evaluator in float64. Everything is quantised that can be: this
# asks whether kernels are right, not how accurate the model is.
golden() {
  local rc=0 file least=0.9999
  case $2 in fp8 | nvfp4) least=0.5 ;; bf16) least=0.999 ;; fp32) least=0.99999999 ;; esac
  for file in "$work/models/$1"/*.npz; do
    limited "$work/spark" run "$work/models/$1/$2" --input "$file" --expect "$file" --min-cosine $least \
      --device "$SPARK_DEVICE" --json "$work/report.json" || rc=$?
    keep reports.jsonl "golden $1 $2: $(basename "$file" .npz)" "$work/report.json"
  done
  return $rc
}

# bench MODEL PRECISION: latencies, warm and with cold caches, launch by launch and on a timeline.
bench() { measure "bench $*" "$@" -- --layers --timeline "$work/timeline.json"; }

# ablate MODEL PRECISION: what each mechanism is worth, interleaved with the default.
ablate() { measure "ablate $*" "$@" -- --ablate pdl,prefetch,hints,carveout; }

# measure NAME MODEL PRECISION… -- FLAGS…
measure() {
  local rc=0 name=$1 model=$2 packages=()
  shift 2
  while [ "$1" != -- ]; do packages+=("$work/models/$model/$1"); shift; done
  shift
  limited "$work/spark" bench "${packages[@]}" --device "$SPARK_DEVICE" --runs "$runs" --no-peer "$@" "${figures[@]}" \
    --json "$work/bench.json" || rc=$?
  keep bench.jsonl "$name" "$work/bench.json"
  return $rc
}

# compare: every package against golden outputs, the CPU device, and a second run bit for bit.
compare() {
  SPARK_GPU_MODELS=$work/models limited "$work/gputest.test" -test.run TestModelsOnGPU -test.v
}

# profile MODEL PRECISION: Nsight Compute on the kernels that are predicted to take longest. Clocks stay as they are.
profile() {
  if ! command -v ncu >/dev/null; then absent "no ncu"; return; fi
  to=$kernels limited ncu --kernel-name "regex:^($(paste -sd'|' "$here/longest"))$" --launch-count 6 --set full \
    --clock-control none "$work/spark" run "$work/models/$1/$2" --input "$(first "$1")" --device "$SPARK_DEVICE"
}

# sanitize TOOL MODEL PRECISION
sanitize() {
  if ! command -v compute-sanitizer >/dev/null; then absent "no compute-sanitizer"; return; fi
  to=$kernels limited compute-sanitizer --tool "$1" --error-exitcode 9 --print-limit 20 \
    "$work/spark" run "$work/models/$2/$3" --input "$(first "$2")" --device "$SPARK_DEVICE"
}

first() { find "$work/models/$1" -maxdepth 1 -name '*.npz' | sort | head -n 1; }

# peer MODEL PRECISION MODES: PyTorch, or ONNX Runtime on the CPU.
peer() {
  local rc=0 find='import importlib.util as u, sys; sys.exit(not (u.find_spec("torch") and u.find_spec("onnx")))'
  limited "$python" -c "$find" || rc=$?
  case $rc in
  0) ;;
  124 | 137) return $rc ;;
  *) absent "$python has no torch and onnx"; return ;;
  esac
  : >"$work/peer"
  to=$work/peer limited "$python" "$here/bin/torch_latency.py" "$work/models/$1"/*.onnx "$(first "$1")" --dtype "$2" \
    --modes "$3" --runs "$runs" || rc=$?
  # Compilers chatter on standard output.
  grep '^{' "$work/peer" | sed 's/.*/{"step": "peer '"$1"'", "report": &}/' >>"$out/reports.jsonl"
  return $rc
}

# precision MODEL PRECISION: compiles here and checks golden outputs; in fp32 they are not rounded to the file's types.
precision() {
  local flags=()
  if [ "$2" = fp32 ]; then flags=(--io f32); fi
  limited "$work/spark" compile "$work/models/$1"/*.onnx --precision "$2" --target "$target" "${flags[@]}" \
    -o "$work/models/$1/$2" || return
  golden "$1" "$2"
}

# tune MODEL: schedules by what kernels take here, beside those of the cost model.
tune() {
  limited "$work/spark" compile "$work/models/$1"/*.onnx --precision fp16 --target "$target" --tune \
    --tune-budget "${TUNE:-3m}" --tune-file "$work/tuning.json" -o "$work/models/$1/tuned" || return
  keep reports.jsonl "tuning file $1" "$work/tuning.json"
  golden "$1" tuned && measure "tuned $1" "$1" fp16 tuned --
}

mkdir -p "$work/models"
for packed in "$here"/bin/*.gz; do
  name=$(basename "$packed" .gz)
  gunzip -c "$packed" >"$work/$name" && chmod +x "$work/$name" || { say "cannot unpack $packed"; exit 2; }
done
for packed in "$here"/*.tar.gz; do
  tar -xzf "$packed" -C "$work/models" || { say "cannot unpack $packed"; exit 2; }
done
cp "$here/predicted.json" "$work/" && keep reports.jsonl predicted "$work/predicted.json"

{
  uname -a
  grep -m1 -E 'model name|Model' /proc/cpuinfo
  nproc
  head -n 3 /proc/meminfo
  if [ -r /proc/device-tree/model ]; then tr -d '\0' </proc/device-tree/model; echo; fi
} >"$machine" 2>&1
generateAll &
generator=$!
if command -v nvidia-smi >/dev/null; then
  deadline=$(($(now) + $(scaled 20))) # it waits for a driver that does not answer
  to=$machine limited nvidia-smi
  to=$machine limited nvidia-smi -q -d CLOCK,POWER,PERFORMANCE,TEMPERATURE
  printf '\nDuring the runs:\n' >>"$machine"
  fields=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu
  nvidia-smi --query-gpu=$fields --format=csv -lms 500 >>"$machine" 2>&1 &
  sampler=$!
else
  echo "no nvidia-smi" >>"$machine"
fi

while read -r -a row; do
  if [ "${row[1]:-}" = models ] || [[ "${row[*]:1}" =~ ${STEPS:-.} ]]; then step "${row[@]}"; fi
done < <(grep . <<<"$table")

echo
grep -E '^(ok|FAIL|LIMIT|LATE|skip) ' "$summary"
say "$failed steps failed in $(seconds $(($(now) - begin))) s; results are in $out"
[ $failed -eq 0 ]
