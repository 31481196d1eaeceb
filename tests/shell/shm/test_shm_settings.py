"""Whether the fallback is active, and what it trusts."""

from __future__ import annotations

import pytest

from .conftest import AS_USER, NEEDS_ROOT, Run, output

STATUS = "print(ctypes.CDLL(None).torch_doctor_shm_status())"
LOADED, ACTIVE, FORCED, OFF, LARGE, SMALL, MISSING, UNWRITABLE = 1, 2, 4, 8, 16, 32, 64, 128
BAD_SETTING = 1024


@pytest.mark.parametrize(
    ("shm", "environment", "expected"),
    [
        ("16m", {}, ACTIVE | SMALL),
        ("2g", {}, LARGE),
        ("absent", {}, ACTIVE | MISSING),
        ("read-only", {}, ACTIVE | UNWRITABLE),
        ("16m", {"TORCH_DOCTOR_SHM": "auto"}, ACTIVE | SMALL),
        ("16m", {"TORCH_DOCTOR_SHM": "off"}, OFF),
        ("2g", {"TORCH_DOCTOR_SHM": "on"}, ACTIVE | FORCED),
        ("16m", {"TORCH_DOCTOR_SHM": "yes"}, ACTIVE | SMALL | BAD_SETTING),
        ("16m", {"TORCH_DOCTOR_SHM_MIN": "16m"}, LARGE),
        ("16m", {"TORCH_DOCTOR_SHM_MIN": "16777217"}, ACTIVE | SMALL),
        ("2g", {"TORCH_DOCTOR_SHM_MIN": "3G"}, ACTIVE | SMALL),
        ("2g", {"TORCH_DOCTOR_SHM_MIN": "lots"}, LARGE | BAD_SETTING),
        ("2g", {"TORCH_DOCTOR_SHM_MIN": "99999999999g"}, LARGE | BAD_SETTING),
    ],
)
def test_status(run: Run, shm: str, environment: dict[str, str], expected: int) -> None:
    assert int(output(run(STATUS, shm, **environment))) == LOADED | expected


@NEEDS_ROOT
def test_status_where_only_root_may_write(run: Run) -> None:
    assert int(output(run(STATUS, "unwritable", prefix=AS_USER))) == LOADED | ACTIVE | UNWRITABLE


@pytest.mark.parametrize(
    "trap",
    ["os.mkdir(path, 0o777); os.chmod(path, 0o777)", "os.mkdir('/mnt/own', 0o700); os.symlink('/mnt/own', path)"],
)
def test_a_folder_open_to_others_is_not_used(run: Run, trap: str) -> None:
    code = f"""
    path = f"/mnt/work/.torch-doctor-shm-{{os.geteuid()}}"
    {trap}
    status = ctypes.CDLL(None).torch_doctor_shm_status()
    fd = shm_open(NAME, NEW, 0o600)
    print(os.path.lexists(path + NAME), bool(status & {ACTIVE}))
    """
    result = output(run(code, "absent", TORCH_DOCTOR_SHM_DIR="/mnt/work", TMPDIR="/nonexistent"))
    assert result == "False True"
