"""Data types and mixed precision."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register
from torch_doctor.model import Remediation

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
        ),
    ),
    Cause(
        "AMP202",
        "unscaled-fp16-gradients",
        "GradScaler was used against its rules.",
        "unscale_ twice in a step, no inf checks recorded (no gradients), or half-precision weights.",
        "GradScaler refused: {what}",
        Remediation(
            "Call backward on scaler.scale(loss), keep the weights in float32, call unscale_ at most once per step and "
            "optimizer, and step only when there are gradients",
            ("scaler.unscale_(optimizer); clip_grad_norm_(...); scaler.step(optimizer); scaler.update()",),
        ),
        (
            Signature(
                "Attempting to unscale FP16 gradients",
                "ValueError: Attempting to unscale FP16 gradients.",
                "unscale",
                r"(?P<what>Attempting to unscale FP16 gradients)",
                source="torch 1.6 to 2.15",
            ),
            Signature(
                "No inf checks were recorded for this optimizer",
                "AssertionError: No inf checks were recorded for this optimizer.",
                "inf checks",
                r"(?P<what>No inf checks were recorded for this optimizer)",
                source="torch 1.6 to 2.15",
            ),
            Signature(
                "unscale_() has already been called",
                "RuntimeError: unscale_() has already been called on this optimizer since the last update().",
                "unscale_()",
                r"(?P<what>unscale_\(\) has already been called)",
                source="torch 1.6 to 2.15",
            ),
            Signature(
                "_scale is None",
                "AssertionError: Attempted unscale_ but _scale is None.  This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration.",
                "scale is None",
                r"(?P<what>Attempted \w+ but _scale is None)",
                source="torch 1.6 to 2.15: scaler.scale(loss).backward() is missing",
            ),
        ),
    ),
)
