"""Optimizers: their parameters, their steps, and steps that change nothing."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import DEGRADED, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.runs import completed
from torch_doctor.diagnose.trends import rising, series
from torch_doctor.diagnose.words import LINT
from torch_doctor.model import Remediation

#: logged steps with the same loss, or with a learning rate of zero, from which it is no chance; a loss that may be as small
SAME, ZEROS, LEAST = 10, 3, 0.01


def _no_zero_grad(seen: Seen, verdict: Verdict) -> Verdict | None:
    if "trend" not in seen.groups:
        return with_message(verdict, verdict.message.replace("?", ""))
    pattern = r"(?:grad(?:ient)?[_ ]?norm|gnorm)\W{0,3}([\d.]+(?:e[+-]?\d+)?)"
    growth = rising(seen.log, len(seen.log.lines), pattern, least=6, by=5)
    losses = series(seen.log, len(seen.log.lines), r"\bloss\b\W{0,3}([\d.]+(?:e[+-]?\d+)?)")
    if growth is None or (losses and losses[-1] <= losses[0] and not seen.has(r"\bloss\b\W{0,3}nan")):
        return None
    return with_message(verdict, verdict.message.replace("?", f", from {growth[0]:g} to {growth[1]:g}"))


#: what an optimizer says of its arguments -> (what is wrong, remedy)
_ARGUMENTS: tuple[tuple[str, str, Remediation], ...] = (
    (
        r"Invalid (?:learning rate|lr|beta|weight_decay|momentum|epsilon)",
        ": out of its range, by a sign, or a setting that was read as another number",
        Remediation(
            "Look at the configuration that it comes from", ("print(optimizer_kwargs)", "AdamW(params, lr=1e-3)")
        ),
    ),
    (
        r"one of the params is",
        ": it got modules or names in place of parameters",
        Remediation(
            "Pass parameters",
            ("AdamW(model.parameters(), lr=1e-3)", "AdamW([p for m in layers for p in m.parameters()])"),
        ),
    ),
    (
        r"should be an iterable",
        ": it got one tensor",
        Remediation("Put it into a list", ("Adam([x], lr=1e-2)",)),
    ),
    (
        r"'method' object is not iterable",
        ": it got the method in place of its result",
        Remediation("Call it", ("AdamW(model.parameters(), lr=1e-3)",)),
    ),
)


def _arguments(seen: Seen, verdict: Verdict) -> Verdict | None:
    what = seen.groups["what"]
    if "method" in what and not seen.near(r"torch/optim/|optim\.|parameters", 8, 8):
        return None
    for pattern, meaning, remedy in _ARGUMENTS:
        if re.search(pattern, what):
            return with_message(verdict, f"the optimizer refused its arguments ({what}){meaning}", remedy)
    return verdict


def _frozen(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The loss of every logged step is the same to the last digit, or the learning rate stays at zero."""
    if completed(seen.log) is not None and "lr" in seen.groups:
        return None  # a schedule that ends at zero
    if "lr" in seen.groups:
        rates = series(seen.log, len(seen.log.lines), r"\blr\b['\"]?\W{0,3}(\d[\d.]*(?:e[+-]?\d+)?)")
        if len(rates) < 5 or max(rates) <= 0 or any(rates[-ZEROS:]):
            return None
        return with_message(
            verdict,
            "the learning rate fell to 0 and stays there while training goes on: the scheduler is stepped more often than it was "
            "made for (each batch in place of each epoch, or accumulation), or its length is too short",
            Remediation(
                "Step the scheduler in the rhythm that its length counts in",
                (
                    "CosineAnnealingLR(optimizer, T_max=epochs * len(loader))  # stepped each batch",
                    "print(optimizer.param_groups[0]['lr'])",
                    LINT,
                ),
            ),
        )
    losses = series(seen.log, len(seen.log.lines), r"\bloss\b['\"]?\W{0,3}(\d+\.\d{3,})")
    if len(losses) < SAME or len(set(losses)) > 1 or losses[0] < LEAST:
        return None
    return with_message(verdict, f"{verdict.message} ({losses[0]:g} in each of {len(losses)} logged steps)")


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
        "the optimizer got an empty parameter list: layers kept in a plain list or dict are not registered, the "
        "generator of parameters was used up, or all parameters are frozen",
        Remediation(
            "Use nn.ModuleList or nn.ModuleDict, list(model.parameters()) where it is used twice, and unfreeze what is "
            "to be trained before the optimizer is made",
            (
                "self.layers = nn.ModuleList([...])",
                "params = list(model.parameters())",
                "[n for n, p in model.named_parameters() if p.requires_grad]",
            ),
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
    Cause(
        "OPT236",
        "optimizer-of-non-leaf",
        "An optimizer was given a tensor that is the result of an operation.",
        "nn.Parameter(x).to(device) or a * Parameter is no parameter any more: only leaf tensors can be optimised.",
        "the optimizer was given a tensor that is the result of an operation (.to(), .cuda(), a slice or a product), no "
        "parameter",
        Remediation(
            "Move the data first and make the parameter of it",
            ("w = nn.Parameter(torch.zeros(n, device=device))", "x = x.detach().requires_grad_(True)"),
        ),
        (
            Signature(
                "can't optimize a non-leaf Tensor",
                "ValueError: can't optimize a non-leaf Tensor",
                "non-leaf tensors",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
    Cause(
        "OPT237",
        "parameter-in-two-groups",
        "A parameter was given to the optimizer twice.",
        "Groups that are picked by name or by module overlap, or layers share their weights.",
        "the same parameter is in more than one of the optimizer's groups: the groups overlap, or two modules share weights",
        Remediation(
            "Put each parameter into one group, by identity",
            (
                "head = {id(p) for p in model.head.parameters()}",
                "rest = [p for p in model.parameters() if id(p) not in head]",
            ),
        ),
        (
            Signature(
                "some parameters appear in more than one parameter group",
                "ValueError: some parameters appear in more than one parameter group",
                "parameter group",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
    Cause(
        "OPT238",
        "adam-steps-on-gpu",
        "Adam's step counter was loaded onto the GPU, which torch 1.12.0 refuses.",
        "A fault of torch 1.12.0: load_state_dict moves the counter to the parameters' device.",
        "Adam's state was loaded onto the GPU with its step counter, which torch 1.12.0 refuses (capturable=False)",
        Remediation(
            "Install torch 1.12.1 or later; until then mark the groups as capturable after loading",
            ("pip install 'torch>=1.12.1'", "optimizer.param_groups[0]['capturable'] = True"),
        ),
        (
            Signature(
                "state_steps should not be CUDA tensors",
                "AssertionError: If capturable=False, state_steps should not be CUDA tensors.",
                "capturable=False",
                source="torch 1.12.0",
            ),
        ),
    ),
    Cause(
        "OPT239",
        "optimizer-needs-closure",
        "LBFGS was stepped without its closure.",
        "It evaluates the loss several times a step, and needs a function that does so.",
        "an optimizer that evaluates the loss several times (LBFGS) was stepped without a closure",
        Remediation(
            "Pass a function that clears the gradients, computes the loss, calls backward and returns the loss",
            (
                "def closure():\n    optimizer.zero_grad(); loss = criterion(model(x), y); loss.backward(); return loss",
                "optimizer.step(closure)",
            ),
        ),
        (
            Signature(
                "positional argument: 'closure'",
                "TypeError: LBFGS.step() missing 1 required positional argument: 'closure'",
                "positional argument: 'metrics'",
                r"step\(\) missing 1 required positional argument: 'closure'",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
    Cause(
        "OPT240",
        "parameters-never-change",
        "The loss is the same in every step: nothing is trained.",
        "The optimizer holds other tensors than the model uses (it was made before .to(), deepcopy or a wrapper), step() is "
        "not called, the learning rate is 0, all is frozen, or the scaler skips every step.",
        "the loss is the same to the last digit in every step: the parameters are not updated",
        Remediation(
            "See whether gradients arrive and parameters change; make the optimizer from the model that is trained, and look at "
            "its learning rate",
            (
                "print([(n, p.grad is None) for n, p in model.named_parameters()][:5], optimizer.param_groups[0]['lr'])",
                "optimizer = AdamW(model.parameters())  # after model.to(device) and wrapping",
                LINT,
            ),
        ),
        (
            Signature(
                ("loss ", "loss:", "loss=", "loss'"),
                "\n".join(f"step {i} loss 10.8259" for i in range(1, 13)),
                "step 1 loss 10",
                r"(?P<trend>)\bloss'?(?: |: ?|=)\d+\.\d{3,}",
                source="common training loops",
            ),
            Signature(
                ("lr ", "lr:", "lr=", "lr'"),
                "step 1 loss 2.3 lr 1e-3\nstep 2 loss 2.2 lr 1e-8\nstep 3 loss 2.2 lr 0.0e+00\nstep 4 loss 2.2 lr 0.0e+00\nstep 5 loss 2.2 "
                "lr 0.0e+00",
                "step 1 loss 2.3 lr 1e-3",
                r"(?P<trend>)\blr'?(?: |: ?|=)(?P<lr>0(?:\.0+)?(?:e[+-]?\d+)?)\b",
                source="common training loops",
            ),
        ),
        kind=DEGRADED,
        judge=_frozen,
    ),
    Cause(
        "OPT241",
        "optimizer-arguments-wrong",
        "An optimizer was made with arguments that it does not take.",
        "It wants parameters, as a list, a generator or groups, and numbers in their range.",
        "the optimizer refused its arguments ({what})",
        Remediation("Pass the module's parameters", ("AdamW(model.parameters(), lr=1e-3)",)),
        (
            Signature(
                (
                    "optimizer can only optimize Tensors",
                    "params argument given to the optimizer should be",
                    "Invalid ",
                ),
                "TypeError: optimizer can only optimize Tensors, but one of the params is Linear",
                "Invalid learning",
                r"(?P<what>optimizer can only optimize Tensors, but one of the params is [\w.]+|params argument given to the "
                r"optimizer should be an iterable of Tensors or dicts, but got [\w.]+"
                r"|ValueError: Invalid (?:learning rate|lr|beta parameter[^\n:]*|weight_decay value|momentum value|epsilon value): "
                r"[^\n]{1,30})",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "'method' object is not iterable",
                "  File \"torch/optim/optimizer.py\", line 271, in __init__\n    param_groups = list(params)\nTypeError: 'method' "
                "object is not iterable",
                "TypeError: 'method' object is not subscriptable",
                r"TypeError: (?P<what>'method' object is not iterable)",
                source="python 3.8 to 3.14",
            ),
        ),
        judge=_arguments,
    ),
)
