"""Compile the kernels of the widgets for a page: `python tools/build_widgets.py [--into FOLDER] [WIDGET ...]`.

It needs a linker that knows WebAssembly: `wasm-ld` of LLVM (Debian's package `lld`), or the wheel `ziglang`. The
kernels are in `tools/widget_kernels.py`. What it writes, `_assets/widgets/*.kernels.js`, is stored, so that nobody
else needs it.
"""
from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
os.environ["NUMBA_OPT"] = "0"                           # before numba is imported
os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp()      # code kept by others is optimised
sys.path.insert(0, str(ROOT))
warnings.simplefilter("ignore")

import llvmlite  # noqa: E402
import llvmlite.binding as llvm  # noqa: E402
import numba  # noqa: E402
import numpy as np  # noqa: E402
from numba import carray, types  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

from tools.widget_kernels import WIDGETS, Widget  # noqa: E402

FOLDER = ROOT / "_assets" / "widgets"
TRIPLE = "wasm32-unknown-unknown"
FEATURES = "+bulk-memory,+sign-ext,+nontrapping-fptoint"    # what every browser since 2021 has
MEMORY_BYTES = 4 << 20
STACK_BYTES = 256 << 10
FROM_THE_PAGE = {"exp", "log", "pow"}
PYTHONS = re.compile(r"Py[A-Z_]|numba_(gil|unpickle|do_raise|runtime_build_excinfo)")    # what reports an exception
# Numba's runtime in a page: memory only goes up, and is all free again before the next call
RUNTIME = """
%meminfo = type { i64, ptr, ptr, ptr, i64 }
@heap = internal global i32 0
declare void @llvm.trap()
declare void @llvm.memcpy.p0.p0.i32(ptr, ptr, i32, i1)
define void @free_all(i32 %top) {
  store i32 %top, ptr @heap
  ret void
}
define ptr @NRT_Allocate(i64 %size) {
  %is_large = icmp ugt i64 %size, 1000000
  br i1 %is_large, label %refuse, label %take
refuse:
  call void @llvm.trap()
  unreachable
take:
  %top = load i32, ptr @heap
  %bytes = trunc i64 %size to i32
  %more = add i32 %bytes, 63
  %whole = and i32 %more, -32
  %next = add i32 %top, %whole
  store i32 %next, ptr @heap
  %found = inttoptr i32 %top to ptr
  ret ptr %found
}
define ptr @NRT_MemInfo_new_varsize(i64 %size) {
  %info = call ptr @NRT_Allocate(i64 64)
  %data = call ptr @NRT_Allocate(i64 %size)
  store %meminfo { i64 1, ptr null, ptr null, ptr null, i64 0 }, ptr %info
  %data_at = getelementptr %meminfo, ptr %info, i32 0, i32 3
  store ptr %data, ptr %data_at
  %size_at = getelementptr %meminfo, ptr %info, i32 0, i32 4
  store i64 %size, ptr %size_at
  ret ptr %info
}
define ptr @NRT_MemInfo_new_varsize_dtor(i64 %size, ptr %dtor) {
  %info = call ptr @NRT_MemInfo_new_varsize(i64 %size)
  ret ptr %info
}
define ptr @NRT_MemInfo_alloc(i64 %size) {
  %info = call ptr @NRT_MemInfo_new_varsize(i64 %size)
  ret ptr %info
}
define ptr @NRT_MemInfo_alloc_safe(i64 %size) {
  %info = call ptr @NRT_MemInfo_new_varsize(i64 %size)
  ret ptr %info
}
define ptr @NRT_MemInfo_alloc_safe_aligned(i64 %size, i32 %align) {
  %info = call ptr @NRT_MemInfo_new_varsize(i64 %size)
  ret ptr %info
}
define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %info = call ptr @NRT_MemInfo_new_varsize(i64 %size)
  ret ptr %info
}
define ptr @NRT_MemInfo_varsize_realloc(ptr %info, i64 %size) {
  %data_at = getelementptr %meminfo, ptr %info, i32 0, i32 3
  %size_at = getelementptr %meminfo, ptr %info, i32 0, i32 4
  %old = load ptr, ptr %data_at
  %had = load i64, ptr %size_at
  %is_less = icmp ult i64 %had, %size
  %kept = select i1 %is_less, i64 %had, i64 %size
  %new = call ptr @NRT_Allocate(i64 %size)
  %bytes = trunc i64 %kept to i32
  call void @llvm.memcpy.p0.p0.i32(ptr %new, ptr %old, i32 %bytes, i1 false)
  store ptr %new, ptr %data_at
  store i64 %size, ptr %size_at
  ret ptr %new
}
define void @NRT_MemInfo_call_dtor(ptr %info) {
  ret void
}
define void @NRT_incref(ptr %info) alwaysinline {
  ret void
}
define void @NRT_decref(ptr %info) alwaysinline {
  ret void
}
define void @NRT_Free(ptr %data) {
  ret void
}
define i32 @numba_attempt_nocopy_reshape(i64 %nd, ptr %dims, ptr %strides, i64 %new_nd, ptr %new_dims, ptr %new_strides,
                                         i64 %itemsize, i32 %is_fortran) {
entry:
  br label %old
old:
  %k = phi i64 [ %nd, %entry ], [ %axis, %same ]
  %step = phi i64 [ %itemsize, %entry ], [ %next, %same ]
  %is_checked = icmp eq i64 %k, 0
  br i1 %is_checked, label %new, label %check
check:
  %axis = sub i64 %k, 1
  %dim_at = getelementptr i64, ptr %dims, i64 %axis
  %dim = load i64, ptr %dim_at
  %stride_at = getelementptr i64, ptr %strides, i64 %axis
  %stride = load i64, ptr %stride_at
  %next = mul i64 %step, %dim
  %is_step = icmp eq i64 %stride, %step
  %is_one = icmp ule i64 %dim, 1
  %is_fine = or i1 %is_step, %is_one
  br i1 %is_fine, label %same, label %other
same:
  br label %old
other:
  ret i32 0
new:
  %n = phi i64 [ %new_nd, %old ], [ %new_axis, %fill ]
  %size = phi i64 [ %itemsize, %old ], [ %more, %fill ]
  %is_done = icmp eq i64 %n, 0
  br i1 %is_done, label %done, label %fill
fill:
  %new_axis = sub i64 %n, 1
  %new_stride_at = getelementptr i64, ptr %new_strides, i64 %new_axis
  store i64 %size, ptr %new_stride_at
  %new_dim_at = getelementptr i64, ptr %new_dims, i64 %new_axis
  %new_dim = load i64, ptr %new_dim_at
  %more = mul i64 %size, %new_dim
  br label %new
done:
  ret i32 1
}
define {i64, i1} @checked_product(i64 %a, i64 %b) alwaysinline {
  %both = or i64 %a, %b
  %is_large = icmp ugt i64 %both, 2147483647
  %product = mul i64 %a, %b
  %pair = insertvalue {i64, i1} undef, i64 %product, 0
  %whole = insertvalue {i64, i1} %pair, i1 %is_large, 1
  ret {i64, i1} %whole
}
"""


