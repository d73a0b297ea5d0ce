#!/usr/bin/env bash
# Makes the bundle of make gpu-bundle, which says what the variables mean.
set -euo pipefail
host=$(mktemp -d)
trap 'rm -rf "$host"' EXIT
mkdir -p "$GPU_DIR" "$host/models"
GPU_DIR=$(cd "$GPU_DIR" && pwd)
# Results in it stay, and so does what else is there.
(cd "$GPU_DIR" && rm -rf bin run.sh target longest predicted.json {policy,dmonitoring,vision}.tar.gz && mkdir bin)
export CGO_ENABLED=0

# build DIR: the binaries that the bundle and this script need.
build() { "$GO" build $GPU_FLAGS -o "$1/" ./cmd/spark ./testdata/gen; }
build "$host"
if [ "$GPU_ARCH" = "$("$GO" env GOARCH)" ]; then
  cp "$host/spark" "$host/gen" "$GPU_DIR/bin/"
else
  GOARCH=$GPU_ARCH build "$GPU_DIR/bin"
fi
GOARCH=$GPU_ARCH "$GO" test -c -tags bundle $GPU_FLAGS -o "$GPU_DIR/bin/cuda.test" ./hal/cuda
GOARCH=$GPU_ARCH "$GO" test -c -tags bundle $GPU_FLAGS -o "$GPU_DIR/bin/gputest.test" ./internal/testing/gputest
gzip -9n "$GPU_DIR"/bin/*
cp bench/torch_latency.py "$GPU_DIR/bin/" && cp internal/testing/gputest/run.sh "$GPU_DIR/"
echo "$GPU_TARGET" >"$GPU_DIR/target"

# Golden inputs and outputs travel. The generator's models do not: it makes them again there.
models=$host/models
generate() {
  mkdir -p "$models/$1"
  "$host/gen" -o "$models/$1" -model "$1" -size "$GPU_SIZE" -inputs 2
  echo "$GPU_SIZE" >"$models/$1/generated"
}
generate policy
generate vision
if [ -f "$GPU_MODELS/dmonitoring_model.onnx" ]; then
  mkdir "$models/dmonitoring"
  cp "$GPU_MODELS/dmonitoring_model.onnx" "$GPU_MODELS"/golden/dmonitoring_model_[12].npz "$models/dmonitoring/"
else
  generate dmonitoring
fi

cubin=--cubin
# package MODEL PRECISION FLAGS…: what of a package the runtime reads.
package() {
  local dir=$models/$1 made=$host/made
  rm -rf "$made"
  if ! "$host/spark" compile "$dir"/*.onnx --quiet --precision "$2" --target "$GPU_TARGET" $cubin "${@:3}" -o "$made" \
    2>"$host/errors"; then
    if [ -z "$cubin" ] || ! grep -q 'ptxas not found' "$host/errors"; then cat "$host/errors" >&2; return 1; fi
    echo "warning: no ptxas here: packages have no cubin, and the GPU's driver compiles their PTX" >&2
    cubin=
    package "$@"
    return
  fi
  mkdir "$dir/$2" && cp -r "$made/program.json" "$made/weights.bin" "$made/$GPU_TARGET" "$dir/$2/"
}
for model in policy dmonitoring vision; do package $model fp16; done
for model in policy dmonitoring; do
  for precision in fp8 nvfp4; do package $model $precision --calibrate "$models/$model" --min-cosine 0; done
done

# What is predicted, and the kernels of vision that take longest by it.
"$host/spark" bench "$models"/*/*/ --quiet --predict --target "$GPU_TARGET" \
  ${GPU_MACHINE:+--machine-file "$GPU_MACHINE"} --json "$GPU_DIR/predicted.json"
"$host/spark" run "$models/vision/fp16" --random 1 --device emu --profile --json "$host/profile.json" >"$host/profile.txt"
"$GO" run ./internal/testing/gpureport -longest 3 "$host/profile.json" >"$GPU_DIR/longest"

for generated in "$models"/*/generated; do
  rm "${generated%/generated}"/*.onnx "${generated%/generated}/fp16/weights.bin"
done
for model in policy dmonitoring vision; do tar -C "$models" -c $model | gzip -9n >"$GPU_DIR/$model.tar.gz"; done

internal/testing/gputest/sizes.sh "$GPU_DIR" "$GPU_MIB"
