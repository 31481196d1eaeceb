"""Shared libraries that do not load: missing, mixed, too old, damaged or refused."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.tables import PYTORCHS, holder
from torch_doctor.model import Remediation

#: libraries whose names carry the version of CUDA
_OF_CUDA = ("libcudart", "libcublas", "libcufft", "libcusparse", "libcusolver", "libcurand", "libnvrtc", "libcupti")
_LIBRARIES = (
    (
        "libcudart",
        ": the CUDA runtime of another CUDA version than the installed torch's, for which a package was built",
        "pip install nvidia-cuda-runtime-cu12==VERSION  # as importlib.metadata.requires('torch') pins it",
    ),
    (
        "libcudnn",
        ": cuDNN is not installed where the loader looks",
        "pip install nvidia-cudnn-cu12==VERSION  # as importlib.metadata.requires('torch') pins it",
    ),
    (
        "libcublas",
        ": cuBLAS is not installed where the loader looks",
        "pip install nvidia-cublas-cu12==VERSION  # as importlib.metadata.requires('torch') pins it",
    ),
    (
        "libnvrtc",
        ": the run-time compiler of CUDA is not installed where the loader looks",
        "pip install nvidia-cuda-nvrtc-cu12==VERSION  # as importlib.metadata.requires('torch') pins it",
    ),
    (
        "libcusparseLt",
        ": cuSPARSELt is not installed where the loader looks",
        "pip install nvidia-cusparselt-cu12==VERSION  # as importlib.metadata.requires('torch') pins it",
    ),
    (
        "libcusparse",
        ": cuSPARSE is not installed where the loader looks",
        "pip install nvidia-cusparse-cu12==VERSION  # as importlib.metadata.requires('torch') pins it",
    ),
    (
        "libcufft",
        ": cuFFT is not installed where the loader looks",
        "pip install nvidia-cufft-cu12==VERSION  # as importlib.metadata.requires('torch') pins it",
    ),
    (
        "libcurand",
        ": cuRAND is not installed where the loader looks",
        "pip install nvidia-curand-cu12==VERSION  # as importlib.metadata.requires('torch') pins it",
    ),
    (
        "libcusolver",
        ": cuSOLVER is not installed where the loader looks",
        "pip install nvidia-cusolver-cu12==VERSION  # as importlib.metadata.requires('torch') pins it",
    ),
    (
        "libcupti",
        ": CUPTI is not installed where the loader looks",
        "pip install nvidia-cuda-cupti-cu12==VERSION  # as importlib.metadata.requires('torch') pins it",
    ),
    (
        "libnvJitLink",
        ": nvJitLink is not installed where the loader looks",
        "pip install nvidia-nvjitlink-cu12==VERSION  # as importlib.metadata.requires('torch') pins it",
    ),
    (
        "libnccl",
        ": NCCL is not installed where the loader looks",
        "pip install nvidia-nccl-cu12==VERSION  # as importlib.metadata.requires('torch') pins it",
    ),
    (
        "libcuda.so",
        ": the driver is not mounted into the container",
        "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
    ),
    (
        "libnvidia-ml",
        ": the driver is not mounted into the container",
        "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
    ),
    ("libGL.so", ": OpenCV's graphics build needs it", "pip install opencv-python-headless"),
    ("libgthread", ": OpenCV's graphics build needs it", "pip install opencv-python-headless"),
    ("libgomp", ": the OpenMP run time is not in this image", "apt-get install -y libgomp1"),
    (
        "libpython",
        ": this Python was built without a shared library, or it is not on the loader's path",
        "apt-get install -y libpython3-dev",
    ),
    ("libsndfile", ": an audio library is not in this image", "apt-get install -y libsndfile1"),
)


def _library(seen: Seen, verdict: Verdict) -> Verdict | None:
    name = seen.groups.get("lib", "")
    frame = seen.near(r"(?:.*\n)*.*(?:site|dist)-packages/(\w+)[/.]", 12, 0) or seen.near(
        r"/(\w+)/_extension\.py", 12, 3
    )
    package = holder(frame[1]) if frame else ""
    if name.startswith(("libtorch", "libc10")):
        return with_message(
            verdict,
            f"{package or 'a package'} was built for another torch: it wants {name}, which the installed torch does not have",
            Remediation(
                f"Install the {package or 'package'} that belongs to this torch",
                (
                    "pip list | grep -i -E '^torch'",
                    "pip install --force-reinstall --no-cache-dir torch==VERSION torchvision torchaudio  # VERSION of pip show torch"
                    if package in PYTORCHS or not package
                    else f"pip install --force-reinstall --no-cache-dir --no-deps --no-build-isolation {package}",
                ),
            ),
        )
    if package and name.startswith(_OF_CUDA):
        return with_message(
            verdict,
            f"{package} was built for another CUDA than the installed torch: {name} is missing, which the CUDA version of "
            "that build brings",
            Remediation(
                f"Install the {package} that belongs to this torch",
                (
                    'python -c "import torch; print(torch.__version__, torch.version.cuda)"',
                    "pip install --force-reinstall --no-cache-dir torch==VERSION torchvision torchaudio  # VERSION of pip show torch"
                    if package in PYTORCHS
                    else f"pip install --force-reinstall --no-cache-dir --no-deps --no-build-isolation {package}",
                ),
            ),
        )
    for start, why, command in _LIBRARIES:
        if name.startswith(start):
            remedy = Remediation(verdict.remedy.text, (verdict.remedy.commands[0], command))
            return with_message(verdict, verdict.message.replace("?", why), remedy)
    return with_message(
        verdict, verdict.message.replace("?", ""), Remediation(verdict.remedy.text, verdict.remedy.commands[:1])
    )


register(
    Cause(
        "PKG231",
        "mkl-too-new-for-torch",
        "The conda MKL is newer than the one that torch was linked against.",
        "MKL 2024.1 dropped iJIT_NotifyEvent, which conda builds of torch up to 2.2 need.",
        "torch needs an older MKL: iJIT_NotifyEvent was dropped in MKL 2024.1",
        Remediation(
            "Install MKL 2024.0 beside this torch, or a newer torch",
            ("conda install 'mkl<2024.1'", "pip install mkl==2024.0"),
        ),
        (
            Signature(
                "undefined symbol: iJIT_",
                "ImportError: /opt/conda/lib/python3.10/site-packages/torch/lib/libtorch_cpu.so: undefined symbol: "
                "iJIT_NotifyEvent",
                "undefined symbol: ncclCommSplit",
                r"undefined symbol: iJIT_\w+",
                source="torch 1.13 to 2.2 from conda, MKL 2024.1 and later",
            ),
        ),
        explains=("PKG2",),
    ),
    Cause(
        "PKG203",
        "cuda-libraries-mixed",
        "A CUDA library of another version is loaded in place of torch's own.",
        "LD_LIBRARY_PATH or ldconfig leads to a system CUDA, or the nvidia-* wheels do not belong to this torch.",
        "a CUDA library of another version than torch's is loaded ({symbol} is undefined): LD_LIBRARY_PATH or "
        "mixed nvidia-* wheels",
        Remediation(
            "Take other CUDA folders out of LD_LIBRARY_PATH, and reinstall torch with the wheels that it pins",
            (
                "unset LD_LIBRARY_PATH",
                "pip install --force-reinstall torch==VERSION  # that of pip show torch; without it pip takes the newest",
                "pip check; pip list | grep nvidia-",
            ),
        ),
        (
            Signature(
                "undefined symbol: ",
                "ImportError: /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: "
                "ncclCommRegister",
                "ImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
                r"\.so[\w.]*: undefined symbol: "
                r"(?P<symbol>(?:nccl|cudnn|cublas|cusparse|__nvJitLink|nvJitLink|__nv|cusolver)\w*)",
                source="glibc",
            ),
            Signature(
                "with link time reference",
                "OSError: /x/nvidia/cublas/lib/libcublas.so.11: symbol cublasLtGetStatusString version libcublasLt.so.11 not defined in "
                "file libcublasLt.so.11 with link time reference",
                "the link time reference",
                r"symbol (?P<symbol>\w+),? version \S+ not defined in file \S+ with link time reference",
                source="glibc",
            ),
            Signature(
                "undefined symbol: __nvJitLink",
                "libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12",
                "nvJitLink",
                r"undefined symbol: (?P<symbol>__nvJitLink\w+)",
                source="CUDA 12",
            ),
        ),
        explains=("PKG2",),
    ),
    Cause(
        "PKG204",
        "shared-library-missing",
        "A shared library is not there.",
        "The package that holds it is not installed, or the loader does not look there.",
        "the shared library {lib} is missing{why}",
        Remediation("Install the package that holds it", ("ldd FILE | grep 'not found'", "{install}")),
        (
            Signature(
                "cannot open shared object file",
                "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
                "cannot open file",
                r"(?P<lib>lib[\w.+-]+\.so[\w.]*): cannot open shared object file: No such file",
                source="glibc",
            ),
            Signature(
                "libcudnn",
                "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file",
                "libcudnn found",
                r"(?:Could not load library|Unable to load any of \{) ?(?P<lib>libcudnn[\w.]*)",
                source="cuDNN 8 and 9",
            ),
            Signature(
                "Error in dlopen for library",
                "RuntimeError: Error in dlopen for library libnvrtc.so.12 and libnvrtc-abcd.so.12",
                "dlopen for library",
                r"Error in dlopen for library (?P<lib>lib[\w.-]+)",
                source="torch 1.5 to 2.15, caffe2_nvrtc",
            ),
            Signature(
                "Unable to load any of",
                "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9.1, libcudnn_ops.so.9, "
                "libcudnn_ops.so}",
                "load any",
                r"Unable to load any of \{(?P<lib>libcudnn[\w.]*)",
                source="cuDNN 9",
            ),
        ),
        judge=_library,
        explains=("PKG2",),
    ),
    Cause(
        "PKG205",
        "glibc-too-old",
        "The system's C or C++ library is older than a wheel needs.",
        "A wheel was built on a newer system; GLIBC cannot be upgraded within a release.",
        "{lib} lacks version {version}: the system is older than what the package was built on",
        Remediation(
            "Use a newer base system or an older build of the package; for GLIBCXX a newer libstdc++ (conda's "
            "comes first on LD_LIBRARY_PATH in many cases)",
            (
                "ldd --version",
                "strings $(gcc -print-file-name=libstdc++.so.6) | grep GLIBCXX",
                "conda install -c conda-forge libstdcxx-ng",
            ),
        ),
        (
            Signature(
                "' not found",
                "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by "
                "/opt/venv/lib/python3.11/site-packages/x.so)",
                "module 'x' not found",
                r"(?P<lib>\S*lib[\w.+-]+\.so[\w.]*): version "
                r"`(?P<version>(?:GLIBC|GLIBCXX|CXXABI|GOMP|OPENSSL)_[\w.]+)' not found",
                source="glibc",
            ),
        ),
        explains=("PKG2",),
    ),
    Cause(
        "PKG236",
        "static-tls-block-full",
        "A library with thread-local storage was loaded too late.",
        "The loader keeps little room for it; on ARM libgomp and scikit-learn's copy of it use it up when others come first.",
        "{lib} did not fit into the static TLS block: it was loaded after other libraries that use it up (import order)",
        Remediation(
            "Load it first: preload it, or import the package that brings it before the others",
            ("export LD_PRELOAD={lib}", "import sklearn, cv2  # before torch, or the other way round"),
        ),
        (
            Signature(
                "cannot allocate memory in static TLS block",
                "ImportError: /lib/aarch64-linux-gnu/libgomp.so.1: cannot allocate memory in static TLS block",
                "cannot allocate memory in block",
                r"(?P<lib>\S+\.so[\w.]*): cannot allocate memory in static TLS block",
                source="glibc 2.17 to 2.39, mostly on aarch64",
            ),
        ),
        explains=("PKG2", "MEM205"),
    ),
    Cause(
        "PKG237",
        "two-openmp-runtimes",
        "Two OpenMP runtimes are loaded into one process.",
        "conda's MKL and a pip wheel bring one each (libiomp5, libomp, libgomp); Intel's aborts when it finds another.",
        "two OpenMP runtimes are loaded into one process[[ ({first} and {second})]], and Intel's aborts",
        Remediation(
            "Take numpy, MKL and torch from one source (all from pip or all from conda); KMP_DUPLICATE_LIB_OK=TRUE only hides it "
            "and may give wrong results",
            (
                "conda list | grep -i -E 'openmp|mkl|omp'; pip list | grep -i -E 'torch|numpy|mkl'",
                "pip install --force-reinstall numpy==VERSION torch==VERSION  # those of pip list",
            ),
        ),
        (
            Signature(
                "OMP: Error #15",
                "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.",
                "OMP: Error #179: Function Can't open SHM2 failed:",
                r"OMP: Error #15: Initializing (?P<first>\S+), but found (?P<second>\S+) already initialized",
                source="Intel and LLVM OpenMP",
            ),
        ),
        explains=("SES21", "SES22"),
    ),
    Cause(
        "PKG249",
        "shared-library-unreadable",
        "A shared library's file is damaged, or of another architecture.",
        "A disk that was full during the install, a Git LFS pointer, or a library of another CPU or of 32 bits.",
        "{file} cannot be loaded ({what})",
        Remediation(
            "Reinstall the package that holds it, with free space and for this machine's architecture",
            ("df -h; pip install --force-reinstall --no-cache-dir PACKAGE", "file FILE; ls -l FILE; uname -m"),
        ),
        (
            Signature(
                ("file too short", "invalid ELF header", "wrong ELF class"),
                "OSError: /x/site-packages/nvidia/cudnn/lib/libcudnn.so.9: file too short",
                "the file is too short",
                r"(?P<file>\S+\.so[\w.]*): (?P<what>file too short|invalid ELF header|wrong ELF class: \w+)",
                source="glibc",
            ),
        ),
        explains=("PKG2",),
    ),
    Cause(
        "PKG252",
        "executable-stack-refused",
        "The kernel or glibc refuses a library that asks for an executable stack.",
        "glibc 2.41 and hardened kernels no longer allow it; some older wheels of torch and some extensions carry the flag by accident.",
        "{file} asks for an executable stack, which this system (glibc 2.41, SELinux or a hardened kernel) refuses",
        Remediation(
            "Clear the flag in the file, or install a newer build of the package",
            ("patchelf --clear-execstack FILE", "pip install -U torch"),
        ),
        (
            Signature(
                "cannot enable executable stack",
                "ImportError: libtorch_cpu.so: cannot enable executable stack as shared object requires: Invalid argument",
                "enable the executable stack",
                r"(?P<file>\S+\.so[\w.]*): cannot enable executable stack",
                source="glibc",
            ),
        ),
        explains=("PKG2",),
    ),
)
