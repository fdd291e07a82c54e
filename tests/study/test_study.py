from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from anchorscope import AnchorscopeError, Study, load_study
from anchorscope.run.studyfile import commented, known_studies
from anchorscope.study.asking import DEFAULT_EXAMPLES
from anchorscope.study.terms import Spec
from anchorscope.study.validation import validate
from anchorscope.study.yamlfile import parse_yaml

GOOD = {"name": "s", "models": ["org/model"], "datasets": ["popqa"]}


def study(**fields) -> Study:
    return Study.model_validate({**GOOD, **fields})


def problems(text: str) -> str:
    with pytest.raises(AnchorscopeError) as caught:
        validate(Study, parse_yaml(text, Path("s.yaml")))
    return str(caught.value)


def test_shorthands_give_names():
    found = study(models=["org/Model-1B", "/weights/x.Q4.gguf"], datasets=["popqa", "sets/my set.yaml"])
    assert [model.name for model in found.models] == ["Model-1B", "x.Q4"]
    assert [dataset.name for dataset in found.datasets] == ["popqa", "my-set"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: s\nmodles: [a/b]\ndatasets: [popqa]\n", "s.yaml:2: unknown key 'modles'; did you mean 'models'?"),
        ("name: s\nmodels:\n  - {id: a/b, dtyp: auto}\ndatasets: [nq]\n", "s.yaml:3: unknown key 'dtyp'; did you mean"),
        ("name: s\nmodels: [a/b]\ndatasets: [nq]\nprompt: {styl: chat}\n", "unknown key 'styl'; did you mean 'style'?"),
        ("name: s\nmodels: [a/b]\ndatasets: [nq]\nanswers: {backend: vlm}\n", "did you mean 'vllm'?"),
        ("name: s\nmodels: []\ndatasets: [nq]\n", "s.yaml:2: models"),
        ("models: [a/b]\ndatasets: [nq]\n", "name is missing"),
        ("name: ../../etc\nmodels: [a/b]\ndatasets: [nq]\n", "use letters, digits"),
        ("name: s\nmodels: [{id: a/b, dtype: float16}]\ndatasets: [nq]\n", "overflow"),
        ("name: s\nmodels: [{id: a/b, device: cpu, device_map: auto}]\ndatasets: [nq]\n", "not both"),
        ("name: s\nmodels: [a/b, c/B]\ndatasets: [nq]\n", "two models are called"),
        ("name: s\nmodels: [a/questions]\ndatasets: [nq]\n", "another name"),
        ("name: s\nmodels: [a/b]\ndatasets: [nq]\nprompt: {shots: 9}\n", "only 8 examples"),
        ("name: s\nmodels: [a/b]\ndatasets: [nq]\nprompt: {shots: '4'}\n", "should be a valid integer, not '4'"),
        ("name: s\nmodels: [a/b]\ndatasets: [nq]\nprompt: {question: 'Q:'}\n", "{question} exactly once"),
        ("name: s\nmodels: [a/b]\ndatasets: [nq]\nprompt: {system: hi}\n", "belong to style: chat"),
        ("name: s\nmodels: [a/b]\ndatasets: [nq]\nanswers: {source: file}\n", "belong together"),
        ("name: s\nmodels: [a/b]\ndatasets: [{set: nq, columns: source}]\n", "there is no path"),
        ("name: s\nmodels: [a/b]\ndatasets: [{set: nq, sample: 0}]\n", "greater than or equal to 1"),
        (
            "name: s\nmodels: [a/b]\ndatasets: [nq]\nengine: {kind: ray, address: 'ray://x:10001'}\n",
            "s.yaml:4: engine: a study cannot name a Ray cluster",
        ),
        ("name: s\nmodels: [a/b]\ndatasets: [nq]\nengine: {address: auto}\n", "ANCHORSCOPE_RAY_ADDRESS"),
        ("name: s\nmodels: [a/b]\ndatasets: [nq]\nmap: {}\n", "s.yaml:4: map: layer × layer maps were removed"),
        ("- a list\n", "not a mapping"),
        ("", "the file is empty"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_its_line_and_the_mend(text: str, words: str):
    assert words in problems(text)


def test_version_0_2_0_wrote_that_there_is_no_map():
    assert study(map=None).record() == study().record()


def test_all_mistakes_are_said_at_once():
    text = problems("nam: s\nmodels: [{id: a/b, device_map: [1]}]\ndatasets: [{sett: nq}]\nseed: -1\n")
    assert len(text.splitlines()) == 6
    assert "models[0].device_map: [1] is not possible; choose from: auto" in text  # a union is one complaint


def test_every_field_of_every_part_is_documented():
    def parts(kind: type[Spec]) -> list[type[Spec]]:
        return [kind, *(p for child in kind.__subclasses__() for p in parts(child))]

    for kind in parts(Spec)[1:]:
        for name, info in kind.model_fields.items():
            assert info.description, f"{kind.__name__}.{name} has no documentation"


def test_the_packaged_studies_are_valid_and_are_the_published_ones():
    found = {name: load_study(name) for name in known_studies()}
    assert {name: [m.id for m in s.models] for name, s in found.items()} == {
        "llama-3.2": ["meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B"],
        "qwen3": ["Qwen/Qwen3-8B", "Qwen/Qwen3-32B"],
        "small-models": ["HuggingFaceTB/SmolLM2-135M-Instruct", "google/gemma-3-270m"],
        "tutorial": ["HuggingFaceTB/SmolLM2-135M-Instruct"],
    }
    for one in (found["llama-3.2"], found["qwen3"], found["small-models"]):
        assert [d.set for d in one.datasets] == ["popqa", "triviaqa", "hotpotqa", "nq"]
    for model in found["qwen3"].models:
        assert (model.dtype, model.device_map) == ("bfloat16", "auto")
        assert found["qwen3"].prompt_for(model).chat_kwargs == {"enable_thinking": False}


def test_the_packaged_tutorial_is_the_study_that_its_page_shows():
    text = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```yaml file=tutorial\.yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    packaged = load_study("tutorial")
    assert packaged.fingerprint() == validate(Study, parse_yaml(shown, Path("tutorial.yaml"))).fingerprint()
    assert packaged.name == "tutorial"  # a run of the file is resumed by the name, and the other way round


def test_a_commented_file_reads_back_as_the_same_study():
    original = study(
        description="ΔP: «x» # not a comment",
        models=["org/a", {"id": "org/b", "device_map": {"model.layers.0": 0, "lm_head": "cpu"}}],
        datasets=["popqa", {"set": "nq", "sample": 10}],
        prompt={"style": "chat", "system": "be\nbrief", "shots": 1, "chat_kwargs": {"enable_thinking": False}},
    )
    short, text = commented(original), commented(original, every=True)
    assert validate(Study, parse_yaml(short, Path("s.yaml"))) == original
    assert validate(Study, parse_yaml(text, Path("s.yaml"))) == original
    assert all(info.description.split()[0] in text for info in Study.model_fields.values() if info.description)


def test_a_removed_field_is_refused_unless_it_has_the_value_of_today():
    old = {"questions": 800, "distinct": 4}
    assert study(evidence=old) == study(evidence={})
    text = "name: s\nmodels: [a/b]\ndatasets: [nq]\nevidence: {distinct: 5}\n"
    assert "s.yaml:4: evidence.distinct: it was removed in version 0.3.0 and is always 4" in problems(text)


def test_a_new_study_and_every_packaged_one_fit_on_a_screen():
    assert len(commented(study(models=["org/a"], datasets=["popqa"])).splitlines()) < 50
    for path in known_studies().values():
        assert len(path.read_text(encoding="utf-8").splitlines()) < 50, path


@given(st.text(min_size=1, max_size=40), st.text(max_size=40))
def test_commented_files_survive_any_text(question: str, description: str):
    examples = [{"question": question, "answer": "x"}]
    original = study(description=description, prompt={"shots": 1, "examples": examples})
    assert validate(Study, parse_yaml(commented(original), Path("s.yaml"))) == original


def test_identity_ignores_the_description_and_where_a_file_lies_and_nothing_else():
    base = study(datasets=[{"set": "nq", "path": "a/nq.jsonl"}])
    moved = study(datasets=[{"set": "nq", "path": "b/nq.jsonl"}], description="other words")
    assert base.fingerprint() == moved.fingerprint()
    assert base.fingerprint() != study(datasets=[{"set": "nq", "path": "a/nq.jsonl", "sample": 9}]).fingerprint()
    assert base.fingerprint() != study(datasets=[{"set": "nq", "path": "a/nq.jsonl"}], seed=1).fingerprint()


def test_a_study_does_not_change():
    with pytest.raises(ValidationError):
        study().seed = 3


def test_a_model_may_have_a_prompt_of_its_own():
    both = study(models=["org/base", {"id": "org/chat", "prompt": {"style": "chat"}}])
    assert [both.prompt_for(model).style for model in both.models] == ["completion", "chat"]


def test_no_default_example_stands_in_the_sets(shared_data: Path):
    wanted = {f'"question": "{example.question}"' for example in DEFAULT_EXAMPLES}
    for path in shared_data.glob("*.jsonl"):
        text = path.read_text(encoding="utf-8").lower()
        assert not [line for line in wanted if line.lower() in text]


def test_data_folder_is_all_or_an_error(tmp_path: Path):
    (tmp_path / "popqa.csv").write_text("question,answers\n")
    assert study().with_data(tmp_path).datasets[0].path == str(tmp_path / "popqa.csv")
    with pytest.raises(AnchorscopeError, match=r"holds no nq\.jsonl"):
        study(datasets=["popqa", "nq"]).with_data(tmp_path)


def test_an_unknown_grader_and_a_missing_file_of_answers_are_refused_with_their_line(tmp_path: Path):
    text = "name: s\nmodels: [a/b]\ndatasets: [nq]\nanswers:\n  "
    (tmp_path / "s.yaml").write_text(text.replace("answers", "grades") + "grader: alais\n")
    with pytest.raises(AnchorscopeError, match=r"s\.yaml:5: grades: there is no grader 'alais'") as caught:
        load_study(tmp_path / "s.yaml")
    assert "did you mean 'alias'?" in caught.value.hint
    (tmp_path / "s.yaml").write_text(text + "source: file\n  file: no.jsonl\n")
    with pytest.raises(AnchorscopeError, match=r"s\.yaml:6: answers: there is no file"):
        load_study(tmp_path / "s.yaml")


def test_load_study_says_which_name_was_meant(tmp_path: Path):
    with pytest.raises(AnchorscopeError, match=r"did you mean 'llama-3\.2'"):
        load_study("lama-3.2")
    (tmp_path / "s.yaml").write_text("name: s\nmodels: [a/b]\ndatasets:\n  - popqa\n  - trivia\n")
    with pytest.raises(AnchorscopeError, match=r"s\.yaml:5: datasets\[1\]: there is no dataset 'trivia'.*'triviaqa'"):
        load_study(tmp_path / "s.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "name: s\nmodels: [a/b]\ndatasets: [{set: nq, path: 's3://KEY:SECRET@bucket/x.jsonl'}]\n",
        "name: s\nmodels: [a/b]\ndatasets: [{set: nq, path: 'http://user:SECRET@host/x.jsonl'}]\n",
        "name: s\nmodels: [a/b]\ndatasets: ['https://SECRET@host/x.yaml']\n",
        "name: s\nmodels: ['https://user:SECRET@host/a/b']\ndatasets: [nq]\n",
        "name: s\nmodels: [a/b]\ndatasets: [nq]\nanswers: {source: file, file: 's3://KEY:SECRET@bucket/x.jsonl'}\n",
        "name: s\nmodels: [a/b]\ndatasets: [nq]\n"
        "grades: {grader: judge, judge: {base_url: 'http://u:SECRET@h/v1', model: m}}\n",
    ],
)
def test_a_key_in_an_address_is_refused_and_not_repeated(text: str):
    said = problems(text)
    assert "holds a user name, password or key" in said
    assert "SECRET" not in said
