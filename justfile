# Tests and all checks.
default: test lint types imports

python := ".venv/bin/python"

# Make .venv with the newest allowed versions.
setup:
    python3 -m venv .venv
    .venv/bin/pip install --quiet --upgrade pip
    .venv/bin/pip install --quiet --group dev --editable .

# Check what is committed, at each commit.
hooks:
    .venv/bin/pre-commit install

# Make .venv with exactly the versions of uv.lock.
pinned:
    uv venv --allow-existing .venv
    uv export --frozen --no-hashes --no-emit-project --group dev --quiet | uv pip install --python .venv --requirement -
    uv pip install --python .venv --no-deps --editable .

# Compile the engine again, into the checkout, after an edit of a .pxi or .pxd file.
build:
    {{python}} -m hatchling build --target wheel:editable --hooks-only
    {{python}} -c "from tracekit.replay.native import kernel; print(kernel().__file__)"

# Compile it with every index and sum checked, for tests; `just build` brings the fast engine back.
checked:
    TRACEKIT_BUILD=checked {{python}} -m hatchling build --target wheel:editable --hooks-only
    {{python}} -c "from tracekit.replay.native import kernel; assert kernel().CHECKED, 'there is no checked engine'"

# The first tier of the tests, or with arguments some of it: just test tests/report -x
test *arguments="-n auto":
    {{python}} -m pytest {{arguments}}

# Both tiers of one room: just room report
room name *arguments:
    {{python}} -m pytest tests/{{name}} -m "not (slow or services or spark)" {{arguments}}

# The second tier: laws over many random worlds, long simulations, corpora.
thorough *arguments="-n auto":
    {{python}} -m pytest -m thorough --hypothesis-profile=thorough {{arguments}}

# Both tiers of all rooms.
everything: test thorough

# Write the reviewed texts (tests/*/golden) again; read the diff.
update-golden *arguments:
    {{python}} -m pytest --update-golden -p no:randomly -m "not (slow or services or spark)" {{arguments}}

# Run a few hundred real jobs through a real Slurm, with a real Prometheus beside it; needs root and CONTRIBUTING's packages.
services *arguments:
    {{python}} -m pytest -m services tests/services {{arguments}}

# Ask every query of Spark too, in local mode; needs Java 17, and `.venv/bin/pip install -e .[spark]`.
spark *arguments:
    {{python}} -m pytest -m spark tests/spark {{arguments}}

lint:
    {{python}} -m ruff check .
    {{python}} -m ruff format --check .
    PATH=.venv/bin:$PATH cython-lint tracekit

format:
    {{python}} -m ruff check --fix .
    {{python}} -m ruff format .

types:
    {{python}} -m mypy

imports:
    {{python}} tools/check_imports.py

# Write the generated pages.
docs:
    {{python}} tools/reference.py
    {{python}} tools/report_schema.py
    {{python}} tools/score_classifier.py --docs

# Build the site into site/; no reference, link or page may be missing.
site:
    {{python}} -m mkdocs build --strict

# Write the sample traces again.
samples:
    {{python}} sample_traces/make.py

bench:
    {{python}} benchmarks/ingest.py
    {{python}} benchmarks/characterize.py
    {{python}} benchmarks/classify_logs.py
    {{python}} benchmarks/replay.py
    {{python}} benchmarks/fit.py

# Damage the sample traces in many ways and see that every reader stands it.
fuzz cases="20000" seed="1":
    {{python}} tools/fuzz.py --cases {{cases}} --seed {{seed}}

# Damage Traces in many ways and see that every command ends in an answer or one clear error.
damaged cases="500" seed="1":
    {{python}} tools/damaged.py --cases {{cases}} --seed {{seed}}

# Kill every command that writes at random times, and see that its outputs are complete or absent.
kills kills="70" seed="1":
    {{python}} tools/kills.py --kills {{kills}} --seed {{seed}}

# All tests, the nightly ones too, with all random cases, and the changes made on purpose.
nightly: && mutants
    TRACEKIT_LONG=1 {{python}} -m pytest -n auto -m "not (services or spark)" --hypothesis-profile=thorough

# Change the code on purpose, one place at a time, and see that tests notice; half an hour on two processors.
mutants *areas:
    {{python}} -m pip install --quiet --group mutants
    {{python}} tools/mutants.py {{areas}}

lock:
    {{python}} tools/lock.py

# The gate, or a part of it: just gate change, just gate release
gate *part:
    bash .ci/run {{part}}
