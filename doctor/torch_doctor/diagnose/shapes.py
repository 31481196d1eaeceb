"""What the text of an error says of tensors' shapes: what it means, and which argument of which layer to change."""

from __future__ import annotations

import re

from torch_doctor.diagnose.cause import Seen
from torch_doctor.model import Remediation

#: what the text says -> (what it means, remedy); the first that fits. Source: torch 1.0 to 2.15, 2026-11
_SHAPES: tuple[tuple[str, str, Remediation], ...] = (
    (
        r"stack expects",
        ": stack needs tensors of one shape, and those that the program collected differ",
        Remediation(
            "Pad or crop them before they are stacked, join them along the dimension that differs, or keep a list",
            ("torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)", "torch.cat(tensors, dim=0)"),
        ),
    ),
    (
        r"must be same as input size|different to the input size",
        ": the loss compares element by element, and one side has a dimension of 1 more",
        Remediation(
            "Give both sides the same shape",
            ("loss = criterion(scores.squeeze(1), y)", "loss = criterion(scores, y.unsqueeze(1).float())"),
        ),
    ),
    (
        r"Expected input batch_size",
        ": predictions and labels have another number of rows: a dimension was folded into the batch by view() or "
        "flatten(), or the labels are one for each token or pixel where the model gives one for each sample",
        Remediation(
            "Keep the batch first and alone, and use a head that fits the labels",
            (
                "print(logits.shape, y.shape)",
                "x = x.view(x.size(0), -1)  # not view(-1, features)",
                "AutoModelForTokenClassification.from_pretrained(path)  # labels for each token",
            ),
        ),
    ),
    (
        r"grad_output\[",
        ": the gradient that was passed to backward has another shape than the output",
        Remediation("Give it the output's shape", ("out.backward(gradient=torch.ones_like(out))",)),
    ),
    (
        r"-dimensional input",
        ": the batch dimension is missing, or the channels",
        Remediation(
            "Bring the input to N, C, H, W, with the batch dimension first", ("x.unsqueeze(0)  # a single sample",)
        ),
    ),
    (
        r"divide axis",
        ": the size is no multiple of the patch or window",
        Remediation(
            "Resize, crop or pad to a multiple of it",
            ("F.pad(x, (0, -x.size(-1) % 16, 0, -x.size(-2) % 16))", "transforms.Resize((224, 224))"),
        ),
    ),
    (
        r"same number of elements",
        ": predictions and targets differ in size",
        Remediation("Give both the same shape", ("print(out.shape, y.shape)", "y = y.view_as(out).float()")),
    ),
    (
        r"input must have|hx (?:and cx )?should",
        ": the batch dimension is missing in the input, or in the hidden state",
        Remediation(
            "Give input and hidden state a batch dimension each, or neither",
            ("x = x.unsqueeze(0)", "h = torch.zeros(layers, x.size(0), width, device=x.device)"),
        ),
    ),
    (
        r"embedding dimension|attn_mask",
        ": the attention layer was built for another width, or the mask for another length or order of dimensions",
        Remediation(
            "Compare the width with embed_dim, and see whether the batch comes first",
            (
                "nn.MultiheadAttention(x.size(-1), heads, batch_first=True)",
                "mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)  # n = sequence length",
            ),
        ),
    ),
    (
        r"mat1 dim 1",
        ": the layer takes another number of features than arrive",
        Remediation("Compare in_features with the input", ("print(x.shape)", "nn.LazyLinear(out_features)")),
    ),
    (
        r"Padding size",
        ": the input is smaller than the padding, most often a very short sequence or small image",
        Remediation(
            "Pad or resize the input first, or leave such samples out",
            ("F.pad(x, (0, n), mode='constant')", "print(x.shape)"),
        ),
    ),
    (
        r"batch or spatial sizes",
        ": the masks have another height and width than the model's output",
        Remediation(
            "Bring the output to the masks' size, or the masks to the output's (nearest, so that labels stay labels)",
            (
                "out = F.interpolate(out, size=y.shape[-2:], mode='bilinear', align_corners=False)",
                "y = F.interpolate(y[:, None].float(), size=out.shape[-2:], mode='nearest')[:, 0].long()",
            ),
        ),
    ),
    (
        r"Kernel size|Output size is too small",
        ": the image is smaller at that layer than the kernel or pooling window: the input is smaller than the "
        "network was built for",
        Remediation(
            "Use larger images, fewer pooling layers, or adaptive pooling; padding keeps the size",
            ("nn.AdaptiveAvgPool2d(1)", "nn.Conv2d(c, c, 3, padding=1)", "print(x.shape)"),
        ),
    ),
    (
        r"input_size|Expected input to be",
        ": the recurrent layer was built for another number of features, or the dimensions are in another order",
        Remediation(
            "Build the layer for the features that arrive, and see whether the batch comes first",
            ("nn.LSTM(input_size=x.size(-1), hidden_size=h, batch_first=True)", "print(x.shape)"),
        ),
    ),
    (
        r"running_mean",
        ": the BatchNorm layer was built for another number of channels",
        Remediation("Build it for the channels that arrive", ("nn.BatchNorm2d(x.size(1))", "nn.LazyBatchNorm2d()")),
    ),
    (
        r"weight tensor should be defined",
        ": the loss's class weights are not as many as the classes",
        Remediation(
            "Give one weight for each class that the model's last layer has",
            ("nn.CrossEntropyLoss(weight=torch.ones(logits.size(1), device=logits.device))",),
        ),
    ),
    (
        r"shape of the mask",
        ": the boolean mask was made from another tensor than the one that it indexes",
        Remediation(
            "Make the mask from the tensor that is indexed, cut and padded in the same way",
            ("print(x.shape, mask.shape)", "x[mask[:, : x.size(1)]]"),
        ),
    ),
    (
        r"permute",
        ": the tensor has another number of dimensions than permute was given: a batch or channel dimension is "
        "missing",
        Remediation("Look at the shape, and add what is missing", ("print(x.shape)", "x.unsqueeze(0)")),
    ),
    (
        r"target",
        ": the loss wants class indexes, not one-hot vectors or a channel dimension",
        Remediation("Turn the targets into class indexes", ("y.argmax(dim=1)", "y.squeeze(1).long()")),
    ),
    (
        r"hidden",
        ": the hidden state was made for another batch size",
        Remediation(
            "Make the hidden state from each batch, or drop the last incomplete one",
            ("h = torch.zeros(layers, x.size(0), width, device=x.device)", "DataLoader(..., drop_last=True)"),
        ),
    ),
    (
        r"unbatched",
        "",
        Remediation(
            "Bring the input to N, C, H, W (N, C, L for 1d), with the batch dimension first",
            ("x.view(-1, 1, 28, 28)", "x.unsqueeze(0)  # a single sample"),
        ),
    ),
)


