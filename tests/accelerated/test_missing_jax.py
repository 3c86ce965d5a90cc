"""JAX is optional, provably: without it the engine says what to install and everything else works."""

import subprocess
import sys

import pytest

# Makes a module as absent as one that was never installed.
BLOCK = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
TRY = """
from tritgold.errors import MissingDependencyError
try:
    import tritgold_xla
except MissingDependencyError as error:
    print("refused:", error)
else:
    print("imported")
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize("names", [("jax", "jaxlib"), ("jaxlib",)])
def test_without_jax_the_engine_says_what_to_install(names):
    output, errors = run(BLOCK.format(names=names) + TRY)
    assert output.startswith("refused: jax: the XLA engine needs JAX"), errors
    assert output.endswith("pip install 'tritgold[xla]' [missing-dependency]")


def test_with_jax_the_same_program_imports_it():
    # Or the test above would prove nothing.
    assert run(BLOCK.format(names=("no_such_module",)) + TRY)[0] == "imported"


def test_another_missing_module_is_not_blamed_on_jax():
    output, errors = run(BLOCK.format(names=("jaxtyping",)) + TRY)
    assert "No module named 'jaxtyping'" in errors
    assert "refused" not in output


def test_the_reference_needs_no_jax():
    code = "import tritgold.model, tritgold.checkpoint, tritgold.golden; print('jax' in sys.modules)"
    assert run(BLOCK.format(names=("jax", "jaxlib")) + code)[0] == "False"
