"""Schedulers of learning rates, and the metrics that they and callbacks watch."""

from __future__ import annotations

from torch_doctor.diagnose.cause import HINT, Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.diagnose.words import LINT
from torch_doctor.model import Remediation


def _monitored(seen: Seen, verdict: Verdict) -> Verdict | None:
    what = seen.groups.get("what") or seen.groups.get("key") or "a metric"
    known = seen.groups.get("known") or seen.groups.get("have") or ""
    logged = f"; what is logged: {known.strip()}" if known.strip() else ""
    return with_message(
        verdict, f"a callback or scheduler watches {what}, which was never logged{logged}", None, monitored=what
    )


register(
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
        "OPT232",
        "scheduler-ran-out-of-steps",
        "A scheduler with a fixed length was stepped more often than that.",
        "OneCycleLR is made for epochs times batches. It is stepped once a batch; gradient accumulation, a resumed run, "
        "more epochs or another number of GPUs change the count.",
        "the scheduler was made for {total} steps and was stepped for the {step}th time: the number of epochs or batches "
        "is not the one that it was made with",
        Remediation(
            "Compute the length from the loop that is run (optimizer steps, not batches), and load the scheduler's state "
            "when resuming",
            (
                "OneCycleLR(optimizer, max_lr, total_steps=epochs * math.ceil(len(loader) / accumulate))",
                "scheduler.load_state_dict(state['scheduler'])",
            ),
        ),
        (
            Signature(
                "The specified number of total steps is",
                "ValueError: Tried to step 501 times. The specified number of total steps is 500",
                "total steps is 500",
                r"Tried to step (?P<step>\d+) times\. The specified number of total steps is (?P<total>\d+)",
                source="torch 1.3 to 2.15, OneCycleLR",
            ),
        ),
    ),
    Cause(
        "OPT233",
        "plateau-scheduler-without-metric",
        "ReduceLROnPlateau was stepped without the value that it watches.",
        "Unlike all others it needs the metric, once an epoch.",
        "ReduceLROnPlateau.step() was called without the metric that it watches",
        Remediation("Pass the validation loss, once an epoch", ("scheduler.step(val_loss)",)),
        (
            Signature(
                "step() missing 1 required positional argument: 'metrics'",
                "TypeError: ReduceLROnPlateau.step() missing 1 required positional argument: 'metrics'",
                "step() missing 1 required positional argument: 'closure'",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "must include a monitor",
                "MisconfigurationException: The lr scheduler dict must include a monitor when a `ReduceLROnPlateau` "
                "scheduler is used.",
                "include a monitor",
                source="Lightning 1.x and 2.x",
            ),
        ),
    ),
    Cause(
        "OPT234",
        "monitored-metric-not-logged",
        "A callback or scheduler watches a metric that was never logged.",
        "The name differs (val_loss and val/loss, loss and eval_loss), it is logged in another hook, or validation does "
        "not run in every epoch.",
        "a callback or scheduler watches {what}, which was never logged[[; what is logged: {known}]]",
        Remediation(
            "Log it under that very name, in validation, or watch a name that is logged",
            (
                "self.log('val_loss', loss)  # in validation_step",
                "EarlyStopping(monitor='val_loss')",
                "TrainingArguments(metric_for_best_model='eval_loss', eval_strategy='epoch')",
            ),
        ),
        (
            Signature(
                ("which is not available", "could not find the monitored key"),
                "RuntimeError: Early stopping conditioned on metric `val_loss` which is not available. Pass in or modify "
                "your `EarlyStopping` callback to use any of the following: `train_loss`",
                "a page which is not available",
                r"(?:conditioned on metric `?(?P<what>[\w./-]+)`? which is not available"
                r"(?:[^\n]*(?:following: |metrics are: )(?P<known>[^\n.]*))?"
                r"|monitor='(?P<key>[\w./-]+)'\)?`? could not find the monitored key in the returned[^\n\[]*(?P<have>\[[^\]\n]*\])?)",
                source="Lightning 1.0 to 2.6",
            ),
            Signature(
                "training argument is set to",
                "KeyError: \"The `metric_for_best_model` training argument is set to 'eval_f1', which is not found in the "
                "evaluation metrics. The available evaluation metrics are: ['eval_loss'].",
                "metric_for_best_model training argument",
                r"`metric_for_best_model` training argument is set to '(?P<what>\w+)', which is not found"
                r"(?:[^\n]*metrics are: (?P<known>\[[^\]]*\]))?",
                source="Transformers 4.40 to 5",
            ),
            Signature(
                "KeyError: 'eval_",
                "KeyError: 'eval_loss'",
                "KeyError: 'eval_dataset'",
                r"^KeyError: '(?P<what>eval_(?!data|d[sl]\b|set\b|steps?\b|batch|strategy|mode|fn\b|func|config|loader|split|path|dir|file"
                r"|interval|freq|every|iters?\b|epochs?\b|only|args|model|sampler|transform)\w+)'",
                source="Transformers 4.0 to 4.39: metric_for_best_model without that metric, most often since no labels reach the "
                "evaluation",
            ),
        ),
        judge=_monitored,
    ),
)
