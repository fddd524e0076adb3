"""Error codes and exit codes: what each means, what causes it, what to do. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway.errors import (
    CATALOGUE,
    ConfigError,
    DamagedError,
    DataError,
    DivergedError,
    HeadwayError,
    MemoryOrDiskError,
    NetworkError,
    NotFoundError,
    UsageError,
)

LETTERS: dict[str, type[HeadwayError]] = {
    "B": HeadwayError,
    "U": UsageError,
    "C": ConfigError,
    "D": DataError,
    "F": NotFoundError,
    "N": NetworkError,
    "M": MemoryOrDiskError,
    "T": DivergedError,
    "X": DamagedError,
}
"""First letter of a code → its class."""


@dataclass(frozen=True)
class ErrorCode:
    """A code of an error message, such as the C014 of `error[C014]`."""

    code: str
    error: str
    """The class, as Python raises it."""
    exit_code: int
    meaning: str
    cause: str
    remedy: str

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


CAUSES = {
    "B000": (
        "Code of headway or of a library did something that nobody expected.",
        "Run the command again with --debug, and report the traceback.",
    ),
    "U001": (
        "A verb, an option or an argument is misspelt, missing, or does not go with the others.",
        "Look at the examples at the end of `headway VERB --help`.",
    ),
    "C001": (
        "A recipe, a config.json or a word such as key=value cannot be parsed.",
        "Correct the line that the message names; text in TOML stands in quotes.",
    ),
    "C002": ("A setting has text where a number is needed, or the like.", "`headway explain KEY` names the type."),
    "C003": (
        "A setting, or a field of a config.json, has a value that is not allowed.",
        "`headway explain KEY` names the range or the choices.",
    ),
    "C004": (
        "Two settings do not go together, or one that is needed is missing.",
        "Change or leave out one of those that the message names.",
    ),
    "C005": (
        "A regular expression or JSON schema is so large that following it would stall generation.",
        "Make it smaller: fewer repetitions, fewer alternatives.",
    ),
    "C014": (
        "A key is misspelt, lacks its section (lr instead of train.lr), or belongs to another task.",
        "Take the key that the message proposes; `headway explain` lists all.",
    ),
    "C020": (
        "The model_type of a config.json is none of the families that headway reads.",
        "Choose a model of a family that headway knows, such as bert, gpt2, llama, t5, bart or vit.",
    ),
    "C021": (
        "A config.json has a field that could change what the model computes, and headway does not know it.",
        "Take another model; where the field is harmless, report it.",
    ),
    "C022": (
        "A config.json asks for a variant that headway does not have.",
        "Take another model of the family.",
    ),
    "C023": (
        "A config.json names Python code to run (auto_map). headway never runs code from a model folder.",
        "Take a model that needs no code of its own.",
    ),
    "C024": ("A config.json names an architecture that headway has no head for.", "Take another model of the family."),
    "C030": (
        "Another process trains in the same run folder.",
        "Wait for it or stop it; a new `headway train` gets a folder of its own.",
    ),
    "C040": (
        "A resumed run was given another value of a setting that its checkpoint depends on.",
        "Leave the setting out, or start a new run; `headway explain KEY` says whether a resumed run may change it.",
    ),
    "D001": (
        "An input is too long, empty, or of another kind than the model takes.",
        "Give what the message asks for; `headway run MODEL -h` has examples for each kind of model.",
    ),
    "D002": (
        "A data file has no rows that can be used.",
        "`headway data FILE` shows what is in the file, and which rows are bad.",
    ),
    "D003": (
        "A file has another encoding, such as Latin-1, or is no text at all.",
        "Name the encoding: data.encoding=latin-1.",
    ),
    "D004": (
        "The column of the text, the label … was not found, or several columns could be meant.",
        "Name it: data.text=COLUMN data.label=COLUMN; `headway data FILE` lists the columns.",
    ),
    "D006": ("A compressed or binary data file ends early or is corrupt.", "Fetch or compress the file again."),
    "D007": (
        "A row lacks a value, has a wrong one, or cannot be parsed.",
        "Correct the row that the message names, or leave such rows out: data.bad_rows=skip.",
    ),
    "D008": (
        "The chat template of a model is missing, fails, or does not fit the conversation.",
        "Use a chat model, or check the roles of the conversation: they alternate between user and assistant.",
    ),
    "D020": (
        "The data files of a run are not those that the run began with.",
        "Restore the files, or accept the change: headway train --resume RUN --accept-changed-data.",
    ),
    "F001": (
        "A path or name is misspelt, or the file is in another folder.",
        "Check the spelling; `headway runs` lists runs, `headway recipes` recipes.",
    ),
    "F002": (
        "A folder has no config.json or no weights in safetensors files.",
        "Give the folder that holds config.json and model.safetensors.",
    ),
    "F003": ("A feature needs a package of an extra.", "Install it with the line that the message prints."),
    "F004": ("headway does not write into a folder that has files.", "Choose a new name, or remove the folder."),
    "F005": (
        "The tokenizer files of a folder are missing or of a kind that headway cannot read.",
        "Add a tokenizer.json to the folder.",
    ),
    "F006": (
        "An adapter names its base model by an id of the hub, and headway downloads nothing that a file names.",
        "If you trust the base model: headway get ID.",
    ),
    "F007": (
        "The folder is read-only, or belongs to somebody else.",
        "Choose another folder: out=FOLDER; or change its permissions.",
    ),
    "N001": (
        "There is no connection, the model or dataset is not on the hub, or HF_HUB_OFFLINE is set.",
        "Check the name and the connection; models that are in the local cache work offline.",
    ),
    "M001": (
        "The weights need more memory than is free.",
        "Close other programs, take a smaller model, or load it in half the size: --dtype bfloat16.",
    ),
    "M002": (
        "The disk is full.",
        "`headway runs prune` frees space; out=FOLDER puts runs elsewhere.",
    ),
    "M010": (
        "A step, a batch or a prompt needed more memory than was left.",
        "Train with a smaller batch (train.accumulate=2), a shorter data.length, or train.gradient_checkpointing=true.",
    ),
    "M011": (
        "The estimate of a run, made before it starts, exceeds the free memory.",
        "Train with a smaller batch (train.accumulate=2), a shorter data.length, or train.gradient_checkpointing=true.",
    ),
    "T001": (
        "The learning rate is too high, or the data have values that no model can learn.",
        "Lower train.lr, or resume with train.on_nan=rewind, which goes back and halves the rate.",
    ),
    "X001": ("A file was cut short or changed.", "Fetch or export the model again."),
    "X002": (
        "The weights lack a tensor that the config asks for.",
        "Fetch the model again; config and weights differ.",
    ),
    "X003": ("A tensor's shape is not the one of the config.", "Fetch the model again; config and weights differ."),
    "X004": (
        "The weights hold a tensor that the config has no place for.",
        "Fetch the model again; config and weights differ.",
    ),
    "X005": (
        "The folder has only pytorch_model.bin. Pickle files can run code, so headway never opens them.",
        "Take a revision with model.safetensors, or convert the file on a machine where that is safe.",
    ),
    "X006": (
        "An index or a link points outside the model folder.",
        "Put the file into the folder, or take another model.",
    ),
    "X007": (
        "A fast path of a model gives other results than its slow path.",
        "Do not rely on the model; report the lines of `headway check` that failed.",
    ),
    "X008": (
        "The pretrained model that a run began from has other weights now.",
        "Restore the model that the run began from.",
    ),
    "X009": (
        "Two tensors that the config declares as one, such as tied embeddings, differ.",
        "Fetch or export the model again.",
    ),
    "X020": ("The tokenizer of a run was changed.", "Restore tokenizer.json of the run folder."),
}
"""Code → (cause, remedy)."""
SIGNALS = {130: "Stopped by Ctrl-C; a training run has saved its state.", 143: "Stopped by SIGTERM, in the same way."}


def error_codes() -> dict[str, ErrorCode]:
    """Every code that an error message can have."""
    return {
        code: ErrorCode(code, LETTERS[code[0]].__name__, LETTERS[code[0]].exit_code, meaning, *CAUSES[code])
        for code, meaning in CATALOGUE.items()
    }


def exit_codes() -> dict[int, str]:
    """Every exit code of `headway`, with its meaning."""
    errors = {cls.exit_code: cls.__doc__ or "" for cls in LETTERS.values()}
    return {0: "Done.", **errors, 1: "A bug of headway.", **SIGNALS}
