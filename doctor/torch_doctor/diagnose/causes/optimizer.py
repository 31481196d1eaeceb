"""Optimizers and schedulers."""

from __future__ import annotations

from torch_doctor.diagnose.cause import DEGRADED, HINT, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.trends import rising, series
from torch_doctor.diagnose.words import LINT
from torch_doctor.model import Remediation


def _no_zero_grad(seen: Seen, verdict: Verdict) -> Verdict | None:
    if "trend" not in seen.groups:
        return with_message(verdict, verdict.message.replace("?", ""))
    pattern = r"(?:grad(?:ient)?[_ ]?norm|gnorm)\W{0,3}([\d.]+(?:e[+-]?\d+)?)"
    growth = rising(seen.log, len(seen.log.lines), pattern, least=6, by=5)
    losses = series(seen.log, len(seen.log.lines), r"\bloss\b\W{0,3}([\d.]+(?:e[+-]?\d+)?)")
    if growth is None or (losses and losses[-1] <= losses[0] and not seen.has(r"\bloss\b\W{0,3}nan")):
        return None
    return with_message(verdict, verdict.message.replace("?", f", from {growth[0]:g} to {growth[1]:g}"))


register(
    Cause(
        "OPT201",
        "gradient-norm-grows",
        "zero_grad is missing: gradients accumulate over all steps.",
        "backward adds to .grad. Without zero_grad each step uses the sum of all gradients so far; the loss falls, "
        "then rises or becomes nan.",
        "the gradient norm grows with every step{figures}: gradients accumulate for ever, because zero_grad is "
        "missing",
        Remediation("Clear the gradients in each step", ("optimizer.zero_grad(set_to_none=True)", LINT)),
        (
            Signature(
                "norm",
                "(no error) loss falls, then rises or becomes nan; grad norm grows every step",
                "grad norm 0.5",
                r"grad(?:ient)?[ _]norm (?:grows|increases|rises|keeps growing)",
                source="yastrebksv/TennisCourtDetector#7",
            ),
            Signature(
                ("grad", "gnorm"),
                "step 1 loss 2.1 grad_norm 1.0\nstep 2 loss 1.9 grad_norm 2.1\nstep 3 loss 1.8 grad_norm 3.3\nstep "
                "4 loss 2.4 grad_norm 4.7\nstep 5 loss 3.9 grad_norm 6.9\nstep 6 loss 7.0 grad_norm 11.2",
                "step 1 loss 2.1 gradnorm_clip on",
                r"(?P<trend>)\b(?:grad(?:ient)?[_ ]?norm|gnorm)\W{0,3}\d",
                source="common training loops",
            ),
        ),
        kind=DEGRADED,
        judge=lambda seen, verdict: _no_zero_grad(seen, verdict),
        explains=("LOS201",),
    ),
    Cause(
        "OPT202",
        "last-batches-never-stepped",
        "The last batches of every epoch never reach optimizer.step().",
        "With gradient accumulation, the number of batches is no multiple of the accumulation; zero_grad at the "
        "start of the epoch discards what is unfinished. Here an extra zero_grad is the fault.",
        "{what} batches of every epoch never reach optimizer.step(): the zero_grad at the start of the epoch "
        "discards the unfinished accumulation",
        Remediation(
            "Step on the last batch of an epoch as well",
            (
                "if (i + 1) % accumulate == 0 or i + 1 == len(loader):\n    optimizer.step(); optimizer.zero_grad()",
                LINT,
            ),
        ),
        (
            Signature(
                "never reach",
                "(no error) last 24 of 120 batches of every epoch never reach optimizer.step()",
                "all batches reach optimizer.step()",
                r"(?P<what>(?:the )?last \d+ (?:of \d+ )?)batch\w*[^\n]*never reach\w*[^\n]*step",
                source="ultralytics/ultralytics#11217",
            ),
        ),
        kind=DEGRADED,
    ),
    Cause(
        "OPT203",
        "empty-parameter-list",
        "The optimizer got no parameters.",
        "model.parameters() of a module that keeps its layers in a plain list, or a generator that was used up.",
        "the optimizer got an empty parameter list: layers kept in a plain list or dict are not registered, or the "
        "generator of parameters was used up",
        Remediation(
            "Use nn.ModuleList or nn.ModuleDict, and list(model.parameters()) where it is used twice",
            ("self.layers = nn.ModuleList([...])",),
        ),
        (
            Signature(
                "optimizer got an empty parameter list",
                "ValueError: optimizer got an empty parameter list",
                "parameter list",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
    Cause(
        "OPT204",
        "scheduler-stepped-before-optimizer",
        "The scheduler was stepped before the optimizer.",
        "The first value of the schedule is skipped. GradScaler prints the same when it skips its first step, "
        "which is harmless.",
        "lr_scheduler.step() was called before optimizer.step(): the first value of the schedule is skipped "
        "(harmless where GradScaler skipped the step)",
        Remediation(
            "Call optimizer.step() first; with GradScaler step the scheduler only when the scale did not fall",
            ("optimizer.step(); scheduler.step()", LINT),
        ),
        (
            Signature(
                "`lr_scheduler.step()` before `optimizer.step()`",
                "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`.",
                "lr_scheduler.step()",
                source="torch 1.1 to 2.15",
            ),
        ),
        kind=HINT,
    ),
    Cause(
        "OPT231",
        "module-init-not-called",
        "A Module's __init__ does not call that of nn.Module.",
        "nn.Module keeps its layers in tables that its own __init__ makes; without it no layer can be assigned.",
        "a module was assigned before nn.Module's __init__ ran: super().__init__() is missing in the class",
        Remediation("Call it first in __init__", ("super().__init__()",)),
        (
            Signature(
                "before Module.__init__() call",
                "AttributeError: cannot assign module before Module.__init__() call",
                "Module.__init__()",
                r"cannot assign (?:module|parameters?|buffers?) before Module\.__init__\(\) call",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "object has no attribute '_",
                "AttributeError: 'Net' object has no attribute '_modules'",
                "AttributeError: 'Net' object has no attribute 'fc'",
                r"object has no attribute '_(?:modules|parameters|buffers|forward_hooks|backward_hooks)'",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
)
