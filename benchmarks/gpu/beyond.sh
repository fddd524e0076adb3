#!/bin/bash
# Sound, series, graphs: bash benchmarks/gpu/beyond.sh a|b|c; each part stops itself after END (575) seconds.
#   a  alone: transcription in Whisper-tiny's shape beside transformers; FSDD; Lorenz; the tests for a GPU if TESTS is set
#   b  forecasts of ETTh1 and ETTh2 at four horizons, side by side; MPS=1 may help. ONLY="ETTh1" takes one of them
#   c  FSDD's strings, and spoken prompts from scratch and from M (a speech model in a folder), side by side; then Cora
#      and the TU collections
# D has the folders fsdd, spoken_prompts, ett, cora, tu_graphs. MORE has settings for each run: MORE_fsdd="train.epochs=60".
cd "$(dirname "$0")/../.."; . benchmarks/gpu/common.sh
train() { # NAME SECONDS RECIPE SETTINGS…
  local name=$1 most=$2 recipe=$3 more; shift 3
  more=MORE_${name//[.-]/_}
  go $most $name $PY -m headway train $recipe "$@" out=$R/$name ${!more} > /dev/null
  tail -n 4 $OUT/$name.err | cut -c1-300
}
made=$R/made
case ${1:?a, b or c} in
a)
  go 150 transcribe $PY benchmarks/transcribe.py --windows 256 --rounds 3 --batches 64,256
  go 60 unpack $PY benchmarks/fsdd.py $D/fsdd $made/fsdd
  train fsdd 200 fsdd data.train=$made/fsdd
  go 150 lorenz $PY benchmarks/lorenz.py
  [ -n "$TESTS" ] && go 300 tests $PY -m pytest -q -m gpu -p no:cacheprovider
  ;;
b)
  mps; export OMP_NUM_THREADS=${THREADS:-2}
  for table in ${ONLY:-ETTh1 ETTh2}; do
    mkdir -p $made; gunzip -c $D/ett/$table.csv.gz > $made/$table.csv
    for horizon in 96 192 336 720; do
      train $table.$horizon 570 etth1 data.train=$made/$table.csv forecast.horizon=$horizon &
    done
  done
  wait; mps_off
  ;;
c)
  mps; export OMP_NUM_THREADS=${THREADS:-2}
  go 60 digits $PY benchmarks/speech_data.py digits $D/fsdd $made/strings
  go 60 prompts $PY benchmarks/speech_data.py prompts $D/spoken_prompts $made/prompts
  train strings 500 fsdd-strings data.train=$made/strings &
  train prompts 500 spoken-prompts data.train=$made/prompts &
  [ -n "$M" ] && [ -d "$M" ] && train prompts.tuned 500 spoken-prompts data.train=$made/prompts model.from=$M train.lr=1e-4 train.epochs=20 &
  go 300 cora $PY benchmarks/graphs.py --data $D/cora --seeds 5 --steps 200 model.width=64 graph.feature_dropout=0.5 &
  for name in MUTAG PROTEINS NCI1; do go 500 $name $PY benchmarks/graphs.py --data $D/tu_graphs/$name.txt.gz --folds 10 --steps 300 & done
  wait; mps_off
  ;;
esac
$PY benchmarks/gpu/told.py $R | tee $OUT/runs.jsonl
