#!/usr/bin/env bash
# Lays out a CUDA 13.0 toolkit from Python packages: no installer, no driver and no GPU needed.
#
#   deploy/cuda/setup.sh DIR          links the CUDA libraries: they must be there when the program starts
#   deploy/cuda/setup.sh DIR lazy     opens them at the first call: the program starts on any machine
#
# Then `source DIR/env.sh` and build with the feature `cuda`. Needs pip, gcc, cargo; takes about
# 650 MB of packages, 1.2 GB unpacked. x86-64 Linux only.
set -euo pipefail

dir=${1:?usage: setup.sh DIR [lazy]}
kind=${2:-linked}
case $kind in linked | lazy) ;; *) echo "setup.sh: the second argument is \"lazy\" or absent, not \"$kind\"" >&2; exit 64 ;; esac
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

# 13.0, and not the newest, because a driver refuses code for a toolkit later than its own.
packages=(
  nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
  nvidia-cuda-cccl==13.0.85 nvidia-cuda-nvrtc==13.0.88 nvidia-cublas==13.0.2.14 nvidia-curand==10.4.0.35
)
toolkit=$dir/packages/nvidia/cu13
if [ ! -x "$toolkit/bin/nvcc" ]; then
  python3 -m pip install --quiet --no-deps --target "$dir/packages" "${packages[@]}"
fi

# The packages carry libraries by version only; linkers look for the plain names.
ln -sfn lib "$toolkit/lib64"
for library in cudart cublas cublasLt nvrtc; do
  ln -sfn "lib$library.so.13" "$toolkit/lib/lib$library.so"
done
ln -sfn libcurand.so.10 "$toolkit/lib/libcurand.so"

if [ "$kind" = lazy ]; then
  home=$dir/lazy
  mkdir -p "$home/lib"
  for part in bin include nvvm; do ln -sfn "$toolkit/$part" "$home/$part"; done
  ln -sfn lib "$home/lib64"
  # The runtime itself is linked whole: it opens the driver by itself.
  cp "$toolkit/lib/libcudart_static.a" "$home/lib/libcudart.a"
  python3 "$here/lazy_link.py" lazy "$home/lib"
else
  home=$toolkit
  mkdir -p "$home/lib/stubs"
  python3 "$here/lazy_link.py" stub "$home/lib/stubs"
fi

cat >"$dir/env.sh" <<EOF
export CUDA_HOME=$home CUDA_PATH=$home CUDA_ROOT=$home
export PATH=$toolkit/bin:\$PATH
export CUDARC_CUDA_VERSION=13000
export CUDA_COMPUTE_CAP=\${CUDA_COMPUTE_CAP:-90}
EOF
echo "ready: source $dir/env.sh"
