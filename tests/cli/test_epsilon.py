"""`lmexposure epsilon`: a file of scores from any tool, and no torch."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.conftest import Call


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """600 scores of another tool; fair coins, and a third of those in memorised."""
    rng = np.random.default_rng(5)
    coins = rng.random(600) < 0.5
    scores = rng.normal(size=600) + 4 * (coins & (rng.random(600) < 0.3))
    lines = [f"{s},{int(c)}" for s, c in zip(scores, coins, strict=True)]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(["score,included", *lines]) + "\n")
    return path


def test_every_bound_that_the_data_supports_and_why_not_the_others(call: Call, file: Path) -> None:
    seen = call("epsilon", file)
    assert seen.code == 0
    assert "from scores above a threshold, primary" in seen.out
    assert "not given: one-run audit: needs a declared inclusion probability of 0.5" in seen.out
    assert "AUC" in seen.out


def test_declared_coins_give_the_strongest_bound(call: Call, file: Path) -> None:
    seen = call("epsilon", file, "--inclusion-probability", 0.5, "--delta", 1e-5, "--json")
    section = json.loads(seen.out)
    record, primary = section["classes"][0], section["primary"]
    assert primary["method"] == "one_run_audit"
    assert 1 < primary["value"] < primary["max_attainable"]
    assert record["canaries"] + record["held_out"] == 600
    others = {one["method"]: one for one in record["bounds"]["others"]}
    assert others["one_run_gaussian_audit"]["value"] > primary["value"]


def test_a_claim_is_held_against_the_primary_bound(call: Call, file: Path) -> None:
    claim = ("epsilon", file, "--inclusion-probability", 0.5, "--delta", 1e-5, "--claimed-epsilon")
    assert "at delta 1e-05: contradicted: " in call(*claim, 0.5).out
    assert "not contradicted: " in call(*claim, 3).out
    assert "not decided: " in call(*claim, 50).out


def test_the_command_says_what_the_library_says(call: Call, file: Path) -> None:
    import lmexposure as lx

    seen = call(
        "epsilon",
        file,
        "--inclusion-probability",
        0.5,
        "--delta",
        1e-5,
        "--claimed-epsilon",
        3,
        "--json",
    )
    columns = np.loadtxt(file, delimiter=",", skiprows=1)
    found = lx.epsilon(
        columns[:, 0], columns[:, 1], inclusion_probability=0.5, deltas=(1e-5,), claim=3
    )
    assert json.loads(seen.out) == found.model_dump(mode="json")


def test_a_claim_without_its_delta_is_refused(call: Call, file: Path) -> None:
    seen = call("epsilon", file, "--claimed-epsilon", 1)
    assert seen.code == 3
    assert "needs --delta" in seen.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--score", "loss"), "no column 'loss'"),
        (
            ("--inclusion-probability", "2"),
            "inclusion_probability=2.0 must lie strictly between 0 and 1",
        ),
        (("--significance", "0"), "significance=0.0 must lie"),
        (("--delta", "1"), "must lie in [0, 1)"),
        (("--repetitions", "-1"), "repetitions=-1"),
    ],
)
def test_wrong_use_is_exit_code_3(
    call: Call, file: Path, arguments: tuple[str, str], said: str
) -> None:
    seen = call("epsilon", file, *arguments)
    assert seen.code == 3
    assert said in seen.err


def test_scores_in_the_wrong_direction_give_0_and_say_so(call: Call, file: Path) -> None:
    seen = call("epsilon", file, "--inclusion-probability", 0.5, "--lower-is-in", "--json")
    primary = json.loads(seen.out)["primary"]
    assert primary["value"] == 0
    assert "wrong direction" in " ".join(primary["notes"])
    seen = call("epsilon", file, "--inclusion-probability", 0.5, "--lower-is-in")
    assert "leave out --lower-is-in if lower scores do not mean in" in seen.out
    assert "--lower-is-in" not in call("epsilon", file, "--inclusion-probability", 0.5).out


def test_pooled_formats_of_unequal_numbers_show_no_leak_that_is_not_there(
    call: Call, tmp_path: Path
) -> None:
    """Two formats have references and ten have none: bounds of up to 1.01 nats came of it."""
    for seed in (2, 4, 6):
        rng, lines = (
            np.random.default_rng([seed, 9]),
            ["log_perplexity_bits,role,format,repetitions"],
        )
        for name in range(12):
            coins, references = rng.random(20) < 0.5, 1000 * (name < 2)
            roles = [*np.where(coins, "canary", "held_out"), *["reference"] * references]
            lines += [f"{-rng.normal()},{role},{name},1" for role in roles]
        path = tmp_path / "scores.csv"
        path.write_text("\n".join(lines) + "\n")
        seen = call(
            "epsilon",
            path,
            "--inclusion-probability",
            0.5,
            "--delta",
            1e-5,
            "--json",
            "--lower-is-in",
        )
        section = json.loads(seen.out)
        bounds = section["classes"][0]["bounds"]
        assert [one["value"] for one in (bounds["primary"], *bounds["others"])] == [0] * 6
        assert "2,000 of 2,000 references are left out" in section["notes"][0]


def test_scores_of_one_side_give_no_bound_and_no_exit_code_0(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "one.csv"
    file.write_text("score,included\n" + "1.5,1\n" * 20)
    seen = call("epsilon", file)
    assert seen.code == 3
    assert "one.csv: no bound: " in seen.err


def test_coins_that_were_never_tossed_give_no_bound(call: Call, file: Path) -> None:
    seen = call(
        "epsilon", file, "--inclusion-probability", 0.01, "--delta", 0, "--claimed-epsilon", 1
    )
    assert seen.code == 3
    assert (
        "no bound: 325 of 600 candidates went in, which an inclusion probability of 0.01 gives"
        in seen.out
    )
    assert "not decided: no class of canaries has a bound" in seen.out


def test_it_needs_no_torch(file: Path) -> None:
    script = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'torch', 'transformers', 'datasets'}:\n"
        "            raise ImportError('blocked: ' + name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        f"sys.argv = ['lmexposure', 'epsilon', {str(file)!r}, '--inclusion-probability', '0.5']\n"
        "from lmexposure.cli.entry import _run\n"
        "sys.exit(_run())\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