@intrinsic
def pointer(typing_context: Any, address: Any) -> Any:
    """Return an address as a pointer."""
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate


class Entry:
    """The function that a page calls: it reads arguments out of a table of slots, and writes the answer behind them."""

    def __init__(self, function: Callable[..., Any], example: tuple[Any, ...]) -> None:
        self.function = function
        self.known: dict[str, Any] = {"carray": carray, "pointer": pointer, "kernel": function}
        self.slots = 0
        self.takes: list[dict[str, Any]] = []
        self.gives: list[dict[str, Any]] = []
        names = function.py_func.__code__.co_varnames      # type: ignore[attr-defined]
        self.call = ", ".join(self.read(value, name) for value, name in zip(example, names, strict=False))
        signature = tuple(numba.typeof(value) for value in example)
        function.compile(signature)     # type: ignore[attr-defined]
        answer = function.overloads[signature].signature.return_type    # type: ignore[attr-defined]
        self.writes = list(self.write(answer, "answer", ""))

    def name(self, value: Any) -> str:
        """Name of a type in the source."""
        name = f"known_{len(self.known)}"
        self.known[name] = value
        return name

    def read(self, value: Any, path: str) -> str:
        """Source that builds an argument out of slots."""
        if isinstance(value, tuple):
            inner = ", ".join(self.read(field, f"{path}.{key}") for key, field in zip(
                getattr(value, "_fields", range(len(value))), value, strict=True))
            return f"{self.name(type(value))}({inner})" if hasattr(value, "_fields") else f"({inner},)"
        slot = self.slots
        if isinstance(value, np.ndarray):
            self.slots += 1 + value.ndim
            shape = "".join(f"i[{slot + 1 + axis}], " for axis in range(value.ndim))
            self.takes.append({"path": path, "slot": slot, "type": str(value.dtype), "shape": value.shape,
                               "value": packed(value)})
            return f"carray(pointer(i[{slot}]), ({shape}), {self.name(numba.from_dtype(value.dtype))})"
        self.slots += 1
        kind = "bool" if isinstance(value, bool) else "float64" if isinstance(value, float) else "int64"
        self.takes.append({"path": path, "slot": slot, "type": kind, "value": value})
        return {"bool": f"i[{slot}] != 0", "float64": f"f[{slot}]", "int64": f"i[{slot}]"}[kind]

    def write(self, kind: Any, source: str, path: str) -> Iterator[str]:
        """Source that writes an answer into slots."""
        if isinstance(kind, types.BaseTuple):
            fields = getattr(kind, "fields", [str(k) for k in range(len(kind))])
            for k, field in enumerate(fields):
                yield from self.write(kind[k], f"{source}[{k}]", f"{path}.{field}" if path else field)
            return
        if isinstance(kind, types.NoneType):
            return
        slot = self.slots
        if isinstance(kind, types.Array):
            self.slots += 1 + kind.ndim
            self.gives.append({"path": path, "slot": slot, "type": str(kind.dtype), "ndim": kind.ndim})
            yield f"i[{slot}] = {source}.ctypes.data"
            yield from (f"i[{slot + 1 + axis}] = {source}.shape[{axis}]" for axis in range(kind.ndim))
            return
        self.slots += 1
        is_float = isinstance(kind, types.Float)
        self.gives.append({"path": path, "slot": slot, "type": "float64" if is_float else str(kind)})
        yield f"{'f' if is_float else 'i'}[{slot}] = {source}"

    def compiled(self) -> tuple[str, str]:
        """Unoptimised code for this machine, and the name of the function in it."""
        tables = [f"{table} = carray({table}p, ({self.slots},))" for table in "if"]
        lines = [*tables, f"answer = kernel({self.call})"]
        exec("def entry(ip, fp):\n    " + "\n    ".join(lines + self.writes), self.known)
        signature = types.void(types.CPointer(types.int64), types.CPointer(types.float64))
        made: Any = numba.cfunc(signature, error_model="numpy")(self.known["entry"])
        return made.inspect_llvm(), made.native_name


