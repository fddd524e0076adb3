#!/bin/bash
# Images: bash benchmarks/gpu/images.sh a|b|c; each part stops itself after END (575) seconds.
#   a  every recipe for some steps; then the speeds, nothing beside them: ViT-B/16, DiT-B/4, a folder of JPEG files
#   b  MNIST, Fashion-MNIST, DINO and DiT on Fashion-MNIST, side by side; MPS=1 may help. ONLY="mnist fashion" takes some
#   c  CIFAR-10 without augmentation, with it, and from features of DINO on the same images; three seeds, side by side
# D has the folders mnist, fashion_mnist and cifar10. MORE has settings for each run: MORE_fashion="train.epochs=60".
cd "$(dirname "$0")/../.."; . benchmarks/gpu/common.sh
train() { # NAME SECONDS RECIPE SETTINGS…
  local name=$1 most=$2 recipe=$3 more; shift 3
  more=MORE_${name//[.-]/_}
  go $most $name $PY -m headway train $recipe "$@" out=$R/$name ${!more} > /dev/null
  tail -n 4 $OUT/$name.err | cut -c1-300
}
digits="data.train=$D/mnist"; clothes="data.train=$D/fashion_mnist"; photos="data.train=$D/cifar10/train_10k.npz data.test=$D/cifar10/test_2k.npz"
case ${1:?a, b or c} in
a)
  [ -n "$TESTS" ] && { go 300 tests $PY -m pytest -q -m gpu -p no:cacheprovider & }
  for recipe in mnist fashion fashion-dino fashion-dit images dino diffusion caption contrastive; do
    case $recipe in mnist) data=$digits ;; fashion*) data=$clothes ;; *) data= ;; esac
    train smoke.$recipe 200 $recipe $data train.steps=30 train.eval_every=1000 train.sample_every=1000 train.warmup=5 &
    [ $(jobs -r | wc -l) -ge 6 ] && wait -n
  done
  wait
  go 200 vit $PY benchmarks/step.py --only vit --rounds 3 --repeats 8 \
    --variants "transformers eager,transformers compiled,timm eager,timm compiled,headway eager,headway recorded"
  go 150 dit $PY benchmarks/step.py --only dit --rounds 3 --repeats 8 --variants "plain eager,plain compiled,headway eager,headway recorded"
  go 150 jpeg $PY benchmarks/images_gpu.py
  ;;
b)
  mps; export OMP_NUM_THREADS=${THREADS:-2}
  for each in ${ONLY:-mnist fashion fashion-dino fashion-dit}; do
    case $each in mnist*) data=$digits ;; *) data=$clothes ;; esac
    train $each 570 ${each%%.*} $data seed=${SEED:-1} &
  done
  wait; mps_off
  $PY benchmarks/gpu/told.py $R | tee $OUT/runs.jsonl
  ;;
c)
  mps; export OMP_NUM_THREADS=${THREADS:-2}
  plain="images.crop=1.0 images.flip=false images.policy=none images.erase=0 images.cutmix=0 images.mixup=0"
  tuned="train.optimizer=adamw train.lr=5e-4 train.layer_decay=0.8"
  for seed in 1 2 3; do
    train plain.$seed 570 cifar $photos seed=$seed $plain train.epochs=50 &
    train augmented.$seed 570 cifar $photos seed=$seed &
  done
  train pretrained 480 cifar-dino $photos
  wait
  for seed in 1 2 3; do train tuned.$seed 570 cifar $photos seed=$seed model.from=$(echo $R/pretrained/*) $tuned & done
  wait; mps_off
  $PY benchmarks/gpu/told.py $R | tee $OUT/runs.jsonl
  ;;
esac
