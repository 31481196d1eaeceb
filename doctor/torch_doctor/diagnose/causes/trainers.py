"""What Transformers, Accelerate, PEFT and Lightning say of the code around them."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Signature, register
from torch_doctor.model import Remediation

register(
    Cause(
        "LOS246",
        "no-loss-returned",
        "The trainer got no loss to call backward on.",
        "Models of Transformers compute the loss only where labels are passed under the name that forward has; columns that "
        "forward does not name are dropped. Lightning wants the loss, or a dict with it, from training_step.",
        "the trainer got no loss[[: the inputs were {inputs}]]: no labels reached the model, or training_step returns no loss",
        Remediation(
            "Pass labels under the name that forward takes (labels, start_positions, ...), keep the column, use a model with a "
            "head, or return the loss",
            (
                "batch['labels'] = batch['input_ids'].clone()  # language models",
                "DataCollatorForLanguageModeling(tokenizer, mlm=False)",
                "TrainingArguments(remove_unused_columns=False, label_names=['labels'])",
                "return loss  # from training_step",
            ),
        ),
        (
            Signature(
                "did not return a loss from the inputs",
                "ValueError: The model did not return a loss from the inputs, only the following keys: logits. For reference, "
                "the inputs it received are input_ids,attention_mask.",
                "returned a loss",
                r"did not return a loss from the inputs(?:[^\n]*inputs it received are (?P<inputs>[\w, ]+))?",
                source="Transformers 4.0 to 5",
            ),
            Signature(
                ("the closure hasn't been executed", "returned `None`", "must return a Tensor, a dict"),
                "MisconfigurationException: In automatic_optimization, `training_step` must return a Tensor, a dict, or None "
                "(where the step will be skipped).",
                "training_step returned",
                r"`training_step` must return a Tensor, a dict|`?training_step`? returned `None`|the closure hasn't been "
                r"executed",
                source="Lightning 1.0 to 2.6",
            ),
        ),
    ),
    Cause(
        "DAT241",
        "samples-not-padded",
        "Sequences of different lengths were to become one tensor.",
        "The tokenizer pads input_ids; labels and other lists of numbers are padded by a collator that knows them. Columns of "
        "text that were left in the data set cannot become tensors at all.",
        "sequences of different lengths, or a column that holds no numbers[[ ({what})]], were to become one tensor",
        Remediation(
            "Pad with a collator that pads labels as well, truncate, and remove the columns of text",
            (
                "DataCollatorForSeq2Seq(tokenizer, model=model)  # pads labels with -100",
                "tokenizer(text, padding=True, truncation=True, max_length=512)",
                "dataset = dataset.map(tokenize, batched=True, remove_columns=dataset.column_names)",
            ),
        ),
        (
            Signature(
                "Unable to create tensor, you should probably activate truncation",
                "ValueError: Unable to create tensor, you should probably activate truncation and/or padding with "
                "'padding=True' 'truncation=True' to have batched tensors with the same length. Perhaps your features "
                "(`labels` in this case) have excessive nesting",
                "Unable to create tensor",
                r"Unable to create tensor, you should probably activate truncation(?:[^\n]*your features \((?P<what>`\w+`))?",
                source="Transformers 3 to 5",
            ),
        ),
    ),
    Cause(
        "DAT242",
        "tokenizer-without-padding-token",
        "The tokenizer has no padding token, and was asked to pad.",
        "Language models of the GPT kind are trained without one.",
        "the tokenizer has no padding token, and the batch needs padding",
        Remediation(
            "Name one before tokenising; for a classifier on top name it in the model's configuration as well",
            (
                "tokenizer.pad_token = tokenizer.eos_token",
                "model.config.pad_token_id = tokenizer.pad_token_id",
            ),
        ),
        (
            Signature(
                "tokenizer does not have a padding token",
                "ValueError: Asking to pad but the tokenizer does not have a padding token.",
                "the tokenizer has a padding token",
                source="Transformers 3 to 5",
            ),
            Signature(
                "Cannot handle batch sizes > 1 if no padding token is defined",
                "ValueError: Cannot handle batch sizes > 1 if no padding token is defined.",
                "batch sizes > 1",
                source="Transformers 3 to 5, classifiers on GPT models",
            ),
        ),
    ),
    Cause(
        "GRD235",
        "quantised-model-trained",
        "A model in 8 or 4 bits was to be trained as it is.",
        "Quantised weights have no gradient: adapters on top of them are trained.",
        "a quantised model (8 or 4 bits) was to be trained without adapters: quantised weights have no gradient",
        Remediation(
            "Put LoRA adapters on it (QLoRA), or load it unquantised",
            (
                "model = get_peft_model(prepare_model_for_kbit_training(model), LoraConfig(task_type='CAUSAL_LM'))",
                "AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)",
            ),
        ),
        (
            Signature(
                "fine-tuning on purely quantized models",
                "ValueError: You cannot perform fine-tuning on purely quantized models. Please attach trainable adapters on "
                "top of the quantized model to correctly perform fine-tuning.",
                "quantized models",
                source="Transformers 4.31 to 5",
            ),
            Signature(
                "The model you want to train is loaded in 8-bit precision",
                "ValueError: The model you want to train is loaded in 8-bit precision.",
                "loaded in 8-bit",
                source="Transformers 4.25 to 4.30",
            ),
        ),
    ),
    Cause(
        "DAT243",
        "text-made-a-tensor",
        "Text was to become a tensor.",
        "Tensors hold numbers: text is tokenised, class names become indexes.",
        "text was to become a tensor: it has to be tokenised, and class names turned into indexes",
        Remediation(
            "Tokenise text, and map class names to numbers",
            (
                "enc = tokenizer(texts, padding=True, return_tensors='pt')",
                "y = torch.tensor([classes.index(c) for c in names])",
            ),
        ),
        (
            Signature(
                ("too many dimensions 'str'", "invalid data type 'str'"),
                "ValueError: too many dimensions 'str'",
                "too many dimensions",
                r"(?:too many dimensions|new\(\): invalid data type) 'str'",
                source="torch 0.4 to 2.15",
            ),
        ),
    ),
)