def packed(array: np.ndarray) -> Any:
    """Return an array as JSON: one number if all are equal, else a list."""
    flat = array.ravel().tolist()
    return flat[0] if flat and flat.count(flat[0]) == len(flat) else flat


def retargeted(source: str, machine: Any) -> Any:
    """Return a module of another machine as one of the page's."""
    source = re.sub(r"^target datalayout.*$", f'target datalayout = "{machine.target_data}"', source, flags=re.M)
    source = re.sub(r"^target triple.*$", f'target triple = "{TRIPLE}"', source, flags=re.M)
    source = source.replace("@llvm.smul.with.overflow.i64(", "@checked_product(")
    source = re.sub(r"@(ceil|floor|sqrt)\(", r"@llvm.\1.f64(", source)     # one instruction each
    return llvm.parse_assembly(source)


def closed(module: Any, kept: set[str]) -> Any:
    """Let a module need nothing of the outside: what is missing, all of it Python's, ends the call."""
    missing = [each for each in module.functions if each.is_declaration and not each.name.startswith("llvm.")
               and each.name not in FROM_THE_PAGE]
    if unknown := [each.name for each in missing if not PYTHONS.match(each.name)]:
        raise SystemExit(f"nothing in a page does what these do: {', '.join(unknown)}")
    for each in module.functions:
        if not each.is_declaration and each.name not in kept:
            each.linkage = "internal"
    source = str(module)
    for each in missing:
        head = re.search(rf'^declare ([^@]*@"?{re.escape(each.name)}"?\(.*\)).*$', source, re.M)
        source = source.replace(head[0], f"define internal {head[1]} {{\n  call void @llvm.trap()\n  unreachable\n}}")
    source = re.sub(r"^(@\S+ = )(?:external|common) global (\w+).*$", r"\1internal global \2 zeroinitializer", source,
                    flags=re.M)
    return llvm.parse_assembly(source)


