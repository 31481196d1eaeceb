"""Tables: what the names that people give things say about them. Evidence of last resort."""

from __future__ import annotations

import functools
import re

MODULE = re.compile(
    r"(?:.*_)?(?:model|net|network|module|generator|discriminator|encoder|decoder|enc|dec|backbone|teacher|student|critic|"
    r"actor|policy|gen|disc|classifier|detector|ema|transformer|head|qnet|dqn|unet|resnet|vgg|gan|vae|autoencoder|rnn|lstm|gru|mlp|cnn|vit|bert|"
    r"gpt|llm|embedder|projector|predictor|proj|ae|siamese)"
    r"(?:_?(?:model|net|network|ema|module|\d|online|target|wrapped|ddp)|_[abgdst])?|"
    r"(?:model|net|module|gen|disc|q|policy|target)_.*(?:net|model|network|ddp|wrapped|compiled|ema|old|eval|g|d|t|s)|"
    r"net[gdabqe]|[gdq]net|[gd]_?[ab]|[gd]_(?:ab|ba)|[gd]|q_?target|target_?q|m"
)
#: what does something to a module, or makes one
DOES = re.compile(
    r"(?:convert|get|make|build|create|load|init|wrap|unwrap|prepare|save|update|set|register|export|compile|setup|reset|"
    r"define|construct|freeze|unfreeze|fuse|quantize|apply|print|count|move|copy|clone|find|add|remove|is|has|to)_.+"
)
OPTIMIZER = re.compile(
    r"(?:.*_|g|d)?(?:opt|optim|optimizer|optimiser|sgd|adam|adamw)(?:imizer)?(?:_?\w{1,8}|_.*)?|[gd]_solver"
)
NOT_OPTIMIZER = re.compile(
    r"opts?_?args|.*(?:option|config|cfg|params|kwargs|state|name|type|cls|class|sched).*|opts"
)
SCHEDULER = re.compile(r"(?:.*_)?(?:sched|scheduler|lr_sched|lr_scheduler|plateau|warmup)(?:_?\w{1,6})?|scheduler.*")
LOADER = re.compile(
    r".*(?:loader|loaders)(?:_?\w{1,6})?|(?:.*_)?dl|(?:train|val|valid|test|eval|tr|va)_?(?:dl|iter|it)"
)
CRITERION = re.compile(
    r"(?:.*_)?(?:crit|criterion|criteria|loss_?fn|loss_?func|loss_?function|objective|lossfn|loss_?fct|lossf)(?:_.*)?|"
    r"(?:bce|mse|ce|l1|nll|kl|xent|gan|adv)_?(?:loss)?(?:_fn)?"
)
SCALER = re.compile(r"(?:.*_)?(?:scaler|grad_scaler|gradscaler)(?:_\w{1,3})?")
LOSS = re.compile(r"(?:.*_)?(?:loss|losses|nll|elbo)(?:_?\w{1,5}|_.*)?|(?:loss|err|error)[dgabs]?|l")
BATCH = re.compile(
    r"(?:.*_)?(?:x|xs|xb|xx|y|ys|yb|yy|inputs?|targets?|labels?|images?|imgs?|img|data|batch|tensors?|samples?|"
    r"features?|feats?|masks?|gold|ids|tokens|input_ids|attention_mask|audio|text|lengths)(?:_?(?:\d|batch|b|t))?"
)
LOADED = re.compile(r"(?:.*_)?(?:loader|dataloader|dl|batches|iterator|data_iter)(?:_.*)?")
EVALUATION = re.compile(
    r"_*(?:.*_)?(?:eval|evaluate|evaluation|validate|validation|valid|val|test|infer|inference|predict|prediction|"
    r"predictions|score|benchmark|accuracy|accuracies)(?:_(?:epoch|step|loop|model|one_epoch|batch|fn|all|set|loss|net|one|loader))?"
)
WANTS_GRADIENT = re.compile(
    r"attack|fgsm|pgd|advers|saliency|grad_?cam|attribut|integrated|deep_?dream|style|invert|inversion|optimi[sz]e|"
    r"influence|hessian|jacobian|fisher|sensitivity|gradient|lime|shap|explain|perturb|langevin|guidance|energy"
)
TEACHER = re.compile(
    r".*(?:teacher|momentum_(?:model|encoder|net)|model_t|net_t|ema_model|model_ema).*|t_?(?:net|model)"
)
TARGET_NET = re.compile(
    r".*target_?(?:net|network|model|q|critic|actor|policy|encoder|value|dqn|qnet).*|"
    r".*(?:net|network|model|q|critic|actor|policy|dqn|encoder|value)\d?_?(?:target|tgt|targ).*|q_?targ|tgt_?net|target"
)
DISCRIMINATOR = re.compile(r"(?:.*_)?(?:d|disc|discriminator|critic|netd|dnet|d_net|d_model|d_[ab])(?:_.*)?", re.I)
DEVICE = re.compile(r"(?:.*_)?(?:device|dev|gpu|cuda|rank|local_rank)")


def named(text: str) -> frozenset[str]:
    """A table of names, written as one text."""
    return frozenset(text.split())


@functools.lru_cache(maxsize=1 << 16)
def tail(name: str) -> str:
    """``self.model`` as ``model``; ``nets[]`` as ``nets``."""
    return name.replace("()", "").replace("[]", "").rsplit(".", 1)[-1]


@functools.lru_cache(maxsize=1 << 16)
def says(pattern: re.Pattern[str], name: str) -> bool:
    """Whether the last part of a dotted name matches the whole pattern, in any case."""
    return pattern.fullmatch(tail(name).lower().strip("_")) is not None
