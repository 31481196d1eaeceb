"""Tensors on the wrong device."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.words import LINT
from torch_doctor.model import Remediation


def devices(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Two GPUs are another story than a GPU and the CPU: an attribute that does not follow .to()."""
    if "metric calculation" in seen.log.lines[seen.index].text:
        return with_message(
            verdict,
            "a metric of torchmetrics is on another device than its inputs: it is a module with state of its own",
            Remediation(
                "Make it a submodule, so that it follows the module, or move it",
                (
                    "self.accuracy = MulticlassAccuracy(num_classes=n)  # in __init__",
                    "metric = MulticlassAccuracy(num_classes=n).to(device)",
                ),
            ),
        )
    if "hidden tensor" in seen.groups.get("devices", "") or "Input and " in seen.groups.get("devices", ""):
        return with_message(
            verdict,
            f"the input and the hidden state of an RNN are on different devices ({seen.groups['devices'].split('found ')[-1]})",
            Remediation(
                "Make the hidden state on the input's device",
                ("h = torch.zeros(layers, x.size(0), width, device=x.device)", "h = h.to(x.device)"),
            ),
        )
    found = sorted(set(re.findall(r"\b(?:cuda:\d+|cpu|mps(?::\d+)?|xpu:\d+|meta)\b", seen.groups.get("devices", ""))))
    if len(found) >= 2 and "cpu" not in found:
        return with_message(
            verdict,
            f"tensors are on {' and '.join(found)}: a plain tensor attribute of a module does not follow .to(), or "
            "one part was placed on another GPU",
            Remediation(
                "Register constants with register_buffer so that they follow the module, and create tensors with "
                "device=x.device",
                ("self.register_buffer('idx', torch.arange(n))", "torch.arange(n, device=x.device)", LINT),
            ),
        )
    gpu = next((d for d in found if d != "cpu"), "the GPU")
    return with_message(verdict, verdict.message.replace("?", gpu))


