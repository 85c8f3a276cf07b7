"""A load generator from the registry runs against the service, and nothing fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REQUESTS = 40


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_aiperf_runs_a_load(url, model, tmp_path, endpoint):
    aiperf = Path(sys.executable).with_name("aiperf")
    arguments = {
        "--model": model,
        "--url": url,
        "--endpoint-type": endpoint,
        "--tokenizer": "builtin",
        "--request-count": REQUESTS,
        "--concurrency": 4,
        "--isl": 32,
        "--osl": 16,
        "--ui": "none",
        "--artifact-dir": tmp_path,
    }
    flags = [str(part) for pair in arguments.items() for part in pair]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    done = subprocess.run(
        [aiperf, "profile", *flags, "--streaming", "--use-server-token-count"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = tmp_path.rglob("profile_export_aiperf.json")
    report = json.loads(report.read_text())
    assert report["request_count"]["avg"] == REQUESTS
    assert not report.get("error_summary")
    assert report["output_token_throughput"]["avg"] > 0
