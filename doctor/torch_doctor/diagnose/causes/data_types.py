"""Data types that do not fit: of two tensors, of a device, of NumPy, or by name."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

_LABELS = Remediation(
    "Convert the labels or indexes to int64, and see that prediction and target are passed in that order",
    ("y = y.long()", "loss = nn.CrossEntropyLoss()(logits, y.long())"),
)
_TARGETS = Remediation(
    "Convert the targets to floats: BCE, MSE and L1 losses compare numbers, not class indexes",
    ("loss = nn.BCEWithLogitsLoss()(logits, y.float())",),
)
_DOUBLE = Remediation(
    "Convert the arrays to float32 where they become tensors: NumPy makes float64",
    ("torch.from_numpy(a).float()", "x = x.float()", "np.asarray(a, dtype=np.float32)"),
)
_ON_CPU = Remediation(
    "Run on the GPU, or use float32 (or bfloat16) on the CPU: many operations have no float16 form there",
    ("model = model.float()", "model.to('cuda')", "AutoModel.from_pretrained(path, dtype=torch.float32)"),
)
_SAME = Remediation(
    "Give both sides one type: run the forward pass under autocast, or cast the input to the layer's type",
    ("torch.autocast('cuda', dtype=torch.bfloat16)", "x = x.to(next(model.parameters()).dtype)"),
)
#: what the text says -> (what it means, remedy); the first that fits
_DTYPES: tuple[tuple[str, str, Remediation], ...] = (
    (
        r"dtype to be Long|scalar type Long but (?:found|got)|not implemented for 'Int'|scalar types?:? Long",
        "labels or indexes must be int64 (long)",
        _LABELS,
    ),
    (
        r"Float can't be cast to the desired output type (?:Long|Int|Byte)|dtype (?:Long|Int)\b.*expected (?:Float|Half)"
        r"|[Ee]xpected (?:object of )?scalar type Float but (?:found|got)(?: scalar type)? (?:Long|Int|Byte)"
        r"|type Float but found (?:Long|Int|Byte)",
        "the targets are integers where the loss wants floats",
        _TARGETS,
    ),
    (r"not implemented for '(?:Long|Int|Byte|Bool)'", "integers were passed where floats are wanted", _TARGETS),
    (
        r"parameters have dtype that is not",
        "a part of the model is in another type than DeepSpeed's configuration",
        Remediation(
            "Cast the whole model to that type before initialize, or leave the mode off",
            ("model = model.half()", "model = model.bfloat16()", '"bf16": {"enabled": true}  // DeepSpeed'),
        ),
    ),
    (
        r"require gradients",
        "integers cannot be trained",
        Remediation(
            "Make it a tensor of floats",
            ("x = x.float().requires_grad_(True)", "torch.tensor([1.0, 2.0], requires_grad=True)"),
        ),
    ),
    (r"Double|double|float64", "a float64 tensor, most often from NumPy, meets float32", _DOUBLE),
    (r"\"\w*(?:cpu|Impl|_kernel|cpu_)\w*\" not implemented for 'Half'", "no float16 form of it on the CPU", _ON_CPU),
    (
        r"[Ff]lash ?[Aa]ttention only supports?",
        "flash attention computes in fp16 or bf16 only",
        Remediation(
            "Load the model in bf16 or run it under autocast, or take another attention",
            (
                "AutoModel.from_pretrained(path, dtype=torch.bfloat16, attn_implementation='flash_attention_2')",
                "torch.autocast('cuda', dtype=torch.bfloat16)",
                "attn_implementation='sdpa'",
            ),
        ),
    ),
    (r"Half|half|BFloat16|bfloat16|c10::", "half precision meets full precision", _SAME),
)


def _dtypes(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Which of the two has to change is in the text."""
    what = seen.groups["what"]
    for pattern, meaning, remedy in _DTYPES:
        if re.search(pattern, what) and not (remedy is _ON_CPU and "cuda" in what):
            return with_message(verdict, f"{verdict.message}: {meaning}", remedy)
    return verdict