def object_code(parts: dict[str, tuple[str, str]]) -> bytes:
    """Link the parts with the runtime, optimise them for the page and emit them."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(opt=2, features=FEATURES, reloc="static")
    whole = retargeted(f'target datalayout = ""\ntarget triple = ""\n{RUNTIME}', machine)
    for name, (source, entry) in parts.items():
        whole.link_in(retargeted(re.sub(rf'@"?{re.escape(entry)}"?\(', f"@{name}(", source), machine))
    whole = closed(whole, {"free_all", *parts})
    whole.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(whole, builder)
    return bytes(machine.emit_object(whole))


def linker() -> list[str] | None:
    """Command of a linker that knows WebAssembly, None if there is none."""
    for name in ("wasm-ld", *(f"wasm-ld-{version}" for version in range(30, 13, -1))):
        if found := shutil.which(name):
            return [found]
    return [sys.executable, "-m", "ziglang", "wasm-ld"] if importlib.util.find_spec("ziglang") else None


def linked(code: bytes, names: list[str], command: list[str]) -> bytes:
    """Turn object code into a module that a page can load."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "kernels.o"), Path(folder, "kernels.wasm")
        source.write_bytes(code)
        exports = [f"--export={name}" for name in ("__heap_base", "free_all", *names)]
        sizes = [f"--initial-memory={MEMORY_BYTES}", f"--max-memory={MEMORY_BYTES}", "-z", f"stack-size={STACK_BYTES}"]
        subprocess.run([*command, "--no-entry", "--strip-all", "--stack-first", "--allow-undefined", *sizes, *exports,
                        "-o", str(target), str(source)], check=True)
        return target.read_bytes()


def makers(command: list[str]) -> str:
    """Who made it: other versions may write other code that does the same."""
    said = subprocess.run([*command, "--version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"LLD \d[\d.]*", said)
    return f"numba {numba.__version__}, llvmlite {llvmlite.__version__}, {version[0] if version else said.strip()}"


def built(name: str, widget: Widget, command: list[str]) -> str:
    """Return the script that a page loads."""
    entries = {key: Entry(*kernel) for key, kernel in widget.kernels.items()}
    wasm = linked(object_code({key: entry.compiled() for key, entry in entries.items()}), list(entries), command)
    kernels = {key: {"slots": entry.slots, "takes": entry.takes, "gives": entry.gives}
               for key, entry in entries.items()}
    about = {"sha256": hashlib.sha256(wasm).hexdigest(), "bytes": len(wasm), "made_by": makers(command),
             "kernels": kernels, "data": widget.data, "wasm": base64.b64encode(wasm).decode()}
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in about.items())
    return (f"// Written by tools/build_widgets.py from tools/widget_kernels.py: compiled for the page.\n"
            f"schedLab.store({json.dumps(name)}, {{\n{rows}}});\n")


def main(arguments: list[str]) -> None:
    """Build some widgets, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("widgets", nargs="*")
    parser.add_argument("--into", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    command = linker()
    if command is None:
        sys.exit("there is no linker for WebAssembly: apt-get install lld, or pip install ziglang")
    for name in given.widgets or WIDGETS:
        text = built(name, WIDGETS[name](), command)
        given.into.mkdir(parents=True, exist_ok=True)
        (given.into / f"{name}.kernels.js").write_text(text, encoding="utf-8")
        print(f"{name}: {len(text)} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
