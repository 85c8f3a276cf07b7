"""Stand-ins for the CUDA libraries, to link a program on a machine that has no driver.

    lazy_link.py lazy DIR    lib{cuda,nvrtc,curand,cublas,cublasLt}.a: each function jumps to the real one, which is looked
                             up at its first call; where the library is absent, every call returns an error code
    lazy_link.py stub DIR    libcuda.so to link against; at run time the driver's own takes its place

The functions are those that the crate cudarc declares. x86-64 Linux; needs gcc, ar and cargo.
"""

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Library:
    """A CUDA library as cudarc knows it."""

    module: str  # cudarc's module that declares its functions
    name: str  # lib{name}
    soname: str  # what to open at run time
    absent: int  # what a call returns where it cannot be opened


LIBRARIES = [
    Library("driver", "cuda", "libcuda.so.1", 100),  # CUDA_ERROR_NO_DEVICE
    Library("nvrtc", "nvrtc", "libnvrtc.so.13", 7),  # NVRTC_ERROR_BUILTIN_OPERATION_FAILURE
    Library("curand", "curand", "libcurand.so.10", 101),  # CURAND_STATUS_NOT_INITIALIZED
    Library("cublas", "cublas", "libcublas.so.13", 1),  # CUBLAS_STATUS_NOT_INITIALIZED
    Library("cublaslt", "cublasLt", "libcublasLt.so.13", 1),
]

FUNCTION = re.compile(r"\bfn ((?:cu|nvrtc|cublas|cublasLt|curand)[A-Z]\w*)\s*\(")

# What a call may carry in registers: integers, the count of vector registers, and the vectors.
INTEGERS = ["rax", "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10"]
VECTORS = range(8)

RESOLVE = """
#define _GNU_SOURCE
#include <dlfcn.h>

static const char *const names[] = {%(names)s};
__attribute__((visibility("hidden"))) void *lazy_%(name)s_table[%(count)d];

static long absent(void) { return %(absent)d; }

/* Two threads may come here at once: both find the same address, and either may store it. */
__attribute__((visibility("hidden"))) void *lazy_%(name)s_resolve(long index) {
  void *library = dlopen("%(soname)s", RTLD_NOW | RTLD_GLOBAL);
  void *function = library ? dlsym(library, names[index]) : 0;
  if (!function) function = (void *)absent;
  __atomic_store_n(&lazy_%(name)s_table[index], function, __ATOMIC_RELEASE);
  return function;
}
"""


def cudarc_folder() -> Path:
    """Where cargo keeps the source of the cudarc that this workspace is locked to."""
    root = Path(__file__).resolve().parents[2]
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--features=target-worker/cuda"]
    metadata = json.loads(subprocess.check_output(command, cwd=root))
    for package in metadata["packages"]:
        if package["name"] == "cudarc":
            return Path(package["manifest_path"]).parent
    sys.exit("lazy_link.py: the feature cuda brings no package cudarc")


def declared(cudarc: Path, library: Library) -> list[str]:
    """The functions of `library` that cudarc may call."""
    source = (cudarc / "src" / library.module / "sys" / "mod.rs").read_text()
    names = sorted(set(FUNCTION.findall(source)))
    if not names:
        sys.exit(f"lazy_link.py: cudarc declares no function of lib{library.name}")
    return names


def resolver(library: Library, names: list[str]) -> str:
    """C: finds the real function, or one that returns the error."""
    return RESOLVE % {
        "name": library.name,
        "names": ", ".join(f'"{name}"' for name in names),
        "count": len(names),
        "absent": library.absent,
        "soname": library.soname,
    }


def trampolines(library: Library, names: list[str]) -> str:
    """Assembly: each function jumps through the table, and resolves its place first where that is empty.

    Arguments stay where the caller put them: registers are saved around the look-up, the stack is left as it was.
    """
    table, common = f"lazy_{library.name}_table", f"lazy_{library.name}_common"
    lines = [".text", f"{common}:"]
    lines += [f"pushq %{register}" for register in INTEGERS]
    lines += [f"subq ${16 * len(VECTORS)}, %rsp"]
    lines += [f"movups %xmm{k}, {16 * k}(%rsp)" for k in VECTORS]
    # Above what was just saved lies the index that the trampoline pushed.
    lines += [f"movq {16 * len(VECTORS) + 8 * len(INTEGERS)}(%rsp), %rdi"]
    lines += [f"call lazy_{library.name}_resolve@PLT", "movq %rax, %r11"]
    lines += [f"movups {16 * k}(%rsp), %xmm{k}" for k in VECTORS]
    lines += [f"addq ${16 * len(VECTORS)}, %rsp"]
    lines += [f"popq %{register}" for register in reversed(INTEGERS)]
    lines += ["addq $8, %rsp", "jmp *%r11"]
    for index, name in enumerate(names):
        lines += [
            f".globl {name}",
            f".hidden {name}",
            f".type {name}, @function",
            f"{name}:",
            f"movq {table}+{8 * index}(%rip), %r11",
            "testq %r11, %r11",
            "je 1f",
            "jmp *%r11",
            f"1: pushq ${index}",
            f"jmp {common}",
        ]
    return "\n".join([*lines, '.section .note.GNU-stack, "", @progbits', ""])


def write_lazy(out: Path) -> None:
    cudarc = cudarc_folder()
    for library in LIBRARIES:
        names = declared(cudarc, library)
        archive = out / f"lib{library.name}.a"
        archive.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            (work / "resolver.c").write_text(resolver(library, names))
            (work / "trampolines.s").write_text(trampolines(library, names))
            objects = []
            for source in ("resolver.c", "trampolines.s"):
                compiled = (work / source).with_suffix(".o")
                subprocess.check_call(["gcc", "-O1", "-fPIC", "-c", work / source, "-o", compiled])
                objects.append(compiled)
            subprocess.check_call(["ar", "rcs", archive, *objects])
        print(f"{archive.name}: {len(names)} functions")


def write_stub(out: Path) -> None:
    driver = LIBRARIES[0]
    names = declared(cudarc_folder(), driver)
    body = "\n".join(f"int {name}(void) {{ return {driver.absent}; }}" for name in names)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "driver.c"
        source.write_text(body)
        # -w: cudarc's names include some that gcc has ideas of its own about.
        shared = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{driver.soname}"]
        subprocess.check_call(["gcc", *shared, "-o", out / "libcuda.so", source])
    print(f"libcuda.so: {len(names)} functions")


def main() -> None:
    writers = {"lazy": write_lazy, "stub": write_stub}
    if len(sys.argv) != 3 or sys.argv[1] not in writers:
        sys.exit(__doc__)
    out = Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    writers[sys.argv[1]](out)


if __name__ == "__main__":
    main()
