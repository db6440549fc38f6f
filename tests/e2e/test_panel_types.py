"""The types of the panel's pages are those of the API: generated from web/openapi.json, which the code writes."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parents[2] / "web"
GENERATOR = WEB / "node_modules/.bin/openapi-typescript"


def is_current(document):
    """The generated types are those of this document."""
    command = [GENERATOR, document, "-o", WEB / "src/api/schema.ts", "--check"]
    return subprocess.run(command, cwd=WEB, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.mark.skipif(not (shutil.which("node") and GENERATOR.exists()), reason="the panel's packages are not installed: scripts/panel")
def test_stale_types_are_found(tmp_path):
    assert is_current(WEB / "openapi.json"), "web/src/api/schema.ts is stale: run scripts/panel-api"
    document = json.loads((WEB / "openapi.json").read_text())
    fields = document["components"]["schemas"]["PoolCounts"]["properties"]
    fields["clients_queued"] = fields.pop("clients_waiting")
    (tmp_path / "changed.json").write_text(json.dumps(document))
    assert not is_current(tmp_path / "changed.json")
