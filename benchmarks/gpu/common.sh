# For encoders.sh and translation.sh: D has the data, M the pretrained encoder, R the runs; results are printed as they come and left in $OUT.
export PYTHONPATH=. HF_HUB_OFFLINE=1
PY=${PY:-python3}; OUT=${OUT:-runs/gpu/out}; D=${D:-data}; M=${M:-minilm}; R=${R:-runs/gpu}; END=${END:-575}
mkdir -p $OUT $R/lines
# go SECONDS NAME COMMAND…: at most so long, and never beyond END; stdout to the screen and $OUT/NAME.jsonl, the rest to $OUT/NAME.err
go() {
  local most=$1 name=$2 left=$((END - SECONDS)) t=$SECONDS rc; shift 2
  [ $left -lt $most ] && most=$left
  if [ $most -lt 5 ]; then echo "no time left for $name"; return 1; fi
  timeout -k 8 $most "$@" 2> $OUT/$name.err | tee $OUT/$name.jsonl; rc=${PIPESTATUS[0]}
  cp -f $OUT/$name.jsonl $R/lines/
  echo "-- $name: rc $rc, $((SECONDS - t)) s, at $SECONDS s"
  [ $rc = 0 ] || tail -n 4 $OUT/$name.err | cut -c1-400
  return $rc
}
# MPS=1 lets processes share the GPU at one time; left alone where it does not work
mps() {
  [ -n "$MPS" ] && command -v nvidia-cuda-mps-control > /dev/null || return 0
  nvidia-cuda-mps-control -d > $OUT/mps.txt 2>&1
  if timeout 40 $PY -c "import torch; print(float(torch.ones(4, device='cuda').sum()))" >> $OUT/mps.txt 2>&1; then echo "MPS is on"
  else echo quit | timeout 10 nvidia-cuda-mps-control >> $OUT/mps.txt 2>&1; echo "no MPS"; fi
}
mps_off() { [ -n "$MPS" ] && command -v nvidia-cuda-mps-control > /dev/null && echo quit | timeout 10 nvidia-cuda-mps-control > /dev/null 2>&1; return 0; }
