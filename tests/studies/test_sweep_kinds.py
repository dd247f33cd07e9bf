"""What each kind of canary shows, in words: the strongest first, and only what its coins allow."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from exposure.charts.made import texts
from known import known
from made_matrices import made_plan
from made_sweeps import made_power, made_sweep, sweep_with

import lmexposure as lx
from lmexposure.core import Section, Table, as_markdown
from lmexposure.core.render import as_page
from lmexposure.studies import SweepPlan, SweepPower, SweepResult
from lmexposure.studies.sweep import sweep_command, sweep_setting_facts
from lmexposure.studies.sweep_charts import power_chart
from lmexposure.studies.sweep_tables import by_strength, kinds_section, strongest_line


def sections(power: SweepPower) -> list[Section]:
    told = kinds_section(power, lambda: None)
    return [told, *told.parts]


def tables(power: SweepPower) -> list[Table]:
    return [known(section.table) for section in sections(power)]


def test_the_strongest_kind_is_first_and_one_without_a_rate_last() -> None:
    assert by_strength(made_power())[-1].rate.value is None
    kinds, cost = tables(made_power())
    assert [row[0] for row in kinds.cells] == ["new_token/x1", "pin/x1", "texts/x1"]
    first = dict(zip(kinds.heads, kinds.cells[0], strict=True))
    assert (first["each"], first["TPR at FPR 0.01"]) == ("32", "0.800")
    assert first["with 50 % of them"] == "0.700"
    assert first["separated"] == "3 of 32"
    assert first["TPR − that of uniform"] == "+0.700"
    assert [row[0] for row in cost.cells] == ["100 %", "50 %", "0 %"]
    assert cost.cells[0][5] == "+0.0200"


def test_notes_say_what_may_be_claimed() -> None:
    notes = sections(made_power(notes=("pin/x1 has fewer canaries",)))[0].notes
    assert "pin/x1: uniform canaries, which have ranks as well" in notes
    assert any("judged by their coins alone: they have no ranks" in note for note in notes)
    assert "new_token/x1: shows more than uniform canaries (pin/x1)" in notes
    assert "texts/x1: not told apart from uniform canaries (pin/x1)" in notes
    assert notes[-1] == "pin/x1 has fewer canaries"


def test_the_choice_of_the_strongest_is_paid_for() -> None:
    unsure = made_power(strongest_low=None)
    assert strongest_line(unsure, 3) == "strongest: new_token/x1"
    paid = "; its TPR is at least 0.600, corrected for the choice among 3 classes"
    assert strongest_line(made_power(), 3) == f"strongest: new_token/x1{paid}"
    nobody = made_power(strongest=None, strongest_low=None)
    assert strongest_line(nobody, 3).endswith(
        "too few for that FPR in every class; train more models"
    )


def test_without_models_without_canaries_their_cost_is_not_known() -> None:
    some = tuple(row for row in made_power().utility if row.share)
    (note,) = sections(made_power(utility=some))[1].notes
    assert note == "no models without canaries were trained: add the share 0"
    assert len(sections(made_power(utility=some[:1]))) == 1


def test_every_form_of_the_report_has_the_table() -> None:
    result = made_sweep(power=True)
    html, text = as_page(result.told()), as_markdown(result.told())
    assert '<section id="kinds"' in html
    assert "What each kind of canary shows" in html
    assert "## Kinds of canaries" in text
    assert "kinds" in [section.id for section in result.document().on("terminal")]
    alone = made_sweep().told()
    assert '<section id="kinds"' not in as_page(alone)
    assert "## Kinds of canaries" not in as_markdown(alone)


def _with_run(**settings: Any) -> SweepResult:
    result = made_sweep()
    run = replace(result.settings.run, **settings)
    return sweep_with(result, settings=replace(result.settings, run=run))


def test_the_command_names_every_kind_and_what_it_reads() -> None:
    result = _with_run(
        kinds=("uniform", "near_duplicate", "texts"), texts="/data/rare words.txt", partner="always"
    )
    said = sweep_command(result, "s")
    assert (
        "--kind uniform --kind near_duplicate --kind texts --texts '/data/rare words.txt' "
        "--set partner=always"
    ) in said
    facts = {fact.name: fact.value for fact in sweep_setting_facts(result)}
    assert facts["kinds"] == "uniform, near_duplicate, texts"
    assert (facts["texts"], facts["partner"]) == ("/data/rare words.txt", "always")


def test_what_no_kind_reads_is_left_out() -> None:
    assert not {"texts", "partner"} & {fact.name for fact in sweep_setting_facts(made_sweep())}
    alone = sweep_setting_facts(_with_run(kinds=("new_token",)))
    assert "formats" not in {fact.name for fact in alone}


def test_a_seed_that_was_chosen_is_in_the_command_by_its_place(tmp_path: Path) -> None:
    plan = made_plan(24, 4, 0)
    for seed, drawn in (
        (7654321, "with coins of its own"),
        (None, "with secrets and coins of its own"),
    ):
        run = replace(plan.settings.run, seed=seed)
        settings = replace(plan.settings, run=run)
        plan.model_copy(update={"settings": settings}).write(tmp_path / SweepPlan.NAME)
        result = made_sweep()
        result.save(tmp_path)
        told = next(each for each in result.document().sections if each.id == "settings")
        (again,) = told.said  # in Markdown, too
        assert drawn in again
        assert ("; SEED is in plan.json" in again) == (seed is not None)
        assert ("--seed SEED" in told.code) == (seed is not None)
        assert "7654321" not in again + told.code


def test_shares_are_in_the_command() -> None:
    result = made_sweep()
    settings = replace(result.settings, shares=(1.0, 0.5, 0.0))
    assert "--set shares=1.0,0.5,0.0" in sweep_command(sweep_with(result, settings=settings), "s")


def test_the_gate_names_the_kind_of_the_worst_canary() -> None:
    verdict = lx.check(made_sweep(formats=("new_token", "pin"), leaking=1))
    assert verdict.finding.startswith("Canary new_token/x1/0000 gives itself away")


def test_a_pass_of_uniform_fills_says_that_other_kinds_may_show_more() -> None:
    said = "These canaries are of the kind uniform; other kinds may show more"
    alone, several = made_sweep(), _with_run(kinds=("uniform", "new_token"))
    leaking = made_sweep(leaking=1)
    found = [known(one.told().answers).steps for one in (alone, several, leaking)]
    assert [any(step.startswith(said) for step in steps) for steps in found] == [True, False, False]


def test_notes_say_what_is_scored_and_what_breaks_a_rule() -> None:
    rows = made_power().rows
    near = rows[1].model_copy(update={"group": "near_duplicate/x1", "kind": "near_duplicate"})
    notes = sections(made_power(rows=(*rows, near)))[0].notes
    assert "new_token: scored is that symbol" in notes
    said = "near_duplicate: scored is its end; an exception to the rules of canaries"
    assert any(note.startswith(said) for note in notes)
    assert not any(note.startswith("uniform: scored") for note in notes)


def test_one_dot_for_each_class_that_is_resolved() -> None:
    found = known(power_chart(made_sweep(power=True)))
    assert found.title == "What each kind of canary shows: TPR at FPR 0.01"
    assert found.description == (
        "TPR at FPR 0.01: new_token/x1 0.800 (0.750 .. 0.850), pin/x1 0.100 (0.050 .. 0.150)."
    )
    drawn = texts(found)
    assert "new_token/x1: 0.800" in drawn
    assert not any("texts" in text for text in drawn)
    assert "sweep-power" in [chart.name for chart in made_sweep(power=True).document().drawings()]


def test_nothing_to_compare_is_no_chart() -> None:
    assert power_chart(made_sweep()) is None
    rows = tuple(row for row in made_power().rows if row.group == "texts/x1")
    power = made_power(rows=rows, comparisons=(), strongest=None, strongest_low=None)
    assert power_chart(sweep_with(made_sweep(), power=power)) is None


def test_one_share_has_no_hollow_marks() -> None:
    rows = tuple(row for row in made_power().rows if row.share == 1)
    found = known(power_chart(sweep_with(made_sweep(), power=made_power(rows=rows))))
    assert len(found.svg()) < 100_000
    assert not any("of them" in text for text in texts(found))


def test_what_a_training_was_given_is_in_the_command_though_a_new_lstm_has_it_anyway() -> None:
    said = sweep_command(_with_run(model="gpt2", training={"epochs": 20, "batch_size": 32}), "s")
    assert "--epochs 20" in said
    assert "--set batch_size=32" in said
