"""Memory that runs out in a validation: who switched gradients off decides what mends it."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import Seen
from torch_doctor.diagnose.words import LINT
from torch_doctor.model import Remediation

_IN_VALIDATION = "GPU memory ran out in validation: its batches run without no_grad, so that their graphs accumulate"


_NO_GRAD = Remediation(
    "Run validation under torch.no_grad() or torch.inference_mode(), and keep its outputs detached and on the CPU",
    ("with torch.inference_mode():\n    validate(model, loader)", LINT),
)


#: frames of frameworks that switch gradients off in validation themselves, and what mends it there
_FRAMEWORKS = (
    (
        r"transformers/trainer(?:_pt_utils|_seq2seq)?\.py",
        "GPU memory ran out in the Trainer's evaluation, which runs without gradients anyway: it keeps the logits of "
        "all batches on the GPU, or the evaluation batch is too large",
        Remediation(
            "Move predictions to the CPU every few batches, keep only what the metric needs, and use a smaller "
            "evaluation batch",
            (
                "TrainingArguments(eval_accumulation_steps=10, per_device_eval_batch_size=1)",
                "Trainer(..., preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1))",
            ),
        ),
    ),
    (
        r"(?:pytorch_)?lightning/(?:pytorch/)?(?:loops|trainer|strategies)/",
        "GPU memory ran out in Lightning's validation, which runs without gradients anyway: outputs that are kept in "
        "validation_step stay on the GPU, or the validation batch is too large",
        Remediation(
            "Keep metrics, not outputs, or move them to the CPU, and use a smaller validation batch",
            (
                "self.outputs.append(out.detach().cpu()); self.outputs.clear()  # in on_validation_epoch_end",
                "DataLoader(val_set, batch_size=1)",
            ),
        ),
    ),
    (
        r"torch/(?:utils/_contextlib|autograd/grad_mode)\.py[^\n]*decorate_context",
        "GPU memory ran out in validation, although it runs under no_grad: the training step's graph or outputs are "
        "still alive, outputs are kept on the GPU, or the validation batch is larger than the training batch",
        Remediation(
            "Delete the last loss and outputs before validation, move kept outputs to the CPU, and use a smaller "
            "validation batch",
            ("del loss, out; optimizer.zero_grad(set_to_none=True)", "outputs.append(out.cpu())"),
        ),
    ),
)


def validation(seen: Seen) -> tuple[str, Remediation] | None:
    """What to say where the run died in its validation: who switches gradients off decides."""
    if not in_validation(seen):
        return None
    for frames, message, remedy in _FRAMEWORKS:
        if seen.near(frames, 40, 0):
            return message, remedy
    return _IN_VALIDATION, _NO_GRAD


def in_validation(seen: Seen) -> bool:
    """True where a frame of the traceback above is a validation's."""
    first = max(0, seen.index - 40)
    lines = [line.text for line in seen.log.lines[first : seen.index]]
    starts = [i for i, text in enumerate(lines) if text.startswith("Traceback")]
    frames = "\n".join(lines[starts[-1] if starts else 0 :])
    return (
        re.search(
            r"line \d+, in (?:\w*\.)?_?(?:valid\w*|eval\w*|test\w*|infer\w*|predict\w*|\w+_(?:eval|val|valid\w*"
            r"|test))\b",
            frames,
        )
        is not None
    )
