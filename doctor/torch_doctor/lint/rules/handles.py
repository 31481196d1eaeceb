"""Handles that cross the fork: HDF5, LMDB, sqlite, sockets, files."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch_doctor.facts.code_index import Scope, dotted
from torch_doctor.facts.script import Script
from torch_doctor.lint.flow import called, constant, keyword, method, origins, place
from torch_doctor.lint.found import ERROR, WARNING, finding
from torch_doctor.lint.loaders import SPAWNING, DatasetClass, dataset_classes
from torch_doctor.model import Finding
from torch_doctor.registry import check

#: what opens a handle that must not be shared over a fork -> what goes wrong
HANDLES = {
    "h5py.File": "HDF5's state is shared: inflate() failed, bad object header, or wrong rows",
    "tables.open_file": "HDF5's state is shared: read errors or wrong rows",
    "netCDF4.Dataset": "HDF5's state is shared: read errors or wrong rows",
    "h5netcdf.File": "HDF5's state is shared: read errors or wrong rows",
    "lmdb.open": "an LMDB environment must not cross a fork, and cannot be pickled",
    "lmdb.Environment": "an LMDB environment must not cross a fork, and cannot be pickled",
    "sqlite3.connect": "a sqlite connection must not cross a fork: database disk image is malformed",
    "zarr.ZipStore": "the workers share one file offset: wrong chunks",
    "zarr.storage.ZipStore": "the workers share one file offset: wrong chunks",
    "zipfile.ZipFile": "the workers share one file offset: bad CRC or wrong members",
    "tarfile.open": "the workers share one file offset: wrong members",
    "tarfile.TarFile": "the workers share one file offset: wrong members",
    "open": "the workers share one file offset: wrong records",
    "io.open": "the workers share one file offset: wrong records",
    "gzip.open": "the workers share one file offset: wrong records",
    "socket.socket": "the workers share one connection: answers get mixed up",
    "socket.create_connection": "the workers share one connection: answers get mixed up",
    "psycopg2.connect": "the workers share one connection",
    "pymysql.connect": "the workers share one connection",
    "mysql.connector.connect": "the workers share one connection",
    "pymongo.MongoClient": "MongoClient is not safe over a fork",
    "redis.Redis": "the workers share one connection",
    "redis.StrictRedis": "the workers share one connection",
    "cv2.VideoCapture": "the workers share one decoder",
    "rasterio.open": "a GDAL handle must not cross a fork",
    "decord.VideoReader": "the workers share one decoder",
}
#: locks: a fork copies them in the state they are in, and spawn cannot pickle those of threading
LOCKS = {
    "threading.Lock": "cannot be pickled for a worker, and a fork copies it in the state it is in",
    "threading.RLock": "cannot be pickled for a worker, and a fork copies it in the state it is in",
    "threading.Condition": "cannot be pickled for a worker, and a fork copies it in the state it is in",
    "threading.Semaphore": "cannot be pickled for a worker, and a fork copies it in the state it is in",
    "threading.Event": "cannot be pickled for a worker",
    "_thread.allocate_lock": "cannot be pickled for a worker",
}


@check("HDF101", "handle-opened-before-workers", tags={"workers"})
def handle_opened_before_workers(script: Script) -> Iterator[Finding]:
    """A data set opens a file, database or socket in __init__ and its workers share it.

    What it checks:
        h5py, LMDB, sqlite, zip, tar, plain files, sockets and thread locks that __init__ (or a helper it calls, or
        the module) opens and keeps, and the items read, where the loader has workers. A handle that __init__ closes
        again, or that is opened at the first item of each worker, is right.
    Why it matters:
        A forked worker shares the handle with its siblings: wrong rows, "inflate() failed", a deadlock. A spawned one
        fails with "cannot be pickled".
    Example:
        Bad::

            import h5py
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __init__(self, path):
                    self.file = h5py.File(path)
                def __getitem__(self, at):
                    return self.file["x"][at]
            loader = DataLoader(Rows("a.h5"), num_workers=4)

        Good::

            import h5py
            from torch.utils.data import DataLoader, Dataset
            class Rows(Dataset):
                def __init__(self, path):
                    self.path, self.file = path, None
                def __getitem__(self, at):
                    if self.file is None:
                        self.file = h5py.File(self.path)
                    return self.file["x"][at]
            loader = DataLoader(Rows("a.h5"), num_workers=4)
    Fix:
        Open it at the first __getitem__ of each worker and keep it: if self.file is None: self.file =
        h5py.File(path).
    References:
        https://docs.h5py.org/en/stable/faq.html
    """
    for item in dataset_classes(script):
        if item.workers == "none":
            continue
        seen: set[str] = set()
        for attribute, call, where in _opened(script, item.scope):
            name = where.index.qual(call)
            why = HANDLES.get(name) or LOCKS.get(name, "")
            if (
                not why
                or attribute in seen
                or _reset(item.scope, attribute, call)
                or _reopened(script, item.scope, attribute)
            ):
                continue
            if not _used_for_items(item.scope, attribute) and name not in LOCKS:
                continue
            if _dropped_for_pickle(item, attribute):
                continue
            if name in LOCKS and not _spawned(item):
                continue
            seen.add(attribute)
            yield finding(
                script,
                call if where is script and _in(script, call) else item.scope.node,
                ERROR if item.workers == "some" else WARNING,
                f"{attribute} is opened before the workers start: {why}",
                "Open it at the first __getitem__ of each worker and keep it in self",
                evidence={"opens": name},
            )
    yield from _global_handles(script)


def _in(script: Script, node: ast.AST) -> bool:
    return node in script.index.scope_of


def _spawned(item: DatasetClass) -> bool:
    return (item.loader is not None and item.loader.start_method in SPAWNING) or item.workers == "some"


def _opened(script: Script, owner: Scope) -> Iterator[tuple[str, ast.Call, Script]]:
    """(attribute, call that opens, file) of what __init__ and the helpers it calls keep in self."""
    start = method(script, owner, "__init__")
    if start is None:
        return
    scopes = [start[1]]
    for call in start[1].calls:
        target = called(start[0], call)
        if (
            target is not None
            and target[1].parent is not None
            and target[1].parent.kind == "class"
            and dotted(call.func).startswith(("self.", "super()"))
        ):
            scopes.append(target[1])
    for scope in scopes:
        for name, items in list(scope.bindings.items()):
            if not name.startswith("self.") or name.endswith("[]"):
                continue
            for item in items:
                if item.how == "assign" and item.value is not None and not _guarded(script, item.node):
                    yield from ((name, c, w) for c, w in _handles(script, item.value, scope))


def _guarded(script: Script, node: ast.AST) -> bool:
    """``if get_worker_info() is not None``, or a with block that closes it again."""
    for parent in script.index.ancestors(node):
        if isinstance(parent, ast.If) and "worker" in ast.dump(parent.test):
            return True
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
    return False


def _handles(script: Script, value: ast.expr, scope: Scope, depth: int = 5) -> Iterator[tuple[ast.Call, Script]]:
    """The calls that open what an expression holds: h5py.File(p), h5py.File(p)["x"], a helper that returns one."""
    node: ast.AST = value
    if depth == 0:
        return
    if isinstance(value, (ast.List, ast.ListComp, ast.DictComp, ast.Tuple)):
        parts = (
            value.elts
            if isinstance(value, (ast.List, ast.Tuple))
            else [value.value if isinstance(value, ast.DictComp) else value.elt]
        )
        for part in parts:
            yield from _handles(script, part, scope, depth - 1)
        return
    while isinstance(node, ast.Subscript):
        if isinstance(node.slice, (ast.Slice, ast.Tuple)) or _is_ellipsis(node.slice):
            return  # a copy of the data, no handle
        node = node.value
    for origin in origins(script, node, scope):
        found = origin.node
        if origin.how == "with":
            # used within the with block and closed at its end; a kept subscript is a closed handle
            continue
        while isinstance(found, ast.Subscript):
            if isinstance(found.slice, (ast.Slice, ast.Tuple)) or _is_ellipsis(found.slice):
                return
            found = found.value
            if isinstance(found, (ast.Name, ast.Attribute)):
                yield from _handles(origin.script, found, origin.scope, depth - 1)
                return
        if isinstance(found, ast.Call):
            name = origin.script.index.qual(found)
            if name in HANDLES or name in LOCKS:
                if not _in_memory(origin.script, found):
                    yield found, origin.script
                continue
            if name.rsplit(".", 1)[-1] in ("begin", "cursor", "makefile") and isinstance(found.func, ast.Attribute):
                yield from _handles(origin.script, found.func.value, origin.scope, depth - 1)
                continue
            if name.startswith("zarr.") and found.args:
                yield from _handles(origin.script, found.args[0], origin.scope, depth - 1)
            target = called(origin.script, found)
            for item in target[1].returns if target is not None else ():
                if isinstance(item.value, ast.Call) and target is not None:
                    opened = target[0].index.qual(item.value)
                    if opened in HANDLES:
                        yield (
                            (found if origin.script is script else item.value),
                            origin.script if origin.script is script else target[0],
                        )


def _is_ellipsis(node: ast.AST) -> bool:
    return (isinstance(node, ast.Constant) and node.value is ...) or (isinstance(node, ast.Tuple) and not node.elts)


def _in_memory(script: Script, call: ast.Call) -> bool:
    """A core-driver file, a handle opened on bytes, an in-memory database."""
    if constant(script, keyword(call, "driver")) == "core":
        return True
    if isinstance(keyword(call, "driver_info"), ast.AST):
        return True
    first = call.args[0] if call.args else None
    return (isinstance(first, ast.Call) and dotted(first.func).endswith("BytesIO")) or constant(
        script, first
    ) == ":memory:"


def _reset(owner: Scope, attribute: str, call: ast.Call) -> bool:
    """Whether __init__ closes it again, sets it to None, or deletes it."""
    start = owner.function("__init__")
    for scope in [start] if start is not None else []:
        for item in scope.bindings.get(attribute, ()):
            if place(item.node) > place(call) and isinstance(item.value, ast.Constant) and item.value.value is None:
                return True
        if any(dotted(c.func) == f"{attribute}.close" and place(c) > place(call) for c in scope.calls):
            return True
        for statement in ast.walk(scope.node):
            if isinstance(statement, ast.Delete) and any(dotted(t) == attribute for t in statement.targets):
                return True
    return False


def _reopened(script: Script, owner: Scope, attribute: str) -> bool:
    """Whether reading the items, or a worker_init hook, opens it anew (guarded by pid or worker)."""
    start = owner.function("__init__")
    helpers = {t[1] for c in (start.calls if start is not None else ()) if (t := called(script, c)) is not None}
    for child in owner.children:
        if child.name in ("__init__", "close", "__del__", "__exit__"):
            continue
        if child in helpers and not _called_for_items(script, owner, child):
            continue
        for item in child.bindings.get(attribute, ()):
            if (
                isinstance(item.value, ast.Call)
                and child.name not in ("__setstate__",)
                and not _only_where_none(script, item.node, attribute)
            ):
                return True
    return False


def _only_where_none(script: Script, node: ast.AST, attribute: str) -> bool:
    """``if self.file is None:`` around an opening: never true where __init__ has opened it."""
    for parent in script.index.ancestors(node):
        if (
            isinstance(parent, ast.If)
            and not any(w in ast.dump(parent.test).lower() for w in ("pid", "worker"))
            and any(dotted(n) == attribute for n in ast.walk(parent.test) if isinstance(n, ast.Attribute))
        ):
            return True
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
    return False


def _dropped_for_pickle(item: DatasetClass, attribute: str) -> bool:
    """A spawned worker gets what __getstate__ gives: one that names the attribute leaves it out."""
    drops = item.scope.function("__getstate__")
    spawned = item.loader is not None and item.loader.start_method in SPAWNING
    return drops is not None and spawned and f"'{attribute.removeprefix('self.')}'" in ast.dump(drops.node)


def _called_for_items(script: Script, owner: Scope, helper: Scope) -> bool:
    """Whether a method that reads items calls a helper of __init__ again."""
    return any(
        (t := called(script, c)) is not None and t[1] is helper
        for child in owner.children
        if child.name not in ("__init__",) and child is not helper
        for c in child.calls
    )


def _used_for_items(owner: Scope, attribute: str) -> bool:
    """Whether a method other than __init__ and __len__ reads it, or what __init__ makes of it."""
    if _read_by_items(owner, attribute):
        return True
    start = owner.function("__init__")
    for name, items in start.bindings.items() if start is not None else ():
        if name.startswith("self.") and name != attribute and _read_by_items(owner, name):
            for item in items:
                if item.value is not None and _made_of(item.value, attribute):
                    return True
    return False


def _made_of(value: ast.AST, attribute: str) -> bool:
    """self.reader = Reader(self.file), self.rows = self.file["x"], self.rows = self.file.root.x; no copy."""
    if isinstance(value, ast.Call):
        return any(dotted(a) == attribute for a in value.args)
    while isinstance(value, (ast.Attribute, ast.Subscript)):
        if isinstance(value, ast.Subscript) and (
            isinstance(value.slice, (ast.Slice, ast.Tuple)) or _is_ellipsis(value.slice)
        ):
            return False
        value = value.value
        if dotted(value) == attribute:
            return True
    return False


def _read_by_items(owner: Scope, attribute: str) -> bool:
    for child in owner.children:
        if child.name in ("__init__", "__len__", "close", "__del__", "__enter__", "__exit__", "__getstate__"):
            continue
        for scope in child.walk():
            if any(dotted(n) == attribute for n in ast.walk(scope.node) if isinstance(n, ast.Attribute)):
                return True
    return False


def _global_handles(script: Script) -> Iterator[Finding]:
    """A module-level handle that __getitem__ reads."""
    for item in dataset_classes(script):
        if item.workers != "some":
            continue
        reader = item.scope.function("__getitem__")
        for name in list(reader.names) if reader is not None else ():
            if reader is None or name in reader.bindings:
                continue
            for bound in script.index.module.bindings.get(name, ()):
                if bound.how == "assign" and isinstance(bound.value, ast.Call):
                    opened = script.index.qual(bound.value)
                    if opened in HANDLES and len(script.index.module.bindings[name]) == 1:
                        yield finding(
                            script,
                            bound.value,
                            ERROR,
                            f"{name} is opened before the workers start: {HANDLES[opened]}",
                            "Open it at the first __getitem__ of each worker and keep it in self",
                            evidence={"opens": opened},
                        )
