"""GPUs that fail: the bus, memory, Xid reports."""

from __future__ import annotations

from torch_doctor.diagnose.cause import DEGRADED, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.tables import XID
from torch_doctor.model import Remediation

#: Xids that a cause of their own explains: the bus, and memory that failed
OWN_CAUSE = {48, 63, 64, 79, 92, 94, 95, 171, 172}


def xid(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The number tells what happened, and whose fault it is."""
    number = int(seen.groups["xid"])
    meaning, remedy, commands, kind = XID.get(number, XID[0])
    if kind == "echo" or number in OWN_CAUSE:
        return None
    action = f" ({_recovery(seen)})" if number == 154 and _recovery(seen) else ""
    if "eboot" in action:
        remedy, commands = "Drain the node and reboot it", ("sudo reboot",)
    return with_message(
        verdict,
        f"the driver reported Xid {number}{_where(seen)}: {meaning}{action}",
        Remediation(remedy, commands),
        xid=number,
    )


def _recovery(seen: Seen) -> str:
    """What the driver asks for after the error: nothing, a reset, or a reboot; empty where it says nothing."""
    found = seen.find(r"GPU recovery action changed from [^\n]* to 0x[0-9a-fA-F]+ \((?P<action>[^)\n]+)\)")
    return found["action"] if found else ""


def _ecc(seen: Seen, verdict: Verdict) -> Verdict | None:
    action = _recovery(seen)
    if "eboot" not in action:
        return verdict
    return with_message(
        verdict,
        f"{verdict.message}; the driver asks for: {action}",
        Remediation(
            "Drain the node and reboot it, since a reset is not enough here; look at remapped rows, and replace the GPU if "
            "it recurs",
            ("sudo reboot", "nvidia-smi -q -d ECC,PAGE_RETIREMENT,ROW_REMAPPER"),
        ),
    )


def _where(seen: Seen) -> str:
    return f" on PCI {seen.groups['pci']}" if seen.groups.get("pci") else ""


register(
    Cause(
        "GPU209",
        "gpu-fell-off-the-bus",
        "The GPU is gone: hardware, power, heat or the PCIe link.",
        "No software mends that. Processes hang without an exception, and nvidia-smi fails.",
        "the GPU dropped off the PCIe bus{where}: heat, power supply, seating or firmware",
        Remediation(
            "Drain the node and reset or reboot it; limit the power, check cooling, reseat the card, update the "
            "firmware, replace it if it recurs",
            (
                "sudo nvidia-smi -pl 300",
                "sudo nvidia-smi --gpu-reset -i 0",
                "dmesg -T | grep -i -E 'xid|nvrm|aer|pcie'",
            ),
        ),
        (
            Signature(
                "fallen off the bus",
                "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.",
                "NVRM: Xid (PCI:0000:02:00): 13, Graphics Exception",
                r"(?:PCI:(?P<where>[0-9a-fA-F:.]+)\)?[^\n]*)?has fallen off the bus",
                source="NVIDIA Xid catalogue",
            ),
            Signature(
                "Unable to determine the device handle",
                "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error",
                "device handle found",
                r"Unable to determine the device handle for (?:GPU|gpu) ?\d*:? ?(?P<where>[0-9a-fA-F:.]*[0-9a-fA-F])",
                source="nvidia-smi 418 to 590",
            ),
            Signature(
                "GPU is lost",
                "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to "
                "recover this GPU",
                "packet is lost",
                source="NVML 390 to 590",
            ),
            Signature(
                "GPU requires reset",
                "nvidia-smi: GPU requires reset",
                "requires reset of the counter",
                source="NVML 510 to 590",
            ),
            Signature(
                "Xid",
                "NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
                "NVRM: Xid (PCI:0000:02:00): 31, pid=1, MMU Fault",
                r"Xid \(PCI:(?P<where>[0-9a-fA-F:.]+)\): 79\b",
                source="NVIDIA Xid catalogue",
            ),
        ),
        explains=("GPU2", "SES2", "DST", "MEM2"),
        judge=lambda seen, verdict: with_message(
            verdict,
            verdict.message.replace("?", "")
            if not seen.groups.get("where")
            else verdict.message.replace(seen.groups["where"], f" (PCI {seen.groups['where']})"),
        ),
    ),
    Cause(
        "GPU210",
        "xid-reported",
        "The driver reported an Xid.",
        "The number says what happened: memory faults of the program (13, 31, 43), memory that failed (48, 63, 64, "
        "92, 94, 95), NVLink (74), the GPU's own processor (119, 120), the bus (79).",
        "the driver reported Xid {xid}",
        Remediation("Look the number up in NVIDIA's Xid catalogue", ("dmesg -T | grep -i xid",)),
        (
            Signature(
                "Xid",
                "NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python, Ch 00000008, intr 00000000. MMU Fault",
                "Xid count: 0",
                r"Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+)\b",
                source="NVIDIA Xid catalogue",
            ),
            Signature(
                ("XID", "Xid", "XId", "XiD"),
                "GPU 3: XID 31 MMU fault",
                "xids=0",
                r"(?:GPU \d+|error)[^\n]{0,30}\bX[Ii][Dd](?: error| errors)?:? (?P<xid>\d{2,3})\b",
                source="DCGM, gpud",
            ),
        ),
        explains=("GPU22", "GPU207", "SES2", "DST"),
        judge=xid,
    ),
    Cause(
        "GPU224",
        "uncorrectable-ecc-error",
        "The GPU's memory has an error that ECC could not correct.",
        "Hardware. The process is lost; the page is retired or the row remapped at the next reset.",
        "an uncorrectable ECC error of the GPU's memory ended the run: hardware",
        Remediation(
            "Drain the node, reset the GPU, look at retired pages and remapped rows, and replace the GPU if it "
            "recurs",
            ("nvidia-smi -q -d ECC,PAGE_RETIREMENT,ROW_REMAPPER", "sudo nvidia-smi --gpu-reset -i 0"),
        ),
        (
            Signature(
                ("XID", "XId", "Xid", "XiD"),
                "GPU 3: XID 94 contained ECC error",
                "GPU 3: XID 13 graphics exception",
                r"\bX[Ii][Dd](?: error| errors)?:? (?:48|63|64|92|94|95|171|172)\b",
                source="DCGM, gpud",
            ),
            Signature(
                "uncorrectable ECC error",
                "RuntimeError: CUDA error: uncorrectable ECC error encountered",
                "ECC errors: 0 (uncorrectable ECC errors: 0)",
                r"uncorrectable ECC error (?:was )?(?:encountered|detected)",
                source="CUDA 9 to 13",
            ),
            Signature(
                "uncorrectable NVLink error",
                "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
                "NVLink error count",
                source="CUDA 10 to 13",
            ),
            Signature(
                ("ontained ECC error", "Xid ("),
                "NVRM: Xid (PCI:0000:c1:00): 94, pid=12, name=python, Contained: GPC. Contained ECC error",
                "ECC enabled",
                r"Xid \([^)]*\): (?:48|63|64|92|94|95|171|172)\b",
                source="NVIDIA Xid catalogue",
            ),
            Signature(
                "Xid",
                "NVRM: Xid (PCI:0000:c1:00): 48, pid=12, name=python, DBE (double bit error)",
                "NVRM: Xid (PCI:0000:c1:00): 13, pid=12",
                r"Xid \([^)]*\): (?:48|63|64|92|94|95|171|172)\b",
                source="NVIDIA Xid catalogue",
            ),
        ),
        explains=("GPU2", "SES2", "DST"),
        judge=_ecc,
    ),
    Cause(
        "GPU240",
        "gpu-throttled",
        "The GPU lowers its clocks: heat or power.",
        "The run goes on, several times slower. A slowdown by hardware is a fault of cooling or power supply, not of the load.",
        "the GPU lowers its clocks ({what}): too hot, or its power supply is too weak",
        Remediation(
            "Check the cooling and the power supply, and set a lower power limit meanwhile",
            (
                "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
                "nvidia-smi --query-gpu=clocks_throttle_reasons.active,temperature.gpu,power.draw --format=csv -l 5",
                "sudo nvidia-smi -pl 250",
            ),
        ),
        (
            Signature(
                "Slowdown",
                "HW Thermal Slowdown : Active",
                "HW Thermal Slowdown : Not Active",
                r"(?P<what>HW (?:Thermal |Power Brake )?Slowdown)\s*(?:is active|: Active)",
                source="nvidia-smi 470 to 590, NVIDIA kernel module",
            ),
        ),
        kind=DEGRADED,
        decide="nvidia-smi -q -d PERFORMANCE",
    ),
    Cause(
        "GPU241",
        "process-stuck-in-driver",
        "A process hangs in the kernel, inside the NVIDIA driver.",
        "It cannot be killed (state D). The driver waits for a GPU that does not answer.",
        "a process hangs inside the NVIDIA driver (kernel: blocked for more than {seconds} seconds), and cannot be killed: the "
        "driver waits for a GPU that does not answer",
        Remediation(
            "Look for an Xid before it, move other jobs off the node, and reboot it; update the driver if it recurs",
            ("dmesg -T | grep -i -E 'xid|nvrm'", "ps -eo pid,stat,wchan:30,cmd | awk '$2 ~ /D/'", "sudo reboot"),
        ),
        (
            Signature(
                "blocked for more than",
                "INFO: task python:4411 blocked for more than 120 seconds.\n      Tainted: P           OE     5.15.0-97-generic\n"
                "Call Trace:\n uvm_va_block_lock",
                "INFO: task tar:44 blocked for more than 120 seconds.\nCall Trace:\n rpc_wait_bit_killable",
                r"INFO: task \S+ blocked for more than (?P<seconds>\d+) seconds\.(?:\n[^\n]*){0,24}?\b(?:nvidia\w*|uvm_\w+|_nv\d+rm"
                r"|os_acquire_\w+)",
                source="Linux 3 to 6, hung_task",
            ),
        ),
        explains=("DST", "SES2"),
    ),
)
