"""HDF0xx: locks, handles over a fork, SWMR, versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torch_doctor.checks import handles as checks
from torch_doctor.facts.handles import DataFolder, DataFolderFacts, H5pyFacts
from torch_doctor.facts.requirements import LoaderNeed, Requirements
from torch_doctor.model import FailureKind, ProbeFailure, Severity

NOTHING, H5PY = Requirements(), Requirements(uses=frozenset({"h5py"}), script="train.py")
LMDB = Requirements(uses=frozenset({"lmdb"}))
HEALTHY = DataFolder("/data", "/data/a.h5", "ext4", writable=True, flock_excludes=True, record_lock_excludes=True)
INSTALLED = H5pyFacts("3.16.0", "2.0.0", "2.0.0", python="python")
UNLOCKABLE = replace(HEALTHY, kind="nfs", flock_error="ENOLCK", hdf5_error="OSError: Unable to lock file, errno = 37")


def in_folder(folder: DataFolder) -> DataFolderFacts:
    return DataFolderFacts((folder,))


def test_a_healthy_folder_has_no_fault() -> None:
    data = in_folder(replace(HEALTHY, fork_moves_offset=False, swmr_error=""))
    for needs in (NOTHING, H5PY, LMDB):
        assert not [
            *checks.hdf5_locking_unsupported(data, INSTALLED, needs),
            *checks.hdf5_handle_crosses_fork(data, INSTALLED, needs),
            *checks.hdf5_swmr_fails(data, INSTALLED, needs),
            *checks.database_locks_unsupported(data, needs),
            *checks.database_folder_read_only(data, needs),
            *checks.hdf5_version_mismatch(INSTALLED, needs),
            *checks.h5py_import_fails(INSTALLED, needs),
        ]


@pytest.mark.parametrize(("needs", "severity"), [(NOTHING, Severity.WARNING), (H5PY, Severity.ERROR)])
def test_a_file_system_without_locks(needs: Requirements, severity: Severity) -> None:
    (finding,) = checks.hdf5_locking_unsupported(in_folder(UNLOCKABLE), INSTALLED, needs)
    assert finding.severity is severity
    assert finding.message == "HDF5 cannot lock a file in /data (nfs): ENOLCK"
    assert finding.remediation.commands == ("export HDF5_USE_FILE_LOCKING=FALSE",)


def test_another_error_of_hdf5_is_not_called_a_lock() -> None:
    broken = replace(HEALTHY, hdf5_error="OSError: Unable to open file (file signature not found)")
    assert not list(checks.hdf5_locking_unsupported(in_folder(broken), INSTALLED, H5PY))


def test_a_handle_whose_place_is_shared() -> None:
    data = in_folder(replace(HEALTHY, fork_moves_offset=True))
    (alone,) = checks.hdf5_handle_crosses_fork(data, INSTALLED, NOTHING)
    (forked,) = checks.hdf5_handle_crosses_fork(data, INSTALLED, replace(H5PY, loaders=(LoaderNeed(1, 4),)))
    (spawned,) = checks.hdf5_handle_crosses_fork(
        data, INSTALLED, replace(H5PY, loaders=(LoaderNeed(1, 4),), start_method="spawn")
    )
    assert [f.severity for f in (alone, forked, spawned)] == [Severity.WARNING, Severity.ERROR, Severity.WARNING]


def test_swmr() -> None:
    asked = replace(H5PY, uses=frozenset({"h5py", "swmr"}))
    (failed,) = checks.hdf5_swmr_fails(in_folder(replace(HEALTHY, swmr_error="OSError: no")), INSTALLED, asked)
    assert failed.severity is Severity.ERROR
    network = in_folder(replace(HEALTHY, kind="nfs4", is_network=True))
    (warned,) = checks.hdf5_swmr_fails(network, INSTALLED, asked)
    assert warned.severity is Severity.WARNING
    assert not list(checks.hdf5_swmr_fails(network, INSTALLED, H5PY))


@pytest.mark.parametrize(
    ("loaded", "built", "found"), [("1.14.2", "1.14.2", 0), ("1.14.3", "1.14.2", 1), ("1.8.20", "1.8.20", 1)]
)
def test_versions(loaded: str, built: str, found: int) -> None:
    facts = replace(INSTALLED, hdf5=loaded, hdf5_built=built)
    assert len(list(checks.hdf5_version_mismatch(facts, NOTHING))) == found


def test_h5py_that_is_missing_is_a_fault_of_a_script_that_uses_it() -> None:
    missing = ProbeFailure("h5py is not installed for /venv/bin/python", evidence={"python": "/venv/bin/python"})
    (finding,) = checks.h5py_import_fails(missing, H5PY)
    assert finding.severity is Severity.ERROR
    assert finding.message == "train.py uses h5py; h5py is not installed for /venv/bin/python"
    assert finding.remediation.commands == ("/venv/bin/python -m pip install h5py",)
    assert not list(checks.h5py_import_fails(missing, NOTHING))


@pytest.mark.parametrize("kind", [FailureKind.ERROR, FailureKind.SIGNAL, FailureKind.TIMEOUT])
def test_h5py_that_cannot_be_imported(kind: FailureKind) -> None:
    broken = ProbeFailure("import h5py fails: ValueError: numpy.dtype size changed", kind)
    assert [f.severity for f in checks.h5py_import_fails(broken, NOTHING)] == [Severity.WARNING]
    assert [f.severity for f in checks.h5py_import_fails(broken, H5PY)] == [Severity.ERROR]


def test_databases_need_record_locks() -> None:
    for folder in (replace(HEALTHY, record_lock_error="ENOLCK"), replace(HEALTHY, record_lock_excludes=False)):
        (finding,) = checks.database_locks_unsupported(in_folder(folder), LMDB)
        assert finding.severity is Severity.ERROR and "readonly=True, lock=False" in finding.remediation.commands[0]
        assert not list(checks.database_locks_unsupported(in_folder(folder), H5PY))


def test_lmdb_on_a_network_file_system() -> None:
    data = in_folder(replace(HEALTHY, kind="nfs", is_network=True))
    assert [f.severity for f in checks.database_locks_unsupported(data, LMDB)] == [Severity.WARNING]
    assert not list(checks.database_locks_unsupported(data, Requirements(uses=frozenset({"sqlite3"}))))


def test_a_data_folder_that_is_only_read() -> None:
    data = in_folder(replace(HEALTHY, writable=False))
    assert [f.severity for f in checks.database_folder_read_only(data, LMDB)] == [Severity.WARNING]
    assert not list(checks.database_folder_read_only(data, H5PY))
