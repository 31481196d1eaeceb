"""Plain mistakes of the program that a library reports in words of its own."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def _heads(seen: Seen, verdict: Verdict) -> Verdict | None:
    found = seen.groups
    if found.get("width") and found.get("heads"):
        return with_message(verdict, f"{verdict.message} ({found['width']} by {found['heads']})")
    return verdict


def _outputs(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A model's output object and an LSTM's pair are unpacked in other ways."""
    kind = seen.groups["kind"]
    if kind == "NoneType":
        return with_message(
            verdict,
            f"None was used as a tensor (its {seen.groups['name']} was asked for): a function without a return, a "
            "loss that no branch computed, labels that were not passed, or a parameter without a gradient",
            Remediation(
                "Find where the value comes from; return it on every path, pass labels to a model that computes the "
                "loss itself, and skip parameters whose grad is None",
                (
                    "print(type(loss))",
                    "out = model(**batch, labels=batch['labels'])",
                    "python -m pdb -c continue train.py",
                ),
            ),
        )
    if kind in ("float", "int") or kind.startswith("numpy"):
        return with_message(
            verdict,
            f"a number or array ({kind}) was used as a tensor (its {seen.groups['name']} was asked for): item(), float() or "
            "numpy() took it out of the graph before",
            Remediation(
                "Keep the tensor for backward and take the number for the log only; compute the loss with torch",
                ("loss.backward(); running += loss.item()", "x = torch.as_tensor(a)"),
            ),
        )
    if kind in ("list", "dict", "tuple") and seen.groups["name"] in ("to", "cuda", "cpu", "float", "long"):
        return with_message(
            verdict,
            f"a {kind} was moved or converted as if it were a tensor (.{seen.groups['name']}()): a batch of several tensors is "
            "moved one by one",
            Remediation(
                "Move each tensor of the batch",
                (
                    "x, y = (t.to(device) for t in batch)",
                    "batch = {k: v.to(device) for k, v in batch.items()}",
                ),
            ),
        )
    return verdict


def _to_number(seen: Seen, verdict: Verdict) -> Verdict | None:
    """A list of tensors that torch.tensor() gets is another case than item() of a batch."""
    if not seen.near(r"torch\.(?:tensor|as_tensor|FloatTensor|LongTensor)\(", 3, 0):
        return verdict
    return with_message(
        verdict,
        "torch.tensor() got a list of tensors of several elements, which it cannot make one tensor of",
        Remediation("Stack or concatenate them", ("x = torch.stack(tensors)", "x = torch.cat(tensors)")),
    )


