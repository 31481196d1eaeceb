"""Derivatives that cannot be taken: inputs outside of the graph, backwards that do not fit, functions without one."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def _legacy(seen: Seen, verdict: Verdict) -> Verdict | None:
    if "Legacy" not in seen.groups.get("what", ""):
        return verdict
    return with_message(
        verdict,
        "a custom autograd function is written in the old form, without static methods",
        Remediation(
            "Make forward and backward static with ctx as first argument, and call it through apply",
            ("@staticmethod\ndef forward(ctx, x): ...", "y = MyFunction.apply(x)"),
        ),
    )


def _derivative(seen: Seen, verdict: Verdict) -> Verdict | None:
    what = seen.groups["what"]
    if "attention" in what:
        return with_message(
            verdict,
            f"there is no second derivative of the fused attention ({what}): a gradient penalty or a Hessian goes through it",
            Remediation(
                "Compute attention with the plain kernel in this part",
                (
                    "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH): ...",
                    "attn_implementation='eager'",
                ),
            ),
        )
    if what in ("target", "weight"):
        return with_message(
            verdict,
            f"there is no derivative of a loss for its {what}: input and target are swapped, or the target requires grad",
        )
    return with_message(
        verdict,
        f"{verdict.message}: the operation has none, or no second one",
        Remediation(
            "Take the operation out of the graph, or use one that has a derivative",
            ("x = x.detach()", "torch.autograd.set_detect_anomaly(True)"),
        ),
    )


register(
    Cause(
        "GRD233",
        "input-not-in-graph",
        "A gradient was asked for with respect to a tensor that the result does not depend on.",
        "torch.autograd.grad wants each input to be part of the graph: a tensor that was replaced by a copy (.to(), "
        "a slice, .detach()) is no longer the one that was used.",
        "torch.autograd.grad was asked for the gradient of a tensor that the result does not depend on",
        Remediation(
            "Use the very tensor that went into the forward pass, with requires_grad before it, or allow it",
            (
                "x = x.to(device).requires_grad_(True); out = model(x)",
                "torch.autograd.grad(out.sum(), [x], allow_unused=True)",
            ),
        ),
        (
            Signature(
                "appears to not have been used in the graph",
                "RuntimeError: One of the differentiated Tensors appears to not have been used in the graph. Set "
                "allow_unused=True if this is the desired behavior.",
                "unused tensors",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "One of the differentiated Tensors does not require grad",
                "RuntimeError: One of the differentiated Tensors does not require grad",
                "differentiated",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
    Cause(
        "GRD234",
        "custom-backward-is-wrong",
        "The backward of a custom autograd function returns gradients that do not fit its inputs.",
        "forward's inputs and backward's outputs go together one by one: as many, of the same shapes, None for what "
        "needs no gradient.",
        "the backward of a custom autograd function does not fit its forward: {what}",
        Remediation(
            "Return one gradient an input of forward, of that input's shape, and None for inputs without one; gradcheck "
            "compares them with numbers",
            ("torch.autograd.gradcheck(MyFunction.apply, (x.double().requires_grad_(),))", "return grad_x, None"),
        ),
        (
            Signature(
                ("returned an invalid gradient at index", "returned an incorrect number of gradients"),
                "RuntimeError: Function FBackward returned an invalid gradient at index 0 - got [1] but expected shape "
                "compatible with [3]",
                "returned a gradient",
                r"[Ff]unction (?P<what>\w+ returned an (?:invalid gradient at index|incorrect number of gradients)[^\n]*)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "returned an incorrect number of gradients",
                "RuntimeError: function MulBackward returned an incorrect number of gradients (expected 2, got 1)",
                "number of gradients",
                r"(?P<what>\w+ returned an incorrect number of gradients[^\n]*)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "Legacy autograd function with non-static forward",
                "RuntimeError: Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
                "function with static forward method.",
                "legacy function",
                r"(?P<what>Legacy autograd function with non-static forward method)",
                source="torch 1.3 to 2.15: forward and backward want @staticmethod and ctx, called with .apply",
            ),
        ),
        judge=_legacy,
    ),
    Cause(
        "GRD236",
        "derivative-not-implemented",
        "A derivative was asked for that does not exist.",
        "A loss has no derivative with respect to its targets: input and target are swapped. Fused kernels have a first "
        "derivative and no second.",
        "there is no derivative of {what}",
        Remediation(
            "See that prediction and target are passed in that order, and that nothing that is not to be trained requires "
            "grad",
            ("loss = F.cross_entropy(logits, y)  # prediction first", "y = y.detach()"),
        ),
        (
            Signature(
                "is not implemented",
                "RuntimeError: the derivative for 'target' is not implemented",
                "the derivative is implemented",
                r"derivative for '?(?P<what>[\w:]+)'? is not implemented",
                source="torch 0.4 to 2.15",
            ),
        ),
        judge=_derivative,
    ),
    Cause(
        "GRD237",
        "requires-grad-of-result",
        "requires_grad was switched off on the result of an operation.",
        "Only leaf tensors have that flag of their own; a result has its graph's.",
        "requires_grad was changed on a tensor that is the result of an operation",
        Remediation("Detach it in place of that", ("x = x.detach()", "with torch.no_grad(): ...")),
        (
            Signature(
                "you can only change requires_grad flags of leaf variables",
                "RuntimeError: you can only change requires_grad flags of leaf variables.",
                "requires_grad flags",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
)
