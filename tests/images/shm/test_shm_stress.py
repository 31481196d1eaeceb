"""Ten thousand batches leave nothing behind: no descriptor, mapping, memfd, name, keeper or memory.

TORCH_DOCTOR_STRESS_SECONDS makes it longer, for each strategy; 300 is ten minutes in all.
"""

from __future__ import annotations

import json
import os

import pytest

from .conftest import SHM, run

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SECONDS = int(os.environ.get("TORCH_DOCTOR_STRESS_SECONDS", "0"))
# Without a length: as many batches, and a limit that only a stuck loader meets.
BATCHES, LIMIT = (10**9, SECONDS) if SECONDS else (10_000, 240)

# Sockets that stay once they are needed: to the keeper, and to torch_shm_manager.
LASTING_SOCKETS = 2


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
@pytest.mark.parametrize("shm", ["64m", "absent"])
def test_nothing_is_left(shm: str, strategy: str) -> None:
    if SECONDS and shm == "absent":
        pytest.skip("the long run is for Docker's own 64 MiB")
    arguments = [strategy, str(LIMIT), str(BATCHES)]
    result = run("stress.py", *arguments, options=[*SHM[shm], "--memory=4g"], timeout=LIMIT + 120)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    print(report)
    before, after = report["before"], report["after"]
    assert report["batches"] >= min(BATCHES, 10_000)
    assert after.pop("descriptors") <= before.pop("descriptors") + LASTING_SOCKETS
    assert report["peak_mib"] > 32, "the large batches were never seen in this container's memory"
    assert after == before == dict.fromkeys(before, 0)
