#!/usr/bin/env bash
# The four studies on this machine, each experiment in its quick form: studies.sh BIN OUT [NAME …]
# Figures for docs/scenarios come from here. Name experiments (ssd-accuracy, convnets-placement, …) to run only those.
set -uo pipefail
bin=$1
out=$2
shift 2
wanted=" $* "
mkdir -p "$out"
failed=0

run() {
    local name=$1 code
    shift
    if [ "$wanted" != "  " ] && [[ "$wanted" != *" $name "* ]]; then return; fi
    echo "== $name: whyidle compare $*"
    SECONDS=0
    "$bin/whyidle" compare "$@" --no-live --out "$out/$name" --json "$out/$name.json" >"$out/$name.txt"
    code=$?
    echo "   ended with $code after $SECONDS s"
    [ "$code" = 0 ] || failed=1
}

run fashion-floor fashion-mnist --device emulated:k80,emulated:v100
run fashion-flip fashion-mnist --net cnn5 --device emulated:k80,emulated:v100,emulated:h200
run fashion-plan fashion-mnist --experiment plan --device cpu
run convnets-differential convnets --device emulated:p100
run convnets-cpu convnets --device cpu
run convnets-scaling convnets --experiment scaling --device emulated:p100 --scaling-plot "$out/convnets-scaling.svg"
run convnets-placement convnets --experiment placement --device emulated:k40
run convnets-forward convnets --experiment forward --device emulated:titanx
run ssd-machines ssd --experiment machines --device emulated:gtx1080,emulated:k520
run ssd-devices ssd --experiment devices --device emulated:titanx --scaling-plot "$out/ssd-devices.svg"
run ssd-stop-rule ssd --experiment stop-rule --device emulated:v100 --trace-plot "$out/ssd-trace.svg"
run ssd-accuracy ssd --experiment accuracy --device cpu
run cost-threads cost --device cpu
run cost-accelerators cost --device emulated:k80,emulated:p100
run cost-accuracy cost --experiment accuracy --device cpu
exit $failed
