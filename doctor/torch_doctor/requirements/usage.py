"""What a program uses: libraries, torch.compile, distributed training, reduced precision, the GPU, paths."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch_doctor.requirements import gpu
from torch_doctor.requirements.loaders import start_method
from torch_doctor.requirements.source import Source

#: package that is imported -> what the program then uses
PACKAGES = {
    "h5py": "h5py",
    "lmdb": "lmdb",
    "zarr": "zarr",
    "sqlite3": "sqlite3",
    "tables": "h5py",
    "netCDF4": "h5py",
    "triton": "triton",
    "deepspeed": "ddp",
    "horovod": "ddp",
    "transformer_engine": "fp8",
    "xarray": "",
}
#: frameworks that compile, pick the device or start ranks by their own settings: the source does not say it all
FRAMEWORKS = frozenset(
    {"lightning", "pytorch_lightning", "lightning_fabric", "transformers", "accelerate", "trl", "composer", "ignite",
     "fastai", "torchtune", "torchtitan", "nemo", "ultralytics", "axolotl", "litgpt", "diffusers", "timm"}
)  # fmt: skip
#: dotted function -> what the program uses
CALLS = {
    "torch.compile": "compile",
    "torch._dynamo.optimize": "compile",
    "torch._inductor.compile": "compile",
    "torch.nn.attention.flex_attention.flex_attention": "flex_attention",
    "torch.nn.parallel.DistributedDataParallel": "ddp",
    "torch.distributed.init_process_group": "ddp",
    "torch.distributed.device_mesh.init_device_mesh": "ddp",
    "torch.distributed.init_device_mesh": "ddp",
    "torch.distributed.fsdp.FullyShardedDataParallel": "fsdp",
    "torch.distributed.fsdp.fully_shard": "fsdp",
    "torch.distributed._composable.fsdp.fully_shard": "fsdp",
    "torch.cuda.amp.autocast": "amp",
    "torch.autocast": "amp",
    "torch.amp.autocast": "amp",
    "torch.amp.autocast_mode.autocast": "amp",
    "torch._scaled_mm": "fp8",
    "torchao.float8.convert_to_float8_training": "fp8",
}
DTYPES = {
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
    "torch.half": "fp16",
    "torch.float8_e4m3fn": "fp8",
    "torch.float8_e5m2": "fp8",
}
_READERS = frozenset(
    {"h5py.File", "lmdb.open", "lmdb.Environment", "zarr.open", "zarr.open_group", "zarr.open_array",
     "sqlite3.connect", "tables.open_file", "netCDF4.Dataset", "numpy.load", "numpy.memmap"}
)  # fmt: skip
_DEEPEST = 12
_WRITING_MODES = frozenset({"w", "w-", "x", "wb"})


@dataclass
class Usage:
    """What one file uses; ``gpu`` says where it wants a GPU, ``gpus`` how many at least."""

    uses: set[str] = field(default_factory=set)
    gpu: str = ""
    gpus: int = 0
    world_size: int | None = None
    start_method: str | None = None
    data_paths: list[str] = field(default_factory=list)
    checkpoint_paths: list[str] = field(default_factory=list)


def usage(source: Source) -> Usage:
    """Everything that the file says about what it uses."""
    found = Usage()
    for _, name in source.imported:
        top = name.split(".")[0]
        if PACKAGES.get(top):
            found.uses.add(PACKAGES[top])
        if top in FRAMEWORKS:
            found.uses.add(f"framework:{top}")
    for node in source.nodes:
        _precision(source, node, found)
        _decorator(source, node, found)
    for call, name in source.calls():
        _call(source, call, name, found)
        _paths(source, call, name, found)
    _methods(source, found)
    for count, place in gpu.wishes(source):
        found.gpus = max(found.gpus, count)
        found.gpu = found.gpu or place
    return found


def _call(source: Source, call: ast.Call, name: str, found: Usage) -> None:
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    use = CALLS.get(name)
    if use == "compile" and source.value(keywords.get("disable")) is True:
        use = None
    if use:
        found.uses.add(use)
    if name.endswith("set_start_method"):
        given = keywords.get("method", call.args[0] if call.args else None)
        found.start_method = start_method(source, given) or found.start_method
    if use == "ddp" or name in ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"):
        size = source.value(keywords.get("world_size", keywords.get("nprocs")))
        if name.startswith("torch.multiprocessing") and len(call.args) > 2:
            size = source.value(call.args[2])
        if isinstance(size, int) and size > 0:
            found.world_size = max(size, found.world_size or 0)
    if name == "h5py.File" and (source.value(keywords.get("swmr")) is True):
        found.uses.add("swmr")
    for argument in ("torch_compile", "bf16", "fp16"):
        if source.value(keywords.get(argument)) is True:  # transformers.TrainingArguments
            found.uses.add({"torch_compile": "compile"}.get(argument, argument))


def _decorator(source: Source, node: ast.AST, found: Usage) -> None:
    for decorator in getattr(node, "decorator_list", ()):
        if source.dotted(decorator) == "torch.compile":
            found.uses.add("compile")


def _methods(source: Source, found: Usage) -> None:
    """``model.compile()``: torch's own method takes no argument that Keras' does. ``file.swmr_mode = True``."""
    if "swmr_mode" in source.attributes:
        found.uses.add("swmr")
    for node in source.nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "compile":
            continue
        name = source.dotted(node.func) or "?"
        keras = any(k.arg in ("optimizer", "loss", "metrics") for k in node.keywords)
        if name.split(".")[0] not in ("re", "torch", "regex", "sqlite3", "builtins") and not keras and not node.args:
            found.uses.add("compile")


def _precision(source: Source, node: ast.AST, found: Usage) -> None:
    if isinstance(node, ast.Attribute) and node.attr in (
        "bfloat16",
        "float16",
        "half",
        "float8_e4m3fn",
        "float8_e5m2",
    ):
        use = DTYPES.get(source.dotted(node) or "")
        parent = source.parents.get(node)
        compared = isinstance(parent, ast.Compare)  # asking for a dtype is not using it
        if use and not compared and _within_use(source, node):
            found.uses.add(use)
        elif isinstance(parent, ast.Call) and parent.func is node and not parent.args and _within_use(source, node):
            found.uses.update({"bfloat16": ["bf16"], "half": ["fp16"]}.get(node.attr, []))  # model.bfloat16()


def _within_use(source: Source, node: ast.AST) -> bool:
    """Under a condition, or in a table of choices, a dtype is one of several that the run may take."""
    return not any(isinstance(parent, (ast.If, ast.IfExp, ast.Dict, ast.List)) for parent in source.ancestors(node))


def _paths(source: Source, call: ast.Call, name: str, found: Usage) -> None:
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    if name == "torch.save" and (len(call.args) > 1 or "f" in keywords):
        path = _path(source, call.args[1] if len(call.args) > 1 else keywords["f"])
        _add(found.checkpoint_paths, path)
    elif name in ("safetensors.torch.save_file", "torch.distributed.checkpoint.save"):
        given = call.args[1] if len(call.args) > 1 else keywords.get("filename", keywords.get("checkpoint_id"))
        _add(found.checkpoint_paths, _path(source, given))
    elif name in _READERS and (call.args or keywords):
        given = (
            call.args[0]
            if call.args
            else next((keywords[k] for k in ("name", "path", "root", "file") if k in keywords), None)
        )
        mode = source.value(call.args[1] if len(call.args) > 1 else keywords.get("mode"))
        path = _path(source, given)
        if path and mode not in _WRITING_MODES and path != ":memory:":
            _add(found.data_paths, path)
    elif name.startswith("torchvision.datasets.") and (call.args or "root" in keywords):
        _add(found.data_paths, _path(source, call.args[0] if call.args else keywords["root"]))


def _path(source: Source, node: ast.expr | None, depth: int = 0) -> str:
    """A path that the source fixes, at least its folder; empty where it does not."""
    if depth > _DEEPEST:  # path = join(path, name) leads to itself
        return ""
    if isinstance(node, ast.JoinedStr):  # f"ckpt/{epoch}.pt" fixes its folder
        head = "".join(str(v.value) for v in node.values[:1] if isinstance(v, ast.Constant))
        return head.rpartition("/")[0] + "/" if "/" in head else ""
    if isinstance(node, ast.Call) and (source.dotted(node.func) or "").rsplit(".", 1)[-1] in ("Path", "join", "str"):
        return "/".join(_leading([_path(source, each, depth + 1) for each in node.args]))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left, right = _path(source, node.left, depth + 1), _path(source, node.right, depth + 1)
        return f"{left}/{right}" if left and right else (f"{left}/" if left else "")
    value = source.value(node)
    if isinstance(value, str):
        return value
    definition = source.definition(node) if isinstance(node, ast.Name) else None
    return "" if definition is None else _path(source, definition, depth + 1)


def _leading(parts: list[str]) -> Iterator[str]:
    for part in parts:
        if not part:
            return
        yield part


def _add(paths: list[str], path: str) -> None:
    if path and "://" not in path and path not in paths:
        paths.append(path)
