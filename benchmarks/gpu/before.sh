#!/bin/bash
# Before and around the transformer: bash benchmarks/gpu/before.sh a|b|c|d; each part stops itself after END (575) seconds.
#   a  alone: an LSTM's step beside cuDNN's; dense and sparse attention against length; word vectors on the GPU
#   b  Penn Treebank: LSTM with the regularisation of AWD-LSTM, transformer; side by side, MPS=1 may help
#   c  bAbI with 10,000 and 1,000 questions of each kind, memory network and transformer, several starts
#   d  the shipped comparisons, side by side; ONLY="norms heads" takes some of them
# D has the folders ptb, english_corpus, analogies, babi. MORE has settings for each run: MORE_ptb_lstm="train.steps=40000".
cd "$(dirname "$0")/../.."; . benchmarks/gpu/common.sh
train() { # NAME SECONDS RECIPE SETTINGS…
  local name=$1 most=$2 recipe=$3 more; shift 3
  more=MORE_${name//[.-]/_}
  go $most $name $PY -m headway train $recipe "$@" out=$R/$name ${!more} > /dev/null
  tail -n 4 $OUT/$name.err | cut -c1-300
}
made=$R/made; mkdir -p $made
case ${1:?a, b, c or d} in
a)
  go 100 rnn $PY benchmarks/rnn.py
  go 100 rnn.bf16 $PY benchmarks/rnn.py --dtype bfloat16
  go 200 long $PY benchmarks/long.py --lengths 512,2048,8192,16384,32768,65536 --out $OUT/long --compile
  gunzip -c $D/english_corpus/books.txt.gz > $made/books.txt
  go 120 word2vec $PY benchmarks/word2vec.py $made/books.txt --model skipgram --device cuda --peer none --rounds 3
  ;;
b)
  mps; export OMP_NUM_THREADS=${THREADS:-2}
  for part in train valid test; do gunzip -c $D/ptb/ptb.$part.txt.gz > $made/ptb.$part.txt; done
  texts="data.train=$made/ptb.train.txt data.valid=$made/ptb.valid.txt data.test=$made/ptb.test.txt"
  train ptb-lstm 570 ptb-lstm $texts &
  train ptb 570 ptb $texts &
  wait; mps_off
  ;;
c)
  mps; export OMP_NUM_THREADS=1
  for size in en-10k en; do
    go 570 babi.$size $PY benchmarks/memory.py --data $D/babi/$size --joint --starts ${STARTS:-3} --out $OUT/babi.$size &
    go 570 babi.$size.transformer $PY benchmarks/memory.py --data $D/babi/$size --joint --starts 1 --kind transformer --out $OUT/babi.$size.transformer &
  done
  wait; mps_off
  ;;
d)
  mps; export OMP_NUM_THREADS=2
  for name in ${ONLY:-norms norm-places positions heads residuals scale order architectures}; do
    go 570 compare.$name $PY -m headway compare $name out=$R/compare &
  done
  wait; mps_off
  ;;
esac
$PY benchmarks/gpu/told.py $R | tee $OUT/runs.jsonl
