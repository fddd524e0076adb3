"""The words of `headway compare`: what is varied, over which seeds, on which terms."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import ConfigError, HeadwayError, UsageError
from headway.runs.grid import grid, naming, split_values, variant_names


def test_a_grid() -> None:
    plan = grid(["model.norm=layernorm,dyt", "train.steps=50", "model.depth=1,2,3", "seeds=3"])
    assert plan.common == ("train.steps=50",)
    assert plan.keys == ("model.norm", "model.depth")
    assert plan.variants[:3] == tuple(("model.norm=layernorm", f"model.depth={n}") for n in (1, 2, 3))
    assert len(plan.variants) == 6
    assert plan.seeds_from(7) == (7, 8, 9)


def test_settings_that_change_together() -> None:
    plan = grid(["model.kind+model.attention=lstm+none,gru+dot", "model.depth=1,2"])
    assert plan.keys == ("model.kind", "model.attention", "model.depth")
    assert plan.variants[1] == ("model.kind=lstm", "model.attention=none", "model.depth=2")
    assert plan.variants[2] == ("model.kind=gru", "model.attention=dot", "model.depth=1")
    with pytest.raises(UsageError, match="2 settings, gru has 1"):
        grid(["model.kind+model.attention=lstm+none,gru"])


def test_what_is_not_varied() -> None:
    plan = grid(["data.train=a.en,a.de", "train.betas=[0.9, 0.99],[0.9, 0.95]", 'data.text="a,b"'])
    assert plan.common == ("data.train=a.en,a.de", 'data.text="a,b"')
    assert plan.variants == (("train.betas=[0.9, 0.99]",), ("train.betas=[0.9, 0.95]",))
    assert grid(["seeds=4,2"]).seeds_from(9) == (4, 2)
    assert grid(["seeds=2"]).variants == ((),)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["model.depth=2"],
        ["seeds=1"],
        ["seeds=0", "a=1,2"],
        ["seeds=x", "a=1,2"],
        ["seeds=1,1", "a=1,2"],
        ["seeds=-2", "a=1,2"],
        ["a=1,2", "a=3,4"],
        ["a=1,2", "a=3"],
        ["a=1,1"],
        ["a=1,2", "equal=steps"],
        ["a=1,2", "against=3"],
        ["a=1,2", "lengths=0"],
        ["a=1,2", "lengths=8,8"],
        ["a=1,2", "lengths="],
    ],
)
def test_no_comparison(words: list[str]) -> None:
    with pytest.raises(HeadwayError) as caught:
        grid(words)
    assert isinstance(caught.value, UsageError | ConfigError)


@settings(max_examples=40)
@given(st.lists(st.from_regex(r"[a-z0-9.\"'\[\]]*", fullmatch=True), min_size=1))
def test_nothing_of_a_value_is_lost(parts: list[str]) -> None:
    raw = ",".join(parts)
    assert ",".join(split_values(raw)) == raw
    if not any(set(part) & set("[]\"'") for part in parts):
        assert split_values(raw) == parts


def test_variants_are_called_by_what_sets_them_apart() -> None:
    def names(*words: str) -> list[str]:
        return variant_names(grid(words))

    assert names("model.kind+model.attention=gru+none,conv+none") == ["gru none", "conv none"]
    assert names("model.freeze+model.lora+train.layer_decay=0+0+1.0,4+0+1.0,0+8+1.0,0+0+.8") == [
        "freeze=0 lora=0 layer_decay=1.0",
        "freeze=4",
        "lora=8",
        "layer_decay=.8",
    ]
    assert names("model.norm+train.lr=dyt+1e-3,dyt+2e-3") == ["dyt lr=1e-3", "dyt lr=2e-3"]
    assert names("train.lr=1,2", "model.norm=dyt,rmsnorm") == ["1 dyt", "1 rmsnorm", "2 dyt", "2 rmsnorm"]
    assert names("train.lr=1,2") == ["1", "2"] and names("seeds=2") == ["all"]


def test_words_of_the_comparison_itself() -> None:
    plan = grid(["model.kind+model.attention=lstm+none,lstm+dot", "equal=params", "against=lstm+dot", "lengths=64,8"])
    assert (plan.equal, plan.reference, plan.lengths, plan.common) == ("params", 1, (8, 64), ())
    assert grid(["model.residual=true,false"]).reference == 0
    assert variant_names(grid(["model.residual=true,false", "model.norm_at=pre,post"]))[1] == "residual=true post"
    assert variant_names(grid(["model.from=some/model,"])) == ["some/model", "from=none"]
    assert grid(["recipe=lm,rnn"]).keys == ("recipe",)


def test_too_many_variants() -> None:
    many = ",".join(map(str, range(40)))
    with pytest.raises(UsageError, match="1,600 variants"):
        grid([f"a={many}", f"b={many}"])


def test_an_error_names_its_variant() -> None:
    with pytest.raises(ConfigError, match=r"variant gru dot: no such thing") as caught, naming("gru dot"):
        raise ConfigError("C004", "no such thing", "try another")
    assert caught.value.code == "C004" and caught.value.hint == "try another"
