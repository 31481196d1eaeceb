"""Mixed precision: autocast, GradScaler and the loss scale."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation

#: what GradScaler says -> remedy
_SCALER: tuple[tuple[str, Remediation], ...] = (
    (
        "FP16 gradients",
        Remediation(
            "Keep the trainable weights in float32 and let autocast cast: do not call .half() on the model or load it in "
            "float16 together with fp16=True; or train in bf16, which needs no scaler",
            (
                "AutoModel.from_pretrained(path, dtype=torch.float32)",
                "for p in model.parameters():\n    if p.requires_grad: p.data = p.data.float()",
                "TrainingArguments(bf16=True, fp16=False)",
            ),
        ),
    ),
    (
        "step()",
        Remediation(
            "Keep the order unscale_, clip, step, and call update() once at the end of each step, after all optimizers",
            ("scaler.unscale_(optimizer); clip_grad_norm_(...); scaler.step(optimizer); scaler.update()",),
        ),
    ),
    (
        "already been called",
        Remediation(
            "Call unscale_ once per optimizer between two update() calls: clip_grad_norm_ of a trainer (Accelerate, "
            "Lightning) unscales too; with accumulation unscale only in the step that updates",
            ("scaler.unscale_(optimizer); clip_grad_norm_(...); scaler.step(optimizer); scaler.update()",),
        ),
    ),
    (
        "No inf checks",
        Remediation(
            "See that backward ran on scaler.scale(loss) and reached this optimizer's parameters: without one gradient "
            "there is nothing to check (frozen parameters, another model's optimizer, zero_grad after backward)",
            (
                "scaler.scale(loss).backward()",
                "[n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]",
            ),
        ),
    ),
)


def _scaler(seen: Seen, verdict: Verdict) -> Verdict | None:
    found = next((remedy for words, remedy in _SCALER if words in seen.groups["what"]), None)
    return with_message(verdict, verdict.message, found)


register(
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
                ("unscale_() is being called after step()", "step() has already been called since the last update()"),
                "RuntimeError: step() has already been called since the last update().",
                "step() was called",
                r"(?P<what>unscale_\(\) is being called after step\(\)|step\(\) has already been called since the last "
                r"update\(\))",
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
        judge=_scaler,
    ),
    Cause(
        "AMP203",
        "bce-under-autocast",
        "BCELoss was called under autocast, which it refuses.",
        "Its backward overflows in float16. The form on raw scores is safe.",
        "BCELoss (binary_cross_entropy) was called under autocast, which refuses it because float16 overflows there",
        Remediation(
            "Drop the sigmoid and use BCEWithLogitsLoss, or leave autocast for the loss",
            (
                "nn.BCEWithLogitsLoss()(scores, y)",
                "with torch.autocast('cuda', enabled=False):\n    loss = F.binary_cross_entropy(p.float(), y)",
            ),
        ),
        (
            Signature(
                "are unsafe to autocast",
                "RuntimeError: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.",
                "safe to autocast",
                source="torch 1.6 to 2.15",
            ),
        ),
    ),
    Cause(
        "AMP204",
        "loss-scale-exhausted",
        "The loss scale of fp16 training fell to its minimum: every step overflows.",
        "A few skipped steps at the start are the scaler at work. When the scale cannot fall further, the gradients are "
        "infinite or nan at any scale: the model diverged, or does not fit fp16.",
        "the loss scale fell to its minimum: the gradients overflow, or are nan, at any scale",
        Remediation(
            "Train in bf16, which needs no scale; else lower the learning rate or lengthen the warm-up, and look for the "
            "batch or layer that gives nan",
            (
                '"bf16": {"enabled": true}, "fp16": {"enabled": false}  // DeepSpeed',
                "TrainingArguments(bf16=True, fp16=False, learning_rate=1e-5, max_grad_norm=1.0)",
                "torch.autograd.set_detect_anomaly(True)",
            ),
        ),
        (
            Signature(
                "loss scale already at minimum",
                "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
                "loss scale at 65536",
                source="DeepSpeed 0.3 to 0.18",
            ),
            Signature(
                "reducing loss scale to ",
                "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 1.1641532182693481e-10",
                "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
                r"Gradient overflow\.\s+Skipping step, loss scaler \d+ reducing loss scale to (?:0\.0$|\d(?:\.\d+)?e-\d+)",
                source="apex 0.1",
            ),
            Signature(
                "inimum loss scale reached",
                "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.",
                "loss scale reached 65536",
                source="fairseq, Megatron",
            ),
        ),
        explains=("LOS201", "LOS207"),
    ),
)
