#!/bin/bash
# Translation: bash benchmarks/gpu/translation.sh a|b|c; each part stops itself after END (575) seconds. Nothing else may run beside part a.
#   a  Multi30k en→de, seed 1, alone: time and BLEU; then training step and beam search beside transformers  (300–450 s)
#   b  en→de seeds 2 and 3, de→en, en→fr side by side: BLEU only; MPS=1 may help                            (200–500 s)
#   c  de→en by what came before the transformer, side by side, then `headway compare` for the table        (200–500 s)
# MW, SW, BW, CW are words on top for Multi30k, the step, the beam and part c: MW="train.steps=3" for a trial.
cd "$(dirname "$0")/../.."; . benchmarks/gpu/common.sh
pair() { echo data.train=$D/train.$1.gz,$D/train.$2.gz data.valid=$D/val.$1.gz,$D/val.$2.gz data.test=$D/test_2016_flickr.$1.gz,$D/test_2016_flickr.$2.gz; }
# multi30k SECONDS NAME FROM TO WORDS…
multi30k() {
  local most=$1 name=$2 from=$3 to=$4; shift 4
  go $most $name $PY -m headway train multi30k $(pair $from $to) out=$R/$name "$@"
  $PY benchmarks/gpu/told.py $R/$name | tee $OUT/$name.jsonl
  cp -f $R/$name/*/run/log.jsonl $OUT/$name.log.jsonl 2> /dev/null
}
KEYS=model.kind+model.attention+model.bidirectional+model.depth+model.width+model.dropout+train.lr
OLD="lstm+none+false+2+512+0.3+1e-3 gru+none+false+1+512+0.3+1e-3 gru+additive+true+1+512+0.3+1e-3 lstm+dot+true+2+512+0.3+1e-3
     conv+none+false+6+384+0.25+5e-4 transformer+none+false+4+256+0.3+1e-3"
case ${1:?a, b or c} in
a)
  multi30k 300 ende.1 en de seed=1 $MW
  go 200 step $PY benchmarks/translate_gpu.py --only step --rounds 3 $SW
  go 200 beam $PY benchmarks/translate_gpu.py --only beam --rounds 3 $BW
  ;;
b)
  mps; export OMP_NUM_THREADS=${THREADS:-3}
  multi30k 565 ende.2 en de seed=2 $MW & multi30k 565 ende.3 en de seed=3 $MW &
  multi30k 565 deen.1 de en seed=1 $MW & multi30k 565 enfr.1 en fr seed=1 $MW &
  wait; mps_off
  ;;
c)
  mps; export OMP_NUM_THREADS=${THREADS:-2}
  same="$(pair de en) ${BUDGET:-train.epochs=12} seq2seq.eval_texts=100 train.eval_every=1000 train.sample_every=1000 $CW"
  place=$R/old/compare-multi30k-kind-attention-bidirectional-depth-width-dropout-lr  # where `compare` looks for its runs
  for v in $OLD; do
    set -- ${v//+/ }
    go 480 old.$1.$2 $PY -m headway train multi30k $same model.kind=$1 model.attention=$2 model.bidirectional=$3 model.depth=$4 \
      model.width=$5 model.dropout=$6 train.lr=$7 out=$place &
    sleep ${STAGGER:-4}  # two that begin at once would take the same number
  done
  wait; mps_off
  $PY benchmarks/gpu/told.py $R/old | tee $OUT/old.runs.jsonl
  go 200 compare $PY -m headway compare multi30k $same "$KEYS=$(echo $OLD | tr ' ' ,)" out=$R/old
  cp -f $place/compare.html $place/compare.json $OUT/ 2> /dev/null
  ;;
esac
