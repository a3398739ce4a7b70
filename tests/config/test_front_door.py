"""What a user sees when a command is wrong: everything at once, with path, value and the nearest name."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from supertrainer.main import main

MAIN = Path(__file__).parents[2] / "src" / "supertrainer" / "main.py"


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    assert main(words) == code
    return capsys.readouterr().err


def test_nothing_lists_the_experiments_and_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr().out
    assert "train_bert" in printed
    assert "+experiment=train_bert" in printed


def test_every_kind_of_mistake_in_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    errors = refused(
        capsys,
        "+experiment=train_bert",
        "trackr=none",
        "run.nam=x",
        "run.seed='1'",
        "trainer.training_kwargs.learning_ratee=1e-4",
        "trainer.training_kwargs.learning_rate='1e-4'",
        "trainer.model_kwargs.attn_implementation=sdpaa",
        "trainer.peft_kwargs={r:8,target_module:[query]}",
        "operation=tran",
        "dataset.source=data/nowhere.csv",
        "metric._target_=os.system",
        "engine=hff",
        "model=bert/minilmm",
        "x=[1",
    )
    for line in (
        "trackr='none': unknown key.",
        "did you mean tracker?",
        "run.nam='x': unknown key.",
        "did you mean name?",
        "run.seed='1': is text; a whole number from 0 to 4294967295 was expected.",
        "Fix: run.seed=1 without quotes.",
        "did you mean learning_rate?",
        "trainer.training_kwargs.learning_rate='1e-4' (str): TrainingArguments takes a float.",
        "did you mean sdpa?",
        "did you mean target_modules?",
        "operation='tran': expected one of train, infer, benchmark, export, check, verify.",
        "did you mean train?",
        "data/nowhere.csv",
        "metric._target_=os.system: not in the allow-list.",
        "engine=hff: 'engine' has no option 'hff'.",
        "did you mean bert/minilm?",
        "x=[1: can't be parsed",
    ):
        assert line in errors, line
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["+experiment=training_bert"], "did you mean train_bert?"),
        (["+experimnt=train_bert"], "did you mean experiment?"),
        (
            ["+experiment=train_bert", "trainer/common/model_kwargs=sdpa"],
            "trainer/common/model_kwargs@trainer.model_kwargs",
        ),
        (
            ["+experiment=train_bert", "trainer/comon/model_kwargs@trainer.model_kwargs=sdpa"],
            "did you mean trainer/common/model_kwargs?",
        ),
        (["+experiment=train_bert", "tracker=null"], "is no option of 'tracker'"),
        (["+experiment=train_bert", "run.seed=1,2"], "add --multirun"),
        (["+experiment=train_bert", "tracker=none,tensorboard"], "add --multirun"),
        (["+experiment=train_bert", "hydra/launcher=basic2"], "hydra/launcher"),
        (["+experiment=train_bert", "hydra.run.dir=x"], "not open to setting"),
        (["+experiment=train_bert", "hydra.launcher._target_=os.system"], "not open to setting"),
        (["+experiment=train_bert", "~nothing"], "no such key to leave out"),
        (
            ["+experiment=train_bert", "run.seed.deep=1"],
            "is keys and values; a whole number from 0 to 4294967295 was expected",
        ),
        (["+experiment=train_bert", "run.seed=${nowhere}"], "can't be resolved"),
        (["+experiment=train_bert", "run.seed"], "not an override"),
        (["+experiment=train_bert", "run.name=a/b"], "run.name='a/b'"),
        (["+experiment=train_bert", "trainer=null"], "is no option of 'trainer'"),
        (["+experiment=train_bert", "model=3"], "is no option of 'model'"),
        (["+experiment=train_bert", "~trainer"], "operation=train needs one"),
        (["+experiment=train_bert", "dataset=bert/csv"], "dataset.source: is required."),
        (["+experiment=train_bert", "run.root=hf_" + "a" * 30], "holds a secret (not shown)"),
        (["+experiment=train_bert", "+trainer.training_kwargs.fp16=true"], "fp16=true without a GPU"),
        (["+experiment=train_bert", "trainer.training_kwargs.per_device_train_batch_size=12"], "does not divide"),
        (["+experiment=train_bert", "+trainer.training_kwargs.gradient_accumulation_steps=2"], "is not set here"),
        (["+experiment=train_bert", "model.source=runs/nowhere/model.bin"], "is not there"),
        (["+experiment=train_bert", "then=[train]"], "can't follow"),
        (["+experiment=train_bert", "trainer.training_kwargs.learning_rate=-1"], "learning_rate=-1: is below 0"),
        (["+experiment=train_bert", "trainer.training_kwargs.learning_rate=nan"], "is no finite number"),
        (["+experiment=train_bert", "trainer.training_kwargs.num_train_epochs=0"], "asks for no step at all"),
        (["+experiment=train_bert", "trainer.training_kwargs.adam_beta1=1.5"], "is not between 0 and 1"),
        (["config=nowhere.yaml"], "there is no such file"),
        (["run.seed=3"], "no experiment is chosen"),
    ],
)
def test_a_mistake_is_explained(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    errors = refused(capsys, *words)
    assert expected in errors
    assert "a" * 30 not in errors
    refused_preview = refused(capsys, *words, "--cfg", "job")
    assert expected in refused_preview


def test_processes_must_share_a_step_evenly(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")
    errors = refused(capsys, "+experiment=train_bert", "--cfg", "job")
    assert "per_device_train_batch_size=8 × 3 processes does not divide trainer.global_batch_size=32" in errors
    assert "trainer.global_batch_size=24" in errors


def test_a_preview_prints_the_tree_on_stdout_and_the_errors_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["+experiment=train_bert", "run.nam=x", "--cfg", "job"]) == 2
    printed = capsys.readouterr()
    assert "nam: x" in printed.out
    assert "run.nam='x': unknown key." in printed.err


def test_a_mistake_in_the_environment_names_the_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPERTRAINER__RUN__SEED", "abc")
    monkeypatch.setenv("SUPERTRAINER__TRACKER", "nonee")
    errors = refused(capsys, "+experiment=train_bert")
    assert (
        "run.seed='abc': is text; a whole number from 0 to 4294967295 was expected. (from SUPERTRAINER__RUN__SEED)"
        in errors
    )
    assert "SUPERTRAINER__TRACKER: tracker=nonee: 'tracker' has no option 'nonee'." in errors


def test_the_preview_is_what_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["+experiment=train_bert", "run.seed=7", "--cfg", "job"]) == 0
    printed = capsys.readouterr().out
    file = tmp_path / "whole.yaml"
    file.write_text(printed)
    assert main([f"config={file}", "--cfg", "job"]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("suffix", [".yaml", ".json", ".toml"])
def test_a_file_on_top_of_an_experiment(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {
        ".yaml": "experiment: train_bert\nmode: toy\nrun: {seed: 11}\n",
        ".json": '{"experiment": "train_bert", "mode": "toy", "run": {"seed": 11}}',
        ".toml": 'experiment = "train_bert"\nmode = "toy"\n[run]\nseed = 11\n',
    }
    file = tmp_path / f"mine{suffix}"
    file.write_text(texts[suffix])
    assert main([f"config={file}", "--cfg", "job", "-p", "run"]) == 0
    printed = capsys.readouterr().out
    assert "seed: 11" in printed
    assert "mode: toy" in printed
    assert main([f"config={file}", "run.seed=12", "--cfg", "job", "-p", "run"]) == 0
    assert "seed: 12" in capsys.readouterr().out


@pytest.mark.parametrize("node", ["hydra: {run: {dir: x}}", "defaults: [trainer: bert/default]"])
def test_a_file_with_a_hydra_or_defaults_node_is_refused(
    node: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(node)
    assert "node." in refused(capsys, f"config={file}")


def test_a_json_file_with_a_key_twice_and_an_empty_file_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice, empty = tmp_path / "twice.json", tmp_path / "empty.yaml"
    twice.write_text('{"experiment": "train_bert", "run": {"seed": 1, "seed": 2}}')
    empty.write_text("")
    assert "'seed' stands twice" in refused(capsys, f"config={twice}")
    assert "is empty" in refused(capsys, f"config={empty}")


def test_a_group_option_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("text,label\n")
    own = tmp_path / "own configs" / "dataset" / "bert"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text(
        f"_target_: supertrainer.data.bert.BertDataset\nsource: {tmp_path / 'rows.csv'}\nmax_length: 77\n"
    )
    words = ["--config-dir", str(tmp_path / "own configs"), "+experiment=train_bert", "dataset=bert/mine"]
    assert main([*words, "--cfg", "job", "-p", "dataset"]) == 0
    assert "max_length: 77" in capsys.readouterr().out
    (own / "mine.yaml").write_text("a: [1\nb: }")
    assert "is not YAML" in refused(capsys, *words)


def test_a_sweep_can_be_previewed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--multirun", "+experiment=train_bert", "run.seed=1,2", "--cfg", "job"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("--- # run.seed=") == 2
    assert "seed: 1\n" in printed
    assert "seed: 2\n" in printed


def test_a_number_may_name_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["+experiment=train_bert", "run.name=2024", "--cfg", "job", "-p", "run"]) == 0
    assert "name: '2024'" in capsys.readouterr().out


def test_the_advice_for_a_secret_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    errors = refused(capsys, "+experiment=train_bert", "run.root=hf_" + "a" * 30)
    assert "write run.root='${secret:ROOT}'" in errors


def test_a_snapshot_cannot_widen_what_may_be_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["+experiment=train_bert", "--cfg", "job"]) == 0
    tree = capsys.readouterr().out
    run = tmp_path / "run"
    run.mkdir()
    (run / "environment.json").write_text("{}")
    widened = tree.replace("allow_targets: []", "allow_targets: [os]").replace(
        "_target_: supertrainer.metrics.classification.ClassificationMetric", "_target_: os.path.X"
    )
    assert widened != tree
    (run / "config.yaml").write_text(widened)
    assert "metric._target_=os.path.X: not in the allow-list." in refused(capsys, f"config={run}")


def test_a_snapshot_ignores_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["+experiment=train_bert", "--cfg", "job"]) == 0
    (tmp_path / "config.yaml").write_text(capsys.readouterr().out)
    monkeypatch.setenv("SUPERTRAINER__RUN__SEED", "77")
    assert main([f"config={tmp_path}", "--cfg", "job", "-p", "run"]) == 0
    assert "seed: 42" in capsys.readouterr().out


def test_a_part_can_be_chosen_on_top_of_a_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["+experiment=train_bert", "--cfg", "job"]) == 0
    (tmp_path / "config.yaml").write_text(capsys.readouterr().out)
    words = [f"config={tmp_path}", "trainer/common/peft_kwargs@trainer.peft_kwargs=lora", "tracker=tensorboard"]
    assert main([*words, "--cfg", "job"]) == 0
    printed = capsys.readouterr().out
    assert "lora_alpha" in printed
    assert "TensorBoardTracker" in printed


def test_the_light_path_imports_no_heavy_package() -> None:
    heavy = ("torch", "transformers", "datasets", "peft", "accelerate", "sklearn", "matplotlib", "numpy")
    code = (
        "import sys; from supertrainer.main import main\n"
        "codes = [main(['+experiment=train_bert', '--cfg', 'job']), main(['+experiment=train_bert', 'run.nam=x'])]\n"
        f"loaded = [name for name in {heavy!r} if name in sys.modules]\n"
        "assert codes == [0, 2], codes\n"
        "assert not loaded, loaded\n"
        "import torch; assert 'torch' in sys.modules  # the check can fail"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)


def test_another_scripts_module_names_are_not_shadowed(tmp_path: Path) -> None:
    """The program's folder holds `data`, `metrics`, …; another package's absolute import must not find them."""
    (tmp_path / "data.py").write_text("WHO = 'the user'")
    code = f"import sys, runpy; sys.argv = [{str(MAIN)!r}, '--version']\n"
    code += f"sys.path[0] = {str(MAIN.parent)!r}; sys.path.append({str(tmp_path)!r})\n"
    code += f"try: runpy.run_path({str(MAIN)!r}, run_name='__main__')\nexcept SystemExit: pass\n"
    code += "import data; assert data.WHO == 'the user'"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_a_refusal_is_quick() -> None:
    """Generous against a busy machine: what it guards is the import of torch, which takes longer than this by far."""
    started = time.process_time()
    before = os.times().children_user + os.times().children_system
    subprocess.run([sys.executable, str(MAIN), "+experiment=train_bert", "run.nam=x"], capture_output=True, check=False)
    spent = os.times().children_user + os.times().children_system - before
    assert spent < 2.0, f"{spent:.2f} CPU seconds (after {time.process_time() - started:.2f} of ours)"


def test_a_misspelt_parameter_of_a_launcher_gets_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["+experiment=train_bert", "hydra/launcher=submitit_slurm", "hydra.launcher.partiton=main"]
    errors = refused(capsys, "--multirun", *words, "run.seed=1,2")
    assert "hydra.launcher.partiton=main: the launchers have no 'partiton'." in errors
    assert "did you mean partition?" in errors