#: three wordings of one fault: the features that arrive, and those that the layer takes
_FEATURES = (
    r"shapes cannot be multiplied \(\d+x(?P<got>\d+) and (?P<wanted>\d+)x\d+\)",
    r"m1: \[\d+ x (?P<got>\d+)\], m2: \[(?P<wanted>\d+)",
    r"got \[(?:\d+, )*(?P<got>\d+)\] X \[(?P<wanted>\d+)",
)


def stacked_by_program(seen: Seen) -> bool:
    """True where the traceback above the match has frames, and none of them makes a batch of samples."""
    loader = r"(?i)collate|data_?loader|_utils/(?:fetch|worker)\.py"
    return seen.near(r'^\s*File "', 40, 0) is not None and seen.near(loader, 40, 0) is None


def meaning(what: str) -> tuple[str, Remediation] | None:
    """What follows from the text, as an end of the message, with what mends it; None where it says no more."""
    for pattern, words, remedy in _SHAPES:
        if re.search(pattern, what):
            return words, remedy
    return _features(what) or _channels(what)


def _features(what: str) -> tuple[str, Remediation] | None:
    match = next((m for p in _FEATURES if (m := re.search(p, what))), None)
    if match is None:
        return None
    return (
        f": the layer takes {match['wanted']} features and gets {match['got']}",
        Remediation(
            "Give the layer as many input features as arrive (in_features), or bring the input to the size that "
            "it was built for; LazyLinear takes what comes",
            (f"nn.Linear({match['got']}, ...)", "nn.LazyLinear(out_features)", "print(x.shape)"),
        ),
    )


def _channels(what: str) -> tuple[str, Remediation] | None:
    match = re.search(r"to have (\d+) channels, but got (\d+)", what)
    if match is None:
        return None
    wanted, got = match.groups()
    if re.search(rf"input\[\d+, \d+, \d+, {wanted}\]", what):
        return (
            ": the images come as N, H, W, C and the layer wants N, C, H, W",
            Remediation("Put the channels second", ("x = x.permute(0, 3, 1, 2)", "transforms.ToTensor()")),
        )
    return (
        "",
        Remediation(
            f"Convert the images to {wanted} channels, or build the first layer for {got}; images are "
            "expected as N, C, H, W",
            ("Image.open(path).convert('RGB')", f"nn.Conv2d({got}, ...)", "x.permute(0, 3, 1, 2)  # from NHWC"),
        ),
    )
