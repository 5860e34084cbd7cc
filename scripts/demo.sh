#!/usr/bin/env bash
# What the tool is for, in minutes: demo.sh BIN [FOLDER WITH IMAGES]. FULL=1: the SSD study at its own sizes instead.
# On a GPU where there is one; else the small training on the processor, and SSD on an emulated V100 fed by real loaders.
set -euo pipefail
bin=$1
data=${2:-}
out=runs/demo-$(date +%Y%m%d-%H%M%S)

compose() {
    data=$1
    echo "== Images: $2 JPEG files in Pascal-VOC layout, composed here (or give your own: make demo DATA=folder)"
    "$bin/whyidle" data ssd --out "$data" --images "$2"
}

if [ -n "${FULL:-}" ]; then
    if [ -z "$data" ]; then compose data/voc 256; fi
    if "$bin/python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
        device=cuda
        echo "== SSD300 on this machine's GPU, with each loader at two batch sizes"
    else
        device=emulated:v100
        echo "== No GPU here: SSD300 on an emulated V100 (real loaders and images, step times from publications)"
    fi
    "$bin/whyidle" compare ssd --data "$data" --device "$device" --batch-sizes 8,16 --epochs 3 --limit 192 \
        --repeats 3 --out "$out"

    echo
    echo "== A reduced SSD trained for real on the processor"
    "$bin/whyidle" compare ssd --data "$data" --device cpu --pipelines naive,workers --batch-sizes 8 --epochs 2 \
        --limit 192 --repeats 1 --out "$out-cpu"

    echo
    echo "== One of these runs in full: the Caffe-like loader at batch 16"
    "$bin/whyidle" report "$out/caffe-b16-r0"

    echo
    echo "== The same as pages, to look around in"
    "$bin/whyidle" report "$out" --format html --with-runs
    echo "Open $PWD/$out/report.html in a browser. Any other run in words: $bin/whyidle report $out/<loader>-b<batch>-r<round>"
    exit
fi

# Sizes: what fits into three minutes where others take half of two CPUs. Runs of 32 steps have a verdict.
images=${IMAGES:-160}
limit=${LIMIT:-128}
epochs=${EPOCHS:-2}
budget=${BUDGET:-90}

training() {
    "$bin/whyidle" run --out "$out/$1" -- "$bin/python" docs/photos.py "$data" --batch-size 8 --epochs 2 --limit "$images" \
        --workers "$2"
}

found() {
    "$bin/python" scripts/demo_found.py "$@"
}

if [ -z "$data" ]; then compose "data/voc-$images" "$images"; fi

echo
echo "== 1. whyidle run: a small net learns which way up these photographs are. The program itself is not changed."
training before 0
"$bin/whyidle" report "$out/before" --json -o "$out/before/report.json"

echo
if [ "$(found device "$out/before/report.json")" = cuda ]; then
    device=cuda
    echo "== 2. whyidle compare: SSD300 on this machine's GPU, with each loader at two batch sizes, within $budget s"
else
    device=emulated:v100
    echo "== 2. whyidle compare: SSD300 with each loader at two batch sizes, within $budget s. No GPU here: the device is"
    echo "   an emulated V100, with step times from publications; loaders and images are real."
fi
"$bin/whyidle" compare ssd --data "$data" --device "$device" --batch-sizes 8,16 --epochs "$epochs" --limit "$limit" \
    --repeats 3 --first caffe,prefetch --budget "$budget" --out "$out/ssd" --json "$out/ssd/result.json" --html "$out/ssd/report.html"

echo
workers=$(found workers "$out/before/report.json")
if [ -n "$workers" ]; then
    echo "== 3. What to change: the first training again, with $workers in its DataLoader as its report advises. Then diff:"
    training after "${workers#num_workers=}" 2> "$out/after.txt" || {
        code=$?
        cat "$out/after.txt" >&2
        exit $code
    }
    "$bin/whyidle" diff "$out/before" "$out/after"
    "$bin/whyidle" diff "$out/before" "$out/after" --json -o "$out/after/diff.json"
else
    echo "== 3. What to change: nothing in the first training's DataLoader; its report above says what it waits for"
fi

echo
echo "== What was found"
found lines "$out/before/report.json" "$out/ssd/result.json" "$out/after/diff.json" "$PWD/$out/ssd/report.html"
