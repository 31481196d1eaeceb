"""What torch.compile and C++ extensions build with: compilers, headers, ninja and what they link against."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


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
                "pip install --force-reinstall torch==VERSION  # that of pip show torch: it brings its own triton",
                "apt-get install -y cuda-cudart-dev-12-8",
                "export CPATH=/usr/local/cuda/include",
            ),
        ),
    )


register(
    Cause(
        "CMP201",
        "compiler-not-found",
        "torch.compile or triton found no C or C++ compiler.",
        "Triton builds a small C launcher at run time, and inductor's CPU code is C++. An image that moved from "
        "devel to runtime lost gcc.",
        "no C/C++ compiler was found: triton and inductor build code at run time, and this image has no gcc (a "
        "runtime image in place of a devel one)",
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
        "mount is missing. LD_LIBRARY_PATH does not help once ldconfig found the .so.1.",
        "triton needs libcuda.so and the container has only libcuda.so.1 or none: the driver mount or the "
        "development symlink is missing",
        Remediation(
            "Mount the driver (NVIDIA_DRIVER_CAPABILITIES=compute,utility), or add the symlink, or name its folder "
            "in TRITON_LIBCUDA_PATH",
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
                "echo 'int main(){}' | gcc -x c - -lcuda -o /dev/null",
            ),
        ),
        (
            Signature(
                "returned non-zero exit status",
                "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpabc/main.c', '-O3', '-shared', "
                "'-fPIC', '-o', '/tmp/tmpabc/cuda_utils.cpython-310-x86_64-linux-gnu.so', '-lcuda']' returned "
                "non-zero exit status 1.",
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
)
