"""The request that a preflight is made of."""

from __future__ import annotations

import sys
from pathlib import Path

from torch_doctor import preflight
from torch_doctor.facts.request import Request
from torch_doctor.facts.requirements import Requirements


def test_every_option_reaches_the_request() -> None:
    needs = Requirements(gpus=1)
    asked = preflight.request(
        Path("train.py"), needs, timeout=7.0, deep=True, python=sys.executable, data=Path("data")
    )
    assert asked == Request(
        script=Path("train.py"),
        requirements=needs,
        timeout=7.0,
        deep=True,
        python=sys.executable,
        data=Path("data"),
    )
