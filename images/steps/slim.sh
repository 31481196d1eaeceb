#!/bin/sh
# Takes out of a site-packages folder what no run of PyTorch reads. tests/images/test_size.py proves that
# what is left imports, compiles for the CPU, and loads Triton's CUDA path.
#   slim.sh SITE_PACKAGES
set -eu
site=$1

# symbol tables of the largest libraries; others are left alone, since some wheels carry libraries that
# patchelf rewrote, and strip breaks those
for library in torch/lib/libtorch_cpu.so torch/lib/libtorch_cuda.so torch/lib/libtorch_cuda_linalg.so \
	torch/lib/libtorch_python.so torch/lib/libtorch_nvshmem.so triton/_C/libtriton.so; do
	if [ -e "$site/$library" ]; then
		strip --strip-unneeded "$site/$library"
	fi
done

# static archives: only a linker of CUDA programs reads them, and nvcc is not in the image
find "$site" -name '*.a' -type f -delete
# the data of the AMD backend, on an image that asks for NVIDIA devices; its modules stay, since Triton
# imports every registered backend
rm -rf "$site/triton/backends/amd/lib" "$site/triton/backends/amd/include"
# PyTorch's own tests, and binaries that only they use
rm -rf "$site/torch/test" "$site/torch/bin/test_"*
find "$site" -type d -name tests -path '*/numpy/*' -prune -exec rm -rf {} +
# the compiler of protocol buffers: PyTorch was built with it and does not run it
rm -f "$site/torch/bin/protoc"*
# the multi-GPU solver that no library of PyTorch links or opens
rm -f "$site"/nvidia/cu13/lib/libcusolverMg.so.* "$site"/nvidia/cusolver/lib/libcusolverMg.so.*
# a wheel cannot hold links: the same library under its three names is three copies
find "$site" -type f -name '*.so.*' -size +1M | sort | while read -r library; do
	short=${library%%.so.*}.so
	if [ -f "$short" ] && cmp -s "$short" "$library"; then
		ln -sf "$(basename "$short")" "$library"
	fi
done