register(
    Cause(
        "DEV201",
        "tensors-on-different-devices",
        "A tensor or module stayed on another device than the rest.",
        "Tensor.to() returns a copy, Module.to() works in place; plain tensor attributes do not follow the module; "
        "tensors and layers made in forward start on the CPU.",
        "a tensor or module was left on the CPU while the rest is on {gpu}: an input that was not moved, a plain "
        "tensor attribute, or a layer or tensor created in forward",
        Remediation(
            "Move inputs with x = x.to(device), use register_buffer for constants, create layers in __init__ and "
            "new tensors with device=x.device",
            ("x = x.to(device)", "self.register_buffer('mask', mask)", LINT),
        ),
        (
            Signature(
                "Expected all tensors to be on the same device",
                "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
                "cuda:0 and cpu!",
                "tensors on the same device",
                r"Expected all tensors to be on the same device(?:[^\n]*?(?P<devices>(?:found at least two "
                r"devices|but got)[^\n!]*))?",
                source="torch 1.5 to 2.15, c10 device checks",
            ),
            Signature(
                "Input type (",
                "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be "
                "the same",
                "RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should "
                "be the same",
                r"Input type \(torch\.(?:(?P<incuda>cuda)\.)?(?P<a>\w+)\) and (?:weight|bias) type "
                r"\(torch\.(?(incuda)(?!cuda)|cuda\.)\w+\)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "is not on the expected device",
                "RuntimeError: Tensor on device meta is not on the expected device cpu!",
                "is on the expected device",
                r"Tensor on device (?P<devices>\S+ is not on the expected device [\w:]+)",
                source="torch 1.12 to 2.15, fake and meta tensors, CUDA decompositions",
            ),
            Signature(
                " to have the same device",
                "RuntimeError: Expected tensor for argument #1 'input' to have the same device as tensor for "
                "argument #2 "
                "'weight'; but device 0 does not equal 1 (while checking arguments for cudnn_convolution)",
                "device type",
                r"Expected tensor for argument #\d+ '[^']*' to have the same device",
                source="torch 1.0 to 1.12",
            ),
            Signature(
                ("Expected object of ", "Expected tensor for argument"),
                "RuntimeError: Expected object of device type cuda but got device type cpu for argument #1 'self' "
                "in call to _th_mm",
                "device type",
                r"Expected (?:object of (?:device type|backend) (?:cuda|CUDA|cpu|CPU) but got|tensor for argument "
                r"#\d+ '[^']*' to have the same device)",
                source="torch 1.0 to 1.6",
            ),
            Signature(
                "Expected object of backend",
                "RuntimeError: Expected object of backend CPU but got backend CUDA for argument #4 'mat1'",
                "backend CPU",
                source="torch 1.0 to 1.3",
            ),
            Signature(
                "Pointer argument (at ",
                "ValueError: Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)",
                "Pointer argument",
                source="triton 2.x and 3.x",
            ),
            Signature(
                "indices should be either on",
                "RuntimeError: indices should be either on cpu or on the same device as the indexed tensor (cuda:0)",
                "indices on cpu",
                source="torch 1.4 to 2.15",
            ),
            Signature(
                "Unhandled FakeTensor Device Propagation",
                "got RuntimeError('Unhandled FakeTensor Device Propagation for aten.add.Tensor, found two different devices "
                "cuda:0, cpu')",
                "FakeTensor Device",
                r"Unhandled FakeTensor Device Propagation for [\w.]+, (?P<devices>found two different devices [\w:]+, [\w:]+)",
                source="torch 2.0 to 2.15, torch.compile and export",
            ),
            Signature(
                "tensors are not at the same device",
                "RuntimeError: Input and hidden tensors are not at the same device, found input tensor at cuda:0 and "
                "hidden tensor at cpu",
                "at the same device",
                r"(?P<devices>Input and \w+ tensors are not at the same device, found [^\n]*)",
                source="torch 1.0 to 2.15, RNNs",
            ),
            Signature(
                "module must have its parameters and buffers on device",
                "RuntimeError: module must have its parameters and buffers on device cuda:0 (device_ids[0]) but found "
                "one of them on device: cpu",
                "module on device",
                r"module must have its parameters and buffers on device (?P<devices>[^\n]*)",
                source="torch 1.0 to 2.15, DataParallel",
            ),
            Signature(
                (
                    "Encountered different devices in metric calculation",
                    "Placeholder storage has not been allocated on MPS",
                ),
                "RuntimeError: Encountered different devices in metric calculation (see stacktrace for details).",
                "different devices in metrics",
                r"Encountered different devices in metric calculation|Placeholder storage has not been allocated on MPS device",
                source="torchmetrics 0.5 to 1.8; torch 1.12 to 2.15 on MPS: an input or the model is still on the CPU",
            ),
            Signature(
                ("but expected on ", "but expected it to be on "),
                "RuntimeError: Tensor for argument weight is on cpu but expected on mps",
                "but expected on time",
                r"Tensor for argument (?:#\d+ )?'?\w+'? is on (?P<devices>[\w:]+,? but expected (?:it to be )?on [\w:]+)",
                source="torch 1.12 to 2.15 on MPS",
            ),
            Signature(
                "all tensors must be on devices[",
                "RuntimeError: all tensors must be on devices[0]",
                "tensors on devices",
                r"all tensors must be on devices\[\d+\]",
                source="torch 0.3 to 1.9, DataParallel",
            ),
        ),
        judge=devices,
        explains=("CMP2",),
    ),
    Cause(
        "DEV202",
        "cuda-tensor-to-numpy",
        "A CUDA tensor was to become a NumPy array.",
        "NumPy has host memory only.",
        "a CUDA tensor was converted to NumPy: it has to be copied to the host first",
        Remediation("Detach it and copy it to the CPU", ("x.detach().cpu().numpy()",)),
        (
            Signature(
                "can't convert ",
                "TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
                "to host memory first.",
                "convert cuda",
                r"can't convert (?:cuda:\d+ device type|CUDA) tensor to numpy",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "can't convert CUDA tensor to numpy",
                "TypeError: can't convert CUDA tensor to numpy. Use Tensor.cpu()",
                "convert",
                source="torch 0.4 to 1.5",
            ),
        ),
    ),
    Cause(
        "DEV203",
        "pinned-memory-of-cuda-tensor",
        "pin_memory met a CUDA tensor.",
        "The data set puts its samples on the GPU; only CPU tensors can be pinned.",
        "pin_memory=True got CUDA tensors: the data set or collate_fn puts its samples on the GPU already",
        Remediation(
            "Return CPU tensors from the data set and move the batch in the loop, or leave pin_memory off",
            ("batch = batch.to(device, non_blocking=True)",),
        ),
        (
            Signature(
                "cannot pin '",
                "RuntimeError: cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
                "pin memory",
                r"cannot pin '",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
    Cause(
        "DEV205",
        "lengths-not-on-the-cpu",
        "pack_padded_sequence got its lengths on the GPU.",
        "They are read on the host, and have to be there.",
        "the lengths of packed sequences are on the GPU, and are wanted on the CPU as int64",
        Remediation("Move them", ("pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)",)),
        (
            Signature(
                "'lengths' argument should be a 1D CPU int64 tensor",
                "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor",
                "'lengths' argument",
                source="torch 1.5 to 2.15",
            ),
        ),
    ),
    Cause(
        "DEV206",
        "operator-missing-on-mps",
        "Apple's GPU back end does not have an operator.",
        "The fallback runs it on the CPU, and is off by default.",
        "the MPS device has no {what}",
        Remediation(
            "Let such operators run on the CPU, which is set before torch is imported, or move this part there",
            ("export PYTORCH_ENABLE_MPS_FALLBACK=1", "pip install --upgrade torch"),
        ),
        (
            Signature(
                "implemented for the MPS device",
                "NotImplementedError: The operator 'aten::_upsample_bicubic2d_aa.out' is not currently implemented for the MPS "
                "device.",
                "implemented for the MPS device already",
                r"The operator '(?P<what>[\w:.]+)' is not current(?:ly)? implemented for the MPS device",
                source="torch 1.12 to 2.15",
            ),
        ),
    ),
    Cause(
        "DEV207",
        "generator-on-another-device",
        "A random generator is on another device than what it draws for.",
        "torch.set_default_device('cuda') or set_default_tensor_type makes a DataLoader's sampler draw on the GPU with a "
        "generator of the CPU, or the other way round.",
        "a random generator is on {have} where one on {want} is wanted: a default device was set, and a sampler or random_split "
        "draws with another",
        Remediation(
            "Give the loader a generator on the default device, or leave the default device alone and name devices where they "
            "are needed",
            (
                "DataLoader(ds, shuffle=True, generator=torch.Generator(device='cuda'))",
                "random_split(ds, lengths, generator=torch.Generator(device='cuda'))",
                "torch.set_default_device('cpu')",
            ),
        ),
        (
            Signature(
                "device type for generator but found",
                "RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'",
                "device type for the generator",
                r"Expected a '(?P<want>\w+)(?::\d+)?' device type for generator but found '(?P<have>\w+)",
                source="torch 1.6 to 2.15",
            ),
        ),
    ),
)
