"""Pretrained weights: folders and hubs that do not hold what from_pretrained looks for."""

from __future__ import annotations

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def lacking(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Weights, a tokenizer or a configuration is missing, each for reasons of its own."""
    file = seen.groups.get("file", "")
    where = seen.groups.get("where", "")
    if "config.json" in file and "adapter" not in file:
        return with_message(
            verdict,
            f"{where} has no {file}: it is no folder of a whole model (an adapter, a checkpoint of another tool, or a "
            "path that does not exist and was taken for the name of a repository)",
            Remediation(
                "Give the folder that holds config.json; an adapter is loaded onto its base model",
                (
                    "ls -l FOLDER",
                    "PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(BASE), FOLDER)",
                    "cp BASE/config.json FOLDER/",
                ),
            ),
        )
    if "tokenizer" in file or "vocab" in file or "preprocessor" in file or "processor" in file:
        return with_message(
            verdict,
            f"{where} has no {file}: only the model was saved there",
            Remediation(
                "Load it from the base model, and save it beside the model",
                ("AutoTokenizer.from_pretrained(BASE)", "tokenizer.save_pretrained(FOLDER)"),
            ),
        )
    return with_message(verdict, verdict.message.replace("?", where or "the folder"))


def unreached(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Offline mode is a choice; no connection is not."""
    why = "the hub was not reached: no network or proxy in this container or node"
    if "net" not in seen.groups:
        why = "offline mode is on (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE or local_files_only)"
    return with_message(verdict, verdict.message.replace("?", why))


register(
    Cause(
        "CKP238",
        "no-weights-in-model-folder",
        "The folder or repository has no weights under the names that from_pretrained looks for.",
        "It holds an adapter only, shards of FSDP or ZeRO that were never put together, a checkpoint of a trainer under "
        "another name, or weights in a format that this version does not read.",
        "{where} has no weights under a name that from_pretrained knows: an adapter only, shards of FSDP or ZeRO, or "
        "another folder",
        Remediation(
            "List it; load an adapter onto its base model; put shards together first",
            (
                "ls -l FOLDER",
                "PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(BASE), FOLDER)  # adapter_model.*",
                "python zero_to_fp32.py FOLDER OUT  # global_step*/",
                "accelerate merge-weights FOLDER/pytorch_model_fsdp_0 OUT",
            ),
        ),
        (
            Signature(
                "does not appear to have a file named",
                "OSError: ./out/checkpoint-500 does not appear to have a file named pytorch_model.bin, model.safetensors, "
                "tf_model.h5, model.ckpt or flax_model.msgpack.",
                "does not appear to have a file",
                r"(?:^\w*Error: )?(?P<where>\S+) does not appear to have a file named (?P<file>[\w.-]+)",
                source="transformers 4.x and 5.x",
            ),
            Signature(
                "found in directory",
                "OSError: Error no file named pytorch_model.bin, model.safetensors, tf_model.h5, model.ckpt.index or "
                "flax_model.msgpack found in directory ./out.",
                "no file found",
                r"[Nn]o file named (?P<file>[\w.-]+)[^\n]*? found in directory (?P<where>\S+?)\.?(?:\s|$)",
                source="transformers 4.x and 5.x, diffusers",
            ),
        ),
        judge=lacking,
        decide="ls -l FOLDER",
    ),
    Cause(
        "CKP239",
        "torch-too-old-to-load-pickles",
        "transformers refuses .bin files with a torch older than 2.6.",
        "torch.load had a hole (CVE-2025-32434) that weights_only did not close before 2.6; safetensors are not "
        "concerned. The file is well.",
        "transformers refuses to read a pickle (.bin, .pt) with this torch, which is older than 2.6 (CVE-2025-32434); the "
        "file is well",
        Remediation(
            "Use the safetensors of the model, or upgrade torch with its torchvision and torchaudio",
            (
                "pip install -U 'torch>=2.6' torchvision torchaudio",
                "from_pretrained(NAME, use_safetensors=True)",
                "model.save_pretrained(FOLDER, safe_serialization=True)",
            ),
        ),
        (
            Signature(
                ("vulnerability issue in `torch.load`", "CVE-2025-32434"),
                "ValueError: Due to a serious vulnerability issue in `torch.load`, even with `weights_only=True`, we now "
                "require users to upgrade torch to at least v2.6 in order to use the function.",
                "a vulnerability issue in the web server",
                r"serious vulnerability issue in `torch\.load`|CVE-2025-32434",
                source="transformers 4.49 to 5.x",
            ),
        ),
    ),
    Cause(
        "FS240",
        "hub-not-reached-and-not-cached",
        "A model or data set is not in the local cache, and the hub was not reached.",
        "The container has no network, or offline mode is on (HF_HUB_OFFLINE); the cache is another one than the one that was "
        "filled: HF_HOME differs, or is not mounted.",
        "a file of the hub is not in the local cache, and {why}",
        Remediation(
            "Fill the cache where there is a network, mount it, and point HF_HOME at it; compute nodes without network then "
            "run offline",
            (
                "hf download REPO  # or huggingface-cli download REPO, on a machine with network",
                "docker run -v ~/.cache/huggingface:/hf -e HF_HOME=/hf -e HF_HUB_OFFLINE=1 ...",
                'python -c "from huggingface_hub import constants as c; print(c.HF_HUB_CACHE)"; ls "${HF_HOME:-$HOME/.cache/huggingface}/hub"',
                "curl -sI https://huggingface.co | head -1",
            ),
        ),
        (
            Signature(
                ("outgoing traffic has been disabled", "ffline mode is enabled", "OfflineModeIsEnabled"),
                "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing "
                "traffic has been disabled.",
                "offline mode was enabled",
                r"outgoing traffic has been disabled|(?P<off>[Oo]ffline mode is enabled|OfflineModeIsEnabled)",
                source="huggingface_hub 0.8 to 1.x",
            ),
            Signature(
                (
                    "cannot find the requested files in the local cache",
                    "cannot find the requested files in the disk cache",
                    "We couldn't connect to 'https://",
                    "and couldn't find it in the cached files",
                ),
                "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub and "
                "we cannot find the requested files in the local cache.",
                "the requested files are in the local cache",
                r"(?P<net>cannot find the requested files in the (?:local|disk) cache|We couldn't connect to 'https://[^']*'"
                r"|and couldn't find it in the cached files)",
                source="huggingface_hub 0.8 to 1.x, transformers 4.x and 5.x",
            ),
        ),
        judge=unreached,
        explains=("DST2", "CKP238"),
    ),
    Cause(
        "FS241",
        "hub-access-denied",
        "The hub refused the repository: it is gated or private, and the token is missing or has no access.",
        "Containers and batch jobs do not see the token of the login node.",
        "the hub refused access ({what}): the repository is gated or private, and this process has no token, or one without "
        "access",
        Remediation(
            "Accept the terms on the model's page, and hand a token to the process",
            ("hf auth login  # or huggingface-cli login", "docker run -e HF_TOKEN ...", "hf auth whoami"),
        ),
        (
            Signature(
                ("access a gated repo", "GatedRepoError", "gated repo"),
                "OSError: You are trying to access a gated repo.",
                "a gated recurrent unit",
                r"(?P<what>You are trying to access a gated repo|GatedRepoError|Cannot access gated repo)",
                source="huggingface_hub 0.16 to 1.x, transformers 4.x and 5.x",
            ),
            Signature(
                "Invalid user token",
                "OSError: Invalid user token. If you didn't pass a user token, make sure you are properly logged in",
                "user token",
                r"(?P<what>Invalid user token)",
                source="huggingface_hub 0.16 to 1.x",
            ),
            Signature(
                "Client Error: ",
                "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/org/m/resolve/main/config.json",
                "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://huggingface.co/org/m",
                r"(?P<what>40[13] Client Error): (?:Unauthorized|Forbidden)[^\n]* for url: https://(?:[\w.-]*\.)?(?:huggingface\.co|hf\.co)/",
                source="requests, huggingface_hub 0.16 to 1.x",
            ),
        ),
        explains=("FS240", "FS242"),
    ),
    Cause(
        "FS242",
        "model-folder-or-repository-not-found",
        "The name given to from_pretrained is neither a folder here nor a repository.",
        "A path that does not exist is taken for the name of a repository: the folder is not mounted, relative to another "
        "directory, or the run that was to make it failed.",
        "{path} is neither a folder here nor a repository of the hub: a path that does not exist is taken for a name",
        Remediation(
            "Give the absolute path of the folder, and see that it is mounted; for a private repository hand over a token",
            ("ls -ld {path}; pwd", "docker run -v $PWD/out:/workspace/out ...", "hf auth whoami"),
        ),
        (
            Signature(
                "is not a local folder and is not a valid model identifier",
                "OSError: ./out/final is not a local folder and is not a valid model identifier listed on "
                "'https://huggingface.co/models'",
                "is a local folder",
                r"(?:\w*Error: )?(?P<path>\S+) is not a local folder and is not a valid model identifier",
                source="transformers 4.x and 5.x",
            ),
            Signature(
                "Repo id must",
                "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
                "'/models/llama/final'. Use `repo_type` argument if needed.",
                "Repo id must be given",
                r"HFValidationError: Repo id must [^\n]*?: '(?P<path>[^']+)'",
                source="huggingface_hub 0.11 to 1.x: an absolute path that does not exist",
            ),
            Signature(
                "RepositoryNotFoundError",
                "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. Repository Not Found for url: "
                "https://huggingface.co/api/models/me/none.",
                "RepositoryNotFoundError was caught",
                r"RepositoryNotFoundError: (?:.*\n){0,4}?[^\n]*Repository Not Found for url: https?://[^/\s]+/(?:api/(?:models|datasets)/)?(?P<path>\S+?)(?:/resolve/\S*)?\.?(?:\s|$)",
                source="huggingface_hub 0.8 to 1.x",
            ),
        ),
        explains=("CKP238",),
    ),
    Cause(
        "CKP252",
        "model-shard-missing",
        "A file of a model in several parts is not there.",
        "The index names all parts; a download that was stopped, a copy without the large files or a cleaned cache lacks some.",
        "{path}, a part of a model in several files, is not there: the download or copy is incomplete",
        Remediation(
            "Compare the parts with the index, and fetch what is missing",
            (
                "ls -l FOLDER; python -c \"import json,sys; print(*sorted(set(json.load(open(sys.argv[1]))['weight_map'].values())), sep='\\n')\" FOLDER/model.safetensors.index.json",
                "hf download REPO --local-dir FOLDER",
            ),
        ),
        (
            Signature(
                "-of-",
                "FileNotFoundError: [Errno 2] No such file or directory: '/models/llama/model-00003-of-00004.safetensors'",
                "Loading model-00003-of-00004.safetensors",
                r"(?:No such file or directory: '|[Nn]o such file: ?'?|does not exist: '?)(?P<path>[^'\n]*-\d{5}-of-\d{5}\.\w+)",
                source="transformers 4.x and 5.x, safetensors",
            ),
        ),
        explains=("FS208",),
    ),
    Cause(
        "CKP251",
        "tensor-not-in-safetensors-file",
        "A tensor that the code asks for is not in the safetensors file.",
        "Another architecture or version; or tied weights, of which only one name is stored.",
        "the safetensors file has no tensor {name}: another model or version wrote it, or it is tied to one that is stored under "
        "another name",
        Remediation(
            "List its tensors; tie the weights after loading where they are shared",
            (
                "python -c \"import sys; from safetensors import safe_open; print(*safe_open(sys.argv[1], 'pt').keys(), sep='\\n')\" FILE",
                "model.tie_weights()",
            ),
        ),
        (
            Signature(
                "File does not contain tensor",
                "safetensors_rust.SafetensorError: File does not contain tensor lm_head.weight",
                "File does contain the tensor",
                r"File does not contain tensor (?P<name>\S+)",
                source="safetensors 0.3 to 0.7",
            ),
        ),
    ),
    Cause(
        "CKP256",
        "remote-code-not-allowed",
        "The model brings code of its own, and running it was not allowed.",
        "trust_remote_code runs what the repository holds; it may be switched on only for code that was read.",
        "the model brings Python code of its own, and trust_remote_code is off",
        Remediation(
            "Read the code of the repository, pin its revision, and allow it",
            ("from_pretrained(NAME, trust_remote_code=True, revision='COMMIT')",),
        ),
        (
            Signature(
                "trust_remote_code=True` to remove this error",
                "ValueError: Loading me/x requires you to execute the configuration file in that repo on your local machine. Make sure you have read the code there to avoid malicious use, then set the option `trust_remote_code=True` to remove this error.",
                "trust_remote_code=True is set",
                source="transformers 4.x and 5.x, datasets",
            ),
            Signature(
                "contains custom code which must be executed",
                "ValueError: The repository for me/x contains custom code which must be executed to correctly load the model.",
                "custom code",
                source="transformers 4.3x to 5.x",
            ),
        ),
    ),
    Cause(
        "CKP257",
        "architecture-unknown-to-transformers",
        "The installed transformers does not know the model's architecture.",
        "The model is newer than the installed release, or its config.json names a type that only its own code knows.",
        "the installed transformers does not know the architecture {what}: it is older than the model",
        Remediation(
            "Upgrade transformers, or allow the model's own code after reading it",
            (
                "pip install -U transformers",
                "pip install git+https://github.com/huggingface/transformers",
                "from_pretrained(NAME, trust_remote_code=True)",
            ),
        ),
        (
            Signature(
                "does not recognize this architecture",
                "ValueError: The checkpoint you are trying to load has model type `qwen3_next` but Transformers does not recognize this architecture.",
                "the architecture is recognized",
                r"has model type `(?P<what>[^`]+)` but Transformers does not recognize this architecture",
                source="transformers 4.4x to 5.x",
            ),
        ),
    ),
    Cause(
        "CKP258",
        "adapter-folder-without-config",
        "The folder has no adapter of PEFT.",
        "PeftModel.from_pretrained looks for adapter_config.json beside adapter_model.*.",
        "{path} has no adapter_config.json: it holds no PEFT adapter (a merged or full model, the folder above, or an interrupted save)",
        Remediation(
            "Give the folder that holds the adapter; a full model is loaded without PEFT",
            (
                "ls -l {path} {path}/checkpoint-*",
                "AutoModelForCausalLM.from_pretrained(PATH)  # a full or merged model",
            ),
        ),
        (
            Signature(
                "Can't find 'adapter_config.json' at",
                "ValueError: Can't find 'adapter_config.json' at 'out/lora'",
                "find the adapter_config.json",
                r"Can't find 'adapter_config\.json' at '(?P<path>[^']*)'",
                source="peft 0.3 to 0.18",
            ),
        ),
        explains=("FS240",),
    ),
)
