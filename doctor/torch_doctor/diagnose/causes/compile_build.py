"""torch.compile: compilers, caches and triton."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

_LIMITED = r"ulimit -v|RLIMIT_AS|address space|h_vmem|virtual memory\s+\(k"


_CACHE = r"/tmp|/var/tmp|/mnt|/dev/shm|cache|triton|inductor|/run"


def noexec(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A library of an installed package lies on no noexec mount: there the address space is limited."""
    file = seen.groups.get("file", "")
    if not seen.has(_LIMITED) and (not file or re.search(_CACHE, file)):
        return verdict
    return with_message(
        verdict,
        f"{file or 'a shared library'} could not be mapped: the limit of the address space (ulimit -v, RLIMIT_AS) "
        "is reached, or "
        "the memory limit of the job; torch's CUDA libraries need several GiB of it",
        Remediation(
            "Lift the limit of the address space in the shell or job that starts python",
            ("ulimit -v unlimited", "ulimit -a", "findmnt -T FILE -o OPTIONS"),
        ),
    )


def _named_compiler(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A compiler that the environment names and that does not work is another fault than none at all."""
    named = seen.find(r"No working C\+\+ compiler found in [\w.]+: \(None, '(?P<cxx>[^']*/[^']*)'\)")
    if "cl is not found" in seen.log.lines[seen.index].text:
        return with_message(
            verdict,
            "no C++ compiler was found: on Windows inductor builds with cl of Visual Studio's build tools",
            Remediation(
                "Install the build tools, and start Python from their command prompt (x64), which sets the paths",
                (
                    "winget install Microsoft.VisualStudio.2022.BuildTools",
                    "where cl",
                    "set TORCH_COMPILE_DISABLE=1",
                ),
            ),
        )
    if named is None:
        return verdict
    return with_message(
        verdict,
        f"the C++ compiler that CXX names, {named['cxx']}, is not there or does not work: triton and inductor build code "
        "at run time",
        Remediation(
            "Point CXX and CC to a compiler that works, or unset them, and install one with the C library's headers",
            (f"{named['cxx']} --version", "unset CC CXX", "apt-get install -y gcc g++ libc6-dev"),
        ),
    )


def _header(seen: Seen, verdict: Verdict) -> Verdict | None:
    """CUDA's own headers come from the toolkit, or with triton."""
    if not seen.groups.get("header", "").startswith("cuda"):
        return verdict
    return with_message(
        verdict,
        f"{seen.groups['header']} is missing: the build needs CUDA's headers, which come with the toolkit or with triton's wheel",
        Remediation(
            "Reinstall triton, whose wheel has its headers, or install the toolkit's and name their folder",
            (
                "pip install --force-reinstall triton",
                "apt-get install -y cuda-cudart-dev-12-8",
                "export CPATH=/usr/local/cuda/include",
            ),
        ),
    )


def _arch(seen: Seen, verdict: Verdict) -> Verdict | None:
    """nvcc belongs to the CUDA toolkit, ptxas to triton."""
    arch = seen.groups.get("arch", "")
    if "nvcc" not in seen.log.lines[seen.index].text:
        return with_message(verdict, verdict.message if arch else verdict.message.replace(" ?", ""))
    return with_message(
        verdict,
        f"the CUDA toolkit's nvcc does not know the GPU's architecture {arch}: the toolkit is older than the GPU",
        Remediation(
            "Install a newer toolkit (CUDA 12.8 or later for sm_100 and sm_120) and point CUDA_HOME to it, or take a prebuilt "
            "wheel of the extension",
            (
                "nvcc --version; ls -d /usr/local/cuda*",
                "export CUDA_HOME=/usr/local/cuda-12.8 PATH=/usr/local/cuda-12.8/bin:$PATH",
                'python -c "import torch; print(torch.version.cuda, torch.cuda.get_device_capability())"',
            ),
        ),
    )


def _triton(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A triton that is there and lacks a name is one of another torch."""
    text = seen.log.lines[seen.index].text
    if "'triton.ops" in text:
        return with_message(
            verdict,
            "triton.ops does not exist any more: an old bitsandbytes (or another package) is installed beside a newer triton",
            Remediation(
                "Upgrade what imports it", ("pip install --upgrade bitsandbytes", "pip show triton bitsandbytes")
            ),
        )
    if "cannot import name" not in text and "has no attribute" not in text:
        return verdict
    return with_message(
        verdict,
        "the installed triton is not the one that this torch was made for: a name that torch asks it for does not exist",
        Remediation(
            "Reinstall torch, which pins its triton, and see what replaced it",
            ("pip install --force-reinstall torch", "pip show torch triton; pip check"),
        ),
    )


register(
    Cause(
        "CMP201",
        "compiler-not-found",
        "torch.compile or triton found no C or C++ compiler.",
        "Triton builds a small C launcher at run time, and inductor's CPU code is C++. An image that moved from "
        "devel to runtime "
        "lost gcc.",
        "no C/C++ compiler was found: triton and inductor build code at run time, and this image has no gcc (a "
        "runtime image in "
        "place of a devel one)",
        Remediation(
            "Install a compiler with the C library's headers (build-essential), or set CC to one",
            ("apt-get install -y gcc g++ libc6-dev", "export CC=/usr/bin/gcc"),
        ),
        (
            Signature(
                "Failed to find C compiler",
                "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
                "Failed to find CUDA",
                source="triton 2.0 to 3.6, runtime/build.py",
            ),
            Signature(
                "No working C++ compiler found",
                "torch._inductor.exc.InvalidCxxCompiler: No working C++ compiler found in "
                "torch._inductor.config.cpp.cxx: (None, 'g++')",
                "compiler found",
                source="torch 2.0 to 2.15, torch/_inductor/cpp_builder.py",
            ),
            Signature(
                "Compiler: ",
                "torch._inductor.exc.InductorError: RuntimeError: Compiler: cl is not found.",
                "Compiler: cl found",
                r"Compiler: \S+ is not found",
                source="torch 2.5 to 2.15 on Windows: the build tools of Visual Studio",
            ),
            Signature(
                "InvalidCxxCompiler",
                "torch._inductor.exc.InvalidCxxCompiler",
                "InvalidCompiler",
                source="torch 2.0 to 2.15",
            ),
            Signature(
                "No such file or directory: ",
                "FileNotFoundError: [Errno 2] No such file or directory: 'gcc'",
                "FileNotFoundError: [Errno 2] No such file or directory: 'gcc.log'",
                r"No such file or directory: "
                r"'(?:/usr/bin/)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|x86_64-linux-gnu-gcc)'",
                source="python 3.8 to 3.14, subprocess",
            ),
            Signature(
                "command '",
                "error: command 'gcc' failed: No such file or directory",
                "error: command 'gcc' failed with exit status 1",
                r"error: command '\S*(?:gcc|g\+\+|cc|clang)' failed: No such file",
                source="setuptools, torch.utils.cpp_extension",
            ),
            Signature(
                "cannot execute 'cc1plus'",
                "g++: fatal error: cannot execute 'cc1plus': execvp: No such file or directory",
                "cannot execute",
                source="gcc 9 to 14",
            ),
            Signature(
                "cannot execute ",
                "gcc: fatal error: cannot execute 'cc1plus': execvp: No such file or directory",
                "cc1plus started",
                r"cannot execute ['‘]?cc1(?:plus)?['’]?: ",
                source="gcc 9 to 15: the C++ part of the compiler is not installed",
            ),
        ),
        explains=("CMP22",),
        judge=_named_compiler,
        references="https://github.com/triton-lang/triton",
    ),
    Cause(
        "CMP202",
        "build-headers-missing",
        "Python.h, or another header, is missing where triton or inductor builds.",
        "The launcher is a Python extension. Distribution Pythons keep their headers in a package of their own.",
        "{header} is missing: the headers that triton's and inductor's run-time builds need are not installed",
        Remediation(
            "Install the headers of this Python and of the C library",
            (
                "apt-get install -y python3-dev libc6-dev",
                "python -c \"import sysconfig; print(sysconfig.get_paths()['include'])\"",
            ),
        ),
        (
            Signature(
                "Python.h: No such file",
                "/tmp/tmpabc/main.c:5:10: fatal error: Python.h: No such file or directory",
                "Python.hpp: file",
                r"fatal error: (?P<header>Python\.h): No such file",
                source="gcc 9 to 14",
            ),
            Signature(
                "'Python.h' file not found",
                "main.c:5:10: fatal error: 'Python.h' file not found",
                "file not found",
                r"fatal error: '(?P<header>Python\.h)' file not found",
                source="clang",
            ),
            Signature(
                "fatal error:",
                "fatal error: stdlib.h: No such file or directory",
                "fatal error: my_kernel.h: No such file or directory",
                r"fatal error: '?(?P<header>(?:std\w+|limits|assert|string|math|omp|cuda|cuda_runtime|crypt"
                r"|features|bits/[\w./-]+)(?:\.h(?:pp)?)?)'?(?:: No such file| file not found)",
                source="gcc, clang",
            ),
        ),
        judge=_header,
        explains=("CMP22",),
    ),
    Cause(
        "CMP232",
        "openmp-missing-for-build",
        "The compiler has no OpenMP, which inductor's CPU code needs.",
        "omp.h and libgomp belong to gcc; clang needs libomp.",
        "inductor's CPU code needs OpenMP, and {what} is missing",
        Remediation(
            "Install gcc with its OpenMP, or libomp for clang",
            (
                "apt-get install -y g++ libgomp1",
                "apt-get install -y libomp-dev  # clang",
            ),
        ),
        (
            Signature(
                "omp.h",
                "/tmp/torchinductor_u/x/cabc.h:12:10: fatal error: omp.h: No such file or directory",
                "#include <omp.h>",
                r"fatal error: '?(?P<what>omp\.h)'?(?:: No such file| file not found)",
                source="gcc 9 to 15, clang 14 to 20",
            ),
            Signature(
                ("-lgomp", "-lomp"),
                "/usr/bin/ld: cannot find -lgomp: No such file or directory",
                "ld -lgomp",
                r"cannot find (?P<what>-lg?omp)\b",
                source="GNU ld",
            ),
        ),
        explains=("CMP202", "CMP22", "CMP215"),
    ),
    Cause(
        "CMP233",
        "ninja-missing",
        "ninja is not installed, which builds torch's C++ extensions.",
        "torch.utils.cpp_extension calls it.",
        "ninja is not installed: torch.utils.cpp_extension needs it to build extensions",
        Remediation(
            "Install it",
            (
                "pip install ninja",
                "apt-get install -y ninja-build",
            ),
        ),
        (
            Signature(
                "Ninja is required to load C++ extensions",
                "RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)",
                "Ninja is required",
                source="torch 1.0 to 2.15, torch/utils/cpp_extension.py",
            ),
        ),
        explains=("CMP22",),
    ),
    Cause(
        "CMP234",
        "extension-build-left-unfinished",
        "A C++ extension's cache has no built library: the build failed or was cut.",
        "The first error is above, in the build's own output; a later run finds the folder and no library. A lock file that is left makes it wait for ever.",
        "the built extension {path} is missing in the cache: its build failed earlier, or was interrupted",
        Remediation(
            "Remove the folder and build again with the output shown",
            (
                "rm -rf ~/.cache/torch_extensions",
                "MAX_JOBS=4 python train.py  # build one extension at a time",
            ),
        ),
        (
            Signature(
                "torch_extensions",
                "ImportError: /root/.cache/torch_extensions/py310_cu121/fused_adam/fused_adam.so: cannot open shared object file: No such file or directory",
                "torch_extensions built",
                r"(?P<path>\S*torch_extensions\S*\.so): cannot open shared object file",
                source="torch 1.8 to 2.15",
            ),
        ),
        explains=("PKG204",),
    ),
    Cause(
        "CMP203",
        "libcuda-not-found-by-triton",
        "Triton found no libcuda.so to link against.",
        "The driver's library is mounted by the container runtime as libcuda.so.1; the development symlink or the "
        "mount is "
        "missing. LD_LIBRARY_PATH does not help once ldconfig found the .so.1.",
        "triton needs libcuda.so and the container has only libcuda.so.1 or none: the driver mount or the "
        "development symlink is "
        "missing",
        Remediation(
            "Mount the driver (NVIDIA_DRIVER_CAPABILITIES=compute,utility), or add the symlink, or name its folder "
            "in "
            "TRITON_LIBCUDA_PATH",
            (
                "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
                "ln -s /lib/x86_64-linux-gnu/libcuda.so.1 /lib/x86_64-linux-gnu/libcuda.so",
                "export TRITON_LIBCUDA_PATH=/lib/x86_64-linux-gnu",
            ),
        ),
        (
            Signature(
                "ldconfig'",
                "FileNotFoundError: [Errno 2] No such file or directory: '/sbin/ldconfig'",
                "FileNotFoundError: [Errno 2] No such file or directory: '/sbin/x'",
                r"No such file or directory: '(?:/sbin/)?ldconfig'",
                source="triton 2.0 to 3.6, which asks ldconfig for libcuda",
            ),
            Signature(
                "libcuda.so cannot found",
                "AssertionError: libcuda.so cannot found!\nPossible files are located at "
                "['/lib/x86_64-linux-gnu/libcuda.so.1'].",
                "libcuda.so found",
                source="triton 2.0 to 3.6, backends/nvidia/driver.py",
            ),
            Signature(
                "cannot find -lcuda",
                "/usr/bin/ld: cannot find -lcuda: No such file or directory",
                "/usr/bin/ld: cannot find -lcudart",
                r"cannot find -lcuda(?![a-z])",
                source="binutils",
            ),
        ),
        explains=("CMP22",),
    ),
    Cause(
        "CMP204",
        "cache-on-noexec-mount",
        "A compiled shared object lies on a file system that forbids execution.",
        "docker run --tmpfs /tmp mounts noexec by default. Loading the library maps it executable, which the "
        "kernel refuses; "
        "the file's own mode has nothing to do with it.",
        "{file} could not be mapped executable: its file system is mounted noexec (docker --tmpfs is, by default)",
        Remediation(
            "Mount /tmp with exec, or put TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR on a mount that allows it",
            (
                "docker run --tmpfs /tmp:exec,size=2g ...",
                "export TORCHINDUCTOR_CACHE_DIR=/workspace/.cache/inductor TRITON_CACHE_DIR=/workspace/.cache/triton",
                "findmnt -T /tmp -o OPTIONS",
            ),
        ),
        (
            Signature(
                "failed to map segment from shared object",
                "ImportError: /tmp/torchinductor_root/triton/0/3c1f/cuda_utils.so: failed to map segment from "
                "shared object",
                "ImportError: /tmp/x.so: undefined symbol: cuLaunchKernel",
                r"(?:(?P<file>/?[\w./+@-]*\.so[\w.]*): )?failed to map segment from shared object",
                source="glibc 2.28 to 2.41, dlopen",
            ),
            Signature(
                ("Permission denied", "Operation not permitted"),
                "OSError: /tmp/torchinductor_u/ab/cab.so: cannot open shared object file: Permission denied",
                "PermissionError: [Errno 13] Permission denied: '/tmp/triton/x.lock'",
                r"(?P<file>/\S+\.so[\w.]*): (?:cannot open|failed to map)[^\n]*(?:Permission denied|Operation not "
                r"permitted)",
                source="glibc 2.28 to 2.41",
            ),
            Signature(
                "ptxas",
                "PermissionError: [Errno 13] Permission denied: "
                "'/mnt/venv/lib/python3.11/site-packages/triton/backends/nvidia/bin/ptxas'",
                "ptxas info",
                r"Permission denied: '(?P<file>/\S*/ptxas(?:-blackwell)?)'",
                source="triton 3.x",
            ),
        ),
        judge=noexec,
        explains=("CMP22", "PKG2"),
        decide="findmnt -T FILE -o TARGET,FSTYPE,OPTIONS; ulimit -v",
    ),
    Cause(
        "CMP205",
        "stale-compile-cache",
        "A cached artefact of torch.compile or triton does not fit what is installed now.",
        "A cache that outlives an upgrade of torch, triton or the driver, or is shared by machines that differ, "
        "holds objects "
        "with other symbols.",
        "a cached artefact of triton or inductor is invalid here ({file}): it was built for another torch, triton "
        "or driver",
        Remediation(
            "Delete the cache, and put torch's and the driver's version into its path",
            ("rm -rf /tmp/torchinductor_* ~/.triton/cache", "export TORCHINDUCTOR_CACHE_DIR=/cache/torch2.13-cu130"),
        ),
        (
            Signature(
                "undefined symbol",
                "ImportError: /tmp/torchinductor_user/triton/0/d5f8c1a4/__triton_launcher.so: undefined symbol: "
                "cuLaunchKernel",
                "ImportError: /opt/venv/lib/python3.11/site-packages/flash_attn_2_cuda.so: undefined symbol: _ZN3c10",
                r"(?P<file>/\S*(?:torchinductor|triton|inductor|torch_extensions|torch_compile)\S*\.so): undefined "
                r"symbol",
                source="glibc, triton 2.x and 3.x",
            ),
            Signature(
                ".so",
                "OSError: /root/.triton/cache/ab12/cuda_utils.so: invalid ELF header",
                "invalid ELF header of the kernel",
                r"(?P<file>/\S*(?:torchinductor|\.triton|triton)\S*\.so)[^\n]*(?:invalid ELF header|file too "
                r"short|wrong ELF class|cannot apply additional memory protection)",
                source="glibc",
            ),
            Signature(
                "triton",
                '  File "triton/compiler/compiler.py", line 280, in compile\njson.decoder.JSONDecodeError: '
                "Expecting value: line 1 column 1 (char 0)",
                "JSONDecodeError in my config",
                r"triton/(?:runtime/cache"
                r"|compiler/compiler)\.py[^\n]*\n(?:.*\n){0,12}?[^\n]*(?P<file>JSONDecodeError|EOFError"
                r"|UnpicklingError)",
                source="triton 2.x and 3.x",
            ),
        ),
        explains=("CMP22", "PKG2"),
    ),
    Cause(
        "CMP206",
        "compile-cache-on-network-file-system",
        "The compile cache lies on NFS and several ranks rename files in it.",
        "Each rank writes a temporary file and renames it; on NFS a file in use is renamed aside, and the rename "
        "fails with EBUSY "
        "or a stale handle.",
        "ranks collide in the triton cache at {file}: renames on a network file system (HOME on NFS) fail while "
        "another rank has the "
        "file open",
        Remediation(
            "Put TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR on a local disk of each node",
            (
                "export TRITON_CACHE_DIR=/tmp/triton-$UID TORCHINDUCTOR_CACHE_DIR=/tmp/inductor-$UID",
                "stat -f -c %T ~/.triton",
            ),
        ),
        (
            Signature(
                "Device or resource busy",
                "OSError: [Errno 16] Device or resource busy: "
                "'/root/.triton/cache/6F2A/tmp.pid_4242_8c/cuda_utils.cpython-310-x86_64-linux-gnu.so' "
                "-> '/root/.triton/cache/6F2A/cuda_utils.cpython-310-x86_64-linux-gnu.so'",
                "OSError: [Errno 16] Device or resource busy: '/dev/nvidia0'",
                r"\[Errno 16\] Device or resource busy: '(?P<file>[^']*(?:triton|inductor|\.nfs)[^']*)'",
                source="triton 2.x and 3.x on NFS",
            ),
            Signature(
                "Stale file handle",
                "OSError: [Errno 116] Stale file handle: '/home/u/.triton/cache/6F2A/x.json'",
                "OSError: [Errno 116] Stale file handle: '/data/train.bin'",
                r"\[Errno 116\] Stale file handle(?:: '(?P<file>[^']*(?:triton|inductor)[^']*)')",
                source="NFS",
            ),
            Signature(
                ("Errno 39]", "Errno 2]"),
                "OSError: [Errno 39] Directory not empty: '/home/u/.triton/cache/6F2A/.nfs0000001'",
                "Directory not empty: 'out'",
                r"(?:Errno 39\] Directory not empty|Errno 2\] No such file or directory): "
                r"'(?P<file>[^']*(?:triton|inductor)[^']*(?:tmp\.pid|\.nfs)[^']*)'",
                source="triton on NFS",
            ),
        ),
        explains=("CMP22",),
    ),
    Cause(
        "CMP207",
        "compiler-too-old-for-gpu",
        "triton's ptxas does not know this GPU's architecture.",
        "The installed triton is older than the GPU. Older wrappers hide what ptxas says and show only its exit "
        "status 255.",
        "triton's ptxas does not know the GPU's architecture {arch}: this torch and triton are older than the GPU",
        Remediation(
            "Install a newer torch with its triton (CUDA 12.8 or later for sm_100 and sm_120)",
            (
                "pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu128",
                'python -c "import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())"',
            ),
        ),
        (
            Signature(
                "ptxas",
                "subprocess.CalledProcessError: Command "
                "'['/opt/venv/lib/python3.10/site-packages/triton/backends/nvidia/bin/ptxas', '-lineinfo', "
                "'-v', '--gpu-name=sm_120', '/tmp/tmpdy7phawp.ptx', '-o', '/tmp/tmpdy7phawp.ptx.o']' returned "
                "non-zero exit status 255.",
                "ptxas info    : Used 32 registers",
                r"ptxas['\"][^\n]*--gpu-name=(?P<arch>sm_\w+)[^\n]*(?:non-zero exit status|died with)",
                source="triton 2.x and 3.0 to 3.2",
            ),
            Signature(
                "is not defined for option 'gpu-name'",
                "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'",
                "Value 'x' is not defined for option 'y'",
                r"Value '(?P<arch>sm_\w+)' is not defined for option 'gpu-name'",
                source="ptxas of CUDA 11 and 12",
            ),
            Signature(
                "PTXASError",
                "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` "
                "stderr:\nptxas fatal : Value 'sm_121a' is not defined",
                "PTXAS warning",
                r"PTXASError: PTXAS error[^\n]*\n(?:.*\n){0,8}?[^\n]*(?P<arch>sm_\w+)[^\n]*(?:not "
                r"defined|Unsupported|fatal)",
                source="triton 3.x",
            ),
            Signature(
                "nvcc fatal",
                "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
                "nvcc fatal   : No input files specified",
                r"nvcc fatal\s*: Unsupported gpu architecture '(?P<arch>\w+)'",
                source="nvcc of CUDA 11 and 12",
            ),
            Signature(
                "LLVM ERROR: Cannot select",
                "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl.sync.bfly.i32",
                "LLVM ERROR: out of memory",
                r"LLVM ERROR: Cannot select: intrinsic (?P<arch>)%llvm\.nvvm",
                source="triton 2.x on old or new GPUs",
            ),
        ),
        explains=("CMP22",),
        judge=_arch,
    ),
    Cause(
        "CMP208",
        "triton-missing",
        "No working triton is installed.",
        "triton has wheels for Linux and few Pythons. On another system, or on a brand-new Python, torch.compile "
        "for the GPU has no "
        "back end.",
        "no working triton: it has no wheel for this operating system or Python, or is older than this torch needs",
        Remediation(
            "Install the triton of this torch, or run eagerly for now: backend='eager', or suppress_errors",
            (
                "pip install triton",
                "torch.compile(model, backend='eager')",
                "torch._dynamo.config.suppress_errors = True",
            ),
        ),
        (
            Signature(
                ("from 'triton", "module 'triton"),
                "ImportError: cannot import name 'triton_key' from 'triton.compiler.compiler'",
                "imported from 'triton'",
                r"cannot import name '\w+' from 'triton[\w.]*'|module 'triton[\w.]*' has no attribute '\w+'",
                source="torch 2.2 to 2.15 with the triton of another torch",
            ),
            Signature(
                "module 'triton",
                "AttributeError: module 'triton.language' has no attribute 'dtype'",
                "module 'tritonclient'",
                r"module 'triton(?:\.[\w.]+)?' has no attribute '\w+'",
                source="torch 2.0 to 2.15 with the triton of another torch",
            ),
            Signature(
                "TritonMissing",
                "torch._inductor.exc.TritonMissing: Cannot find a working triton installation. Either the package "
                "is not installed or it is too old.",
                "triton found",
                source="torch 2.4 to 2.15",
            ),
            Signature(
                "Cannot find a working triton installation",
                "RuntimeError: Cannot find a working triton installation. More information on installing Triton "
                "can be found at https://github.com/openai/triton",
                "working triton installation found",
                source="torch 2.0 to 2.15",
            ),
            Signature(
                "No module named 'triton",
                "ModuleNotFoundError: No module named 'triton'",
                "No module named 'tritonclient'",
                r"No module named 'triton(?:\.[\w.]+)?'",
                source="python 3.8 to 3.14",
            ),
        ),
        judge=_triton,
    ),
    Cause(
        "CMP231",
        "gpu-too-old-for-triton",
        "The GPU is too old for triton, which torch.compile generates code with.",
        "triton needs compute capability 7.0 (Volta). Pascal and Maxwell run eager code only.",
        "the GPU[[ ({gpu}, compute capability {have})]] is too old for triton, which needs 7.0 or later: "
        "torch.compile cannot generate code for it",
        Remediation(
            "Run without torch.compile on this GPU, or with a back end that needs no triton",
            ("TORCH_COMPILE_DISABLE=1 python train.py", "torch.compile(model, backend='aot_eager')"),
        ),
        (
            Signature(
                "too old to be supported by the triton GPU compiler",
                "RuntimeError: Found Tesla P100 which is too old to be supported by the triton GPU compiler, which is "
                "used as the backend. Triton only supports devices of CUDA Capability >= 7.0, but your device is of "
                "CUDA capability 6.0",
                "driver too old",
                r"Found (?P<gpu>[^\n]{1,60}?) which is too old to be supported by the triton GPU compiler"
                r"(?:[^\n]*your device is of CUDA capability (?P<have>[\d.]+))?",
                source="torch 2.0 to 2.15, torch/_inductor/exc.py",
            ),
        ),
        explains=("CMP2",),
    ),
    Cause(
        "CMP212",
        "compile-subprocess-died",
        "A subprocess of inductor's parallel compilation died.",
        "Inductor compiles in up to 32 processes; in a container with a memory limit the OOM killer ends one. The "
        "real error is in "
        "dmesg, or shows with one thread.",
        "a compilation subprocess of inductor died: it crashed, or the OOM killer ended it (the host memory limit "
        "of the container)",
        Remediation(
            "Compile in the main process to see the real error, and raise the container's memory limit or lower "
            "the number of compile threads",
            (
                "TORCHINDUCTOR_COMPILE_THREADS=1 python train.py",
                "docker run --memory=32g ...",
                "dmesg -T | grep -i oom",
            ),
        ),
        (
            Signature(
                "A compilation subprocess exited unexpectedly",
                "RuntimeError: A compilation subprocess exited unexpectedly. This is likely due to a crash.",
                "DataLoader worker (pid(s) 1) exited unexpectedly",
                source="torch 2.7 to 2.15, torch/_inductor/compile_worker",
            ),
            Signature(
                "BrokenProcessPool",
                "torch/_inductor/async_compile.py: concurrent.futures.process.BrokenProcessPool: A process in the "
                "process pool was terminated abruptly while the future was running or pending.",
                "process pool",
                also=(r"inductor|compile_worker|async_compile",),
                source="python 3.8 to 3.14 with torch 2.0 to 2.6",
            ),
            Signature(
                "SubprocException",
                "torch._inductor.compile_worker.subproc_pool.SubprocException: An exception occurred in a "
                "subprocess:",
                "subprocess",
                source="torch 2.4 to 2.15",
            ),
        ),
        kind=VAGUE,
        decide="TORCHINDUCTOR_COMPILE_THREADS=1 python train.py",
    ),
    Cause(
        "CMP215",
        "launcher-build-failed",
        "gcc failed on triton's launcher, and its words are not in the log.",
        "The build needs Python.h and libcuda.so; the wrapper shows only the command and its status.",
        "gcc failed to build triton's launcher: Python.h (python3-dev) or libcuda.so is missing; what gcc said is "
        "not in this log",
        Remediation(
            "Install the headers of this Python, see that libcuda.so can be linked, and run the command once by "
            "hand to read its error",
            (
                "apt-get install -y python3-dev libc6-dev",
                "ls -l /lib/x86_64-linux-gnu/libcuda.so*",
                "echo 'int main(){}' > /tmp/a.c && gcc /tmp/a.c -lcuda",
            ),
        ),
        (
            Signature(
                "returned non-zero exit status",
                "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpabc/main.c', '-O3', '-shared', "
                "'-fPIC', '-o', "
                "'/tmp/tmpabc/cuda_utils.cpython-310-x86_64-linux-gnu.so', '-lcuda']' returned non-zero exit "
                "status 1.",
                "subprocess.CalledProcessError: Command '['/usr/bin/python', 'train.py']' returned non-zero exit "
                "status 1.",
                r"CalledProcessError: Command '\[?'?\S*(?:gcc|g\+\+|cc|clang)'?,? "
                r"[^\n]*(?:main\.c|cuda_utils|launcher|-shared)[^\n]*returned non-zero exit status",
                source="triton 2.0 to 3.6",
            ),
        ),
        kind=VAGUE,
        explains=("CMP22", "SES222"),
    ),
    Cause(
        "CMP213",
        "compile-not-supported-here",
        "torch.compile does not support this Python or system.",
        "dynamo follows new Pythons with a delay.",
        "torch.compile is not supported on this {what}",
        Remediation(
            "Use a Python that this torch supports for torch.compile, or a newer torch",
            (
                'python --version; python -c "import torch; print(torch.__version__)"',
                "TORCH_COMPILE_DISABLE=1 python train.py",
            ),
        ),
        (
            Signature(
                "Dynamo is not supported on",
                "RuntimeError: Dynamo is not supported on Python 3.12+",
                "Dynamo is supported",
                r"Dynamo is not supported on (?P<what>Python [\d.]+\+?|Windows|\w+)",
                source="torch 2.0 to 2.8",
            ),
            Signature(
                "not yet supported for torch.compile",
                "RuntimeError: Windows not yet supported for torch.compile",
                "not yet supported",
                r"(?P<what>[\w. +]+?) not yet supported for torch\.compile",
                source="torch 2.0 to 2.8",
            ),
            Signature(
                "torch.compile is not supported on",
                "RuntimeError: torch.compile is not supported on Python 3.14+",
                "torch.compile is supported",
                r"torch\.compile is not supported on (?P<what>[\w. +]+)",
                source="torch 2.6 to 2.9",
            ),
        ),
    ),
    Cause(
        "CMP236",
        "ptxas-older-than-triton",
        "The ptxas that triton calls is older than the PTX that triton writes.",
        "TRITON_PTXAS_PATH, or a triton that takes the system's CUDA toolkit, points to an old ptxas. It is no matter of "
        "the GPU.",
        "the ptxas that triton calls knows PTX up to {have} and triton writes {want}: it belongs to an older CUDA toolkit",
        Remediation(
            "Use the ptxas that comes with triton, or a newer toolkit's",
            (
                "unset TRITON_PTXAS_PATH",
                "export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas; $TRITON_PTXAS_PATH --version",
                "pip install --force-reinstall triton",
            ),
        ),
        (
            Signature(
                "Unsupported .version",
                "ptxas /tmp/tmpm0q.ptx, line 5; fatal   : Unsupported .version 8.7; current version is '8.3'",
                "Unsupported .version of the format",
                r"Unsupported \.version (?P<want>[\d.]+); current version is '(?P<have>[\d.]+)'",
                source="ptxas of CUDA 11 to 13",
            ),
        ),
        explains=("CMP2",),
    ),
    Cause(
        "CMP240",
        "compile-cache-removed-meanwhile",
        "Files of inductor's cache disappeared while the compiler was to read them.",
        "A cleaner of /tmp, another job that empties the cache, or a user name with characters that a shell or path does not "
        "take.",
        "a file of inductor's cache was gone when the compiler opened it ({file}): something cleans the folder, or its path is "
        "not usable",
        Remediation(
            "Give the run a cache folder of its own, with a plain path, that nothing cleans",
            (
                "export TORCHINDUCTOR_CACHE_DIR=$HOME/.cache/inductor TRITON_CACHE_DIR=$HOME/.cache/triton",
                "ls -ld /tmp/torchinductor_*",
            ),
        ),
        (
            Signature(
                "torchinductor",
                "g++: error: /tmp/torchinductor_u/dy/cdy.cpp: No such file or directory",
                "g++: error: /workspace/x.cpp: No such file or directory",
                r"(?:g\+\+|clang\+\+|gcc)(?:-\d+)?: error: (?P<file>\S*torchinductor\S*): No such file",
                source="gcc 9 to 15, torch 2.0 to 2.15",
            ),
        ),
        explains=("CMP22",),
    ),
)
