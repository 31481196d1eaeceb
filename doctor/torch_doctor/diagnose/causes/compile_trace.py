"""torch.compile: what dynamo cannot trace, and recompilations."""

from __future__ import annotations

import re
from dataclasses import replace

from torch_doctor.diagnose.cause import DEGRADED, HINT, VAGUE, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def _recompile(seen: Seen, verdict: Verdict) -> Verdict | None:
    groups = seen.groups
    reason = f", last since {groups['reason'].split(': ', 1)[-1]}" if groups.get("reason") else ""
    limit = f" of {groups['limit']} graphs" if groups.get("limit") else ""
    function = f" for {groups['function'].strip()}" if groups.get("function") else ""
    return with_message(
        verdict,
        f"torch.compile hit its recompilation limit{limit}{function}{reason}: sizes keep changing, each makes a "
        "new graph, and the frame runs "
        "eagerly and slowly from then on",
    )


def _fallback(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Under suppress_errors dynamo warns, and goes on in eager mode: what ended the run is something else."""
    if not seen.near(r"WON'T CONVERT", 40, 0):
        return verdict
    return replace(
        with_message(
            verdict, f"torch.compile left a function uncompiled, and went on without it: {seen.groups['what']}"
        ),
        kind=HINT,
    )


def _item(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A number that is taken out of a tensor is no branch; it can be captured."""
    text = seen.log.lines[seen.index].text
    if not re.search(r"Tensor\.(?:item|tolist)|_local_scalar_dense", text):
        return verdict
    return with_message(
        verdict,
        "the compiled function takes a number out of a tensor (item(), int(), float(), tolist(), a tensor as a size), which "
        "dynamo does not trace by default: a data-dependent value",
        Remediation(
            "Keep the tensor, take the number outside of the compiled function, or let dynamo capture it; without "
            "fullgraph=True the graph breaks there",
            (
                "torch._dynamo.config.capture_scalar_outputs = True",
                "torch._check(n >= 0); torch._check(n < x.size(0))  # bounds for what was captured",
                "TORCH_LOGS=graph_breaks python train.py",
            ),
        ),
    )


register(
    Cause(
        "CMP209",
        "recompile-limit-reached",
        "torch.compile reached its limit of recompilations and went back to eager.",
        "Each new size makes a new graph until the limit; then that frame runs eagerly, and training gets slow "
        "without failing.",
        "torch.compile hit its limit of {limit} graphs for {function}{reason}: sizes keep changing, and the frame "
        "runs eagerly and slowly from then on",
        Remediation(
            "Compile with dynamic=True or mark the dimension dynamic, put the sizes into few buckets, and use "
            "drop_last for the last batch",
            (
                "torch.compile(model, dynamic=True)",
                "torch._dynamo.mark_dynamic(x, 0)",
                "TORCH_LOGS=recompiles python train.py",
            ),
        ),
        (
            Signature(
                "torch._dynamo hit config.",
                "torch._dynamo hit config.cache_size_limit (64)\n   function: 'forward' "
                "(/workspace/model/detail.py:131)\n   last reason: 1/0: tensor "
                "'L['images']' size mismatch at index 2. expected 1696, actual 1248",
                "torch._dynamo config loaded",
                r"torch\._dynamo hit config\.(?:accumulated_)?(?:cache_size_limit|recompile_limit) \((?P<limit>\d+)\)"
                r"(?:[^\n]*\n[^\n]*function: (?P<function>[^\n]*))?(?:\n[^\n]*last reason: (?P<reason>[^\n]*))?",
                source="torch 2.0 to 2.15 (cache_size_limit, from 2.6 on recompile_limit)",
            ),
            Signature(
                "LimitExceeded",
                "torch._dynamo.exc.CacheLimitExceeded: cache_size_limit reached",
                "cache size limit",
                r"(?:CacheLimitExceeded|RecompileLimitExceeded|CacheSizeLimitExceeded)(?P<limit>)",
                source="torch 2.5 to 2.15",
            ),
        ),
        kind=DEGRADED,
        judge=lambda seen, verdict: _recompile(seen, verdict),
        decide="TORCH_LOGS=recompiles python train.py",
    ),
    Cause(
        "CMP210",
        "recompile-limit-with-fullgraph",
        "The limit of recompilations was reached in a function compiled with fullgraph=True, where it is fatal.",
        "With fullgraph there is no eager fall-back. The guard that failed may be on the shape of a parameter (an "
        "optimizer that is compiled), while the data never changed.",
        "recompile_limit was reached with fullgraph=True, where it is fatal: guards on shapes, of parameters where "
        "an optimizer or module is compiled, fail each time",
        Remediation(
            "Let parameter shapes be dynamic (force_parameter_static_shapes=False), raise the limit, or drop "
            "fullgraph",
            (
                "torch._dynamo.config.force_parameter_static_shapes = False",
                "torch._dynamo.config.recompile_limit = 64",
                "TORCH_LOGS=recompiles python train.py",
            ),
        ),
        (
            Signature(
                "FailOnRecompileLimitHit",
                "torch._dynamo.exc.FailOnRecompileLimitHit: recompile_limit reached with fullgraph=True.",
                "torch._dynamo hit config.recompile_limit (8)",
                source="torch 2.6 to 2.15",
            ),
            Signature(
                "FailOnCacheLimitHit",
                "torch._dynamo.exc.FailOnCacheLimitHit: cache_size_limit reached with fullgraph=True.",
                "cache_size_limit",
                source="torch 2.5",
            ),
            Signature(
                "limit reached with",
                "RuntimeError: recompile_limit reached with one_graph=True",
                "recompile_limit reached",
                r"(?:recompile_limit|cache_size_limit) reached with (?:one_graph|fullgraph)=True",
                source="torch 2.5 to 2.15",
            ),
        ),
        explains=("CMP209",),
    ),
    Cause(
        "CMP211",
        "data-dependent-control-flow",
        "A compiled function branches in Python on the value of a tensor.",
        "dynamo cannot trace both sides. Without fullgraph it breaks the graph; with fullgraph=True, or in export, "
        "that is an error.",
        "the compiled function branches in Python on a tensor's value (data-dependent control flow), which dynamo "
        "cannot trace with fullgraph=True or in export",
        Remediation(
            "Use torch.where or torch.cond, move the branch out of the compiled function, or drop fullgraph=True "
            "so that the graph may break there",
            (
                "torch.where(cond, a, b)",
                "torch.cond(pred, true_fn, false_fn, (x,))",
                "TORCH_LOGS=graph_breaks python train.py",
            ),
        ),
        (
            Signature(
                "Data-dependent branching",
                "torch._dynamo.exc.Unsupported: Data-dependent branching",
                "branching",
                source="torch 2.7 to 2.15",
            ),
            Signature(
                ("data-dependent control flow", "generic_jump", "Dynamic control flow is not supported"),
                "torch._dynamo.exc.UserError: Dynamic control flow is not supported at the moment. (data-dependent "
                "control flow)",
                "control flow",
                r"(?i)generic_jump|data-dependent control flow|Dynamic control flow is not supported",
                source="torch 2.0 to 2.6",
            ),
            Signature(
                "Dynamic control flow is not supported",
                "torch._dynamo.exc.UserError: Dynamic control flow is not supported at the moment. Please use "
                "functorch.experimental.control_flow.cond",
                "control flow is supported",
                source="torch 2.1 to 2.6",
            ),
            Signature(
                "generic_jump",
                "torch._dynamo.exc.Unsupported: generic_jump TensorVariable()",
                "generic jump",
                source="torch 2.0 to 2.6",
            ),
            Signature(
                ("data-dependent expression", "GuardOnDataDependentSymNode"),
                "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could not guard on "
                "data-dependent expression Eq(u0, 1)",
                "expression",
                r"(?:GuardOnDataDependentSymNode|data-dependent expression)",
                source="torch 2.1 to 2.15",
            ),
            Signature(
                "Unsupported",
                "torch._dynamo.exc.Unsupported: Unsupported Tensor.item() call with capture_scalar_outputs=False",
                "loss = Tensor.item()",
                r"Unsupported:? ?[^\n]*(?:Tensor\.item|aten\._local_scalar_dense|Tensor\.tolist|data[- ]dependent "
                r"operator)",
                source="torch 2.0 to 2.15",
            ),
            Signature(
                "DataDependentOutputException",
                "torch._subclasses.fake_tensor.DataDependentOutputException: aten._local_scalar_dense.default",
                "DataDependent",
                source="torch 2.0 to 2.15",
            ),
            Signature(
                "DynamicOutputShapeException",
                "torch._subclasses.fake_tensor.DynamicOutputShapeException: aten.nonzero.default",
                "dynamic shape",
                source="torch 2.0 to 2.15",
            ),
        ),
        explains=("CMP22",),
        judge=_item,
    ),
    Cause(
        "CMP221",
        "not-traceable-by-dynamo",
        "dynamo cannot trace something in a function compiled with fullgraph=True.",
        "A call that dynamo does not know (a C extension, print, a logger, a generator) breaks the graph; with "
        "fullgraph=True that is an error.",
        "dynamo cannot trace this: {what}",
        Remediation(
            "Take the call out of the compiled function, mark it with torch.compiler.disable, or drop fullgraph=True",
            ("TORCH_LOGS=graph_breaks python train.py", "@torch.compiler.disable"),
        ),
        (
            Signature(
                "torch._dynamo.exc.Unsupported",
                "torch._dynamo.exc.Unsupported: Attempted to call function marked as skipped",
                "torch._dynamo.exc.UserError: x",
                r"torch\._dynamo\.exc\.Unsupported: (?P<what>[^\n]+)",
                source="torch 2.0 to 2.15",
            ),
            Signature(
                "torch._dynamo.exc.TorchRuntimeError",
                "torch._dynamo.exc.TorchRuntimeError: Failed running call_function <built-in function "
                "add>(*(FakeTensor(...)))",
                "TorchRuntimeError in my code",
                r"torch\._dynamo\.exc\.TorchRuntimeError: (?P<what>[^\n]+)",
                source="torch 2.0 to 2.15",
            ),
        ),
        judge=_fallback,
        kind=VAGUE,
    ),
    Cause(
        "CMP222",
        "compile-backend-failed",
        "The compiler back end of torch.compile failed.",
        "A code generation or build error in inductor or triton.",
        "torch.compile's back end failed: {what}",
        Remediation(
            "Find the failing graph with the minifier, and go on in eager mode meanwhile",
            ("TORCHDYNAMO_REPRO_AFTER=aot python train.py", "TORCH_COMPILE_DISABLE=1 python train.py"),
        ),
        (
            Signature(
                "BackendCompilerFailed",
                "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nCppCompileError: C++ compile "
                "error",
                "backend compiled",
                r"BackendCompilerFailed: (?:backend='\w+' raised:\s*\n)?(?P<what>[^\n]+)",
                source="torch 2.0 to 2.6",
            ),
            Signature(
                "InductorError",
                "torch._inductor.exc.InductorError: LoweringException: AssertionError:",
                "inductor error rate",
                r"torch\._inductor\.exc\.InductorError: (?P<what>[^\n]+)",
                source="torch 2.6 to 2.15",
            ),
            Signature(
                "InternalTorchDynamoError",
                "torch._dynamo.exc.InternalTorchDynamoError: 'NoneType' object has no attribute 'x'",
                "dynamo ok",
                r"InternalTorchDynamoError: (?P<what>[^\n]+)",
                source="torch 2.0 to 2.15",
            ),
            Signature(
                "CppCompileError",
                "torch._inductor.exc.CppCompileError: C++ compile error",
                "C++ compile warning",
                r"CppCompileError: (?P<what>[^\n]+)",
                source="torch 2.0 to 2.15",
            ),
            Signature(
                "LoweringException",
                "torch._inductor.exc.LoweringException: NotImplementedError: x",
                "lowering",
                r"LoweringException: (?P<what>[^\n]+)",
                source="torch 2.0 to 2.15",
            ),
        ),
        judge=_fallback,
        kind=VAGUE,
    ),
    Cause(
        "CMP235",
        "double-backward-under-compile",
        "A gradient of a gradient was taken through a compiled function.",
        "AOTAutograd compiles forward and backward, and no backward of the backward: gradient penalties, meta-learning "
        "and Hessians need one.",
        "a gradient of a gradient (create_graph=True: a gradient penalty, a Hessian) goes through a compiled function, "
        "whose backward cannot be differentiated",
        Remediation(
            "Leave this part uncompiled, or compile with a back end that keeps eager autograd",
            (
                "@torch.compiler.disable  # on the function of the penalty",
                "torch.compile(model, backend='eager')",
                "TORCH_COMPILE_DISABLE=1 python train.py",
            ),
        ),
        (
            Signature(
                "does not currently support double backward",
                "RuntimeError: torch.compile with aot_autograd does not currently support double backward",
                "double backward",
                source="torch 2.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "CMP238",
        "dynamic-dimension-is-fixed",
        "A dimension was marked dynamic, and the code fixes it.",
        "torch.export and mark_dynamic want code that holds for every size; a branch, a reshape or a constant makes it one.",
        "a dimension that was declared dynamic is fixed by the code[[ ({what})]]: a branch, reshape or constant in the model "
        "holds for one size only",
        Remediation(
            "Find the guard with TORCH_LOGS, take the size from the tensor in place of a constant, or declare the dimension "
            "static (or maybe_mark_dynamic)",
            (
                "TORCH_LOGS=+dynamic python train.py",
                "torch._dynamo.maybe_mark_dynamic(x, 0)",
                "x.view(x.size(0), -1)",
            ),
        ),
        (
            Signature(
                "Constraints violated (",
                "torch._dynamo.exc.UserError: Constraints violated (batch)! For more information, run with "
                'TORCH_LOGS="+dynamic".',
                "constraints violated",
                r"Constraints violated \((?P<what>[^)\n]*(?:\([^)]*\)[^)\n]*)*)\)!",
                source="torch 2.1 to 2.15",
            ),
        ),
        explains=("CMP211", "CMP221"),
    ),
    Cause(
        "CMP241",
        "compiled-function-traced-again",
        "A function that torch.compile had optimised was traced by another tracer.",
        "torch.fx, torch.jit and quantisation trace the plain module.",
        "a compiled function was given to another tracer (torch.fx, torch.jit, export or quantisation), which wants the plain "
        "module",
        Remediation(
            "Trace the module that was compiled, not its compiled form, and compile last",
            ("plain = getattr(model, '_orig_mod', model)", "model = torch.compile(model)  # after all other tracing"),
        ),
        (
            Signature(
                "using FX to symbolically trace a dynamo-optimized function",
                "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function. This is not "
                "supported at the moment.",
                "FX traced a function",
                source="torch 2.0 to 2.15",
            ),
        ),
    ),
    Cause(
        "CMP242",
        "not-expressible-in-torchscript",
        "torch.jit.script does not know a construct of the code.",
        "TorchScript is a subset of Python, with types of its own, and is no longer developed.",
        "torch.jit.script cannot express this: {what}",
        Remediation(
            "Trace with an example, leave the function out, or use torch.compile or torch.export in its place",
            ("torch.jit.trace(model, example)", "@torch.jit.ignore", "torch.export.export(model, (example,))"),
        ),
        (
            Signature(
                ("NotSupportedError: ", "UnsupportedNodeError: "),
                "torch.jit.frontend.NotSupportedError: Compiled functions can't take variable number of arguments",
                "NotSupportedError: x",
                r"torch\.jit\.frontend\.(?:NotSupportedError|UnsupportedNodeError): (?P<what>[^\n]*)",
                source="torch 1.0 to 2.15",
            ),
        ),
    ),
)