register(
    Cause(
        "LOS241",
        "width-not-divisible-by-heads",
        "The width of an attention layer, or a number of channels, is no multiple of its heads or groups.",
        "Each head gets an equal part of the width.",
        "the width is not divisible by the number of heads or groups",
        Remediation(
            "Take a number of heads (or groups) that divides the width",
            ("assert embed_dim % num_heads == 0", "nn.MultiheadAttention(512, num_heads=8)"),
        ),
        (
            Signature(
                "must be divisible by",
                "AssertionError: embed_dim must be divisible by num_heads",
                "the number must be divisible by four",
                r"(?:embed_dim|hidden size|num_channels|in_channels|out_channels|d_model)[^\n]{0,40}must be divisible by "
                r"(?:num_heads|num_groups|groups|`?num_heads`?|n_heads?)",
                source="torch 1.0 to 2.15, Transformers",
            ),
            Signature(
                "is not a multiple of the number of attention",
                "ValueError: The hidden size (770) is not a multiple of the number of attention heads (12)",
                "a multiple of the number",
                r"hidden size \((?P<width>\d+)\) is not a multiple of the number of attention heads \((?P<heads>\d+)\)",
                source="Transformers 2 to 5",
            ),
        ),
        judge=_heads,
    ),
    Cause(
        "LOS242",
        "output-is-not-a-tensor",
        "A tuple, a list, a dict, an output object or None was used as if it were a tensor.",
        "Recurrent layers and attention return pairs, Transformers models return objects with .logits and .loss, "
        "torchvision's Inception and detection models return tuples and dicts in training mode.",
        "a {kind} was used as a tensor (its {name} was asked for): recurrent layers and attention return a pair, and "
        "models of Transformers an object with .logits, .loss or .last_hidden_state",
        Remediation(
            "Take the tensor out first",
            (
                "out, hidden = lstm(x)",
                "attn, weights = attention(q, k, v)",
                "logits = model(**batch).logits",
                "print(type(out))",
            ),
        ),
        (
            Signature(
                "object has no attribute '",
                "AttributeError: 'tuple' object has no attribute 'size'",
                "AttributeError: 'tuple' object has no attribute 'name'",
                r"AttributeError: '(?P<kind>tuple|list|dict|NoneType|str|float|int|numpy\.float(?:32|64)|numpy\.ndarray|(?:\w*)(?:Output\w*|BatchEncoding"
                r"|PackedSequence))' object has no attribute '(?P<name>size|shape|dim|view|reshape|backward|item|detach"
                r"|to|cuda|cpu|float|long|argmax|mean|sum|log_softmax|softmax|squeeze|unsqueeze|permute|requires_grad"
                r"|contiguous|numpy|norm|data|ndim|device|dtype|zero_|masked_fill)'",
                source="python 3.8 to 3.14",
            ),
            Signature(
                "must be Tensor, not ",
                "TypeError: linear(): argument 'input' (position 1) must be Tensor, not tuple",
                "must be Tensor",
                r"TypeError: \w+\(\): argument '(?P<name>\w+)' (?:\(position \d+\) )?must be Tensor, not (?P<kind>\w+)",
                source="torch 0.4 to 2.15",
            ),
        ),
        judge=_outputs,
    ),
    Cause(
        "LOS244",
        "index-is-not-an-integer",
        "A tensor was indexed with a tensor of floats.",
        "Indexes are long, int or bool; a comparison or division may have made floats of them.",
        "a tensor was indexed with a tensor that holds no integers or booleans",
        Remediation("Convert the index", ("x[idx.long()]", "x[mask.bool()]")),
        (
            Signature(
                "tensors used as indices must be",
                "IndexError: tensors used as indices must be long, int, byte or bool tensors",
                "indices must be long",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
    Cause(
        "LOS245",
        "arguments-do-not-fit-the-call",
        "A function, often forward, was called with arguments that it does not take.",
        "The loader yields other fields than the model's forward names, a wrapper passes on more than the model knows, "
        "or the library changed its signature between versions.",
        "{call} does not take the arguments it was called with: {what}",
        Remediation(
            "Compare the call with the signature; name what forward takes, drop the columns it does not, and look at "
            "the library's version where the call is not your own",
            ('python -c "import inspect, MODULE; print(inspect.signature(MODULE.FUNCTION))"', "pip show PACKAGE"),
        ),
        (
            Signature(
                (
                    "got an unexpected keyword argument",
                    "got multiple values for",
                    "positional argument",
                    "required keyword-only",
                ),
                "TypeError: Net.forward() got an unexpected keyword argument 'mask'",
                "got an unexpected answer",
                r"TypeError: (?P<call>[\w.<>]*(?:forward|training_step|validation_step|compute_loss|collate\w*|__getitem__"
                r"|__init__)\(\)) (?P<what>got (?:an unexpected keyword argument|multiple values for argument) '\w+'|missing "
                r"\d+ required (?:positional|keyword-only) arguments?: [^\n]{1,120}|takes (?:from )?[\w ]{1,20} positional "
                r"arguments? but \d+ (?:were|was) given)",
                source="python 3.8 to 3.14",
            ),
        ),
    ),
    Cause(
        "LOS247",
        "tensor-as-condition",
        "A tensor of several elements was used as a condition.",
        "Python asks for one truth value. Often it is a loss class that was called as if it were the function: "
        "nn.CrossEntropyLoss(out, y) makes a loss and takes out for its weight and y for a flag.",
        "a tensor of several elements was used as one truth value: in an if, an assert, with and/or/not, with 'in', or as an "
        "argument of a loss class in place of its call",
        Remediation(
            "Reduce it, combine masks with & and |, and call the loss that was made",
            (
                "if (x > 0).any(): ...  # or .all()",
                "mask = (a > 0) & (b > 0)",
                "loss = nn.CrossEntropyLoss()(out, y)",
            ),
        ),
        (
            Signature(
                "is ambiguous",
                "RuntimeError: Boolean value of Tensor with more than one value is ambiguous",
                "the name is ambiguous",
                r"(?:Boolean value of Tensor with (?:more than one|no) values? is ambiguous|bool value of Tensor with more than "
                r"one value is ambiguous)",
                source="torch 0.4 to 2.15",
            ),
            Signature(
                "The truth value of an array with more than one element is ambiguous",
                "ValueError: The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()",
                "the truth value",
                source="NumPy 1.x and 2.x",
            ),
        ),
    ),
    Cause(
        "LOS248",
        "several-elements-to-one-number",
        "A tensor of several elements was to become one number.",
        "item(), float() and int() want exactly one element: a loss with reduction='none', a batch of scores, or the losses "
        "that DataParallel gathers.",
        "a tensor of several elements was converted to one number (item(), float() or int()): the loss or metric was not "
        "reduced",
        Remediation(
            "Reduce it first, or take all of its elements",
            ("running += loss.mean().item()", "values = x.detach().cpu().tolist()"),
        ),
        (
            Signature(
                "cannot be converted to Scalar",
                "RuntimeError: a Tensor with 10 elements cannot be converted to Scalar",
                "cannot be converted",
                r"a Tensor with \d+ elements cannot be converted to Scalar",
                source="torch 2.0 to 2.15",
            ),
            Signature(
                "element tensors can be converted to Python scalars",
                "ValueError: only one element tensors can be converted to Python scalars",
                "Python scalars",
                source="torch 0.4 to 2.15; also torch.tensor() of a list of tensors: torch.stack",
            ),
        ),
        judge=_to_number,
    ),
    Cause(
        "LOS250",
        "module-without-forward",
        "A module without forward was called.",
        "ModuleList and ModuleDict only hold modules. In a class of one's own forward is misspelt, or indented into another "
        "method.",
        "{module} was called, which has no forward: a ModuleList or ModuleDict only holds modules, and a class of your own "
        "needs a method of that name in the class",
        Remediation(
            "Loop over the list, or use Sequential; see that forward is a method of the class",
            ("for layer in self.layers:\n    x = layer(x)", "self.layers = nn.Sequential(*layers)"),
        ),
        (
            Signature(
                'is missing the required "forward" function',
                'NotImplementedError: Module [ModuleList] is missing the required "forward" function',
                "the forward function",
                r"Module \[(?P<module>\w+)\] is missing the required \"forward\" function",
                source="torch 1.9 to 2.15",
            ),
        ),
    ),
    Cause(
        "LOS252",
        "empty-sequence",
        "A sequence of length 0 was packed.",
        "A sample became empty: an empty text, or one that was filtered or truncated away.",
        "a sequence in the batch has length 0",
        Remediation("Leave empty samples out of the data set", ("dataset = [s for s in dataset if len(s) > 0]",)),
        (
            Signature(
                "Length of all samples has to be greater than 0",
                "RuntimeError: Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0",
                "Length of all samples",
                source="torch 0.4 to 2.15, pack_padded_sequence",
            ),
        ),
    ),
    Cause(
        "DAT244",
        "dataset-is-empty",
        "The data set has no samples.",
        "A path that does not exist or is not mounted, a pattern that matches nothing, or a filter that drops all.",
        "the data set is empty: its path or pattern matches nothing, the folder is not mounted, or a filter drops all samples",
        Remediation(
            "Look at the path as the process sees it",
            ("print(len(dataset), root)", "ls -l DATA | head; findmnt -T DATA", "docker run -v $PWD/data:/data ..."),
        ),
        (
            Signature(
                "Couldn't find any class folder in",
                "FileNotFoundError: Couldn't find any class folder in /data/train.",
                "class folder found",
                source="torchvision 0.8 to 0.30, ImageFolder",
            ),
        ),
    ),
)
