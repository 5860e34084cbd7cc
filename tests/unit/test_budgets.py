"""The project is no larger than `budgets.toml` allows, and the count cannot be got round."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("budgets", ROOT / "scripts/budgets.py")
budgets = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(budgets)

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone: what belongs to it is not known")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one module, with a row for its folder."""
    monkeypatch.setattr(budgets, "ROOT", tmp_path)
    monkeypatch.setattr(budgets, "FILE", tmp_path / "budgets.toml")
    monkeypatch.setattr(budgets, "tracked", lambda: sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*.*")))
    (tmp_path / "code").mkdir()
    (tmp_path / "code/one.py").write_text('"""What it is."""\nA = "text"\n')
    (tmp_path / "budgets.toml").write_text('# kept\n"." = [0, 0, 0, 0, 0, 9]\n"code" = [2, 2, 7, 1, 4, 0]\n')
    return tmp_path


def complaints() -> list[str]:
    allowed = budgets.budgets()
    return [*budgets.complaints(allowed, budgets.standing(allowed)), *budgets.shapes()]


def test_the_project_keeps_its_budgets() -> None:
    wrong = complaints()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("code/one.py", '"""What it is."""\nA = "text"\n\n', "code: 3 lines, 1 more than 2"),
        ("code/one.py", '"""What it is."""\nA = "longer"\n', "code: 6 strings, 2 more than 4"),
        ("code/one.py", '"""What it is."""\nA = "tex" "t"; B = 1\n', "code: 3 statements, 1 more than 2"),
        ("code/one.c", "int x;\n", "code: 1 others, 1 more than 0"),
        ("code/inner/two.py", "", "code: 2 files, 1 more than 1"),
        ("new/one.py", "", "new/ has no row in budgets.toml"),
        ("code/one.py", "\n" * 901, "code/one.py has 901 lines, more than 900"),
        ("code/one.py", f"# {'x' * 99}\n#\n", "1 of 2 lines are over 100 wide, more than 7%"),
    ],
)
def test_what_grows_is_named(small: Path, name: str, text: str, said: str) -> None:
    assert not complaints()
    (small / name).parent.mkdir(exist_ok=True)
    (small / name).write_text(text)
    assert said in complaints()


def test_what_shrank_has_to_lower_its_budget(small: Path) -> None:
    grown = budgets.FILE.read_text().replace("[2, 2", "[500, 2")
    budgets.FILE.write_text(grown)
    assert complaints() == ["code: 2 lines, 498 below 500: `budgets.py --lower`"]
    allowed = budgets.budgets()
    budgets.FILE.write_text(budgets.lowered(allowed, budgets.standing(allowed)))
    assert budgets.FILE.read_text() == '# kept\n"." = [0, 0, 0, 0, 0, 3]\n"code" = [2, 2, 7, 1, 4, 0]\n'
    assert not complaints()
