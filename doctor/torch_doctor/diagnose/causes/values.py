"""Values that are nan or infinite where a library demands finite ones."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register
from torch_doctor.model import Remediation

register(
    Cause(
        "LOS207",
        "gradients-not-finite",
        "The norm of the gradients is nan or infinite.",
        "clip_grad_norm_ with error_if_nonfinite, or a trainer's own check, stops the run. In fp16 a scaled gradient "
        "overflows; elsewhere the loss had a log, a division or a root at zero.",
        "the gradients' norm is nan or infinite[[ ({what})]]: an overflow in half precision, a learning rate that is "
        "too high, or a log, root or division at zero in the loss",
        Remediation(
            "Find the first operation with anomaly mode, use bf16 in place of fp16 and unscale before clipping, lower "
            "the learning rate, and check the batch",
            (
                "torch.autograd.set_detect_anomaly(True)",
                "scaler.unscale_(optimizer); clip_grad_norm_(model.parameters(), 1.0)",
                "assert torch.isfinite(x).all()",
            ),
        ),
        (
            Signature(
                "is non-finite, so it cannot be clipped",
                "RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot "
                "be clipped.",
                "clipped to 1.0",
                source="torch 1.9 to 2.15",
            ),
            Signature(
                "for gradients from `parameters` is nan",
                "RuntimeError: The total norm of order 2.0 for gradients from `parameters` is nan, so it cannot be "
                "clipped",
                "gradients from parameters",
                source="torch 1.8",
            ),
            Signature(
                ("rad norm is ", "radient norm is ", "rads are ", "radients are ", "rad is ", "radient is "),
                "ValueError: Gradient norm is nan, aborting",
                "Gradient norm is 0.4",
                r"\b[Gg]rad(?:ient)?(?:s are| norm is| is) (?P<what>[Nn]a[Nn]|inf(?:inite)?|not finite)\b",
                source="common training loops",
            ),
        ),
        explains=("LOS201",),
    ),
    Cause(
        "LOS208",
        "probabilities-are-nan",
        "A distribution was sampled or built from values that are nan or infinite.",
        "The logits were nan already: weights that became nan in training, an overflow in fp16, a temperature of "
        "nearly zero, or a mask that leaves a row empty. On the GPU it is an assertion in a kernel, and every later "
        "call of CUDA fails.",
        "the values of a distribution are nan, infinite or negative[[ ({what})]]: the logits or parameters that it was made "
        "from were nan already (diverged training, an overflow in fp16, a row that is masked as a whole)",
        Remediation(
            "Check the logits and the weights for nan before the sampling, use bf16 or float32 in place of fp16, and "
            "keep scale parameters positive; in generation raise the temperature or sample greedily to see the logits",
            (
                "assert torch.isfinite(logits).all()",
                "[n for n, p in model.named_parameters() if not torch.isfinite(p).all()]",
                "AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)",
                "std = F.softplus(raw) + 1e-6",
            ),
        ),
        (
            Signature(
                "probability tensor contains either",
                "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
                "probability tensor",
                r"probability tensor contains either `inf`, `nan` or element < 0(?P<what>)",
                source="torch 1.0 to 2.15, multinomial, CPU and CUDA",
            ),
            Signature(
                "to satisfy the constraint",
                "ValueError: Expected parameter loc (Tensor of shape (2, 3)) of distribution Normal(loc: torch.Size([2, "
                "3]), scale: torch.Size([2, 3])) to satisfy the constraint Real(), but found invalid values:\n"
                "tensor([[nan, nan, nan],",
                "satisfy the constraint",
                r"Expected parameter \w+ \(Tensor of shape[^\n]*of distribution (?P<what>\w+)[^\n]*to satisfy the "
                r"constraint [^\n]*but found invalid values",
                source="torch 1.8 to 2.15, torch.distributions",
            ),
            Signature(
                "has invalid values",
                "ValueError: The parameter logits has invalid values",
                "a column has invalid values",
                r"The parameter (?P<what>\w+) has invalid values",
                source="torch 1.0 to 1.7, torch.distributions",
            ),
            Signature(
                ("cumdist[size", "probability tensor contains either"),
                "/pytorch/aten/src/THC/THCTensorRandom.cuh:179: sampleMultinomialOnce: block: [0,0,0], thread: [0,0,0] "
                "Assertion `cumdist[size - 1] > static_cast<scalar_t>(0)` failed.",
                "cumdist of the scores",
                r"Assertion `[^`\n]*cumdist\[size(?P<what>)",
                source="torch 1.0 to 2.15, multinomial on CUDA",
            ),
        ),
        explains=("LOS201", "GPU22", "GPU23"),
    ),
    Cause(
        "LOS251",
        "matching-of-nan",
        "Boxes or costs that are matched are nan, infinite or turned inside out.",
        "Detection models match predictions and targets in each step. The model diverged, or boxes are given as x, y, w, h "
        "where corners are wanted.",
        "the boxes or costs of the matching are nan, infinite or turned inside out: the model diverged, or the boxes have "
        "another format or an empty area",
        Remediation(
            "Check the predictions for nan and the targets' format, lower the learning rate, clip gradients, and train the "
            "matching in float32",
            (
                "assert torch.isfinite(out['pred_boxes']).all()",
                "boxes = box_convert(boxes, in_fmt='xywh', out_fmt='xyxy')",
                "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)",
            ),
        ),
        (
            Signature(
                ("matrix contains invalid numeric entries", "cost matrix is infeasible"),
                "ValueError: matrix contains invalid numeric entries",
                "matrix contains zeros",
                source="SciPy 1.4 to 1.17, linear_sum_assignment",
            ),
            Signature(
                ".all()",
                "    assert (boxes1[:, 2:] >= boxes1[:, :2]).all()\nAssertionError",
                "assert mask.all()",
                r"assert \(boxes1?\[:, 2:\] >= boxes1?\[:, :2\]\)\.all\(\)",
                source="DETR, torchvision",
            ),
        ),
        explains=("LOS201",),
    ),
)
