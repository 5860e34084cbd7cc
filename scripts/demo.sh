#!/usr/bin/env bash
# The SSD study on this machine: demo.sh BIN [FOLDER WITH IMAGES]
# On a GPU where there is one; else on an emulated V100 that real loaders feed, and shortly on the processor.
set -euo pipefail
bin=$1
data=${2:-}
out=runs/demo-$(date +%Y%m%d-%H%M%S)

if [ -z "$data" ]; then
    data=data/voc
    echo "== Images: a set in Pascal-VOC layout, composed here (or give your own: make demo DATA=folder)"
    "$bin/whyidle" data ssd --out "$data" --images 256
fi
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
