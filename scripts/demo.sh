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
    "$bin/whyidle" report "$out/caffe-b16-r0" --full

    echo
    echo "== The same as pages, to look around in"
    "$bin/whyidle" report "$out" --format html --with-runs
    echo "Open $PWD/$out/report.html in a browser. Any other run in words: $bin/whyidle report $out/<loader>-b<batch>-r<round>"
    exit
fi

# Sizes: a run has more than 30 steps at batch 16, so it has a verdict; four fifths of the images are for training. Caffe's
# loader, which the question is about, runs its rounds first.
images=${IMAGES:-168}
epochs=${EPOCHS:-4}
budget=${BUDGET:-120}
mkdir -p "$out"

found() {
    "$bin/python" scripts/demo_found.py "$@"
}

# Progress where somebody watches; else into a file, which is shown if it fails.
quietly() {
    if [ -t 2 ]; then "$@"; else "$@" 2> "$out/progress.txt" || { cat "$out/progress.txt" >&2; return 1; }; fi
}

if [ -z "$data" ]; then quietly compose "data/voc-$images" "$images" > /dev/null; fi

if "$bin/python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    device=cuda on="this machine's GPU"
else
    device=emulated:v100 on="an emulated V100 (real loaders and images, step times from publications)"
fi
echo "== Why did a bigger batch slow down Caffe's SSD? Four loaders at batch 8 and 16, on $on:"
quietly "$bin/whyidle" compare ssd --data "$data" --device "$device" --pipelines caffe,prefetch,dali-cpu,fused \
    --batch-sizes 8,16 --epochs "$epochs" --repeats 2 --first caffe --budget "$budget" --no-roofline \
    --out "$out/ssd" --json "$out/ssd/result.json" --html "$out/ssd/report.html"

training() {
    "$bin/whyidle" run --out "$out/$1" -- "$bin/python" docs/photos.py "$data" --batch-size 8 --epochs 3 --workers "$2"
}

echo
echo "== What does a training wait for? A small net learns which way up these photographs are; its program is unchanged:"
training before 0 > "$out/before.txt"
"$bin/whyidle" report "$out/before" --json > "$out/report.json"

echo
workers=$(found workers "$out/report.json")
if [ -n "$workers" ]; then
    echo "== The proof: the same training with num_workers=$workers, as the report advises:"
    training after "$workers" > "$out/after.txt" 2>&1 || { cat "$out/after.txt" >&2; exit 1; }
    "$bin/whyidle" diff "$out/before" "$out/after" --json > "$out/diff.json"
else
    echo "== Its report advises no other number of workers, so nothing was changed."
fi
found lines "$out/report.json" "$out/diff.json" "$PWD/$out/ssd/report.html"
