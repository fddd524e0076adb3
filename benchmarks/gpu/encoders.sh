#!/bin/bash
# Encoders: bash benchmarks/gpu/encoders.sh a|b|c; each part stops itself after END (575) seconds. Nothing else may run beside part a.
#   a  both sides alone on the GPU, seed 1 of each task: the times, and one seed of the figures  (about 300–400 s)
#   b  seeds 2 and 3 of all tasks and sides side by side: figures only, their times do not count; MPS=1 may help (200–500 s)
#   c  pretraining, alone, then SST-2 from random weights, ours and MiniLM, three at a time      (about 300–400 s)
# FT and PT are words for trials: FT="--rows 20 train.steps=2", PT="train.steps=2".
cd "$(dirname "$0")/../.."; . benchmarks/gpu/common.sh
tune() { echo $PY benchmarks/finetune.py "$1" --model $M --data $D; }
case ${1:?a, b or c} in
a)
  for t in ${TASKS:-sst2 trec conll squad}; do go 180 alone.$t $(tune $t) --seeds 1 $FT; done
  $PY benchmarks/gpu/mean.py $R/lines/alone.*.jsonl | tee $OUT/mean.txt
  ;;
b)
  mps; export OMP_NUM_THREADS=${THREADS:-2}
  for t in ${TASKS:-conll squad sst2 trec}; do
    for side in headway transformers; do go 560 seeds.$t.$side $(tune $t) --seeds 2,3 --only $side $FT & done
  done
  wait; mps_off
  $PY benchmarks/gpu/mean.py $R/lines/*.jsonl | tee $OUT/mean.txt
  ;;
c)
  export OMP_NUM_THREADS=${THREADS:-4}
  go 560 pretraining $PY benchmarks/pretraining.py --texts $D/wiki.train.tokens.gz $D/books.txt.gz --valid $D/wiki.valid.tokens.gz \
    --data $D --other $M --jobs 3 --out $R/pretraining $PT --pretrain ${PRE:-train.minutes=3}
  $PY benchmarks/gpu/told.py $R/pretraining | tee $OUT/pretraining.runs.jsonl
  ;;
esac