register(
    Cause(
        "AMP201",
        "data-types-do-not-match",
        "Two tensors' data types do not fit.",
        "Half-precision weights with float inputs, or the other way round; double from NumPy; integer labels or "
        "inputs where floats are expected.",
        "data types do not fit: {what}",
        Remediation(
            "Run the forward pass under autocast, convert inputs with .float() or .to(model.dtype), and labels "
            "and indexes with .long(), arrays with torch.as_tensor()",
            (
                "torch.autocast('cuda', dtype=torch.bfloat16)",
                "x = x.to(next(model.parameters()).dtype)",
                "torch.from_numpy(a).float()",
            ),
        ),
        (
            Signature(
                "must have the same dtype",
                "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half",
                "the same dtype",
                r"(?P<what>[^\n:]*must have the same dtype[^\n]*)",
                source="torch 1.13 to 2.15",
            ),
            Signature(
                "to have the same dtype, but got",
                "RuntimeError: Expected query, key, and value to have the same dtype, but got query.dtype: float "
                "key.dtype: float and value.dtype: c10::Half instead.",
                "to have the same dtype",
                r"(?P<what>[Ee]xpected [\w, ]{3,40} to have the same dtype, but got[^\n]*)",
                source="torch 2.0 to 2.15, attention and addmm",
            ),
            Signature(
                "Found dtype ",
                "RuntimeError: Found dtype Long but expected Float",
                "Found dtype",
                r"(?P<what>Found dtype \w+ but expected \w+)",
                source="torch 1.5 to 2.15, backward of a loss",
            ),
            Signature(
                "dtypes match, got",
                "RuntimeError: Index put requires the source and destination dtypes match, got Float for the "
                "destination and Half for the source.",
                "dtypes match",
                r"(?P<what>Index put requires the source and destination dtypes match, got[^\n]*)",
                source="torch 1.8 to 2.15, x[i] = y under autocast",
            ),
            Signature(
                "ttention only support",
                "RuntimeError: FlashAttention only support fp16 and bf16 data type",
                "attention only supports",
                r"(?P<what>[Ff]lash ?[Aa]ttention only supports? (?!Ampere)[^\n]*)",
                source="flash-attn 1 and 2",
            ),
            Signature(
                ("expected scalar type", "expected m1 and m2"),
                "RuntimeError: expected scalar type Float but found Half",
                "scalar type",
                r"(?P<what>expected (?:m1 and m2 to have the same dtype|scalar type \w+ but found \w+)[^\n]*)",
                source="torch 1.4 to 2.15",
            ),
            Signature(
                "Expected object of scalar type",
                "RuntimeError: Expected object of scalar type Long but got scalar type Float for argument #2 "
                "'target'",
                "scalar",
                r"(?P<what>Expected object of scalar type \w+ but got scalar type \w+)",
                source="torch 1.0 to 1.4",
            ),
            Signature(
                "Input type (",
                "RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should "
                "be the same",
                "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be "
                "the same",
                r"(?P<what>Input type \(torch\.cuda\.\w+\) and (?:weight|bias) type \(torch\.cuda\.\w+\)|Input "
                r"type \(torch\.[A-Z]\w+\) and (?:weight|bias) type \(torch\.[A-Z]\w+\))",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "Input type (",
                "RuntimeError: Input type (float) and bias type (c10::Half) should be the same",
                "bias type",
                r"(?P<what>Input type \([\w:]+\) and (?:weight|bias) type \([\w:]+\))",
                source="torch 1.12 to 2.15",
            ),
            Signature(
                "not implemented for '",
                "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",
                "not implemented for x",
                r"(?P<what>\"\w+\" not implemented for '\w+')",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "result type ",
                "RuntimeError: result type Float can't be cast to the desired output type Long",
                "result type",
                r"(?P<what>result type \w+ can't be cast to the desired output type \w+)",
                source="torch 1.5 to 2.15",
            ),
            Signature(
                "Expected floating point type for target",
                "RuntimeError: Expected floating point type for target with class probabilities, got Long",
                "floating point",
                r"(?P<what>Expected floating point type for target[^\n]*)",
                source="torch 1.10 to 2.15",
            ),
            Signature(
                "expected target dtype to be",
                "RuntimeError: expected target dtype to be Long or Byte, but got Int",
                "target dtype",
                r"(?P<what>expected target dtype to be [\w ]+, but got \w+)",
                source="torch 2.12 to 2.15",
            ),
            Signature(
                "could not infer output dtype",
                "RuntimeError: mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: Long",
                "output dtype",
                r"(?P<what>could not infer output dtype[^\n]*Got: \w+)",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "dtype can require gradients",
                "RuntimeError: Only Tensors of floating point and complex dtype can require gradients",
                "require gradients",
                r"(?P<what>[Oo]nly Tensors of floating point (?:and complex )?dtype can require gradients)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "Expected tensor for argument #",
                "RuntimeError: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got torch.cuda.FloatTensor instead (while checking arguments for embedding)",
                "scalar types: Long",
                r"(?P<what>Expected tensor for argument #\d+ '\w+' to have (?:one of the following )?scalar types?:? [^;]*; but got [\w.]+)",
                source="torch 1.0 to 2.15",
            ),
            Signature(
                "expected Tensor as element",
                "TypeError: expected Tensor as element 0 in argument 0, but got numpy.ndarray",
                "expected Tensor",
                r"(?P<what>expected Tensor as element \d+ in argument \d+, but got [\w.]+)",
                source="torch 1.0 to 2.15: torch.as_tensor first",
            ),
            Signature(
                "parameters have dtype that is not",
                "ValueError: fp16 is enabled but the following parameters have dtype that is not fp16: module.embed.weight",
                "parameters have dtype",
                r"(?P<what>\w+ is enabled but the following parameters have dtype that is not \w+[^\n]{0,80})",
                source="DeepSpeed 0.5 to 0.18",
            ),
        ),
        judge=_dtypes,
    ),
    Cause(
        "AMP205",
        "bfloat16-to-numpy",
        "A bfloat16 tensor was to become a NumPy array.",
        "NumPy has no bfloat16.",
        "a bfloat16 tensor was converted to NumPy, which has no such type",
        Remediation("Convert it to float32 first", ("x.detach().float().cpu().numpy()",)),
        (
            Signature(
                "Got unsupported ScalarType",
                "TypeError: Got unsupported ScalarType BFloat16",
                "ScalarType Float",
                r"Got unsupported ScalarType (?:BFloat16|Float8\w*)",
                source="torch 1.5 to 2.15",
            ),
        ),
    ),
    Cause(
        "AMP206",
        "constant-overflows-half",
        "A constant does not fit in float16.",
        "float16 ends at 65504: masks filled with -1e9 or -1e10 do not fit.",
        "a constant is too large for half precision (float16 ends at 65504): a mask filled with -1e9, most often",
        Remediation(
            "Take the smallest number of the type",
            ("scores.masked_fill(mask, torch.finfo(scores.dtype).min)",),
        ),
        (
            Signature(
                "cannot be converted to type ",
                "RuntimeError: value cannot be converted to type at::Half without overflow",
                "value cannot be converted",
                r"value cannot be converted to type (?:at::Half|c10::Half)\b[^\n]*overflow",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "AMP207",
        "float64-on-mps",
        "Apple's GPU back end has no float64.",
        "NumPy arrays and Python's own numbers in arrays are float64 until they are converted.",
        "a float64 tensor was put on the MPS device, which has no such type",
        Remediation("Convert it to float32 first", ("x = torch.as_tensor(a, dtype=torch.float32, device='mps')",)),
        (
            Signature(
                "MPS framework doesn't support float64",
                "TypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use "
                "float32 instead.",
                "MPS framework",
                source="torch 1.12 to 2.15",
            ),
        ),
    ),
    Cause(
        "AMP208",
        "precision-name-unknown",
        "A trainer does not know the name of the precision.",
        "Lightning 2 renamed 16 to 16-mixed, Transformers and Accelerate say fp16 and bf16.",
        "the trainer does not know the precision {what}",
        Remediation(
            "Use its own names",
            (
                "Trainer(precision='16-mixed')  # or 'bf16-mixed', '32-true': Lightning 2",
                "Accelerator(mixed_precision='bf16')  # or 'fp16', 'no'",
                "TrainingArguments(bf16=True)",
            ),
        ),
        (
            Signature(
                ("is invalid. Allowed precision values", "Unknown mixed_precision mode"),
                "ValueError: Precision 'fp16' is invalid. Allowed precision values: ('16-true', '16-mixed')",
                "precision is invalid",
                r"Precision (?P<what>\S+) is invalid\. Allowed precision values|Unknown mixed_precision mode: (?P<mode>\S+?)\.",
                source="Lightning 1.5 to 2.6, Accelerate 0.10 to 1.13",
            ),
        ),
        judge=lambda seen, verdict: with_message(verdict, verdict.message.replace("?", seen.groups.get("mode", ""))),
    ),
)
