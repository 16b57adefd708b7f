"""Run a command as a processor from 2008 would: `python tools/as_older_cpu.py COMMAND...`.

What is printed or compared to its last digit, and what is decided by one, may differ from machine to machine: BLAS has
kernels for each processor and adds up in another order, and fused multiply-add rounds once instead of twice. The same
libraries hold the code for older processors too; here they are told to take it. Other processors than x86-64 have no
such choice, and the command runs as it is.
"""
from __future__ import annotations

import os
import platform
import subprocess
import sys

# BLAS and its threads; numba; the mathematics of the C library; Arrow
OLDER = {"OPENBLAS_CORETYPE": "Nehalem", "OPENBLAS_NUM_THREADS": "1", "NUMBA_CPU_NAME": "generic",
         "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA_Usable,-FMA4,-FMA4_Usable,-AVX2,-AVX2_Usable,-AVX512F",
         "ARROW_USER_SIMD_LEVEL": "NONE"}
FEATURES = """from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
print(*[name for name in __cpu_dispatch__ if __cpu_features__.get(name)])"""


def older() -> dict[str, str]:
    """List the settings under which the libraries take the code of an older processor."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return {}
    found = subprocess.run([sys.executable, "-c", FEATURES], check=True, capture_output=True, text=True).stdout
    return OLDER | ({"NPY_DISABLE_CPU_FEATURES": found.strip()} if found.strip() else {})


if __name__ == "__main__":
    os.execvpe(sys.argv[1], sys.argv[1:], os.environ | older())
