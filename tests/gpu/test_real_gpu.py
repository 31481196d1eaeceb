"""On a real GPU: the facts are nvidia-smi's, nothing true is missed, and nothing untrue is said."""

from __future__ import annotations

import shlex
import time
from typing import Any

import pytest
from support.gpu_machine import Machine, red

#: states of a real machine that a healthy one may be in: others' memory, a pending repair, heat, a narrow link
TRUE_OF_SOME_MACHINES = {"GPU030", "GPU033", "GPU034", "GPU035", "GPU036"}

HOLD = """
import signal, sys, torch
held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda:0")
torch.cuda.synchronize()
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture
def report(machine: Machine) -> dict[str, Any]:
    return machine.report("--select", "gpu", "--timeout", "120")


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {c["id"]: c["outcome"] for c in report["checks"]}


def test_nothing_untrue_is_said(report: dict[str, Any]) -> None:
    assert set(red(report)) <= TRUE_OF_SOME_MACHINES
    assert report["summary"]["crashed"] == 0


def test_nvml_and_cuda_were_looked_at(report: dict[str, Any]) -> None:
    found = outcomes(report)
    assert "skipped" not in {found[i] for i in ("GPU010", "GPU012", "GPU021", "GPU031", "GPU034")}


def test_the_facts_are_those_of_nvidia_smi(machine: Machine, report: dict[str, Any]) -> None:
    facts = report["facts"]["gpu"]
    rows = machine.smi("uuid,name,driver_version,memory.total,pci.bus_id,compute_cap")
    assert [d["uuid"] for d in facts["devices"]] == [r[0] for r in rows]
    for device, (_, name, driver, memory_mib, bus, capability) in zip(facts["devices"], rows, strict=True):
        assert (device["name"], facts["driver_version"], device["bus_id"]) == (name, driver, bus)
        assert abs(device["memory_total_bytes"] / (1 << 20) - float(memory_mib)) <= 1
        assert ".".join(map(str, device["compute_capability"])) == capability


def test_cuda_starts_and_sees_every_gpu(machine: Machine, report: dict[str, Any]) -> None:
    facts = report["facts"]["cuda_driver"]
    assert (facts["init_code"], facts["device_count"]) == (0, len(machine.smi("index")))
    assert "libcuda" in facts["library"]


def test_each_gpu_multiplies_as_the_cpu_does(machine: Machine, report: dict[str, Any]) -> None:
    if machine.run(f"{machine.python} -c 'import torch; assert torch.version.cuda'").rc != 0:
        pytest.skip("no torch with CUDA there")
    results = report["facts"]["gpu_matmul"]["results"]
    assert {(r["index"], r["dtype"]) for r in results} == {
        (i, d) for i in range(len(machine.smi("index"))) for d in ("float32", "bfloat16")
    }
    for result in results:
        assert result["error"] == "" and 0 <= result["relative_error"] <= result["tolerance"] / 2
    assert outcomes(report)["GPU026"] == outcomes(report)["GPU027"] == "passed"
    assert outcomes(report)["GPU024"] == outcomes(report)["GPU025"] == "passed"


@pytest.mark.parametrize(
    ("value", "severity"),
    [("", "warning"), ("-1", "warning"), ("97", "error"), ("GPU-deadbeef", "error"), ("0,97", "warning")],
)
def test_cuda_visible_devices(machine: Machine, value: str, severity: str) -> None:
    said = machine.report("--select", "gpu", "--ignore", "torch", environment=f"CUDA_VISIBLE_DEVICES={value}")
    assert set(red(said, severity)) - TRUE_OF_SOME_MACHINES == {"GPU005"}
    # CUDA agrees: what the variable hides, cuInit hides
    cuda = said["facts"]["cuda_driver"]
    assert (cuda["device_count"] or 0) == (1 if value == "0,97" else 0)


def test_a_uuid_of_this_machine_is_no_fault(machine: Machine) -> None:
    uuid = machine.smi("uuid")[0][0]
    said = machine.report("--select", "gpu", "--ignore", "torch", environment=f"CUDA_VISIBLE_DEVICES={uuid}")
    assert "GPU005" not in red(said)
    assert said["facts"]["cuda_driver"]["device_count"] == 1


def test_more_gpus_than_there_are(machine: Machine) -> None:
    count = len(machine.smi("index"))
    said = machine.report("--select", "gpu", "--ignore", "torch", "--need", f"gpus={count + 1}")
    assert set(red(said, "error")) == {"GPU007"}
    said = machine.report("--select", "gpu", "--ignore", "torch", "--need", f"gpus={count}")
    assert "GPU007" not in red(said)


def test_memory_that_another_process_holds(machine: Machine) -> None:
    total = machine.report("--select", "GPU030")["facts"]["gpu"]["devices"][0]["memory_total_bytes"]
    size, out = int(total * 0.2), "/tmp/torch-doctor-holder"
    started = machine.run(
        f"timeout 300 {machine.python} -c {shlex.quote(HOLD)} {size} > {out} 2>&1 < /dev/null & pid=$!; "
        f"while kill -0 $pid && ! grep -q ready {out}; do sleep 0.1; done; cat {out} >&2; echo $pid"
    )
    try:
        assert "ready" in started.stderr
        said = machine.report("--select", "GPU030")
    finally:
        machine.run(f"kill {started.stdout.strip()}; rm -f {out}")
    finding = next(f for f in said["findings"] if f["evidence"]["index"] == 0)
    assert finding["evidence"]["used_bytes"] >= size
    for process in finding["evidence"]["processes"]:
        assert not process["visible"] or (process["name"] and process["owner"])


def test_the_look_without_torch_is_fast(machine: Machine) -> None:
    machine.report("--select", "gpu", "--ignore", "torch")  # the driver, woken
    start = time.monotonic()
    machine.report("--select", "gpu", "--ignore", "torch")
    assert time.monotonic() - start < 10
