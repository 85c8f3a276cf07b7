"""A load generator from the registry runs against the service, and nothing fails."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

REQUESTS = 40


@pytest.fixture
def tokenizer(tmp_path):
    """A tokenizer on disk, a token for each byte: the generator's own ones would be downloaded."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_ = Tokenizer(models.BPE(vocab={byte: id for id, byte in enumerate(alphabet)}, merges=[]))
    bytes_.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_.decoder = decoders.ByteLevel()
    folder = tmp_path / "tokenizer"
    PreTrainedTokenizerFast(tokenizer_object=bytes_).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_aiperf_runs_a_load(url, model, tokenizer, tmp_path, endpoint):
    aiperf = Path(sys.executable).with_name("aiperf")
    arguments = {
        "--model": model,
        "--url": url,
        "--endpoint-type": endpoint,
        "--tokenizer": tokenizer,
        "--request-count": REQUESTS,
        "--concurrency": 4,
        "--isl": 32,
        "--osl": 16,
        "--ui": "none",
        "--artifact-dir": tmp_path / "report",
    }
    flags = [str(part) for pair in arguments.items() for part in pair]
    done = subprocess.run(
        [aiperf, "profile", *flags, "--streaming", "--use-server-token-count"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = (tmp_path / "report").rglob("profile_export_aiperf.json")
    report = json.loads(report.read_text())
    assert report["request_count"]["avg"] == REQUESTS
    assert not report.get("error_summary")
    assert report["output_token_throughput"]["avg"] > 0
